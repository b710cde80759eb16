"""What somebody who may write in the checkpoint directory can redirect with links and directories: nothing."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tests.unit.checkpoint.tables import FakeKeyedCut, FakeTable, rows_in

from tidemark.checkpoint.inspection import verify
from tidemark.checkpoint.layout import JobLayout, SnapshotLocation
from tidemark.checkpoint.messages import Discard
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, read_metadata, write_metadata
from tidemark.checkpoint.retention import (
    discard,
    discard_job,
    discard_spent,
    dispose_savepoint,
    mark_quarantined,
)
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget, WriterOptions
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.errors import MetadataError, StorageError, StorageVerdict
from tidemark.state.snapshot import NativeCut, OperatorCut
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.state_processor.target import NewSavepoint

STRANGER = 65534
JOB = "ab" * 16
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to somebody else")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Somebody's directory outside of the checkpoint directory."""
    directory = tmp_path / "precious"
    directory.mkdir()
    for name in ("_metadata", "keys"):
        (directory / name).write_text("original")
    return directory


@pytest.fixture
def layout(tmp_path: Path) -> JobLayout:
    root = tmp_path / "checkpoints"
    (root / JOB).mkdir(parents=True)
    return JobLayout(str(root), JOB)


@pytest.fixture
def storage(layout: JobLayout) -> FileSystemStorage:
    return FileSystemStorage(roots=[layout.root])


def is_intact(precious: Path) -> bool:
    return {path.name: path.read_text() for path in precious.iterdir()} == {
        "_metadata": "original",
        "keys": "original",
    }


def write_snapshot(storage: FileSystemStorage, location: SnapshotLocation, scratch: Path) -> None:
    """A snapshot with a table, a private and a shared native file."""
    scratch.mkdir(exist_ok=True)
    for name in ("1.sst", "CURRENT"):
        (scratch / name).write_bytes(b"s" * 3000)
    files = {name: scratch / name for name in ("1.sst", "CURRENT")}
    native = NativeCut("rocksdb", files, frozenset({"1.sst"}))
    writer = SnapshotWriter(storage, WriterOptions(0))
    cuts = {
        "a": FakeKeyedCut([FakeTable(rows_in(range(128), 10))]),
        "b": FakeKeyedCut([FakeTable([], "x")], native),
    }
    operators = tuple(
        OperatorState(
            uid,
            uid,
            1,
            128,
            (writer.write_subtask(SubtaskTarget(4, location, uid, 0, (0, 127)), OperatorCut(cut)),),
        )
        for uid, cut in cuts.items()
    )
    write_metadata(storage, location.directory, CheckpointMetadata(4, 99, JOB, operators=operators))


@pytest.mark.parametrize("rooted", [True, False])
@pytest.mark.parametrize("linked", ["shared", "."])
def test_sweeping_stops_at_a_link(layout: JobLayout, precious: Path, linked: str, rooted: bool) -> None:
    storage = FileSystemStorage(roots=[layout.root] if rooted else [])
    job = Path(layout.directory)
    if linked == ".":
        job.rmdir()
        (precious / "shared").mkdir()
        (precious / "shared" / "more").write_text("original")
        job.symlink_to(precious)
        at = job
    else:
        at = job / linked
        at.symlink_to(precious)

    with pytest.raises(StorageError, match=f"{at} is a symbolic link") as caught:
        discard_spent(storage, layout, lambda _id: True, lambda _name: False)

    assert caught.value.verdict is not StorageVerdict.MISSING
    assert (precious / "keys").read_text() == "original"
    assert linked == "shared" or (precious / "shared" / "more").exists()


