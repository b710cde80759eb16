"""What a node of the logical graph is: one frozen class per kind of source, operator and sink.

A spec says everything that is needed to build the thing, apart from its place in the graph. Whoever builds
or places nodes dispatches on the class with `match`. The `kind` texts take part in derived uids
(`api.uids`), so they never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from tidemark.api.collect import CollectBuffer
    from tidemark.api.connectors.file_system import FileSink
    from tidemark.api.connectors.kafka.sink import KafkaSink
    from tidemark.api.connectors.kafka.source import KafkaSource
    from tidemark.api.functions import AsyncRetryStrategy, DeltaFunction
    from tidemark.api.output_tag import OutputTag
    from tidemark.api.split_source import SplitSource
    from tidemark.api.stream_operator import StreamOperator
    from tidemark.api.watermarks import WatermarkStrategy
    from tidemark.api.windows.assigners import WindowAssigner
    from tidemark.api.windows.triggers import Trigger
    from tidemark.config.configuration import Configuration
    from tidemark.formats.files import FileFormat
    from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor
    from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "CHANGED_TAG",
    "RESULT_TAG",
    "AsyncWaitSpec",
    "BatchSpec",
    "BroadcastProcessSpec",
    "CollectSinkSpec",
    "CollectionSourceSpec",
    "DeltaSpec",
    "FileSinkSpec",
    "FileSourceSpec",
    "ForeachBatchSinkSpec",
    "FunctionSinkSpec",
    "FunctionSourceSpec",
    "FunctionSpec",
    "IterationHeadSpec",
    "KafkaSinkSpec",
    "KafkaSourceSpec",
    "OperatorKind",
    "OperatorSpec",
    "PrintSinkSpec",
    "QueryableSpec",
    "ReduceSpec",
    "SequenceSourceSpec",
    "SinkSpec",
    "SocketSourceSpec",
    "SourceSpec",
    "SparkBatchSourceSpec",
    "SparkSourceSpec",
    "SparkStreamSourceSpec",
    "SparkWriterSinkSpec",
    "SplitSourceSpec",
    "TimestampsSpec",
    "TransformSpec",
    "WindowSpec",
]


RESULT_TAG = "_iteration/result"
"""Side output of the head of an iteration on bounded input: the elements after the last round."""
CHANGED_TAG = "_iteration/changed"
"""Side output of a delta iteration: elements of the solution set that have changed."""


class OperatorKind(Enum):
    """What an operator does with its function; `operators.factory` knows the code behind each."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    PROCESS = "process"
    TIMESTAMPS = "timestamps"
    REDUCE = "reduce"
    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    BROADCAST_PROCESS = "broadcast_process"
    WINDOW = "window"
    SINK_FUNCTION = "sink_function"
    QUERYABLE = "queryable"
    ITERATION_HEAD = "iteration_head"
    ASYNC_WAIT = "async_wait"
    TRANSFORM = "transform"
    DELTA = "delta"
    PROCESS_BATCH = "process_batch"
    MAP_BATCH = "map_batch"
    FILTER_BATCH = "filter_batch"


# Operators


class OperatorSpec:
    """What an operator is; a keyed one has HASH edges as inputs, which `keyed` repeats."""

    __slots__ = ()

    kind: OperatorKind
    keyed: bool

    def for_tasks(self) -> OperatorSpec:
        """What tasks have to know of an operator that runs in slots: not its code."""
        return FunctionSpec(self.kind, None, self.keyed)


@dataclass(frozen=True, slots=True)
class FunctionSpec(OperatorSpec):
    """An operator that needs nothing but its function: map, process, their two-input forms and others."""

    kind: OperatorKind
    function: Any = None
    """The user's function object or callable."""
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class BatchSpec(OperatorSpec):
    """An operator whose function gets and returns record batches."""

    kind: OperatorKind
    function: Any
    input_type: TypeInformation
    output_type: TypeInformation
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class TimestampsSpec(OperatorSpec):
    """Assigns timestamps and watermarks."""

    strategy: WatermarkStrategy
    kind: OperatorKind = field(default=OperatorKind.TIMESTAMPS, init=False)
    keyed: bool = field(default=False, init=False)


@dataclass(frozen=True, slots=True)
class ReduceSpec(OperatorSpec):
    """Rolling reduce of a keyed stream."""

    function: Any
    """A `ReduceFunction` or a callable of two arguments."""
    kind: OperatorKind = field(default=OperatorKind.REDUCE, init=False)
    keyed: bool = field(default=True, init=False)


@dataclass(frozen=True, slots=True)
class BroadcastProcessSpec(OperatorSpec):
    """Input 0 is the data, input 1 the broadcast side."""

    function: Any
    keyed: bool
    descriptors: tuple[MapStateDescriptor, ...]
    kind: OperatorKind = field(default=OperatorKind.BROADCAST_PROCESS, init=False)


