"""Builds the task side and the driver side of a sink from its spec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemark.api.connectors.base import DeliveryGuarantee
from tidemark.api.connectors.file_system import FileSink
from tidemark.api.executor import JobSettings
from tidemark.api.specs import (
    CollectSinkSpec,
    FileSinkSpec,
    ForeachBatchSinkSpec,
    KafkaSinkSpec,
    PrintSinkSpec,
    SinkSpec,
    SparkWriterSinkSpec,
)
from tidemark.config import Options
from tidemark.formats.files import BinaryOutput, BulkWriter
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import EpochDirective
from tidemark.protocol.tasks import TaskDirective
from tidemark.runtime.pipeline import TaskSink
from tidemark.runtime.sinks.compaction import Compaction
from tidemark.runtime.sinks.dataframes import ForeachBatchSink, SparkWriterSink
from tidemark.runtime.sinks.driver import CollectSink, DriverSink, PrintSink
from tidemark.runtime.sinks.file_driver import FilesSink
from tidemark.runtime.sinks.file_task import FileTaskSink, LineWriter, staging_token
from tidemark.runtime.sinks.task import CollectTaskSink, DataFrameTaskSink, PrintTaskSink
from tidemark.types.typeinfo import TypeInformation

__all__ = ["make_driver_sink", "make_part", "make_task_sink", "wants_frame"]


def wants_frame(spec: SinkSpec) -> bool:
    """Whether a sink gets its epoch as a Spark DataFrame."""
    return isinstance(spec, ForeachBatchSinkSpec | SparkWriterSinkSpec)


def make_task_sink(plan: JobPlan, directive: EpochDirective) -> Callable[[Vertex, int], TaskSink]:
    """Factory of the task side of sinks, for one epoch."""

    def make(vertex: Vertex, partition: int) -> TaskSink:
        if isinstance(vertex.spec, ForeachBatchSinkSpec | SparkWriterSinkSpec):
            return DataFrameTaskSink(vertex)
        return make_part(plan, directive, vertex, partition, directive.epoch)

    return make


def make_part(
    plan: JobPlan, directive: EpochDirective | TaskDirective, vertex: Vertex, partition: int, part: int
) -> TaskSink:
    """Task side of a sink, for what one task writes in one epoch or between two barriers: `part` numbers those."""
    match vertex.spec:
        case PrintSinkSpec():
            return PrintTaskSink(vertex, partition)
        case CollectSinkSpec():
            return CollectTaskSink(vertex)
        case FileSinkSpec():
            unique = _unique(plan, directive, vertex, partition, part)
            return _file_sink(vertex, directive.staging[vertex.id], unique)
        case KafkaSinkSpec():
            return _kafka_task_sink(plan, directive, vertex, partition, part)
    raise AssertionError(f"no task side for {type(vertex.spec).__name__}")


def _unique(
    plan: JobPlan, directive: EpochDirective | TaskDirective, vertex: Vertex, partition: int, part: int
) -> str:
    """Part of a file's name that no other task, epoch or attempt of any job has."""
    return f"{partition}-{staging_token(plan.job_id, vertex.id)}-{directive.attempt}-{part}"


def _kafka_task_sink(
    plan: JobPlan, directive: EpochDirective | TaskDirective, vertex: Vertex, partition: int, part: int
) -> TaskSink:
    # On use: most jobs have no Kafka.
    from tidemark.runtime.sinks.kafka_task import KafkaStagingTaskSink, KafkaTaskSink

    staging = directive.staging.get(vertex.id)
    if staging is None:
        return KafkaTaskSink(vertex)
    return KafkaStagingTaskSink(vertex, staging, _unique(plan, directive, vertex, partition, part))


def make_driver_sink(vertex: Vertex, job_id: str, settings: JobSettings) -> DriverSink:
    """Driver side of a sink.

    Raises:
        ConfigError: The job's settings do not allow the guarantee of the sink.
    """
    configuration = settings.configuration
    match vertex.spec:
        case PrintSinkSpec():
            return PrintSink(vertex)
        case CollectSinkSpec():
            return CollectSink(vertex)
        case FileSinkSpec(sink=sink):
            allow_missing = configuration.get(Options.CHECKPOINTING_ALLOW_MISSING_OUTPUT)
            return FilesSink(vertex, sink.base_path, job_id, Compaction.of(sink), allow_missing=allow_missing)
        case KafkaSinkSpec():
            return _kafka_driver_sink(vertex, job_id, settings)
        case ForeachBatchSinkSpec():
            return ForeachBatchSink(vertex)
        case SparkWriterSinkSpec():
            return SparkWriterSink(vertex)
    raise AssertionError(f"no driver side for {type(vertex.spec).__name__}")


def _kafka_driver_sink(vertex: Vertex, job_id: str, settings: JobSettings) -> DriverSink:
    # On use: most jobs have no Kafka.
    from tidemark.runtime.sinks.kafka_driver import KafkaExactlyOnceSink, KafkaImmediateSink
    from tidemark.runtime.sinks.kafka_staging import staging_directory

    configuration = settings.configuration
    timeout_ms = configuration.get(Options.KAFKA_CONNECTION_TIMEOUT)
    if vertex.spec.sink.delivery_guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
        return KafkaImmediateSink(vertex, timeout_ms)
    directory = staging_directory(vertex, settings)
    allow_missing = configuration.get(Options.CHECKPOINTING_ALLOW_MISSING_OUTPUT)
    return KafkaExactlyOnceSink(vertex, directory, job_id, timeout_ms, allow_missing=allow_missing)


def _file_sink(vertex: Vertex, staging: str, unique: str) -> FileTaskSink:
    sink = vertex.spec.sink
    return FileTaskSink(
        sink.base_path,
        staging,
        _writer_of(sink, vertex.input_types[0]),
        sink.bucket_assigner.get_bucket_id,
        sink.output_file_config.part_prefix,
        sink.output_file_config.part_suffix,
        sink.rolling_policy,
        unique,
        vertex.id,
        check_every_ms=sink.bucket_check_interval,
    )


def _writer_of(sink: FileSink, type_info: TypeInformation | None) -> Callable[[BinaryOutput], BulkWriter]:
    if sink.bulk_writer is not None:
        return sink.bulk_writer.create
    assert sink.encoder is not None, "a sink has a row format or a bulk format"
    encode = sink.encoder.encode
    return partial(LineWriter, lambda value: encode(value, type_info))
