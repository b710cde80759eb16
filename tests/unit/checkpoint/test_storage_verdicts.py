"""What a storage error says about the bytes: nothing there, damaged, or not reached."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tidemark.checkpoint.metadata import CheckpointMetadata, encode, read_metadata
from tidemark.checkpoint.storage import FileSystemStorage, MemoryStorage, Storage
from tidemark.checkpoint.storage.mapping import MappedStorage
from tidemark.errors import ExecutionError, SavepointNotFoundError, StorageError, StorageVerdict
from tidemark.protocol.failure import is_curable

OPERATIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("write", ("/x", b"")),
    ("read", ("/x",)),
    ("open", ("/x",)),
    ("exists", ("/x",)),
    ("is_file", ("/x",)),
    ("list", ("/x",)),
    ("size", ("/x",)),
    ("delete", ("/x",)),
    ("delete_tree", ("/x",)),
]


class Raises:
    """A user's storage whose every operation raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*_arguments: Any) -> Any:
            raise self._error

        return fail


class HttpError(Exception):
    """What a driver raises that knows nothing of OSError."""


@pytest.mark.parametrize(
    "error", [TimeoutError("slow"), ConnectionResetError(), PermissionError(), HttpError("503")]
)
@pytest.mark.parametrize(("operation", "arguments"), OPERATIONS)
def test_a_users_storage_that_cannot_be_reached_is_transient(
    operation: str, arguments: tuple[Any, ...], error: Exception
) -> None:
    storage = MappedStorage(Raises(error))  # type: ignore[arg-type]

    with pytest.raises(StorageError, match="/x") as caught:
        getattr(storage, operation)(*arguments)

    assert caught.value.verdict is StorageVerdict.TRANSIENT
    assert caught.value.__cause__ is error
    assert is_curable(caught.value)


def test_creating_a_file_in_a_users_storage_is_mapped_but_errors_of_the_writer_pass() -> None:
    with pytest.raises(StorageError), MappedStorage(Raises(OSError(5, "no"))).create("/x"):  # type: ignore[arg-type]
        pass
    with pytest.raises(ZeroDivisionError), MappedStorage(MemoryStorage()).create("/x"):
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [FileNotFoundError(), IsADirectoryError(), NotADirectoryError()])
def test_a_users_storage_without_the_file_says_so(error: Exception) -> None:
    with pytest.raises(StorageError) as caught:
        MappedStorage(Raises(error)).read("/x")  # type: ignore[arg-type]

    assert caught.value.verdict is StorageVerdict.MISSING


def test_a_users_storage_keeps_its_own_verdict() -> None:
    error = StorageError("checksum", verdict=StorageVerdict.DAMAGED)

    with pytest.raises(StorageError) as caught:
        MappedStorage(Raises(error)).read("/x")  # type: ignore[arg-type]

    assert caught.value is error


@pytest.mark.parametrize("make", [FileSystemStorage, MemoryStorage, lambda: MappedStorage(MemoryStorage())])
def test_a_mapped_storage_is_a_storage_and_misses_what_is_not_there(tmp_path: Path, make: Any) -> None:
    storage: Storage = make()
    path = f"{tmp_path}/a/b"
    storage.write(path, b"x")

    assert storage.list(str(tmp_path)) == ["a"]
    assert (storage.exists(path), storage.is_file(path), storage.size(path)) == (True, True, 1)
    storage.delete_tree(str(tmp_path / "a"))
    assert not storage.exists(path)
    with pytest.raises(StorageError) as caught:
        storage.read(path)
    assert caught.value.verdict is StorageVerdict.MISSING


def test_an_io_error_is_not_taken_for_a_missing_file(tmp_path: Path) -> None:
    # A name that is too long fails like a broken disk does: with an error that is no "not found".
    path = str(tmp_path / ("x" * 300))

    for operation in (FileSystemStorage().exists, FileSystemStorage().is_file):
        with pytest.raises(StorageError) as caught:
            operation(path)
        assert caught.value.verdict is StorageVerdict.TRANSIENT


@pytest.mark.parametrize("operation", ["read", "open"])
def test_a_pipe_in_place_of_a_file_is_no_file_and_nobody_waits_for_it(tmp_path: Path, operation: str) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StorageError, match="no file") as caught:
        getattr(FileSystemStorage(), operation)(str(tmp_path / "pipe"))

    assert caught.value.verdict is StorageVerdict.MISSING


def test_metadata_that_cannot_be_read_just_now_is_not_a_missing_checkpoint(tmp_path: Path) -> None:
    class Faulty(FileSystemStorage):
        def read(self, path: str) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "_metadata").write_bytes(b"")

    with pytest.raises(StorageError, match="Input/output error") as caught:
        read_metadata(MappedStorage(Faulty()), str(tmp_path))

    assert caught.value.verdict is StorageVerdict.TRANSIENT
    (tmp_path / "_metadata").unlink()
    with pytest.raises(SavepointNotFoundError):
        read_metadata(FileSystemStorage(), str(tmp_path))
    (tmp_path / "_metadata").write_bytes(encode(CheckpointMetadata(1, 0, "job")))
    assert read_metadata(FileSystemStorage(), str(tmp_path)).checkpoint_id == 1


def test_a_link_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(encode(CheckpointMetadata(1, 0, "job")))
    (tmp_path / "_metadata").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="symbolic link") as caught:
        read_metadata(FileSystemStorage(), str(tmp_path))

    assert caught.value.verdict is StorageVerdict.UNUSABLE
    assert not is_curable(ExecutionError.from_cause("Job failed", caught.value))


def test_a_place_without_a_driver_is_never_reached_by_trying_again() -> None:
    with pytest.raises(StorageError) as caught:
        FileSystemStorage().read("nosuchscheme://host/x")

    assert caught.value.verdict is StorageVerdict.UNUSABLE
    assert not is_curable(ExecutionError.from_cause("Job failed", caught.value))