def test_a_checkpoint_that_became_a_link_is_not_deleted(
    layout: JobLayout, precious: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link = Path(layout.checkpoint(4).directory)
    link.symlink_to(precious)

    with caplog.at_level(logging.WARNING):
        discard(FileSystemStorage(), layout, Discard(4))

    assert is_intact(precious)
    assert f"{link} is a symbolic link" in caplog.text


def test_shared_files_are_not_deleted_behind_a_link(layout: JobLayout, precious: Path) -> None:
    Path(layout.shared).symlink_to(precious)

    discard(FileSystemStorage(), layout, Discard(None, ("keys",)))

    assert is_intact(precious)


def test_a_savepoint_that_became_a_link_is_not_disposed(tmp_path: Path, precious: Path) -> None:
    storage = FileSystemStorage()
    write_metadata(storage, str(precious), CheckpointMetadata(1, 0, JOB, is_savepoint=True))
    (tmp_path / "savepoint-1").symlink_to(precious)

    with pytest.raises(StorageError, match="savepoint-1 is a symbolic link"):
        dispose_savepoint(storage, str(tmp_path / "savepoint-1"))

    assert sorted(os.listdir(precious)) == ["_metadata", "keys"]


def test_a_tree_is_deleted_with_the_links_in_it_but_nothing_behind_them(
    layout: JobLayout, storage: FileSystemStorage, precious: Path
) -> None:
    storage.write(f"{layout.checkpoint(4).directory}/op/part", b"x")
    Path(layout.directory, "chk-4", "op", "away").symlink_to(precious)

    discard_job(storage, layout)

    assert not Path(layout.directory).exists()
    assert is_intact(precious)


def test_nothing_is_written_behind_a_link(
    layout: JobLayout, storage: FileSystemStorage, precious: Path, tmp_path: Path
) -> None:
    location = layout.checkpoint(4)
    Path(location.directory).symlink_to(precious)

    with pytest.raises(StorageError, match="chk-4 is a symbolic link"):
        write_metadata(storage, location.directory, CheckpointMetadata(4, 0, JOB))
    with pytest.raises(StorageError, match="chk-4 is a symbolic link"):
        write_snapshot(storage, location, tmp_path / "scratch")
    mark_quarantined(storage, location.directory, "damaged")

    assert is_intact(precious)


def test_a_savepoint_is_not_written_behind_a_link_wherever_it_goes(tmp_path: Path, precious: Path) -> None:
    location = SnapshotLocation(str(tmp_path / "savepoint-1"), str(tmp_path / "shared"))
    (tmp_path / "savepoint-1").symlink_to(precious)

    with pytest.raises(StorageError, match="savepoint-1 is a symbolic link"):
        write_snapshot(FileSystemStorage(), location, tmp_path / "scratch")

    assert is_intact(precious)


def test_the_directory_the_user_chose_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    layout = JobLayout(str(tmp_path / "link" / "checkpoints"), JOB)
    storage = FileSystemStorage(roots=[layout.root])
    write_snapshot(storage, layout.checkpoint(4), tmp_path / "scratch")

    assert verify(layout.checkpoint(4).directory, storage) == []
    discard(storage, layout, Discard(4))
    assert storage.list(layout.directory) == ["shared"]


def test_nothing_is_published_in_a_directory_that_was_moved_away(
    layout: JobLayout, storage: FileSystemStorage, tmp_path: Path
) -> None:
    with (
        pytest.raises(StorageError, match="does not exist"),
        storage.create(f"{layout.directory}/chk-4/part") as file,
    ):
        file.write(b"x")
        Path(layout.directory).rename(tmp_path / "moved")

    assert not (tmp_path / "moved" / "chk-4" / "part").exists()


@as_root
def test_a_directory_of_somebody_else_is_left_alone(layout: JobLayout, storage: FileSystemStorage) -> None:
    storage.write(f"{layout.shared}/a", b"x")
    storage.write(f"{layout.checkpoint(4).directory}/_metadata", b"x")
    os.chown(layout.directory, STRANGER, STRANGER)
    refused = f"{layout.directory} belongs to user {STRANGER}"

    with pytest.raises(StorageError, match=refused):
        discard_spent(storage, layout, lambda _id: True, lambda _name: False)
    with pytest.raises(StorageError, match=refused):
        storage.write(f"{layout.checkpoint(5).directory}/_metadata", b"x")
    discard(storage, layout, Discard(4, ("a",)))
    discard_job(storage, layout)

    assert storage.list(layout.directory) == ["chk-4", "shared"]
    assert storage.list(layout.shared) == ["a"]
    assert storage.list(layout.checkpoint(4).directory) == ["_metadata"]


@as_root
def test_a_umask_that_lets_the_group_write_means_that_several_users_share_it(layout: JobLayout) -> None:
    storage = FileSystemStorage(roots=[layout.root], umask=0o007)
    os.chown(layout.directory, STRANGER, STRANGER)

    storage.write(f"{layout.checkpoint(4).directory}/_metadata", b"x")
    discard(storage, layout, Discard(4))

    assert storage.list(layout.directory) == []


@as_root
def test_a_snapshot_of_somebody_else_can_be_read(layout: JobLayout, tmp_path: Path) -> None:
    location = layout.checkpoint(4)
    write_snapshot(FileSystemStorage(), location, tmp_path / "scratch")
    for directory, _, _ in os.walk(layout.root):
        os.chown(directory, STRANGER, STRANGER)

    assert verify(location.directory) == []


@pytest.mark.parametrize(
    ("inside", "problems"),
    [("a", 1), ("a/count", 1), ("b", 1), ("b/native-00000/CURRENT", 1), ("../shared", 1)],
)
def test_links_inside_a_snapshot_are_not_read(
    layout: JobLayout, tmp_path: Path, inside: str, problems: int
) -> None:
    location = layout.checkpoint(4)
    write_snapshot(FileSystemStorage(), location, tmp_path / "scratch")
    place = Path(os.path.normpath(f"{location.directory}/{inside}"))
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")

    found = verify(location.directory)

    assert len(found) == problems
    assert f"{place} is a symbolic link" in found[0]


def test_metadata_that_is_a_link_is_not_read(layout: JobLayout, precious: Path) -> None:
    directory = Path(layout.checkpoint(4).directory)
    directory.mkdir()
    (directory / "_metadata").symlink_to(precious / "_metadata")

    with pytest.raises(StorageError, match="_metadata is a symbolic link"):
        read_metadata(FileSystemStorage(), str(directory))


def test_metadata_of_an_absurd_size_is_refused_unread(layout: JobLayout) -> None:
    path = Path(layout.directory, "_metadata")
    path.touch()
    os.truncate(path, (1 << 30) + 1)

    with pytest.raises(MetadataError, match=r"1073741825 bytes.*1 GiB"):
        read_metadata(FileSystemStorage(), layout.directory)


def test_a_native_file_of_another_size_is_not_even_hashed(layout: JobLayout, tmp_path: Path) -> None:
    location = layout.checkpoint(4)
    write_snapshot(FileSystemStorage(), location, tmp_path / "scratch")
    (shared,) = Path(layout.shared).iterdir()
    os.truncate(shared, 1 << 32)

    (problem,) = verify(location.directory)

    assert f"{shared} has 4294967296 bytes instead of 3000" in problem


@pytest.mark.parametrize("linked", ["chk-4/a", "shared"])
def test_a_savepoint_made_from_another_copies_nothing_behind_links(
    layout: JobLayout, tmp_path: Path, linked: str
) -> None:
    location = layout.checkpoint(4)
    write_snapshot(FileSystemStorage(), location, tmp_path / "scratch")
    place = Path(layout.directory, linked)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    snapshot = OpenSnapshot.open(location.directory)

    with (
        pytest.raises(StorageError, match=f"{place} is a symbolic link"),
        NewSavepoint(str(tmp_path / "new")) as new,
    ):
        operators = tuple(new.carry(snapshot, operator) for operator in snapshot.metadata.operators)
        new.commit(CheckpointMetadata(4, 99, JOB, operators=operators))

    assert not (tmp_path / "new").exists()
