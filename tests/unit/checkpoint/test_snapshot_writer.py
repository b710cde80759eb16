from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest
from tests.unit.checkpoint.tables import FakeKeyedCut, FakeTable, rows_in, rows_of

from tidemark.checkpoint.layout import JobLayout, savepoint_location
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState
from tidemark.checkpoint.rescale import SubtaskRestore, plan_restore
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget, WriterOptions
from tidemark.checkpoint.storage import FileSystemStorage, MemoryStorage, Storage
from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import NativeCut, OperatorCut, OperatorStatePart, Redistribution
from tidemark.subtask.restored_state import load_restored_state

JOB = "ab" * 16
LAYOUT = JobLayout("root", JOB)


def target(
    checkpoint_id: int = 1, index: int = 0, groups: tuple[int, int] = (0, 127), base: int | None = None
):
    return SubtaskTarget(checkpoint_id, LAYOUT.checkpoint(checkpoint_id), "op", index, groups, base)


def snapshot(*subtasks: SubtaskState, max_parallelism: int = 128) -> tuple[OperatorState, CheckpointMetadata]:
    operator = OperatorState("op", "Op", len(subtasks), max_parallelism, subtasks)
    return operator, CheckpointMetadata(1, 0, JOB, operators=(operator,))


def native_cut(directory: Path, files: dict[str, bytes]) -> OperatorCut:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    paths = {name: directory / name for name in files}
    shared = frozenset(name for name in files if name.endswith(".sst"))
    return OperatorCut(FakeKeyedCut([FakeTable([])], NativeCut("rocksdb", paths, shared, b"extra")))


def in_memory(max_state_size: int = 10**9, frame_size: int = 10**9) -> WriterOptions:
    return WriterOptions.in_memory(max_state_size, frame_size)


def self_written(files: dict[str, bytes | None]) -> OperatorCut:
    """Shared files that the backend writes when it is asked to; None is one that its base has."""

    def write(data: bytes, sink: BinaryIO) -> None:
        sink.write(data)

    contents = {name: None if data is None else partial(write, data) for name, data in files.items()}
    return OperatorCut(FakeKeyedCut([], NativeCut("rocksdb", contents, frozenset(files), b"extra")))


def tables_of(plan: SubtaskRestore, storage: Storage, *, timers: bool = False) -> list[Any]:
    """The restored tables of keyed state, or of timers."""
    state = load_restored_state(plan, storage, Path("unused"))
    return [table for table in state.tables if (table[0].kind is StateKind.TIMER) == timers]


def test_a_savepoint_keeps_even_the_smallest_table_in_a_file_of_its_own(tmp_path: Path) -> None:
    storage = FileSystemStorage()
    place = savepoint_location(str(tmp_path / "savepoint"))
    for options in (WriterOptions(), in_memory()):
        cut = OperatorCut(FakeKeyedCut([FakeTable(rows_in(range(128), 2))]))

        written = SnapshotWriter(storage, options).write_subtask(
            SubtaskTarget(1, place, "op", 0, (0, 127)), cut
        )

        (table,) = written.tables
        assert table.inline is None
        assert table.path is not None
        assert pq.read_table(Path(place.directory) / table.path).num_rows == table.rows > 0


class RecordingBackend:
    """Stands for a backend: remembers what it was given."""

    def __init__(self) -> None:
        self.native: list[dict[str, bytes]] = []
        self.rows: list[tuple[int, int, int]] = []

    def restore_native(self, kind, files, extra, metas) -> None:
        assert (kind, extra) == ("rocksdb", b"extra")
        self.native.append({name: path.read_bytes() for name, path in files.items()})

    def restore_table(self, meta, batches) -> None:
        self.rows += rows_of(batches)


def test_all_state_of_a_subtask_is_written_and_the_cut_released() -> None:
    storage = MemoryStorage()
    rows = rows_in(range(128), 20)
    keyed = FakeKeyedCut([FakeTable(rows)])
    part = OperatorStatePart("list", Redistribution.SPLIT, (b"12", b"3"))
    cut = OperatorCut(keyed, [FakeTable(rows[:5], "user", StateKind.TIMER)], [part])

    started = time.perf_counter()
    state = SnapshotWriter(storage).write_subtask(target(), cut, sync_ms=4)

    assert 0 <= state.async_ms <= round((time.perf_counter() - started) * 1000)
    assert keyed.released == 1
    assert [table.meta.name for table in state.tables] == ["count", "user"]
    assert state.tables[0].path == "op/count/part-00000.parquet"
    assert state.tables[1].inline is not None
    assert state.operator == (part,)
    assert state.state_size == 16 * (len(rows) + 5) + 3
    assert state.written_size == sum(table.file_size for table in state.tables) + 3
    assert (state.index, state.key_groups, state.sync_ms) == (0, (0, 127), 4)
    assert storage.list(LAYOUT.checkpoint(1).directory) == ["op"]


