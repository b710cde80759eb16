"""Builds the task side and the driver side of a sink from its spec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemark.api.connectors.file_system import FileSink
from tidemark.api.specs import (
    CollectSinkSpec,
    FileSinkSpec,
    ForeachBatchSinkSpec,
    PrintSinkSpec,
    SinkSpec,
    SparkWriterSinkSpec,
)
from tidemark.formats.files import BinaryOutput, BulkWriter
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import EpochDirective
from tidemark.runtime.pipeline import TaskSink
from tidemark.runtime.sinks.compaction import Compaction
from tidemark.runtime.sinks.dataframes import ForeachBatchSink, SparkWriterSink
from tidemark.runtime.sinks.driver import CollectSink, DriverSink, PrintSink
from tidemark.runtime.sinks.file_driver import FilesSink
from tidemark.runtime.sinks.file_task import FileTaskSink, LineWriter, staging_token
from tidemark.runtime.sinks.task import CollectTaskSink, DataFrameTaskSink, PrintTaskSink
from tidemark.types.typeinfo import TypeInformation

__all__ = ["make_driver_sink", "make_task_sink", "wants_frame"]


def wants_frame(spec: SinkSpec) -> bool:
    """Whether a sink gets its epoch as a Spark DataFrame."""
    return isinstance(spec, ForeachBatchSinkSpec | SparkWriterSinkSpec)


def make_task_sink(plan: JobPlan, directive: EpochDirective) -> Callable[[Vertex, int], TaskSink]:
    """Factory of the task side of sinks, for one epoch."""

    def make(vertex: Vertex, partition: int) -> TaskSink:
        match vertex.spec:
            case PrintSinkSpec():
                return PrintTaskSink(vertex, partition)
            case CollectSinkSpec():
                return CollectTaskSink(vertex)
            case FileSinkSpec():
                token = staging_token(plan.job_id, vertex.id)
                unique = f"{partition}-{token}-{directive.attempt}-{directive.epoch}"
                return _file_sink(vertex, directive.staging[vertex.id], unique)
            case ForeachBatchSinkSpec() | SparkWriterSinkSpec():
                return DataFrameTaskSink(vertex)
        raise AssertionError(f"no task side for {type(vertex.spec).__name__}")

    return make


def make_driver_sink(vertex: Vertex, job_id: str) -> DriverSink:
    """Driver side of a sink."""
    match vertex.spec:
        case PrintSinkSpec():
            return PrintSink(vertex)
        case CollectSinkSpec():
            return CollectSink(vertex)
        case FileSinkSpec(sink=sink):
            return FilesSink(vertex, sink.base_path, job_id, Compaction.of(sink))
        case ForeachBatchSinkSpec():
            return ForeachBatchSink(vertex)
        case SparkWriterSinkSpec():
            return SparkWriterSink(vertex)
    raise AssertionError(f"no driver side for {type(vertex.spec).__name__}")


def _file_sink(vertex: Vertex, staging: str, unique: str) -> FileTaskSink:
    sink = vertex.spec.sink
    return FileTaskSink(
        sink.base_path,
        staging,
        _writer_of(sink, vertex.input_types[0]),
        sink.bucket_assigner.get_bucket_id,
        sink.output_file_config.part_prefix,
        sink.output_file_config.part_suffix,
        sink.rolling_policy.part_size,
        unique,
        vertex.id,
    )


def _writer_of(sink: FileSink, type_info: TypeInformation | None) -> Callable[[BinaryOutput], BulkWriter]:
    if sink.bulk_writer is not None:
        return sink.bulk_writer.create
    assert sink.encoder is not None, "a sink has a row format or a bulk format"
    encode = sink.encoder.encode
    return partial(LineWriter, lambda value: encode(value, type_info))
