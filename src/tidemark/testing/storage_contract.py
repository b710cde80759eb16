"""What every checkpoint storage must do, as a test suite to subclass.

::

    class TestMyStorage(StorageContract):
        @pytest.fixture
        def storage(self): return MyStorage()

        @pytest.fixture
        def root(self): return "my://bucket/tests"
"""

from __future__ import annotations

import threading

import pytest

from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import StorageError, StorageVerdict
from tidemark.paths import join

__all__ = ["StorageContract"]


class StorageContract:
    """Subclasses provide the fixtures `storage` and `root` (an empty directory of it)."""

    def test_what_was_written_is_read_back(self, storage: Storage, root: str) -> None:
        """Also in directories nobody has created."""
        path = join(root, "a", "b", "file")

        storage.write(path, b"hello")

        assert storage.read(path) == b"hello"
        assert storage.size(path) == 5
        assert storage.exists(path)
        assert storage.is_file(path)

    def test_writing_again_replaces_the_whole_file(self, storage: Storage, root: str) -> None:
        """Nothing of a longer old content shines through."""
        path = join(root, "file")
        storage.write(path, b"a long first content")

        storage.write(path, b"short")

        assert storage.read(path) == b"short"

    def test_an_empty_file_is_a_file(self, storage: Storage, root: str) -> None:
        """No bytes are not the same as no file."""
        storage.write(join(root, "empty"), b"")

        assert storage.is_file(join(root, "empty"))
        assert storage.read(join(root, "empty")) == b""

    def test_a_stream_is_complete_after_its_block(self, storage: Storage, root: str) -> None:
        """Several writes make one file."""
        path = join(root, "deep", "stream")

        with storage.create(path) as file:
            for i in range(100):
                file.write(bytes([i]) * 1000)

        assert storage.read(path) == b"".join(bytes([i]) * 1000 for i in range(100))

    def test_a_stream_that_fails_leaves_nothing(self, storage: Storage, root: str) -> None:
        """Neither under its name nor under another one."""
        path = join(root, "dir", "stream")

        def write_half() -> None:
            with storage.create(path) as file:
                file.write(b"half")
                raise KeyError("the rows ran out")

        with pytest.raises(KeyError):
            write_half()

        assert not storage.exists(path)
        assert storage.list(join(root, "dir")) == []

    def test_a_reader_can_seek(self, storage: Storage, root: str) -> None:
        """Row groups are read from the middle."""
        path = join(root, "file")
        storage.write(path, bytes(range(256)))

        with storage.open(path) as file:
            file.seek(100)
            middle = file.read(3)
            end = file.seek(0, 2)

        assert middle == bytes([100, 101, 102])
        assert end == 256

    def test_list_names_files_and_directories_in_order(self, storage: Storage, root: str) -> None:
        """Only those directly inside."""
        for name in ("b/inner", "a", "c/d/e"):
            storage.write(join(root, name), b"x")

        assert storage.list(root) == ["a", "b", "c"]
        assert storage.list(join(root, "c")) == ["d"]

    def test_listing_what_is_not_there_is_empty(self, storage: Storage, root: str) -> None:
        """A job without checkpoints has none."""
        assert storage.list(join(root, "nowhere")) == []

    def test_a_directory_is_no_file(self, storage: Storage, root: str) -> None:
        """But it exists."""
        storage.write(join(root, "dir", "file"), b"x")

        assert storage.exists(join(root, "dir"))
        assert not storage.is_file(join(root, "dir"))

    def test_delete_removes_one_file_and_minds_no_missing_one(self, storage: Storage, root: str) -> None:
        """Deleting twice is deleting."""
        storage.write(join(root, "one"), b"1")
        storage.write(join(root, "two"), b"2")

        storage.delete(join(root, "one"))
        storage.delete(join(root, "one"))

        assert storage.list(root) == ["two"]

    def test_delete_tree_removes_all_below_and_nothing_beside(self, storage: Storage, root: str) -> None:
        """`chk-1` goes, `chk-11` stays."""
        for name in ("chk-1/_metadata", "chk-1/op/state/part", "chk-11/_metadata"):
            storage.write(join(root, name), b"x")

        storage.delete_tree(join(root, "chk-1"))
        storage.delete_tree(join(root, "chk-1"))

        assert storage.list(root) == ["chk-11"]
        assert storage.is_file(join(root, "chk-11", "_metadata"))

    @pytest.mark.parametrize("operation", ["read", "open", "size"])
    def test_a_missing_file_is_a_storage_error_that_names_it(
        self, storage: Storage, root: str, operation: str
    ) -> None:
        """Foreign errors do not leak."""
        path = join(root, "missing")

        with pytest.raises(StorageError, match="missing") as caught:
            getattr(storage, operation)(path)

        assert caught.value.path == path
        assert caught.value.verdict is StorageVerdict.MISSING

    def test_a_concurrent_reader_sees_old_or_new_but_never_half(self, storage: Storage, root: str) -> None:
        """`_metadata` is replaced in one step."""
        path = join(root, "file")
        contents = [bytes([i]) * 200_000 for i in (1, 2)]
        storage.write(path, contents[0])
        done = threading.Event()

        def write() -> None:
            for i in range(40):
                storage.write(path, contents[i % 2])
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen = {storage.read(path)}
        while not done.is_set():
            seen.add(storage.read(path))
        writer.join()

        assert seen <= set(contents)