def test_the_cut_is_released_when_writing_fails(tmp_path: Path) -> None:
    blocker = tmp_path / "root"
    blocker.write_text("a file where a directory is needed")
    keyed = FakeKeyedCut([FakeTable(rows_in(range(128), 20))])
    place = JobLayout(str(blocker), JOB).checkpoint(1)

    with pytest.raises(StorageError, match="chk-1/op/count"):
        SnapshotWriter(FileSystemStorage()).write_subtask(
            SubtaskTarget(1, place, "op", 0, (0, 127)), OperatorCut(keyed)
        )

    assert keyed.released == 1


def test_the_memory_variant_puts_everything_into_the_handles() -> None:
    storage = MemoryStorage()
    rows = rows_in(range(128), 100)

    state = SnapshotWriter(storage, in_memory()).write_subtask(
        target(), OperatorCut(FakeKeyedCut([FakeTable(rows)]))
    )

    assert storage.list("root") == []
    (plan,) = plan_restore(*snapshot(state), LAYOUT.checkpoint(1), 1)
    ((_meta, batches),) = tables_of(plan, MemoryStorage())
    assert rows_of(batches) == rows


@pytest.mark.parametrize("kind", ["keyed", "operator"])
def test_one_byte_above_the_limit_fails_and_says_how_much(kind: str) -> None:
    if kind == "keyed":
        cut = OperatorCut(FakeKeyedCut([FakeTable(rows_in(range(1), 10))]))
    else:
        cut = OperatorCut(operator=[OperatorStatePart("l", Redistribution.SPLIT, (b"x" * 100, b"y" * 60))])

    def write(limit: int) -> SubtaskState:
        return SnapshotWriter(MemoryStorage(), in_memory(limit)).write_subtask(target(), cut)

    assert write(160).state_size == 160
    with pytest.raises(
        CheckpointError, match=f"{kind} state .*160 bytes.*159 bytes.*file-based backend"
    ) as caught:
        write(159)
    assert caught.value.reason is FailureReason.SIZE_LIMIT
    assert caught.value.checkpoint_id == 1


def test_the_frame_size_is_a_ceiling_for_the_whole_subtask() -> None:
    cut = OperatorCut(
        FakeKeyedCut([FakeTable(rows_in(range(1), 10))]),
        operator=[OperatorStatePart("l", Redistribution.SPLIT, (b"x" * 40,))],
    )
    writer = SnapshotWriter(MemoryStorage(), in_memory(frame_size=199))

    with pytest.raises(CheckpointError, match=r"200 bytes.*199 bytes \(akka.framesize\)"):
        writer.write_subtask(target(), cut)


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, 5), (3, 3)])
def test_keyed_state_and_timers_move_by_key_group(old: int, new: int) -> None:
    from tidemark.state.key_groups import compute_key_group_range_for_operator_index as range_of

    storage = MemoryStorage()
    rows = rows_in(range(128), 30)
    subtasks = []
    for i in range(old):
        first, last = range_of(128, old, i)
        mine = [row for row in rows if first <= row[0] <= last]
        cut = OperatorCut(FakeKeyedCut([FakeTable(mine)]), [FakeTable(mine, "timers", StateKind.TIMER)])
        subtasks.append(SnapshotWriter(storage).write_subtask(target(1, i, (first, last)), cut))

    plans = plan_restore(*snapshot(*subtasks), LAYOUT.checkpoint(1), new)

    assert len(plans) == new
    for i, plan in enumerate(plans):
        first, last = range_of(128, new, i)
        wanted = [row for row in rows if first <= row[0] <= last]
        assert plan.key_groups == (first, last)
        assert [r for _, batches in tables_of(plan, storage) for r in rows_of(batches)] == wanted
        assert [r for _, batches in tables_of(plan, storage, timers=True) for r in rows_of(batches)] == wanted


