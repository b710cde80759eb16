from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tidemark

# Spec section 0.3, word for word.
TABLE = {
    "tidemark.common": """
        Configuration ConfigOption ConfigOptions ExecutionConfig Types TypeInformation TypeSerializer Row
        RowKind Time Duration Instant WatermarkStrategy RestartStrategies RestartStrategyConfiguration
        JobClient JobExecutionResult JobID JobStatus CompletableFuture Encoder SimpleStringSchema
        ByteArraySchema SerializationSchema DeserializationSchema""",
    "tidemark.common.typeinfo": "Types TypeInformation",
    "tidemark.common.time": "Time Duration Instant",
    "tidemark.common.types": "Row RowKind",
    "tidemark.common.watermark_strategy": "WatermarkStrategy TimestampAssigner",
    "tidemark.common.serializer": """
        TypeSerializer TypeSerializerSnapshot TypeSerializerSchemaCompatibility SimpleTypeSerializerSnapshot
        CompositeTypeSerializerSnapshot NullableSerializer DataInputView DataOutputView
        TypeSerializerConfigSnapshot CompatibilityResult""",
    "tidemark.common.configuration": "Configuration",
    "tidemark.common.restart_strategy": "RestartStrategies RestartStrategyConfiguration",
    "tidemark.common.serialization": """
        Encoder SimpleStringSchema ByteArraySchema SerializationSchema DeserializationSchema BulkWriterFactory
        RowFieldExtractorSchema""",
    "tidemark.common.job_client": "JobClient",
    "tidemark.common.job_status": "JobStatus",
    "tidemark.common.constants": "MAX_LONG_VALUE MIN_LONG_VALUE",
    "tidemark.datastream": """
        StreamExecutionEnvironment DataStream KeyedStream WindowedStream ConnectedStreams BroadcastStream
        BroadcastConnectedStream DataStreamSink MapFunction CoMapFunction FlatMapFunction
        CoFlatMapFunction ReduceFunction FilterFunction ProcessFunction KeyedProcessFunction
        CoProcessFunction KeyedCoProcessFunction WindowFunction ProcessWindowFunction AggregateFunction
        BroadcastProcessFunction KeyedBroadcastProcessFunction RuntimeContext TimerService
        CheckpointingMode CheckpointConfig ExternalizedCheckpointRetention StateBackend
        HashMapStateBackend EmbeddedRocksDBStateBackend CustomStateBackend PredefinedOptions
        CheckpointStorage JobManagerCheckpointStorage FileSystemCheckpointStorage CustomCheckpointStorage
        RuntimeExecutionMode Window TimeWindow CountWindow GlobalWindow WindowAssigner
        MergingWindowAssigner TriggerResult Trigger TimeDomain KeySelector Partitioner SourceFunction
        SinkFunction OutputTag SlotSharingGroup MemorySize MemoryStateBackend FsStateBackend
        RocksDBStateBackend StateBackendFactory ExternalizedCheckpointCleanup CheckpointedFunction
        ListCheckpointed CheckpointListener KeyedStateFunction FoldFunction RichSourceFunction
        ParallelSourceFunction RichParallelSourceFunction RichSinkFunction QueryableStateStream
        IterativeStream""",
    "tidemark.datastream.functions": """
        MapFunction RichMapFunction KeyedProcessFunction ProcessWindowFunction ProcessAllWindowFunction
        AllWindowFunction RuntimeContext SourceFunction SinkFunction AsyncFunction
        FunctionInitializationContext FunctionSnapshotContext CheckpointedFunction""",
    "tidemark.datastream.state": """
        ValueState ListState MapState ReducingState AggregatingState FoldingState ValueStateDescriptor
        ListStateDescriptor MapStateDescriptor ReducingStateDescriptor AggregatingStateDescriptor
        FoldingStateDescriptor StateTtlConfig BroadcastState ReadOnlyBroadcastState""",
    "tidemark.datastream.state_backend": "StateBackend MemoryStateBackend RocksDBStateBackend",
    "tidemark.datastream.checkpoint_config": "CheckpointConfig ExternalizedCheckpointCleanup",
    "tidemark.datastream.checkpoint_storage": "CheckpointStorage FileSystemCheckpointStorage",
    "tidemark.datastream.checkpointing_mode": "CheckpointingMode",
    "tidemark.datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "tidemark.datastream.data_stream": "DataStream KeyedStream CloseableIterator DataStreamSink",
    "tidemark.datastream.stream_execution_environment": "StreamExecutionEnvironment",
    "tidemark.datastream.execution_mode": "RuntimeExecutionMode",
    "tidemark.datastream.window": """
        TumblingEventTimeWindows TumblingProcessingTimeWindows SlidingEventTimeWindows
        SlidingProcessingTimeWindows EventTimeSessionWindows ProcessingTimeSessionWindows
        SessionWindowTimeGapExtractor GlobalWindows CountTumblingWindowAssigner CountSlidingWindowAssigner
        EventTimeTrigger ProcessingTimeTrigger CountTrigger ContinuousEventTimeTrigger
        ContinuousProcessingTimeTrigger PurgingTrigger NeverTrigger Trigger TriggerResult TimeWindow
        TimeWindowSerializer CountWindowSerializer""",
    "tidemark.datastream.output_tag": "OutputTag",
    "tidemark.datastream.time_domain": "TimeDomain",
    "tidemark.datastream.timerservice": "TimerService",
    "tidemark.datastream.connectors": "Source Sink DeliveryGuarantee",
    "tidemark.datastream.connectors.file_system": """
        FileSource FileSink StreamFormat BulkFormat OutputFileConfig RollingPolicy BucketAssigner FileCompactor
        FileCompactStrategy""",
    "tidemark.datastream.connectors.kafka": """
        KafkaSource KafkaOffsetsInitializer KafkaOffsetResetStrategy KafkaTopicPartition KafkaBadRecords
        KafkaRecordDeserializationSchema KafkaSink KafkaRecordSerializationSchema KafkaTopicSelector KafkaRecord
        DeliveryGuarantee""",
    "tidemark.datastream.connectors.number_seq": "NumberSequenceSource",
    "tidemark.datastream.formats.avro": """
        AvroSchema GenericRecordAvroTypeInfo AvroInputFormat AvroBulkWriters AvroRowDeserializationSchema
        AvroRowSerializationSchema""",
    "tidemark.datastream.formats.csv": """
        CsvSchema CsvReaderFormat CsvBulkWriters CsvRowDeserializationSchema CsvRowSerializationSchema""",
    "tidemark.datastream.formats.json": "JsonRowDeserializationSchema JsonRowSerializationSchema",
    "tidemark.datastream.formats.parquet": """
        AvroParquetReaders AvroParquetWriters ParquetColumnarRowInputFormat ParquetBulkWriters""",
    "tidemark.datastream.async_data_stream": "AsyncDataStream",
}

