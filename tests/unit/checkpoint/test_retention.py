from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidemark.checkpoint.layout import JobLayout
from tidemark.checkpoint.messages import Discard, SavepointRequest
from tidemark.checkpoint.metadata import CheckpointMetadata, write_metadata
from tidemark.checkpoint.retention import (
    QUARANTINE_FILE,
    discard,
    discard_former_runs,
    discard_job,
    discard_spent,
    dispose_savepoint,
    mark_quarantined,
)
from tidemark.checkpoint.storage import MemoryStorage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import MetadataError, SavepointNotFoundError, StorageError
from tidemark.paths import join

LAYOUT = JobLayout("root", "ab" * 16)


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    for n in (1, 2):
        storage.write(join(LAYOUT.checkpoint(n).directory, "op", "part"), b"x")
        write_metadata(storage, LAYOUT.checkpoint(n).directory, CheckpointMetadata(n, 0, LAYOUT.job_id))
    for name in ("a", "b"):
        storage.write(join(LAYOUT.shared, name), b"x")
    return storage


def test_a_checkpoint_goes_with_its_shared_files(storage: MemoryStorage) -> None:
    discard(storage, LAYOUT, Discard(1, ("a",)))

    assert storage.list(LAYOUT.directory) == ["chk-2", "shared"]
    assert storage.list(LAYOUT.shared) == ["b"]


def test_shared_files_can_go_alone(storage: MemoryStorage) -> None:
    discard(storage, LAYOUT, Discard(None, ("a", "b")))

    assert storage.list(LAYOUT.directory) == ["chk-1", "chk-2"]


def test_an_aborted_savepoint_goes_from_its_own_place(storage: MemoryStorage) -> None:
    storage.write("savepoints/savepoint-1/op/part", b"x")

    discard(storage, LAYOUT, Discard(1, (), SavepointRequest("r", "savepoints/savepoint-1")))

    assert storage.list("savepoints") == []
    assert storage.list(LAYOUT.directory) == ["chk-1", "chk-2", "shared"]


def test_the_metadata_goes_first(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "delete_tree", crash)
    with pytest.raises(KeyboardInterrupt):
        discard(storage, LAYOUT, Discard(1))

    assert storage.list(LAYOUT.checkpoint(1).directory) == ["op"]


def test_a_failed_deletion_is_only_logged(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise StorageError(f"{path} is read-only.", path=path)

    monkeypatch.setattr(storage, "delete", refuse)
    monkeypatch.setattr(storage, "delete_tree", refuse)

    with caplog.at_level(logging.WARNING):
        discard(storage, LAYOUT, Discard(1))
        discard_job(storage, LAYOUT)

    assert caplog.text.count("read-only") == 2


def test_everything_of_a_job_goes(storage: MemoryStorage) -> None:
    discard_job(storage, LAYOUT)

    assert storage.list("root") == []


def test_what_a_crash_left_behind_goes(storage: MemoryStorage) -> None:
    storage.write(join(LAYOUT.checkpoint(3).directory, "op", "part"), b"half")

    assert discard_spent(storage, LAYOUT, lambda n: n == 3) == [LAYOUT.checkpoint(3).directory]
    assert storage.list(LAYOUT.directory) == ["chk-1", "chk-2", "shared"]


def test_only_directories_of_checkpoints_are_taken_for_leftovers(storage: MemoryStorage) -> None:
    for name in ("3", "chk-x", "chk-"):
        storage.write(join(LAYOUT.directory, name, "part"), b"not ours")

    assert discard_spent(storage, LAYOUT, lambda n: n not in (1, 2)) == []
    assert storage.list(LAYOUT.directory) == ["3", "chk-", "chk-1", "chk-2", "chk-x", "shared"]


def test_a_checkpoint_whose_metadata_cannot_be_seen_stays(storage: MemoryStorage) -> None:
    storage.delete(LAYOUT.checkpoint(2).metadata_path)

    assert discard_spent(storage, LAYOUT, lambda n: False) == []
    assert storage.list(LAYOUT.directory) == ["chk-1", "chk-2", "shared"]


def test_a_damaged_checkpoint_is_marked(storage: MemoryStorage) -> None:
    directory = LAYOUT.checkpoint(1).directory

    mark_quarantined(storage, directory, "bits flipped")

    assert storage.read(join(directory, QUARANTINE_FILE)) == b"bits flipped\n"


def test_a_savepoint_is_disposed_of_on_request(storage: MemoryStorage) -> None:
    write_metadata(storage, "/sp", CheckpointMetadata(1, 0, LAYOUT.job_id, is_savepoint=True))

    assert dispose_savepoint(storage, "/sp/_metadata") == "/sp"
    assert not storage.exists("/sp")
    with pytest.raises(SavepointNotFoundError):
        dispose_savepoint(storage, "/sp")


def test_a_directory_that_is_not_ours_is_not_disposed_of(storage: MemoryStorage) -> None:
    storage.write("/other/_metadata", b"something else entirely")

    with pytest.raises(MetadataError):
        dispose_savepoint(storage, "/other")

    assert storage.list("/other") == ["_metadata"]


def test_shared_files_that_nobody_needs_are_swept(storage: MemoryStorage) -> None:
    discard_spent(storage, LAYOUT, lambda _id: False, lambda name: name == "b")

    assert storage.list(LAYOUT.shared) == ["b"]


def test_former_drivers_of_a_job_leave_nothing_and_links_are_not_followed(tmp_path: Path) -> None:
    storage = FileSystemStorage()
    layouts = [JobLayout(str(tmp_path / "root"), LAYOUT.job_id, run) for run in ("1", "2", "3")]
    for layout in layouts:
        storage.write(join(layout.checkpoint(1).directory, "part"), b"x")

    discard_former_runs(storage, layouts[2])
    assert storage.list(layouts[2].of_all_runs) == ["3"]

    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    Path(layouts[2].of_all_runs, "4").symlink_to(tmp_path / "theirs")
    discard_former_runs(storage, layouts[2])
    assert (tmp_path / "theirs" / "file").exists()
    discard_former_runs(storage, layouts[2], all_runs=True)
    assert not Path(layouts[2].directory).exists()
    assert (tmp_path / "theirs" / "file").exists()


def test_the_last_run_of_a_job_that_goes_takes_the_directory_of_the_job_with_it(tmp_path: Path) -> None:
    storage = FileSystemStorage()
    layout = JobLayout(str(tmp_path / "root"), LAYOUT.job_id, "1")
    storage.write(join(layout.checkpoint(1).directory, "part"), b"x")

    discard_former_runs(storage, layout, all_runs=True)

    assert not Path(layout.of_all_runs).exists()


@pytest.mark.parametrize("all_runs", [False, True])
def test_what_a_former_driver_put_in_quarantine_stays_with_the_files_it_may_refer_to(
    storage: MemoryStorage, all_runs: bool
) -> None:
    former, current = (JobLayout("/checkpoints", "two-lives", run) for run in ("1", "2"))
    for layout in (former, current):
        for number in (1, 2):
            storage.write(join(layout.checkpoint(number).directory, "_metadata"), b"x")
        storage.write(join(layout.shared, "file"), b"x")
    mark_quarantined(storage, former.checkpoint(2).directory, "a flipped bit")

    discard_former_runs(storage, current, all_runs=all_runs)

    assert sorted(storage.list(former.directory)) == ["chk-2", "shared"]
    assert storage.is_file(join(former.checkpoint(2).directory, "_metadata"))
    assert storage.exists(current.directory) is not all_runs