def test_a_state_without_rows_is_not_forgotten() -> None:
    storage = MemoryStorage()
    state = SnapshotWriter(storage).write_subtask(target(), OperatorCut(FakeKeyedCut([FakeTable([])])))

    plans = plan_restore(*snapshot(state), LAYOUT.checkpoint(1), 2)

    assert [[meta.name for meta, _ in tables_of(plan, storage)] for plan in plans] == [["count"], ["count"]]


def test_shared_native_files_are_uploaded_once(tmp_path: Path) -> None:
    storage = MemoryStorage()
    writer = SnapshotWriter(storage)
    old = b"o" * 5000

    first = writer.write_subtask(target(1), native_cut(tmp_path, {"1.sst": old, "MANIFEST": b"m1"}))
    second = writer.write_subtask(
        target(2, base=1), native_cut(tmp_path, {"1.sst": old, "2.sst": b"n" * 100, "MANIFEST": b"m2"})
    )

    assert len(storage.list(LAYOUT.shared)) == 2
    assert first.written_size == 5002
    assert second.written_size == 102
    assert second.state_size == 5102
    assert set(first.shared_files()) < set(second.shared_files())
    (plan,) = plan_restore(*snapshot(second), LAYOUT.checkpoint(2), 1)
    backend = RecordingBackend()
    load_restored_state(plan, storage, tmp_path / "scratch").fill(backend)
    assert backend.native == [{"1.sst": old, "2.sst": b"n" * 100, "MANIFEST": b"m2"}]


def test_of_keyed_state_in_native_files_no_table_is_written_but_of_timers_one_is(tmp_path: Path) -> None:
    cut = native_cut(tmp_path, {"1.sst": b"x"})
    cut.timers = [FakeTable(rows_in(range(3), 1), "user", StateKind.TIMER)]

    state = SnapshotWriter(MemoryStorage()).write_subtask(target(), cut)

    assert [table.meta.name for table in state.tables] == ["user"]


def test_files_of_a_checkpoint_that_is_not_the_base_are_uploaded_again(tmp_path: Path) -> None:
    storage = MemoryStorage()
    writer = SnapshotWriter(storage)
    files = {"1.sst": b"x" * 2000}

    states = [writer.write_subtask(target(n), native_cut(tmp_path, files)) for n in (1, 2)]

    assert set(states[0].shared_files()).isdisjoint(states[1].shared_files())


def test_large_private_native_files_lie_in_the_checkpoint(tmp_path: Path) -> None:
    storage = MemoryStorage()

    state = SnapshotWriter(storage).write_subtask(target(), native_cut(tmp_path, {"MANIFEST": b"m" * 3000}))

    assert state.native is not None
    assert state.native.files[0].path == "op/native-00000/MANIFEST"
    assert storage.read(f"{LAYOUT.checkpoint(1).directory}/op/native-00000/MANIFEST") == b"m" * 3000


def test_files_a_backend_was_restored_from_are_recognised_by_content(tmp_path: Path) -> None:
    storage = MemoryStorage()
    first = SnapshotWriter(storage).write_subtask(
        target(1), native_cut(tmp_path / "a", {"7.sst": b"x" * 2000, "8.sst": b"y" * 2000})
    )
    assert first.native is not None
    fresh = SnapshotWriter(storage)
    fresh.seed("op", 0, 1, (first.native,))

    second = fresh.write_subtask(
        target(2, base=1), native_cut(tmp_path / "b", {"3.sst": b"y" * 2000, "4.sst": b"z" * 2000})
    )

    assert second.written_size == 2000
    assert len(storage.list(LAYOUT.shared)) == 3
    (plan,) = plan_restore(*snapshot(second), LAYOUT.checkpoint(2), 1)
    backend = RecordingBackend()
    load_restored_state(plan, storage, tmp_path / "scratch").fill(backend)
    assert backend.native == [{"3.sst": b"y" * 2000, "4.sst": b"z" * 2000}]


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_native_file_is_named(tmp_path: Path, damage: str) -> None:
    storage = MemoryStorage()
    state = SnapshotWriter(storage).write_subtask(target(), native_cut(tmp_path, {"1.sst": b"x" * 2000}))
    (name,) = state.shared_files()
    path = f"{LAYOUT.shared}/{name}"
    if damage == "delete":
        storage.delete(path)
    else:
        storage.write(path, b"y" + b"x" * 1999 if damage == "flip" else b"x" * 1999)
    (plan,) = plan_restore(*snapshot(state), LAYOUT.checkpoint(1), 1)

    with pytest.raises(StorageError, match=name):
        load_restored_state(plan, storage, tmp_path / "scratch").fill(RecordingBackend())