NOT_FLAT = {"MAX_LONG_VALUE", "MIN_LONG_VALUE"}


@pytest.mark.parametrize("module", TABLE)
def test_every_name_of_the_table_is_there_and_is_the_flat_one(module):
    loaded = importlib.import_module(module)
    for name in TABLE[module].split():
        value = getattr(loaded, name)
        assert name in loaded.__all__
        if name not in NOT_FLAT:
            assert getattr(tidemark, name) is value


def test_all_flat_names_are_importable_and_sorted():
    assert tidemark.__all__ == sorted(tidemark.__all__)
    assert len(tidemark.__all__) == len(set(tidemark.__all__))
    for name in tidemark.__all__:
        assert getattr(tidemark, name).__name__ == name or name.startswith("Rich") or "Checkpoint" in name
    assert set(tidemark.__all__) <= set(dir(tidemark))
    assert set(tidemark.__all__) == set(tidemark._HOME)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="Nonsense"):
        tidemark.Nonsense  # noqa: B018


def test_constants():
    from tidemark.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE

    assert (MIN_LONG_VALUE, MAX_LONG_VALUE) == (-(2**63), 2**63 - 1)


_HEAVY = ("pyspark", "pandas", "py4j", "rocksdict")


def loaded_by(module: str, names: tuple[str, ...]) -> str:
    script = f"import sys, {module}\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["tidemark", "tidemark.datastream", "tidemark.common"])
def test_importing_loads_neither_spark_nor_pandas(module):
    assert loaded_by(module, _HEAVY) == "[]"


def test_a_slot_process_loads_nothing_of_the_driver():
    assert loaded_by("tidemark.slot.server", (*_HEAVY, "tidemark.config", "tidemark.runtime")) == "[]"
