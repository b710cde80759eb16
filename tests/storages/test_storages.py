"""Checkpoint storage and claims in real servers of S3 and HDFS."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from tests.storages.conftest import Store

from tidemark import Configuration
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.config.file_systems import file_system_options
from tidemark.errors import ConfigError, StorageError, StorageVerdict
from tidemark.paths import use_file_systems
from tidemark.runtime.places import open_place
from tidemark.testing.storage_contract import StorageContract


class TestStores(StorageContract):
    @pytest.fixture
    def storage(self, store: Store) -> FileSystemStorage:
        return FileSystemStorage()

    @pytest.fixture
    def root(self, store: Store) -> str:
        return f"{store.new_root()}/checkpoints"


def test_a_large_file_is_there_only_when_it_is_whole(store: Store) -> None:
    root = store.new_root()
    storage = FileSystemStorage()
    part = bytes(range(256)) * (1 << 15)

    with storage.create(f"{root}/large") as file:
        for _ in range(9):
            file.write(part)
        assert store.objects(root) == {}

    assert store.objects(root) == {"large": part * 9}


@pytest.mark.parametrize("operation", ["write", "read", "list", "create"])
def test_a_server_that_comes_back_is_waited_for(store: Store, operation: str) -> None:
    root = store.new_root()
    storage = FileSystemStorage()
    storage.write(f"{root}/file", b"content")
    store.shut()

    def come_back() -> None:
        assert store.refused.wait(60)
        store.open()

    threading.Thread(target=come_back).start()
    if operation == "write":
        storage.write(f"{root}/other", b"new")
        assert store.objects(root)["other"] == b"new"
    elif operation == "create":
        with storage.create(f"{root}/other") as file:
            file.write(b"new")
        assert store.objects(root)["other"] == b"new"
    elif operation == "read":
        assert storage.read(f"{root}/file") == b"content"
    else:
        assert storage.list(root) == ["file"]
    assert store.refused.is_set()


def test_one_of_many_creates_a_file_exclusively(store: Store) -> None:
    root = store.new_root()
    open_place(root).make_private("claim")
    begin = threading.Barrier(8)
    won: list[int] = []

    def claim(who: int) -> None:
        place = open_place(root)
        begin.wait()
        with suppress(FileExistsError):
            place.create("claim/.generation-1", str(who).encode())
            won.append(who)

    threads = [threading.Thread(target=claim, args=(who,)) for who in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(won) == 1
    assert store.objects(root) == {"claim/.generation-1": str(won[0]).encode()}


def test_a_wrong_address_is_an_error_that_names_the_file_and_no_secret(s3: Store) -> None:
    wrong = {**s3.settings(), "s3.endpoint": "http://127.0.0.1:1"}
    options = file_system_options(Configuration.from_dict(wrong))
    options["s3"]["config_kwargs"]["retries"] = {"max_attempts": 1}
    use_file_systems(options)

    with pytest.raises(StorageError, match="s3://nowhere/file could not be read") as caught:
        FileSystemStorage().read("s3://nowhere/file")

    assert caught.value.verdict is StorageVerdict.TRANSIENT
    assert s3.settings()["s3.secret-key"] not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "missing"), [("s3.access-key", "s3.secret-key"), ("s3.secret-key", "s3.access-key")]
)
def test_half_a_pair_of_keys_is_refused(given: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{given} is set without {missing}"):
        file_system_options(Configuration.from_dict({given: "x"}))
