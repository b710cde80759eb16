from __future__ import annotations

from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.layout import JobLayout
from tidemark.checkpoint.metadata import FileHandle, NativeHandle, SubtaskState, TableHandle
from tidemark.checkpoint.presence import has_vanished, holds_checkpoints, holds_metadata, missing_files
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import StateMeta

LAYOUT = JobLayout.create("/root", "a" * 32)
META = StateMeta("count", StateKind.VALUE, b"", b"")


class Counting(MemoryStorage):
    """Counts listings."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []

    def list(self, path: str) -> list[str]:
        self.listed.append(path)
        return super().list(path)


def subtask(index: int) -> SubtaskState:
    native = NativeHandle(
        "rocksdb",
        (
            FileHandle("1.sst", 1, b"", f"x-{index}.sst", True),
            FileHandle("MANIFEST", 1, b"", f"op/native-{index}/MANIFEST"),
            FileHandle("CURRENT", 1, b"", inline=b"x"),
        ),
        (),
    )
    return SubtaskState(index, tables=(TableHandle(META, 1, path=f"op/count/part-{index}"),), native=native)


def filled(*skipped: str) -> Counting:
    storage = Counting()
    location = LAYOUT.checkpoint(7)
    for index in range(3):
        for path in (
            f"{location.shared}/x-{index}.sst",
            f"{location.directory}/op/native-{index}/MANIFEST",
            f"{location.directory}/op/count/part-{index}",
        ):
            if not path.endswith(skipped):
                storage.write(path, b"x")
    return storage


def test_nothing_is_missing_and_each_directory_is_listed_once() -> None:
    storage = filled("none")

    assert missing_files(storage, LAYOUT.checkpoint(7), [subtask(index) for index in range(3)]) == []
    assert len(storage.listed) == len(set(storage.listed)) == 5


def test_missing_tables_private_and_shared_files_are_named() -> None:
    storage = filled("x-1.sst", "native-2/MANIFEST", "part-0")

    found = missing_files(storage, LAYOUT.checkpoint(7), [subtask(index) for index in range(3)])

    assert [path.rpartition("/")[2] for path in found] == ["part-0", "MANIFEST", "x-1.sst"]


def test_a_checkpoint_has_vanished_without_its_metadata_or_a_shared_file() -> None:
    location = LAYOUT.checkpoint(7)
    snapshot = CompletedSnapshot(
        7, location.directory, Origin.CHECKPOINT, 0, frozenset({"x-0.sst", "x-1.sst"})
    )
    storage = filled("none")

    assert has_vanished(storage, storage, snapshot, LAYOUT.shared)
    storage.write(location.metadata_path, b"x")
    assert not has_vanished(storage, storage, snapshot, LAYOUT.shared)
    storage.delete(f"{LAYOUT.shared}/x-1.sst")
    assert has_vanished(storage, storage, snapshot, LAYOUT.shared)


def test_whether_somebody_could_start_from_what_a_job_left() -> None:
    storage, location = MemoryStorage(), LAYOUT.checkpoint(7)
    storage.write(f"{location.directory}/op/count/part-0", b"x")
    storage.write(f"{LAYOUT.directory}/elsewhere/_metadata", b"x")
    assert not holds_checkpoints(storage, LAYOUT)
    assert not holds_metadata(storage, location.directory)

    storage.write(location.metadata_path, b"x")
    assert holds_checkpoints(storage, LAYOUT)
    assert holds_metadata(storage, location.directory)
