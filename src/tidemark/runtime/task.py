"""What a task does with its split, on Spark and in the local executor alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemark.plan.vertex import Vertex
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.runtime.engine import TaskInput
from tidemark.runtime.pipeline import Pipeline
from tidemark.runtime.records import Records
from tidemark.runtime.sources.readers import Aside
from tidemark.runtime.sources.shares import Reached, SplitShare, read_share
from tidemark.runtime.sources.splits import FileSplit, SlotSplit, read_split

__all__ = ["run_split"]


def run_split(pipeline: Pipeline, task: TaskInput) -> Iterator[tuple[str, bytes]]:
    """Push everything of a split through the pipeline; yields rows for the driver as they come up."""
    if isinstance(task.split, SlotSplit):
        pipeline.pull(task.source, task.split.slot)
        yield from pipeline.rows()
        return
    vertex = pipeline.plan.vertices[task.source]
    subtask = task.partition % vertex.parallelism
    by_column = pipeline.takes_columns(task.source)
    if isinstance(task.split, SplitShare):
        reached: dict[str, Reached] = {}
        for split_id, found in read_share(vertex, task.split, subtask, reached, by_column=by_column):
            if isinstance(found, Aside):
                pipeline.take_aside(task.source, found)
            else:
                pipeline.push_from((split_id,), task.source, found)
            yield from pipeline.rows()
        pipeline.report.position = reached
        return
    if isinstance(task.split, FileSplit):
        pipeline.report.split = task.split.path
    pieces = read_split(vertex.spec, task.split, vertex.output_type, subtask, by_column=by_column)
    for records, position in _named(pieces, vertex):
        pipeline.push(task.source, records)
        pipeline.report.position = position
        yield from pipeline.rows()


def _named(pieces: Iterator[tuple[Records, Any]], vertex: Vertex) -> Iterator[tuple[Records, Any]]:
    """The pieces of a source; what goes wrong while reading names the source."""
    while True:
        try:
            piece = next(pieces, None)
        except Exception as exc:
            raise OperatorFailed(FailureInfo.of(exc, vertex.name, vertex.uid)) from exc
        if piece is None:
            return
        yield piece
