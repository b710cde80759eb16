"""Names that PyFlink keeps in `pyflink.datastream`."""

from __future__ import annotations

from tidemark.api.async_stream import AsyncDataStream
from tidemark.api.cache import CachedDataStream
from tidemark.api.checkpoint_config import CheckpointConfig
from tidemark.api.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from tidemark.api.connected import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from tidemark.api.context import TimerService
from tidemark.api.environment import StreamExecutionEnvironment
from tidemark.api.functions import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    FoldFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateFunction,
    KeySelector,
    ListCheckpointed,
    MapFunction,
    ParallelSourceFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RichParallelSourceFunction,
    RichSinkFunction,
    RichSourceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    WindowFunction,
)
from tidemark.api.iteration import IterativeStream
from tidemark.api.keyed_stream import (
    KeyedStream,
    QueryableStateStream,
)
from tidemark.api.legacy import TimeCharacteristic
from tidemark.api.output_tag import OutputTag
from tidemark.api.sink import DataStreamSink
from tidemark.api.slot_sharing import SlotSharingGroup
from tidemark.api.state_backends import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
    StateBackendFactory,
)
from tidemark.api.stream import DataStream
from tidemark.api.time_domain import TimeDomain
from tidemark.api.windowed import (
    AllWindowedStream,
    WindowedStream,
)
from tidemark.api.windows.assigners import (
    MergingWindowAssigner,
    WindowAssigner,
)
from tidemark.api.windows.triggers import (
    Trigger,
    TriggerResult,
)
from tidemark.api.windows.window import (
    CountWindow,
    GlobalWindow,
    TimeWindow,
    Window,
)
from tidemark.config import (
    CheckpointingMode,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    MemorySize,
    RuntimeExecutionMode,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FoldFunction",
    "FsStateBackend",
    "GlobalWindow",
    "HashMapStateBackend",
    "IterativeStream",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateFunction",
    "KeyedStream",
    "ListCheckpointed",
    "MapFunction",
    "MemorySize",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OutputTag",
    "ParallelSourceFunction",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "QueryableStateStream",
    "ReduceFunction",
    "RichParallelSourceFunction",
    "RichSinkFunction",
    "RichSourceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StateBackendFactory",
    "StreamExecutionEnvironment",
    "TimeCharacteristic",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]