@pytest.fixture
def with_copies(tmp_path: Path):
    """A checkpoint of a table and a native file, written with local copies; durable files are then lost."""
    storage = FileSystemStorage()
    copies = LocalCopies(tmp_path / "local", JOB, 0)
    layout = JobLayout(str(tmp_path / "durable"), JOB)
    writer = SnapshotWriter(storage, local=copies)
    rows = rows_in(range(128), 20)
    place = SubtaskTarget(1, layout.checkpoint(1), "op", 0, (0, 127))
    table = writer.write_subtask(place, OperatorCut(FakeKeyedCut([FakeTable(rows)])))
    native = writer.write_subtask(place, native_cut(tmp_path / "db", {"1.sst": b"x" * 2000}))
    plans = [plan_restore(*snapshot(state), layout.checkpoint(1), 1)[0] for state in (table, native)]
    return storage, copies, plans, rows, tmp_path


def restore_all(with_copies, *, local: bool) -> RecordingBackend:
    storage, copies, plans, _, tmp_path = with_copies
    backend = RecordingBackend()
    for i, plan in enumerate(plans):
        load_restored_state(plan, storage, tmp_path / f"scratch{i}", copies if local else None).fill(backend)
    return backend


def test_local_copies_are_enough_to_restore(with_copies) -> None:
    shutil.rmtree(with_copies[4] / "durable")

    backend = restore_all(with_copies, local=True)

    assert backend.rows == with_copies[3]
    assert backend.native == [{"1.sst": b"x" * 2000}]


@pytest.mark.parametrize("local", [True, False])
def test_what_a_backend_writes_itself_is_restored_from_copies_if_there_are_any(tmp_path: Path, local: bool):
    storage = FileSystemStorage()
    copies = LocalCopies(tmp_path / "local", JOB, 0)
    layout = JobLayout(str(tmp_path / "durable"), JOB)
    writer = SnapshotWriter(storage, local=copies if local else None)

    def write(checkpoint_id: int, files: dict[str, bytes | None], base: int | None) -> SubtaskState:
        place = SubtaskTarget(checkpoint_id, layout.checkpoint(checkpoint_id), "op", 0, (0, 127), base)
        return writer.write_subtask(place, self_written(files))

    write(1, {"a": b"old" * 1000}, None)
    state = write(2, {"a": None, "b": b"new" * 1000}, 1)
    if local:
        shutil.rmtree(tmp_path / "durable")
        assert state.native is not None
        kept = {path.name for path in (copies.directory(2) / "native").iterdir()}
        assert kept == {file.checksum.hex() for file in state.native.files}, "and nothing twice"

    (plan,) = plan_restore(*snapshot(state), layout.checkpoint(2), 1)
    plan = replace(plan, checkpoint_id=2)
    backend = RecordingBackend()
    load_restored_state(plan, storage, tmp_path / "scratch", copies if local else None).fill(backend)
    assert backend.native == [{"a": b"old" * 1000, "b": b"new" * 1000}]


def test_damaged_local_copies_fall_back_to_the_durable_files(with_copies) -> None:
    for path in (with_copies[4] / "local").rglob("*"):
        if path.is_file():
            path.unlink()
            path.write_bytes(b"rubbish")

    backend = restore_all(with_copies, local=True)

    assert backend.rows == with_copies[3]
    assert backend.native == [{"1.sst": b"x" * 2000}]


def test_copies_go_when_a_newer_checkpoint_completes_or_theirs_is_aborted(with_copies) -> None:
    copies = with_copies[1]
    copies.completed(1)
    assert copies.directory(1).is_dir()

    copies.completed(2)

    assert not copies.directory(1).exists()
    copies.directory(3).mkdir(parents=True)
    copies.aborted(3)
    assert not copies.directory(3).exists()
    copies.close()
    copies.completed(4)
    [mine] = (with_copies[4] / "local").iterdir()
    assert list(mine.iterdir()) == []


def test_a_place_for_copies_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "local", JOB, 0)
    shutil.rmtree(tmp_path / "local")
    (tmp_path / "local").write_text("in the way")
    rows = rows_in(range(128), 20)
    storage = MemoryStorage()
    writer = SnapshotWriter(storage, local=copies)

    state = writer.write_subtask(target(), OperatorCut(FakeKeyedCut([FakeTable(rows)])))
    writer.write_subtask(target(2), native_cut(tmp_path / "db", {"1.sst": b"x" * 2000}))

    assert state.tables[0].rows == len(rows)
