"""What a task does with its split, on Spark and in the local executor alike."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.runtime.engine import TaskInput
from tidemark.runtime.pipeline import Pipeline
from tidemark.runtime.sources.splits import SlotSplit, read_split

__all__ = ["run_split"]


def run_split(pipeline: Pipeline, task: TaskInput) -> Iterator[tuple[str, bytes]]:
    """Push everything of a split through the pipeline; yields rows for the driver as they come up."""
    if isinstance(task.split, SlotSplit):
        pipeline.pull(task.source, task.split.slot)
        yield from pipeline.rows()
        return
    vertex = pipeline.plan.vertices[task.source]
    subtask = task.partition % vertex.parallelism
    for records, position in read_split(vertex.spec, task.split, vertex.output_type, subtask):
        pipeline.push(task.source, records)
        pipeline.report.position = position
        yield from pipeline.rows()
