from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state_processor.jobs import LATER, PAIR, SEEN, TOTAL, continue_job, environment

from tidemark import (
    CheckpointedFunction,
    Duration,
    EmbeddedRocksDBStateBackend,
    ExpiredState,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    NumberSequenceSource,
    SourceFunction,
    StateTtlConfig,
    TimestampAssigner,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.checkpoint.inspection import verify
from tidemark.checkpoint.metadata import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ConfigError, ExecutionError, SavepointNotFoundError
from tidemark.state_processor import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    StateBootstrapFunction,
)
from tidemark.state_processor.diff import diff

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
DATA = [("a", 1), ("b", 2), ("a", 3)]


class Totals(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.seen = runtime_context.get_list_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + value[1])
        self.seen.add((value[1], ctx.get_current_key()))
        ctx.timer_service().register_event_time_timer(LATER)
        ctx.timer_service().register_processing_time_timer(5)


class Elements(StateBootstrapFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.list = store.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
        self.buffer: list[int] = []

    def process_element(self, value: Any, ctx: Any) -> None:
        self.buffer.append(value[1])

    def snapshot_state(self, context: Any) -> None:
        self.list.update(self.buffer)
        self.union.add("once")


class Rules(BroadcastStateBootstrapFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


class Read(KeyedStateReaderFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.seen = runtime_context.get_list_state(SEEN)

    def read_key(self, key: Any, ctx: Any) -> Any:
        yield (
            key,
            self.total.value(),
            self.seen.get(),
            ctx.registered_event_time_timers(),
            ctx.registered_processing_time_timers(),
        )


def keyed(data: Any) -> Any:
    transformation = OperatorTransformation.bootstrap_with(data)
    return transformation.key_by(lambda pair: pair[0], Types.STRING()).transform(Totals())


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as iterator:
        return list(iterator)


@pytest.mark.parametrize("backend", [None, EmbeddedRocksDBStateBackend()])
def test_keyed_state_and_timers_are_made_from_a_list(target: str, backend: Any) -> None:
    env = environment(3)

    written = SavepointWriter.new_savepoint(env, backend, 64).with_operator("sum", keyed(DATA)).write(target)

    assert written == target
    assert verify(target) == []
    operator = read_metadata(FileSystemStorage(), target).operators[0]
    assert (operator.max_parallelism, operator.parallelism) == (64, 3)
    rows = collected(SavepointReader.read(env, target).read_keyed_state("sum", Read(), Types.STRING()))
    assert sorted(rows) == [
        ("a", 4, [(1, "a"), (3, "a")], {LATER}, {5}),
        ("b", 2, [(2, "b")], {LATER}, {5}),
    ]


@pytest.mark.parametrize(("rocksdb", "parallelism"), [(False, 1), (True, 3)])
def test_a_job_goes_on_from_a_bootstrapped_savepoint(target: str, rocksdb: bool, parallelism: int) -> None:
    SavepointWriter.new_savepoint(environment(), None, 64).with_operator("sum", keyed(DATA)).write(target)

    results = continue_job(target, [("a", 10), ("c", 1)], parallelism=parallelism, rocksdb=rocksdb)

    assert results == [("a", 14), ("c", 1)]


def test_bounded_streams_are_taken_as_data(target: str) -> None:
    env = environment()
    plain = env.from_collection(DATA, PAIR)
    mapped = plain.map(lambda pair: (pair[0], pair[1] * 10), PAIR)
    waiting = plain.map(lambda pair: pair, PAIR).print()

    writer = SavepointWriter.new_savepoint(env, None, 16)
    writer.with_operator("plain", keyed(plain)).with_operator("mapped", keyed(mapped)).write(target)

    reader = SavepointReader.read(env, target)
    assert sorted(row[:2] for row in collected(reader.read_keyed_state("plain", Read()))) == [
        ("a", 4),
        ("b", 2),
    ]
    assert waiting is not None
    assert sorted(row[:2] for row in collected(reader.read_keyed_state("mapped", Read()))) == [
        ("a", 40),
        ("b", 20),
    ]


def test_operator_and_broadcast_state_are_made(target: str) -> None:
    env = environment()
    data = OperatorTransformation.bootstrap_with(DATA)

    writer = SavepointWriter.new_savepoint(env, None, 16)
    writer.with_operator("op", data.transform(Elements())).with_operator("rules", data.transform(Rules()))
    writer.write(target)

    reader = SavepointReader.read(env, target)
    assert collected(reader.read_list_state("op", "list", Types.LONG())) == [1, 2, 3]
    assert collected(reader.read_union_state("op", "union")) == ["once"]
    assert sorted(collected(reader.read_broadcast_state("rules", "rules"))) == [("a", 3), ("b", 2)]


def test_a_bootstrap_function_may_name_both_base_classes(target: str) -> None:
    class Both(CheckpointedFunction, StateBootstrapFunction):
        def initialize_state(self, context: Any) -> None:
            store = context.get_operator_state_store()
            self.list = store.get_list_state(ListStateDescriptor("list", Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.list.add(value)

        def snapshot_state(self, context: Any) -> None:
            pass

    data = OperatorTransformation.bootstrap_with([1, 2]).transform(Both())
    SavepointWriter.new_savepoint(environment(), None, 16).with_operator("op", data).write(target)

    assert collected(SavepointReader.read(environment(), target).read_list_state("op", "list")) == [1, 2]


def test_untouched_operators_are_copied_byte_by_byte(snapshot: str, target: str) -> None:
    env = environment()

    SavepointWriter.from_existing_savepoint(env, snapshot).with_operator("more", keyed(DATA)).write(target)

    assert verify(target) == []
    old, new = (read_metadata(FileSystemStorage(), path) for path in (snapshot, target))
    assert [operator.uid for operator in new.operators] == ["numbers", "sum", "more"]
    assert new.is_savepoint
    assert new.shared_files() == frozenset()
    assert new.operator("more").max_parallelism == old.operator("sum").max_parallelism
    assert all(entry.is_equal for entry in diff(snapshot, target) if entry.uid == "sum")
    checksums = [_checksums(metadata.operator("sum")) for metadata in (old, new)]
    assert checksums[0] == checksums[1]


def _checksums(operator: Any) -> Any:
    tables = [table.row_groups for subtask in operator.subtasks for table in subtask.tables]
    natives = [s.native for s in operator.subtasks if s.native is not None]
    return tables, [file.checksum for native in natives for file in native.files]


def test_an_incremental_checkpoint_becomes_a_savepoint_that_can_be_moved(
    incremental: str, tmp_path: Path
) -> None:
    written = SavepointWriter.from_existing_savepoint(environment(), incremental).write(str(tmp_path / "a"))
    moved = str(tmp_path / "somewhere" / "else")
    os.makedirs(tmp_path / "somewhere")
    os.rename(written, moved)

    assert continue_job(moved, [("k3", 1)], rocksdb=True) == [("k3", 931)]


def test_an_operator_is_replaced_by_removing_it_first(savepoint: str, target: str) -> None:
    env = environment()
    writer = SavepointWriter.from_existing_savepoint(env, savepoint)

    with pytest.raises(ValueError, match=r"remove_operator\('sum'\)"):
        writer.with_operator("sum", keyed(DATA))
    writer.remove_operator("sum").with_operator("sum", keyed(DATA)).write(target)

    assert continue_job(target, [("k3", 1), ("a", 1)]) == [("a", 5), ("k3", 1)]


def test_an_operator_is_removed(savepoint: str, target: str) -> None:
    SavepointWriter.from_existing_savepoint(environment(), savepoint).remove_operator("sum").write(target)

    assert read_metadata(FileSystemStorage(), target).operator("sum") is None


def test_bad_arguments_are_refused(savepoint: str, target: str, tmp_path: Path) -> None:
    env = environment()
    writer = SavepointWriter.new_savepoint(env, None, 16)

    with pytest.raises(ConfigError, match="exists already"):
        writer.write(str(tmp_path))
    with pytest.raises(ConfigError, match="between 1 and 32768"):
        SavepointWriter.new_savepoint(env, None, 0)
    with pytest.raises(ConfigError, match="no operator with uid 'x'"):
        writer.remove_operator("x")
    with pytest.raises(TypeError, match=r"result of transform\(\)"):
        writer.with_operator("x", DATA)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="non-empty uid"):
        writer.with_operator("", keyed(DATA))
    with pytest.raises(TypeError, match="StateBackend"):
        SavepointWriter.new_savepoint(env, "heap", 16)  # type: ignore[arg-type]
    with pytest.raises(SavepointNotFoundError):
        SavepointWriter.from_existing_savepoint(env, target)
    with pytest.raises(TypeError, match="Spark DataFrame"):
        SavepointWriter.from_existing_savepoint(env, savepoint).write_state("sum", "total", DATA)


def test_the_kind_of_function_and_data_is_checked() -> None:
    data = OperatorTransformation.bootstrap_with(DATA)
    env = environment()

    class Endless(SourceFunction):
        def run(self, ctx: Any) -> None:
            pass

        def cancel(self) -> None:
            pass

    with pytest.raises(TypeError, match="needs a list"):
        OperatorTransformation.bootstrap_with(7)
    with pytest.raises(ConfigError, match="unbounded"):
        OperatorTransformation.bootstrap_with(env.add_source(Endless()))
    with pytest.raises(TypeError, match=r"needs key_by\(\)"):
        data.transform(Totals())
    with pytest.raises(TypeError, match="StateBootstrapFunction"):
        data.transform(print)
    with pytest.raises(TypeError, match="KeyedStateBootstrapFunction"):
        data.key_by(lambda pair: pair[0]).transform(Elements())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        data.key_by("name")


def test_a_failing_function_leaves_nothing_behind(target: str) -> None:
    class Fails(Totals):
        def process_element(self, value: Any, ctx: Any) -> None:
            raise KeyError("no such thing")

    data = OperatorTransformation.bootstrap_with(DATA).key_by(lambda pair: pair[0]).transform(Fails())

    with pytest.raises(ExecutionError, match="KeyError: 'no such thing'") as caught:
        SavepointWriter.new_savepoint(environment(), None, 16).with_operator("sum", data).write(target)

    assert isinstance(caught.value.__cause__, KeyError)
    assert not os.path.exists(target)


def test_number_sequences_are_bounded_data(target: str) -> None:
    from tidemark import WatermarkStrategy

    env = environment()
    numbers = env.from_source(
        NumberSequenceSource(1, 4), WatermarkStrategy.no_watermarks(), "n", Types.LONG()
    )

    class Add(KeyedStateBootstrapFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(TOTAL)

        def process_element(self, value: Any, ctx: Any) -> None:
            self.total.update((self.total.value() or 0) + value)

    data = (
        OperatorTransformation.bootstrap_with(numbers).key_by(lambda n: n % 2, Types.INT()).transform(Add())
    )
    SavepointWriter.new_savepoint(env, None, 16).with_operator("odd", data).write(target)

    class Total(KeyedStateReaderFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(TOTAL)

        def read_key(self, key: Any, ctx: Any) -> Any:
            yield key, self.total.value()

    assert sorted(collected(SavepointReader.read(env, target).read_keyed_state("odd", Total()))) == [
        (0, 6),
        (1, 4),
    ]


class Clicks(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.clicks = runtime_context.get_state(clicks_for_ten_seconds())

    def process_element(self, value: Any, ctx: Any) -> None:
        self.clicks.update(value[1])


class Sessions(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.clicks = runtime_context.get_state(clicks_for_ten_seconds(self.ended))

    def ended(self, expired: ExpiredState) -> Any:
        yield f"{expired.key} {expired.value} until {expired.last_access}"

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield f"{ctx.get_current_key()} has {self.clicks.value()}"


def clicks_for_ten_seconds(ended: Any = None) -> ValueStateDescriptor:
    builder = StateTtlConfig.new_builder(Duration.of_seconds(10)).use_event_time()
    descriptor = ValueStateDescriptor("clicks", Types.LONG())
    descriptor.enable_time_to_live((builder if ended is None else builder.on_expiry(ended)).build())
    return descriptor


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


@pytest.mark.parametrize("rocksdb", [False, True])
def test_state_that_lives_by_event_time_is_as_old_as_the_elements_it_is_made_of(
    target: str, rocksdb: bool
) -> None:
    start = OperatorTransformation.bootstrap_with([("ann", 1_000), ("bob", 20_000)])
    clicks = start.assign_timestamps(ByNumber()).key_by(lambda pair: pair[0], Types.STRING())
    path = (
        SavepointWriter.new_savepoint(environment(), EmbeddedRocksDBStateBackend() if rocksdb else None, 16)
        .with_operator("sessions", clicks.transform(Clicks()))
        .write(target)
    )

    env = environment(1, settings={"execution.state-recovery.path": path, "parallelism.default": "1"})
    env.set_max_parallelism(16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByNumber())
    source = env.from_collection([("ann", 5_000), ("bob", 5_001)], PAIR).assign_timestamps_and_watermarks(
        strategy
    )
    sessions = source.key_by(lambda pair: pair[0], Types.STRING()).process(Sessions(), Types.STRING())
    with sessions.uid("sessions").execute_and_collect() as lines:
        assert sorted(lines) == [
            "ann 1000 until 1000",
            "ann has 1000",
            "bob 20000 until 20000",
            "bob has 20000",
        ]


def test_state_that_lives_by_event_time_is_not_made_of_elements_without_timestamps(target: str) -> None:
    clicks = OperatorTransformation.bootstrap_with([("ann", 1_000)]).key_by(
        lambda pair: pair[0], Types.STRING()
    )
    writer = SavepointWriter.new_savepoint(environment(), None, 16)
    writer.with_operator("sessions", clicks.transform(Clicks()))

    with pytest.raises(ConfigError, match=r"'clicks' .*assign_timestamps"):
        writer.write(target)
    assert not Path(target).exists()
