"""What sinks can take back when a job goes behind their visible output."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.runtime.sinks.driver import CollectSink, FilesSink, PrintSink
from tidemark.runtime.sinks.files import StagedFile
from tidemark.runtime.sinks.frames import ForeachBatchSink


def vertex(**options: Any) -> Any:
    return SimpleNamespace(id=1, name="sink", uid="sink", spec=SimpleNamespace(options=options))


@pytest.fixture
def sink(tmp_path: Path) -> FilesSink:
    return FilesSink(vertex(), str(tmp_path), "ab" * 16)


def staged(directory: Path, name: str) -> StagedFile:
    path = directory / f".{name}.inprogress"
    path.write_bytes(b"x")
    return StagedFile(str(path), str(directory / name), 1, 1, "")


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_published_and_staged_files_are_taken_back_once_or_twice(tmp_path: Path, sink: FilesSink) -> None:
    sink.take([], [staged(tmp_path, "a")], 0)
    first = sink.prepare(1)
    sink.commit(1)
    sink.take([], [staged(tmp_path, "b")], 1)
    second = sink.prepare(2)
    assert visible(tmp_path) == [".b.inprogress", "a"]

    for _again in range(2):
        assert sink.withdraw(second, b"")
        assert visible(tmp_path) == ["a"]
    assert sink.withdraw(first, b"")
    assert visible(tmp_path) == []


def test_files_that_the_restored_checkpoint_covers_too_stay(tmp_path: Path, sink: FilesSink) -> None:
    # Two checkpoints in the making at once: the second covers what the first has not committed yet.
    sink.take([], [staged(tmp_path, "a")], 0)
    first = sink.prepare(1)
    sink.take([], [staged(tmp_path, "b")], 1)
    second = sink.prepare(2)
    sink.commit(2)
    assert visible(tmp_path) == ["a", "b"]

    assert sink.withdraw(second, first)

    assert visible(tmp_path) == ["a"]


def test_only_file_sinks_take_output_back(sink: FilesSink) -> None:
    collect = CollectSink(vertex(buffer=None))

    assert (sink.publishes, sink.withdraw(b"", b"")) == (True, True)
    assert (collect.publishes, collect.withdraw(b"", b"")) == (True, False)
    for other in (PrintSink(vertex()), ForeachBatchSink(vertex())):
        assert (other.publishes, other.withdraw(b"", b"")) == (False, False)
