"""Checkpoint storage and claims in a real S3 server."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from tests.s3.server import S3Server

from tidemark import Configuration
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.config.file_systems import file_system_options
from tidemark.errors import ConfigError, StorageError, StorageVerdict
from tidemark.paths import use_file_systems
from tidemark.runtime.places import open_place
from tidemark.testing.storage_contract import StorageContract


class TestS3(StorageContract):
    @pytest.fixture
    def storage(self, s3: S3Server) -> FileSystemStorage:
        return FileSystemStorage()

    @pytest.fixture
    def root(self, s3: S3Server) -> str:
        return f"{s3.new_bucket()}/checkpoints"


def test_a_large_file_goes_up_in_parts_and_is_there_only_when_it_is_whole(s3: S3Server) -> None:
    root = s3.new_bucket()
    storage = FileSystemStorage()
    part = bytes(range(256)) * (1 << 15)

    with storage.create(f"{root}/large") as file:
        for _ in range(9):
            file.write(part)
        assert s3.objects(root) == {}

    assert s3.objects(root) == {"large": part * 9}


@pytest.mark.parametrize("operation", ["write", "read", "list", "create"])
def test_a_server_that_comes_back_is_waited_for(s3: S3Server, operation: str) -> None:
    root = s3.new_bucket()
    storage = FileSystemStorage()
    storage.write(f"{root}/file", b"content")
    s3.shut()

    def come_back() -> None:
        assert s3.refused.wait(60)
        s3.open()

    threading.Thread(target=come_back).start()
    if operation == "write":
        storage.write(f"{root}/other", b"new")
        assert s3.objects(root)["other"] == b"new"
    elif operation == "create":
        with storage.create(f"{root}/other") as file:
            file.write(b"new")
        assert s3.objects(root)["other"] == b"new"
    elif operation == "read":
        assert storage.read(f"{root}/file") == b"content"
    else:
        assert storage.list(root) == ["file"]
    assert s3.refused.is_set()


def test_one_of_many_creates_a_file_exclusively(s3: S3Server) -> None:
    root = s3.new_bucket()
    begin = threading.Barrier(8)
    won: list[int] = []

    def claim(who: int) -> None:
        place = open_place(root)
        begin.wait()
        with suppress(FileExistsError):
            place.create(".generation-1", str(who).encode())
            won.append(who)

    threads = [threading.Thread(target=claim, args=(who,)) for who in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(won) == 1
    assert s3.objects(root) == {".generation-1": str(won[0]).encode()}


def test_a_wrong_address_is_an_error_that_names_the_file_and_no_secret(s3: S3Server) -> None:
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
