"""Builds the task side and the driver side of a sink from its spec."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tidemark.api.graph import SinkSpec
from tidemark.runtime.pipeline import EpochDirective, TaskSink
from tidemark.runtime.plan import JobPlan
from tidemark.runtime.sinks.driver import CollectSink, DriverSink, FilesSink, PrintSink
from tidemark.runtime.sinks.files import FileTaskSink
from tidemark.runtime.sinks.frames import ForeachBatchSink, SparkWriterSink, frame_serializer
from tidemark.runtime.sinks.task import CollectTaskSink, DataFrameTaskSink, PrintTaskSink
from tidemark.slot.vertex import Vertex
from tidemark.types.text import text_of

__all__ = ["make_driver_sink", "make_task_sink", "wants_frame"]


def wants_frame(spec: SinkSpec) -> bool:
    """Whether a sink gets its epoch as a Spark DataFrame."""
    return spec.kind in ("foreach_batch", "spark_writer")


def make_task_sink(plan: JobPlan, directive: EpochDirective) -> Callable[[Vertex, int], TaskSink]:
    """Factory of the task side of sinks, for one epoch."""

    def make(vertex: Vertex, partition: int) -> TaskSink:
        spec: SinkSpec = vertex.spec
        if spec.kind == "print":
            return PrintTaskSink(vertex, partition)
        if spec.kind == "collect":
            return CollectTaskSink(vertex)
        if spec.kind == "files":
            unique = f"{partition}-{plan.job_id[:12]}-{directive.attempt}-{directive.epoch}"
            return _file_sink(vertex, unique)
        return DataFrameTaskSink(vertex, frame_serializer(vertex))

    return make


def make_driver_sink(vertex: Vertex, job_id: str) -> DriverSink:
    """Driver side of a sink."""
    spec: SinkSpec = vertex.spec
    if spec.kind == "print":
        return PrintSink(vertex)
    if spec.kind == "collect":
        return CollectSink(vertex)
    if spec.kind == "files":
        return FilesSink(vertex, spec.options["sink"].base_path, job_id)
    if spec.kind == "foreach_batch":
        return ForeachBatchSink(vertex)
    return SparkWriterSink(vertex)


def _file_sink(vertex: Vertex, unique: str) -> FileTaskSink:
    sink = vertex.spec.options["sink"]
    kind = vertex.input_types[0]

    def encode(value: Any) -> bytes:
        return (text_of(value, kind) + "\n").encode(sink.encoder.charset)

    return FileTaskSink(
        sink.base_path,
        encode,
        _bucketing(sink),
        sink.output_file_config.part_prefix,
        sink.output_file_config.part_suffix,
        sink.rolling_policy.part_size,
        unique,
        vertex.id,
    )


def _bucketing(sink: Any) -> Callable[[Any, int | None, int], str]:
    assigner = sink.bucket_assigner
    if assigner is None:
        return hourly_bucket
    return assigner.get_bucket_id  # type: ignore[no-any-return]


def hourly_bucket(_value: Any, _timestamp: int | None, now: int) -> str:
    """The default bucket: the hour of processing, `yyyy-MM-dd--HH`."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d--%H")