@dataclass(frozen=True, slots=True)
class WindowSpec(OperatorSpec):
    """What a windowed stream was built with."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any] | None = None
    """None: the assigner's default."""
    allowed_lateness: int = 0
    """In milliseconds."""
    late_tag: OutputTag | None = None
    reduce: Any = None
    aggregate: Any = None
    accumulator_type: TypeInformation | None = None
    window_function: Any = None
    function_kind: str | None = None
    """"apply", "process", or None: the accumulator's result is the output."""
    all_windows: bool = False
    """All records share one made-up key (`window_all`)."""
    element_type: TypeInformation | None = None
    """Of the records that are put into windows; None means pickled."""
    kind: OperatorKind = field(default=OperatorKind.WINDOW, init=False)
    keyed: bool = field(default=True, init=False)


@dataclass(frozen=True, slots=True)
class QueryableSpec(OperatorSpec):
    """Keeps a keyed stream as a state that clients can read (`as_queryable_state`)."""

    descriptor: StateDescriptor
    query_name: str
    kind: OperatorKind = field(default=OperatorKind.QUERYABLE, init=False)
    keyed: bool = field(default=True, init=False)


@dataclass(frozen=True, slots=True)
class AsyncWaitSpec(OperatorSpec):
    """Asynchronous calls (`AsyncDataStream`)."""

    function: Any
    timeout_ms: int
    """0: none."""
    capacity: int
    retry: AsyncRetryStrategy[Any]
    ordered: bool
    kind: OperatorKind = field(default=OperatorKind.ASYNC_WAIT, init=False)
    keyed: bool = field(default=False, init=False)


@dataclass(frozen=True, slots=True)
class TransformSpec(OperatorSpec):
    """An operator of the user's own."""

    operator: StreamOperator
    keyed: bool
    kind: OperatorKind = field(default=OperatorKind.TRANSFORM, init=False)


@dataclass(frozen=True, slots=True)
class DeltaSpec(OperatorSpec):
    """Keeps the solution set of a delta iteration; input 0 is the workset, input 1 the initial set."""

    function: DeltaFunction
    element_type: TypeInformation | None
    kind: OperatorKind = field(default=OperatorKind.DELTA, init=False)
    keyed: bool = field(default=True, init=False)


@dataclass(frozen=True, slots=True)
class IterationHeadSpec(OperatorSpec):
    """The head of a loop."""

    max_wait_ms: int = 0
    feedback: list[tuple[int, str | None]] = field(default_factory=list)
    """(node, side output) of what is fed back; `close_with` adds to it."""
    max_iterations: int | None = None
    """Rounds on bounded input (supersteps); None: records go round one by one."""
    criterion: list[tuple[int, str | None]] = field(default_factory=list)
    """(node, side output) that has to have elements for another round."""
    kind: OperatorKind = field(default=OperatorKind.ITERATION_HEAD, init=False)
    keyed: bool = field(default=False, init=False)


# Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Where records come from."""

    kind: ClassVar[str]
    strategy: WatermarkStrategy | None = None
    """Attached by `from_source`."""

    @property
    def bounded(self) -> bool:
        """Whether the source ends by itself."""
        return True

    def for_tasks(self) -> Self:
        """The spec without what stays in the driver or in slots."""
        return self

    def configured(self, configuration: Configuration) -> Self:
        """The spec with what the job's options say of it."""
        return self


@dataclass(frozen=True, slots=True)
class CollectionSourceSpec(SourceSpec):
    """A list of elements, perhaps with a timestamp for each."""

    kind: ClassVar[str] = "collection"
    elements: Sequence[Any]
    timestamps: Sequence[int | None] | None = None


@dataclass(frozen=True, slots=True)
class SequenceSourceSpec(SourceSpec):
    """The numbers from `start` to `end`, both included."""

    kind: ClassVar[str] = "sequence"
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileSourceSpec(SourceSpec):
    """Elements of files."""

    kind: ClassVar[str] = "files"
    paths: tuple[str, ...]
    format: FileFormat
    monitor_ms: int | None = None
    """How often new files are looked for; None reads what is there and ends."""

    @property
    def bounded(self) -> bool:
        """Whether the set of files is fixed."""
        return self.monitor_ms is None


@dataclass(frozen=True, slots=True)
class FunctionSourceSpec(SourceSpec):
    """A `SourceFunction`, which runs in slots."""

    kind: ClassVar[str] = "function"
    function: Any

    @property
    def bounded(self) -> bool:
        """Nobody knows when `run` will return."""
        return False

    def for_tasks(self) -> Self:
        """Without the function."""
        return replace(self, function=None)


