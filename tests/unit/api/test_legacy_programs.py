"""Programs of Flink's 1.x line run, and are told what to write instead; the rest of PyFlink's small names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Configuration,
    Encoder,
    OutputFileConfig,
    ReducingStateDescriptor,
    RestartStrategies,
    RollingPolicy,
    Row,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.common.typeinfo import BasicTypeInfo
from tidemark.config import Options
from tidemark.datastream import TimeCharacteristic
from tidemark.datastream.connectors.file_system import StreamingFileSink
from tidemark.datastream.formats.csv import CsvBulkWriters, CsvSchema
from tidemark.datastream.functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    TimerService,
)
from tidemark.datastream.window import DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows
from tidemark.errors import UnsupportedOperationException


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"execution.target": "local", "parallelism.default": "1"})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_time_characteristic_is_kept_with_a_warning(env: StreamExecutionEnvironment) -> None:
    assert env.get_stream_time_characteristic() is TimeCharacteristic.EventTime

    with pytest.warns(DeprecationWarning, match="assigners and timers"):
        env.set_stream_time_characteristic(TimeCharacteristic.ProcessingTime)

    assert env.get_stream_time_characteristic() is TimeCharacteristic.ProcessingTime
    with (
        pytest.warns(DeprecationWarning, match="deprecated"),
        pytest.raises(UnsupportedOperationException, match="assign_timestamps_and_watermarks"),
    ):
        env.set_stream_time_characteristic(TimeCharacteristic.IngestionTime)


def test_text_file_is_read_with_a_warning(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("eins\nzwölf\n".encode("latin-1"))

    with pytest.warns(DeprecationWarning, match="FileSource"):
        lines = env.read_text_file(str(tmp_path / "in.txt"), "ISO-8859-1")

    assert lines.get_type() == Types.STRING()
    assert list(lines.execute_and_collect()) == ["eins", "zwölf"]


def test_streaming_file_sink_writes_rows_through_add_sink(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    config = OutputFileConfig.builder().with_part_prefix("pre").with_part_suffix(".txt").build()
    with pytest.warns(DeprecationWarning, match="FileSink"):
        builder = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = (
        builder.with_bucket_check_interval(1)
        .with_rolling_policy(policy=RollingPolicy.default_rolling_policy())
        .with_output_file_config(config)
        .build()
    )

    env.from_collection(["a", "b"], Types.STRING()).add_sink(sink)
    env.execute()

    assert isinstance(sink, StreamingFileSink)
    [written] = [path for path in tmp_path.glob("*/*") if not path.name.startswith(".")]
    assert (written.read_text(), written.name[:3], written.suffix) == ("a\nb\n", "pre", ".txt")
    assert (config.get_part_prefix(), config.get_part_suffix()) == ("pre", ".txt")


def test_streaming_file_sink_writes_bulk_formats_too(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("text").build()

    with pytest.warns(DeprecationWarning, match="FileSink"):
        builder = StreamingFileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema))

    assert isinstance(builder.build(), StreamingFileSink)


def test_restart_strategy_may_still_be_set_on_the_execution_config(env: StreamExecutionEnvironment) -> None:
    strategy = RestartStrategies.fixed_delay_restart(3, 7)

    with pytest.warns(DeprecationWarning, match="environment"):
        env.get_config().set_restart_strategy(strategy)

    assert env.get_restart_strategy() == env.get_config().get_restart_strategy() == strategy
    assert env.get_configuration().get(Options.RESTART_STRATEGY) == "fixed-delay"
    env.configure(Configuration.from_dict({"restart-strategy": "none"}))
    assert env.get_restart_strategy() == RestartStrategies.fall_back_restart()


def test_elements_are_taken_one_by_one_from_a_collected_stream(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2])

    with stream.execute_and_collect() as results:
        assert [results.next(), results.next()] == [1, 2]
        with pytest.raises(StopIteration):
            results.next()
    assert stream.get_execution_config() is env.get_config()


def test_fields_of_a_row_are_given_by_names() -> None:
    row = Row(a=1, b=2)

    assert row.get_fields_by_names(["b", "a"]) == [2, 1]
    assert Row(1, 2).get_fields_by_names(["x"]) == [1, 2]
    with pytest.raises(KeyError, match="'c'"):
        row.get_fields_by_names(["a", "c"])


class Total(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


def test_descriptors_give_their_functions_back() -> None:
    total = Total()

    assert ReducingStateDescriptor("r", max, Types.LONG()).get_reduce_function() is max
    assert AggregatingStateDescriptor("a", total, Types.LONG()).get_agg_function() is total


def test_broadcast_contexts_share_their_bases() -> None:
    base = BaseBroadcastProcessFunction

    assert issubclass(base.Context, base.BaseContext)
    assert issubclass(base.ReadOnlyContext, base.BaseContext)
    for function in (BroadcastProcessFunction, KeyedBroadcastProcessFunction):
        assert issubclass(function.Context, base.Context)
        assert issubclass(function.ReadOnlyContext, base.ReadOnlyContext)
    assert callable(TimerService.register_event_time_timer)


def test_cleanup_strategies_can_be_made_and_read() -> None:
    kinds = StateTtlConfig.CleanupStrategies
    strategies: dict[Any, Any] = {
        kinds.Strategies.FULL_STATE_SCAN_SNAPSHOT: kinds.EMPTY_STRATEGY,
        kinds.Strategies.INCREMENTAL_CLEANUP: kinds.IncrementalCleanupStrategy(
            cleanup_size=7, run_cleanup_for_every_record=True
        ),
    }

    chosen = kinds(strategies=strategies, is_cleanup_in_background=False)
    config = StateTtlConfig(
        StateTtlConfig.UpdateType.OnReadAndWrite,
        StateTtlConfig.StateVisibility.NeverReturnExpired,
        StateTtlConfig.TtlTimeCharacteristic.ProcessingTime,
        10,
        chosen,
    )

    assert all(isinstance(strategy, kinds.CleanupStrategy) for strategy in strategies.values())
    assert (chosen.in_full_snapshot(), chosen.is_cleanup_in_background()) == (True, False)
    assert chosen.get_incremental_cleanup_strategy() == (7, True)
    assert chosen.get_rocksdb_compact_filter_cleanup_strategy() is None
    assert config.get_cleanup_strategies() is chosen
    assert config.ttl_ms == 10


@pytest.mark.parametrize("assigner", [DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows])
def test_dynamic_sessions_are_made_by_either_name(assigner: Any) -> None:
    assert isinstance(assigner.with_dynamic_gap(len), assigner)
    assert isinstance(assigner(session_window_time_gap_extractor=len), assigner)


def test_basic_types_have_their_factories() -> None:
    assert BasicTypeInfo.STRING_TYPE_INFO() == Types.STRING()
    assert BasicTypeInfo.BIG_DEC_TYPE_INFO() == Types.BIG_DEC()
