"""Stateful stream processing for Python on Spark, with Flink's state and fault tolerance.

The public names and nothing else. A name is loaded when it is first used, so that workers which need one
corner of the package do not pay for all of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.api.async_stream import AsyncDataStream
    from tidemark.api.cache import CachedDataStream
    from tidemark.api.checkpoint_config import CheckpointConfig
    from tidemark.api.checkpoint_storage import (
        CheckpointStorage,
        CustomCheckpointStorage,
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from tidemark.api.collect import CloseableIterator
    from tidemark.api.connected import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
    )
    from tidemark.api.connectors.base import (
        DeliveryGuarantee,
        Sink,
        Source,
    )
    from tidemark.api.connectors.compaction import (
        FileCompactor,
        FileCompactStrategy,
    )
    from tidemark.api.connectors.file_source import FileSource
    from tidemark.api.connectors.file_system import (
        BucketAssigner,
        FileSink,
        OutputFileConfig,
        RollingPolicy,
    )
    from tidemark.api.connectors.kafka.deserialization import (
        KafkaBadRecords,
        KafkaRecordDeserializationSchema,
    )
    from tidemark.api.connectors.kafka.offsets import (
        KafkaOffsetResetStrategy,
        KafkaOffsetsInitializer,
        KafkaTopicPartition,
    )
    from tidemark.api.connectors.kafka.record import KafkaRecord
    from tidemark.api.connectors.kafka.serialization import (
        KafkaRecordSerializationSchema,
        KafkaTopicSelector,
    )
    from tidemark.api.connectors.kafka.sink import KafkaSink
    from tidemark.api.connectors.kafka.source import KafkaSource
    from tidemark.api.connectors.number_seq import NumberSequenceSource
    from tidemark.api.context import (
        SinkContext,
        SourceContext,
        TimerService,
    )
    from tidemark.api.environment import StreamExecutionEnvironment
    from tidemark.api.execution_config import ExecutionConfig
    from tidemark.api.field_key import (
        FieldKey,
        field,
    )
    from tidemark.api.functions import (
        AggregateFunction,
        AllWindowFunction,
        AsyncFunction,
        AsyncRetryPredicate,
        AsyncRetryStrategy,
        BaseBroadcastProcessFunction,
        BatchContext,
        BatchProcessFunction,
        BatchReduceFunction,
        BroadcastProcessFunction,
        CheckpointedFunction,
        CheckpointListener,
        CoFlatMapFunction,
        CoMapFunction,
        CoProcessFunction,
        DeltaFunction,
        FilterFunction,
        FlatMapFunction,
        FoldFunction,
        Function,
        FunctionInitializationContext,
        FunctionSnapshotContext,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeyedStateFunction,
        KeyedStateStore,
        KeySelector,
        ListCheckpointed,
        MapFunction,
        NullByteKeySelector,
        OperatorStateStore,
        ParallelSourceFunction,
        Partitioner,
        ProcessAllWindowFunction,
        ProcessFunction,
        ProcessWindowFunction,
        ReduceFunction,
        RichAggregateFunction,
        RichCoFlatMapFunction,
        RichCoMapFunction,
        RichFilterFunction,
        RichFlatMapFunction,
        RichFoldFunction,
        RichFunction,
        RichMapFunction,
        RichParallelSourceFunction,
        RichReduceFunction,
        RichSinkFunction,
        RichSourceFunction,
        RuntimeContext,
        SinkFunction,
        SourceFunction,
        WindowFunction,
    )
    from tidemark.api.iteration import IterativeStream
    from tidemark.api.job import (
        JobClient,
        JobExecutionResult,
        JobStatus,
    )
    from tidemark.api.keyed_stream import (
        KeyedStream,
        QueryableStateStream,
    )
    from tidemark.api.output_tag import OutputTag
    from tidemark.api.raw_state import (
        KeyedStateCheckpointOutputStream,
        KeyGroupStatePartitionStreamProvider,
        OperatorStateCheckpointOutputStream,
        StateInitializationContext,
        StatePartitionStreamProvider,
        StateSnapshotContext,
    )
    from tidemark.api.sink import DataStreamSink
    from tidemark.api.slot_sharing import SlotSharingGroup
    from tidemark.api.split_source import (
        Split,
        SplitReader,
        SplitSource,
    )
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
    from tidemark.api.stream_operator import (
        InternalTimer,
        OneInputStreamOperator,
        OperatorOutput,
        StreamOperator,
        StreamRecord,
        TwoInputStreamOperator,
        Watermark,
    )
    from tidemark.api.time_domain import TimeDomain
    from tidemark.api.watermarks import (
        TimestampAssigner,
        WatermarkStrategy,
    )
    from tidemark.api.windowed import (
        AllWindowedStream,
        WindowedStream,
    )
    from tidemark.api.windows.aggregations import (
        Aggregation,
        avg,
        count,
        max_,
        min_,
        sum_,
    )
    from tidemark.api.windows.assigners import (
        GlobalWindows,
        MergingWindowAssigner,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
        WindowAssigner,
    )
    from tidemark.api.windows.counts import (
        CountSlidingWindowAssigner,
        CountTumblingWindowAssigner,
    )
    from tidemark.api.windows.serializers import (
        CountWindowSerializer,
        GlobalWindowSerializer,
        TimeWindowSerializer,
    )
    from tidemark.api.windows.sessions import (
        DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
        EventTimeSessionWindows,
        ProcessingTimeSessionWindows,
        SessionWindowTimeGapExtractor,
    )
    from tidemark.api.windows.triggers import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        Trigger,
        TriggerResult,
    )
    from tidemark.api.windows.window import (
        CountWindow,
        GlobalWindow,
        TimeWindow,
        Window,
    )
    from tidemark.clock import ManualClock
    from tidemark.config import (
        CheckpointingMode,
        ConfigOption,
        ConfigOptions,
        Configuration,
        ExternalizedCheckpointCleanup,
        ExternalizedCheckpointRetention,
        MemorySize,
        RestartStrategies,
        RestartStrategyConfiguration,
        RuntimeExecutionMode,
    )
    from tidemark.formats.avro import (
        AvroBulkWriters,
        AvroInputFormat,
        AvroRowDeserializationSchema,
        AvroRowSerializationSchema,
    )
    from tidemark.formats.csv import (
        CsvBulkWriters,
        CsvReaderFormat,
        CsvRowDeserializationSchema,
        CsvRowSerializationSchema,
    )
    from tidemark.formats.csv_schema import CsvSchema
    from tidemark.formats.files import (
        BulkFormat,
        BulkWriter,
        BulkWriterFactory,
        StreamFormat,
    )
    from tidemark.formats.json import (
        JsonRowDeserializationSchema,
        JsonRowSerializationSchema,
    )
    from tidemark.formats.parquet import (
        AvroParquetReaders,
        AvroParquetWriters,
        ParquetBulkWriters,
        ParquetColumnarRowInputFormat,
    )
    from tidemark.formats.schemas import (
        ByteArraySchema,
        DeserializationSchema,
        Encoder,
        RowFieldExtractorSchema,
        SerializationSchema,
        SimpleStringSchema,
    )
    from tidemark.futures import CompletableFuture
    from tidemark.ids import JobID
    from tidemark.queryablestate.client import QueryableStateClient
    from tidemark.state.column_keys import (
        Keys,
        KeySet,
    )
    from tidemark.state.descriptors import (
        AggregatingStateDescriptor,
        FoldingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from tidemark.state.expired_state import ExpiredState
    from tidemark.state.primitives import (
        AggregatingState,
        AppendingState,
        BroadcastState,
        FoldingState,
        ListState,
        MapState,
        MergingState,
        ReadOnlyBroadcastState,
        ReducingState,
        State,
        ValueState,
    )
    from tidemark.state.serializers import (
        CompatibilityResult,
        CompositeTypeSerializerSnapshot,
        DataInputView,
        DataOutputView,
        NullableSerializer,
        SimpleTypeSerializerSnapshot,
        TypeSerializer,
        TypeSerializerConfigSnapshot,
        TypeSerializerSchemaCompatibility,
        TypeSerializerSnapshot,
    )
    from tidemark.state.ttl import StateTtlConfig
    from tidemark.types.avro import (
        AvroSchema,
        GenericRecordAvroTypeInfo,
    )
    from tidemark.types.inference import written_as
    from tidemark.types.numpy_types import NumpyArrayTypeInfo
    from tidemark.types.row import (
        Row,
        RowKind,
    )
    from tidemark.types.time import (
        Duration,
        Instant,
        Time,
    )
    from tidemark.types.typeinfo import (
        BasicArrayTypeInfo,
        BasicType,
        BasicTypeInfo,
        DataclassTypeInfo,
        ListTypeInfo,
        MapTypeInfo,
        ObjectArrayTypeInfo,
        PickledBytesTypeInfo,
        PrimitiveArrayTypeInfo,
        RowTypeInfo,
        SerializedTypeInfo,
        TupleTypeInfo,
        TypeInformation,
        Types,
    )

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Aggregation",
    "AllWindowFunction",
    "AllWindowedStream",
    "AppendingState",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroParquetReaders",
    "AvroParquetWriters",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "BaseBroadcastProcessFunction",
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "BatchContext",
    "BatchProcessFunction",
    "BatchReduceFunction",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastState",
    "BroadcastStream",
    "BucketAssigner",
    "BulkFormat",
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "CachedDataStream",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "CompatibilityResult",
    "CompletableFuture",
    "CompositeTypeSerializerSnapshot",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataInputView",
    "DataOutputView",
    "DataStream",
    "DataStreamSink",
    "DataclassTypeInfo",
    "DeliveryGuarantee",
    "DeltaFunction",
    "DeserializationSchema",
    "Duration",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EmbeddedRocksDBStateBackend",
    "Encoder",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "ExecutionConfig",
    "ExpiredState",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FieldKey",
    "FileCompactStrategy",
    "FileCompactor",
    "FileSink",
    "FileSource",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FoldFunction",
    "FoldingState",
    "FoldingStateDescriptor",
    "FsStateBackend",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GenericRecordAvroTypeInfo",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "HashMapStateBackend",
    "Instant",
    "InternalTimer",
    "IterativeStream",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobManagerCheckpointStorage",
    "JobStatus",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "KafkaBadRecords",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaSink",
    "KafkaSource",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "KeyGroupStatePartitionStreamProvider",
    "KeySelector",
    "KeySet",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateCheckpointOutputStream",
    "KeyedStateFunction",
    "KeyedStateStore",
    "KeyedStream",
    "Keys",
    "ListCheckpointed",
    "ListState",
    "ListStateDescriptor",
    "ListTypeInfo",
    "ManualClock",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MapTypeInfo",
    "MemorySize",
    "MemoryStateBackend",
    "MergingState",
    "MergingWindowAssigner",
    "NeverTrigger",
    "NullByteKeySelector",
    "NullableSerializer",
    "NumberSequenceSource",
    "NumpyArrayTypeInfo",
    "ObjectArrayTypeInfo",
    "OneInputStreamOperator",
    "OperatorOutput",
    "OperatorStateCheckpointOutputStream",
    "OperatorStateStore",
    "OutputFileConfig",
    "OutputTag",
    "ParallelSourceFunction",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "Partitioner",
    "PickledBytesTypeInfo",
    "PredefinedOptions",
    "PrimitiveArrayTypeInfo",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "QueryableStateClient",
    "QueryableStateStream",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "RichAggregateFunction",
    "RichCoFlatMapFunction",
    "RichCoMapFunction",
    "RichFilterFunction",
    "RichFlatMapFunction",
    "RichFoldFunction",
    "RichFunction",
    "RichMapFunction",
    "RichParallelSourceFunction",
    "RichReduceFunction",
    "RichSinkFunction",
    "RichSourceFunction",
    "RocksDBStateBackend",
    "RollingPolicy",
    "Row",
    "RowFieldExtractorSchema",
    "RowKind",
    "RowTypeInfo",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SerializationSchema",
    "SerializedTypeInfo",
    "SessionWindowTimeGapExtractor",
    "SimpleStringSchema",
    "SimpleTypeSerializerSnapshot",
    "Sink",
    "SinkContext",
    "SinkFunction",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SlotSharingGroup",
    "Source",
    "SourceContext",
    "SourceFunction",
    "Split",
    "SplitReader",
    "SplitSource",
    "State",
    "StateBackend",
    "StateBackendFactory",
    "StateDescriptor",
    "StateInitializationContext",
    "StatePartitionStreamProvider",
    "StateSnapshotContext",
    "StateTtlConfig",
    "StreamExecutionEnvironment",
    "StreamFormat",
    "StreamOperator",
    "StreamRecord",
    "Time",
    "TimeDomain",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimerService",
    "TimestampAssigner",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TupleTypeInfo",
    "TwoInputStreamOperator",
    "TypeInformation",
    "TypeSerializer",
    "TypeSerializerConfigSnapshot",
    "TypeSerializerSchemaCompatibility",
    "TypeSerializerSnapshot",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "Watermark",
    "WatermarkStrategy",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "avg",
    "count",
    "field",
    "max_",
    "min_",
    "sum_",
    "written_as",
]

_NAMES_BY_MODULE = {
    "tidemark.api.async_stream": "AsyncDataStream",
    "tidemark.api.cache": "CachedDataStream",
    "tidemark.api.checkpoint_config": "CheckpointConfig",
    "tidemark.api.checkpoint_storage": """
        CheckpointStorage CustomCheckpointStorage FileSystemCheckpointStorage JobManagerCheckpointStorage
    """,
    "tidemark.api.collect": "CloseableIterator",
    "tidemark.api.connected": "BroadcastConnectedStream BroadcastStream ConnectedStreams",
    "tidemark.api.connectors.base": "DeliveryGuarantee Sink Source",
    "tidemark.api.connectors.compaction": "FileCompactStrategy FileCompactor",
    "tidemark.api.connectors.file_source": "FileSource",
    "tidemark.api.connectors.file_system": "BucketAssigner FileSink OutputFileConfig RollingPolicy",
    "tidemark.api.connectors.kafka.deserialization": "KafkaBadRecords KafkaRecordDeserializationSchema",
    "tidemark.api.connectors.kafka.offsets": "KafkaOffsetResetStrategy KafkaOffsetsInitializer KafkaTopicPartition",
    "tidemark.api.connectors.kafka.record": "KafkaRecord",
    "tidemark.api.connectors.kafka.serialization": "KafkaRecordSerializationSchema KafkaTopicSelector",
    "tidemark.api.connectors.kafka.sink": "KafkaSink",
    "tidemark.api.connectors.kafka.source": "KafkaSource",
    "tidemark.api.connectors.number_seq": "NumberSequenceSource",
    "tidemark.api.context": "SinkContext SourceContext TimerService",
    "tidemark.api.environment": "StreamExecutionEnvironment",
    "tidemark.api.execution_config": "ExecutionConfig",
    "tidemark.api.field_key": "FieldKey field",
    "tidemark.api.functions": """
        AggregateFunction AllWindowFunction AsyncFunction AsyncRetryPredicate AsyncRetryStrategy
        BaseBroadcastProcessFunction BatchContext BatchProcessFunction BatchReduceFunction
        BroadcastProcessFunction
        CheckpointListener CheckpointedFunction CoFlatMapFunction CoMapFunction CoProcessFunction
        DeltaFunction FilterFunction FlatMapFunction FoldFunction Function
        FunctionInitializationContext FunctionSnapshotContext KeySelector
        KeyedBroadcastProcessFunction KeyedCoProcessFunction KeyedProcessFunction KeyedStateFunction
        KeyedStateStore ListCheckpointed MapFunction NullByteKeySelector OperatorStateStore
        ParallelSourceFunction Partitioner ProcessAllWindowFunction ProcessFunction ProcessWindowFunction
        ReduceFunction RichAggregateFunction RichCoFlatMapFunction RichCoMapFunction RichFilterFunction
        RichFlatMapFunction RichFoldFunction RichFunction RichMapFunction RichParallelSourceFunction
        RichReduceFunction RichSinkFunction RichSourceFunction RuntimeContext SinkFunction SourceFunction
        WindowFunction
    """,
    "tidemark.api.iteration": "IterativeStream",
    "tidemark.api.job": "JobClient JobExecutionResult JobStatus",
    "tidemark.api.keyed_stream": "KeyedStream QueryableStateStream",
    "tidemark.api.output_tag": "OutputTag",
    "tidemark.api.raw_state": """
        KeyGroupStatePartitionStreamProvider KeyedStateCheckpointOutputStream
        OperatorStateCheckpointOutputStream StateInitializationContext StatePartitionStreamProvider
        StateSnapshotContext
    """,
    "tidemark.api.sink": "DataStreamSink",
    "tidemark.api.slot_sharing": "SlotSharingGroup",
    "tidemark.api.split_source": "Split SplitReader SplitSource",
    "tidemark.api.state_backends": """
        CustomStateBackend EmbeddedRocksDBStateBackend FsStateBackend HashMapStateBackend MemoryStateBackend
        PredefinedOptions RocksDBStateBackend StateBackend StateBackendFactory
    """,
    "tidemark.api.stream": "DataStream",
    "tidemark.api.stream_operator": """
        InternalTimer OneInputStreamOperator OperatorOutput StreamOperator StreamRecord
        TwoInputStreamOperator Watermark
    """,
    "tidemark.api.time_domain": "TimeDomain",
    "tidemark.api.watermarks": "TimestampAssigner WatermarkStrategy",
    "tidemark.api.windowed": "AllWindowedStream WindowedStream",
    "tidemark.api.windows.aggregations": "Aggregation avg count max_ min_ sum_",
    "tidemark.api.windows.assigners": """
        GlobalWindows MergingWindowAssigner SlidingEventTimeWindows SlidingProcessingTimeWindows
        TumblingEventTimeWindows TumblingProcessingTimeWindows WindowAssigner
    """,
    "tidemark.api.windows.counts": "CountSlidingWindowAssigner CountTumblingWindowAssigner",
    "tidemark.api.windows.serializers": "CountWindowSerializer GlobalWindowSerializer TimeWindowSerializer",
    "tidemark.api.windows.sessions": """
        DynamicEventTimeSessionWindows DynamicProcessingTimeSessionWindows EventTimeSessionWindows
        ProcessingTimeSessionWindows SessionWindowTimeGapExtractor
    """,
    "tidemark.api.windows.triggers": """
        ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger CountTrigger EventTimeTrigger
        NeverTrigger ProcessingTimeTrigger PurgingTrigger Trigger TriggerResult
    """,
    "tidemark.api.windows.window": "CountWindow GlobalWindow TimeWindow Window",
    "tidemark.clock": "ManualClock",
    "tidemark.config": """
        CheckpointingMode ConfigOption ConfigOptions Configuration ExternalizedCheckpointCleanup
        ExternalizedCheckpointRetention MemorySize RestartStrategies RestartStrategyConfiguration
        RuntimeExecutionMode
    """,
    "tidemark.formats.avro": """
        AvroBulkWriters AvroInputFormat AvroRowDeserializationSchema AvroRowSerializationSchema
    """,
    "tidemark.formats.csv": """
        CsvBulkWriters CsvReaderFormat CsvRowDeserializationSchema CsvRowSerializationSchema
    """,
    "tidemark.formats.csv_schema": "CsvSchema",
    "tidemark.formats.files": "BulkFormat BulkWriter BulkWriterFactory StreamFormat",
    "tidemark.formats.json": "JsonRowDeserializationSchema JsonRowSerializationSchema",
    "tidemark.formats.parquet": """
        AvroParquetReaders AvroParquetWriters ParquetBulkWriters ParquetColumnarRowInputFormat
    """,
    "tidemark.formats.schemas": """
        ByteArraySchema DeserializationSchema Encoder RowFieldExtractorSchema SerializationSchema
        SimpleStringSchema
    """,
    "tidemark.futures": "CompletableFuture",
    "tidemark.ids": "JobID",
    "tidemark.queryablestate.client": "QueryableStateClient",
    "tidemark.state.column_keys": "KeySet Keys",
    "tidemark.state.descriptors": """
        AggregatingStateDescriptor FoldingStateDescriptor ListStateDescriptor MapStateDescriptor
        ReducingStateDescriptor StateDescriptor ValueStateDescriptor
    """,
    "tidemark.state.primitives": """
        AggregatingState AppendingState BroadcastState FoldingState ListState MapState MergingState
        ReadOnlyBroadcastState ReducingState State ValueState
    """,
    "tidemark.state.serializers": """
        CompatibilityResult CompositeTypeSerializerSnapshot DataInputView DataOutputView NullableSerializer
        SimpleTypeSerializerSnapshot TypeSerializer TypeSerializerConfigSnapshot
        TypeSerializerSchemaCompatibility TypeSerializerSnapshot
    """,
    "tidemark.state.expired_state": "ExpiredState",
    "tidemark.state.ttl": "StateTtlConfig",
    "tidemark.types.avro": "AvroSchema GenericRecordAvroTypeInfo",
    "tidemark.types.inference": "written_as",
    "tidemark.types.numpy_types": "NumpyArrayTypeInfo",
    "tidemark.types.row": "Row RowKind",
    "tidemark.types.time": "Duration Instant Time",
    "tidemark.types.typeinfo": """
        BasicArrayTypeInfo BasicType BasicTypeInfo DataclassTypeInfo ListTypeInfo MapTypeInfo
        ObjectArrayTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo RowTypeInfo SerializedTypeInfo
        TupleTypeInfo TypeInformation Types
    """,
}

_HOME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