@dataclass(frozen=True, slots=True)
class SplitSourceSpec(SourceSpec):
    """A `SplitSource` of the user, or what the runtime makes one of: enumerated in the driver, read in tasks."""

    kind: ClassVar[str] = "splits"
    source: SplitSource[Any] | KafkaSource
    epoch_records: int = 0
    """How many records a task may read in one epoch, 0: any number; see `configured`."""

    @property
    def bounded(self) -> bool:
        """What the source says."""
        return self.source.bounded

    def configured(self, configuration: Configuration) -> Self:
        """With the job's limit."""
        from tidemark.config.options import Options

        return replace(self, epoch_records=configuration.get(Options.EPOCHS_MAX_RECORDS))


@dataclass(frozen=True, slots=True)
class KafkaSourceSpec(SplitSourceSpec):
    """A `KafkaSource`: its partitions are splits, as those of a `SplitSource`."""

    kind: ClassVar[str] = "kafka"
    timeout_ms: int = 0
    """How long a broker may take to answer; see `configured`."""

    def configured(self, configuration: Configuration) -> Self:
        """With the job's limits."""
        from tidemark.config.options import Options

        # Without super(): a class with slots is another than the one this was written in.
        limited = SplitSourceSpec.configured(self, configuration)
        return replace(limited, timeout_ms=configuration.get(Options.KAFKA_CONNECTION_TIMEOUT))


@dataclass(frozen=True, slots=True)
class SocketSourceSpec(SourceSpec):
    """Text from a socket, cut at a delimiter; cannot be replayed."""

    kind: ClassVar[str] = "socket"
    host: str
    port: int
    delimiter: str = "\n"
    max_retry: int = 0
    """How many connections may be made in all, if not one; negative: without end."""

    @property
    def bounded(self) -> bool:
        """Nobody knows when the other side closes."""
        return False


@dataclass(frozen=True, slots=True)
class SparkSourceSpec(SourceSpec):
    """A Spark DataFrame; exists on Spark only."""

    dataframe: Any
    partition_columns: tuple[int, ...] = ()
    """Positions of the columns that say which partition a row is from."""

    def for_tasks(self) -> Self:
        """Without the frame, which cannot leave the driver."""
        return replace(self, dataframe=None)


@dataclass(frozen=True, slots=True)
class SparkBatchSourceSpec(SparkSourceSpec):
    """A bounded Spark DataFrame."""

    kind: ClassVar[str] = "spark_batch"


@dataclass(frozen=True, slots=True)
class SparkStreamSourceSpec(SparkSourceSpec):
    """A streaming Spark DataFrame."""

    kind: ClassVar[str] = "spark_stream"
    closed: bool = False
    """Whether the partitions of a batch are over with the batch."""

    @property
    def bounded(self) -> bool:
        """A stream has no end."""
        return False


# Sinks


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where records go, and with which guarantee."""

    kind: ClassVar[str]
    delivery: ClassVar[str] = "at-least-once"

    @property
    def guarantee(self) -> str:
        """One of "exactly-once", "at-least-once" and "none"."""
        return self.delivery

    def for_tasks(self) -> Self:
        """The spec without what stays in the driver or in slots."""
        return self


@dataclass(frozen=True, slots=True)
class PrintSinkSpec(SinkSpec):
    """Lines on the driver's standard output."""

    kind: ClassVar[str] = "print"
    delivery: ClassVar[str] = "none"
    identifier: str | None = None


@dataclass(frozen=True, slots=True)
class CollectSinkSpec(SinkSpec):
    """Records for an iterator in the driver."""

    kind: ClassVar[str] = "collect"
    delivery: ClassVar[str] = "exactly-once"
    buffer: CollectBuffer


@dataclass(frozen=True, slots=True)
class FileSinkSpec(SinkSpec):
    """Files that become visible with checkpoints."""

    kind: ClassVar[str] = "files"
    delivery: ClassVar[str] = "exactly-once"
    sink: FileSink


@dataclass(frozen=True, slots=True)
class KafkaSinkSpec(SinkSpec):
    """Records of Kafka topics."""

    kind: ClassVar[str] = "kafka"
    sink: KafkaSink

    @property
    def guarantee(self) -> str:
        """What the sink was built with."""
        return self.sink.delivery_guarantee.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class FunctionSinkSpec(SinkSpec):
    """A `SinkFunction`, which runs in slots."""

    kind: ClassVar[str] = "function"
    function: Any

    def for_tasks(self) -> Self:
        """Without the function."""
        return replace(self, function=None)


@dataclass(frozen=True, slots=True)
class ForeachBatchSinkSpec(SinkSpec):
    """A function of the driver that gets the DataFrame of every epoch."""

    kind: ClassVar[str] = "foreach_batch"
    function: Any

    def for_tasks(self) -> Self:
        """Without the function."""
        return replace(self, function=None)


@dataclass(frozen=True, slots=True)
class SparkWriterSinkSpec(SinkSpec):
    """Any Spark writer, appending the DataFrame of every epoch."""

    kind: ClassVar[str] = "spark_writer"
    format: str
    options: dict[str, str]
    path: str | None = None
