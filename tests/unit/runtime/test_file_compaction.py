"""Files that wait to be merged: across drivers, cancellations and lost files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.api.connectors.compaction import FileCompactor, FileCompactStrategy
from tidemark.api.connectors.file_system import OutputFileConfig, RollingPolicy
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.errors import RestoreError
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.compaction import Compaction
from tidemark.runtime.sinks.file_driver import FilesSink
from tidemark.runtime.sinks.file_task import FileTaskSink, LineWriter


def new_sink(base: Path, job: str, restored: CheckpointMetadata | None = None, every: int = 3) -> FilesSink:
    strategy = FileCompactStrategy(num_checkpoints_before_compaction=every)
    compactor = FileCompactor.concat_file_compactor()
    compaction = Compaction(strategy, compactor, None, OutputFileConfig("p", ".txt")) if every else None
    vertex: Any = SimpleNamespace(id=3, uid="out")
    sink = FilesSink(vertex, str(base), job, compaction)
    sink.claim("first", restored)
    return sink


def take(sink: FilesSink, base: Path, text: str) -> None:
    assert sink.staging is not None
    task = FileTaskSink(
        str(base),
        sink.staging,
        partial(LineWriter, str.encode),
        lambda _v, _n: "",
        "p",
        ".txt",
        RollingPolicy(1),
        "u",
        3,
        check_every_ms=60_000,
    )
    task.write(Records([text]))
    report = TaskReport(0, 0)
    task.close(report)
    sink.take([], report.staged[3], 0)


def checkpointed(sink: FilesSink, base: Path, number: int, text: str) -> bytes:
    take(sink, base, text)
    prepared = sink.prepare(number)
    sink.commit(number)
    return prepared


def snapshot(job: str, number: int, prepared: bytes) -> CheckpointMetadata:
    return CheckpointMetadata(number, 0, job, lineage="first", sink_commits={"out": prepared})


def visible(base: Path) -> list[str]:
    files = [path for path in base.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(path.read_text() for path in files)


def waiting(base: Path) -> list[Path]:
    return sorted(base.rglob("*.inprogress"))


def restored_sink(base: Path, every: int = 3) -> FilesSink:
    """A driver that goes on from what another one, which was cancelled, had staged for its second checkpoint."""
    first = new_sink(base, "one")
    first.restore(None, b"")
    checkpointed(first, base, 1, "a")
    prepared = checkpointed(first, base, 2, "b")
    take(first, base, "never covered")
    first.close(restorable=True)
    assert visible(base) == []
    metadata = snapshot("one", 2, prepared)
    second = new_sink(base, "two", metadata, every)
    second.restore(2, prepared)
    return second


def test_the_next_driver_merges_what_waits_with_what_it_writes(tmp_path: Path) -> None:
    sink = restored_sink(tmp_path)
    assert len(waiting(tmp_path)) == 2

    for number, text in enumerate(["c", "d", "e"], start=3):
        checkpointed(sink, tmp_path, number, text)

    assert visible(tmp_path) == ["abcde"]
    assert waiting(tmp_path) == []


def test_a_driver_that_does_not_merge_publishes_what_waits(tmp_path: Path) -> None:
    sink = restored_sink(tmp_path, every=0)

    checkpointed(sink, tmp_path, 3, "c")

    assert visible(tmp_path) == ["a", "b", "c"]


def test_merged_files_stay_until_the_checkpoint_that_lists_the_result_is_complete(tmp_path: Path) -> None:
    sink = restored_sink(tmp_path)
    checkpointed(sink, tmp_path, 3, "c")
    take(sink, tmp_path, "d")
    prepared = sink.prepare(4)
    take(sink, tmp_path, "e")
    sink.prepare(5)
    sink.commit(4)
    assert visible(tmp_path) == []

    # Checkpoint 5 was never complete: the next driver finds checkpoint 4 as it was.
    third = new_sink(tmp_path, "three", snapshot("two", 4, prepared))
    third.restore(4, prepared)
    third.finish()

    assert visible(tmp_path) == ["a", "b", "c", "d"]


def test_what_waits_at_a_complete_checkpoint_is_published_when_nobody_will_come_back(tmp_path: Path) -> None:
    sink = new_sink(tmp_path, "one")
    sink.restore(None, b"")
    checkpointed(sink, tmp_path, 1, "a")
    take(sink, tmp_path, "b")
    sink.prepare(2)

    sink.conclude()
    sink.close(restorable=False)

    assert visible(tmp_path) == ["a"]
    assert waiting(tmp_path) == []


def test_a_waiting_file_that_is_lost_fails_the_restore(tmp_path: Path) -> None:
    first = new_sink(tmp_path, "one")
    first.restore(None, b"")
    prepared = checkpointed(first, tmp_path, 1, "a")
    first.close(restorable=True)
    waiting(tmp_path)[0].unlink()

    second = new_sink(tmp_path, "two", snapshot("one", 1, prepared))
    with pytest.raises(RestoreError, match="neither staged"):
        second.restore(1, prepared)


def test_files_published_at_the_end_are_known_to_a_job_that_starts_from_the_savepoint(tmp_path: Path) -> None:
    first = new_sink(tmp_path, "one")
    first.restore(None, b"")
    prepared = checkpointed(first, tmp_path, 1, "a")
    first.finish()
    first.close(restorable=True)
    assert visible(tmp_path) == ["a"]
    for path in tmp_path.glob("p-*"):
        path.unlink()  # a reader has fetched it

    for job in ("two", "three"):
        later = new_sink(tmp_path, job, snapshot("one", 1, prepared))
        later.restore(1, prepared)
    later.finish()

    assert visible(tmp_path) == []


def test_a_sink_that_merges_cannot_take_back_what_it_published(tmp_path: Path) -> None:
    sink = restored_sink(tmp_path)

    assert not sink.withdraw(b"")
