"""Details a program can rely on: prefixes of printed lines, clear failures, time in both modes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.common import (
    Configuration,
    Duration,
    RestartStrategies,
    Row,
    RowKind,
    Time,
    Types,
    WatermarkStrategy,
)
from tidemark.datastream import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    OutputTag,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from tidemark.datastream.functions import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ParallelSourceFunction,
    ProcessFunction,
    ProcessWindowFunction,
    SinkFunction,
    SourceFunction,
)
from tidemark.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from tidemark.errors import JobExecutionException
from tidemark.testing import ADVANCE, AT, CHECKPOINT, CRASH, END, RESCALE, WATERMARK, run_script


class Hosted(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return value


@pytest.fixture
def make_env() -> Callable[..., Any]:
    def make(parallelism: int = 1, mode: RuntimeExecutionMode | None = None) -> Any:
        configuration = Configuration()
        configuration.set_string("execution.target", "local")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        if mode is not None:
            env.set_runtime_mode(mode)
        return env

    return make


def printed(env: Any, capfd: pytest.CaptureFixture[str]) -> list[str]:
    env.execute()
    return capfd.readouterr().out.splitlines()


# Printing


def test_prefixes_follow_the_parallelism_of_the_sink(make_env: Any, capfd: Any) -> None:
    env = make_env(2)
    numbers = env.from_collection([1, 2, 3], type_info=Types.INT())
    numbers.print().set_parallelism(1)
    numbers.print("one").set_parallelism(1)
    numbers.print()
    numbers.print("two")

    lines = Counter(printed(env, capfd))

    plain = ["1", "2", "3", "one> 1", "one> 2", "one> 3"]
    numbered = ["1> 1", "1> 3", "2> 2", "two:1> 1", "two:1> 3", "two:2> 2"]
    assert lines == Counter([*plain, *numbered])


def test_lines_of_a_keyed_operator_carry_its_subtask(make_env: Any, capfd: Any) -> None:
    env = make_env(3)
    env.from_collection(range(9)).key_by(lambda value: value % 3).map(Where()).print()

    for line in printed(env, capfd):
        prefix, _, index = line.partition("> ")
        assert int(prefix) == int(index) + 1


class Where(Hosted):
    def map(self, value: Any) -> Any:
        return self.index


def test_a_keyed_stream_prints_its_values(make_env: Any, capfd: Any) -> None:
    env = make_env()
    env.from_collection([("a", 1)]).key_by(lambda value: value[0]).print()

    assert printed(env, capfd) == ["('a', 1)"]


def test_row_kinds_cross_the_wire(make_env: Any, capfd: Any) -> None:
    env, kind = make_env(), Types.ROW([Types.INT(), Types.STRING()])
    rows = [Row.of_kind(RowKind.DELETE, 1, "a"), Row(2, None)]
    env.from_collection(rows, type_info=kind).map(Hosted(), output_type=kind).print()

    assert printed(env, capfd) == ["-D[1,a]", "+I[2,None]"]


class Remember(KeyedProcessFunction):
    """Emits what state gave back for the key before."""

    def open(self, runtime_context: Any) -> None:
        kind = Types.ROW([Types.STRING(), Types.INT()])
        self.last = runtime_context.get_state(ValueStateDescriptor("last", kind))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value.as_dict(), None if self.last.value() is None else self.last.value().as_dict()
        self.last.update(Row(value.f0, value.f1))


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_rows_without_declared_names_are_called_f0_f1_by_type_and_state(backend: Any, make_env: Any) -> None:
    env = make_env()
    env.set_state_backend(backend())
    kind = Types.ROW([Types.STRING(), Types.INT()])
    rows = env.from_collection([Row("a", 1), ("a", 2)], type_info=kind)

    assert list(rows.execute_and_collect()) == [Row(f0="a", f1=1), Row(f0="a", f1=2)]
    assert list(rows.map(str).execute_and_collect()) == ["Row(f0='a', f1=1)", "Row(f0='a', f1=2)"]
    assert list(rows.key_by(lambda row: row.f0).process(Remember()).execute_and_collect()) == [
        ({"f0": "a", "f1": 1}, None),
        ({"f0": "a", "f1": 2}, {"f0": "a", "f1": 1}),
    ]


def test_two_sinks_on_one_stream_and_a_second_execute(make_env: Any, capfd: Any) -> None:
    env = make_env()
    stream = env.from_collection([1, 2]).map(Hosted())
    stream.print("a")
    stream.print("b")
    assert printed(env, capfd) == ["a> 1", "a> 2", "b> 1", "b> 2"]

    stream.print("again")
    assert printed(env, capfd) == ["again> 1", "again> 2"]


# Failures


class FailsToOpen(Hosted):
    def open(self, runtime_context: Any) -> None:
        raise ValueError("no entry")


class KeyedStateWithoutKey(Hosted):
    def open(self, runtime_context: Any) -> None:
        runtime_context.get_state(ValueStateDescriptor("lost", Types.INT()))


class TwoKindsOfOneName(Hosted):
    def open(self, runtime_context: Any) -> None:
        runtime_context.get_state(ValueStateDescriptor("same", Types.INT()))
        runtime_context.get_list_state(ListStateDescriptor("same", Types.INT()))


class FailingTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        raise ValueError("too late")


class TimerWithoutKey(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)


class FailingSink(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        raise ValueError("full")


NUMBER = OutputTag("number", Types.INT())


class WrongSide(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield NUMBER, "text"


def one(env: Any, value: Any = 1) -> Any:
    return env.from_collection([value])


FAILURES: list[tuple[Any, str]] = [
    (lambda e: one(e).map(lambda v: 1 / 0).name("op").print(), r"'op'.*ZeroDivisionError"),
    (lambda e: one(e).filter(lambda v: 1 / 0).name("op").print(), r"'op'.*ZeroDivisionError"),
    (lambda e: one(e).flat_map(lambda v: 7).name("op").print(), r"'op'.*not iterable"),
    (lambda e: one(e).map(lambda v: "text", Types.INT()).name("op").print(), r"'op'.*INT must be.*'text'"),
    (lambda e: one(e).map(Hosted(), Types.STRING()).name("op").print(), r"'op'.*STRING must be.*got 1"),
    (lambda e: one(e).map(FailsToOpen()).name("op").print(), r"'op'.*ValueError: no entry"),
    (lambda e: one(e).map(KeyedStateWithoutKey()).name("op").print(), r"'op'.*needs a KeyedStream"),
    (lambda e: one(e).key_by(id).map(TwoKindsOfOneName()).name("op").print(), r"'op'.*already registered"),
    (lambda e: one(e).key_by(lambda v: 1 / 0).map(Hosted()).name("op").print(), r"key selector of op.*Zero"),
    (lambda e: one(e).key_by(str, Types.INT()).map(Hosted()).name("op").print(), r"key selector of op.*INT"),
    (
        lambda e: one(e).partition_custom(lambda k, n: n, lambda v: v).map(Hosted()).name("op").print(),
        r"partitioner of op.*returned 1",
    ),
    (
        lambda e: one(e).map(lambda v: (n for n in [v])).map(Hosted()).name("op").print(),
        r"input of op.*pickle",
    ),
    (lambda e: one(e).key_by(id).process(FailingTimer()).name("op").print(), r"'op'.*too late"),
    (lambda e: one(e).process(TimerWithoutKey()).name("op").print(), r"'op'.*Timers belong to a key"),
    (lambda e: one(e).add_sink(FailingSink()).name("op"), r"'op'.*ValueError: full"),
    (lambda e: one(e).process(WrongSide()).name("op").get_side_output(NUMBER).print(), r"'op'.*INT.*'text'"),
    (lambda e: e.from_collection(["x"], type_info=Types.INT()).name("op").print(), r"'op'.*INT.*'x'"),
    (
        lambda e: (
            one(e).window_all(TumblingEventTimeWindows.of(Time.seconds(1))).reduce(max).name("op").print()
        ),
        r"'op'.*assign_timestamps_and_watermarks",
    ),
]


@pytest.mark.parametrize(("build", "message"), FAILURES)
def test_a_failure_names_its_operator_and_quotes_the_cause(build: Any, message: str, make_env: Any) -> None:
    env = make_env()
    build(env)

    with pytest.raises(JobExecutionException, match=f"(?s){message}"):
        env.execute()


# Time


class Until(SourceFunction):
    """Emits `items`, then waits to be released."""

    def __init__(self, items: list[Any], name: str) -> None:
        self.items = items
        self.name = name

    def run(self, ctx: Any) -> None:
        for item in self.items:
            ctx.collect(item)
        RELEASES[self.name].wait(600)

    def cancel(self) -> None:
        RELEASES[self.name].set()


RELEASES: dict[str, threading.Event] = {}


@pytest.fixture
def release(request: pytest.FixtureRequest) -> str:
    RELEASES[request.node.name] = threading.Event()
    return str(request.node.name)


class SoonAfter(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 50)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.get_current_key()


def test_processing_time_passes_while_a_source_is_silent(make_env: Any, release: str) -> None:
    env = make_env(2)
    keyed = env.add_source(Until([("a", 1), ("b", 2), ("a", 3)], release)).key_by(lambda value: value[0])
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.milliseconds(80)))
    totals = windows.reduce(lambda left, right: (left[0], left[1] + right[1]))

    with keyed.process(SoonAfter()).union(totals).execute_and_collect() as results:
        timers, sums = set(), Counter()
        while timers != {"a", "b"} or sums != {"a": 4, "b": 2}:
            kind, content = next(results)
            if kind == "timer":
                timers.add(content)
            else:
                sums[kind] += content
        RELEASES[release].set()


def test_pending_processing_time_timers_are_dropped_at_the_end_in_streaming_and_fire_in_batch(
    make_env: Any,
) -> None:
    class InAnHour(SoonAfter):
        def process_element(self, value: Any, ctx: Any) -> None:
            service = ctx.timer_service()
            service.register_processing_time_timer(service.current_processing_time() + 3_600_000)

    def run(mode: RuntimeExecutionMode) -> list[Any]:
        stream = make_env(1, mode).from_collection(["a"]).key_by(lambda value: value)
        return list(stream.process(InAnHour()).execute_and_collect())

    assert run(RuntimeExecutionMode.STREAMING) == []
    assert run(RuntimeExecutionMode.BATCH) == [("timer", "a")]


class Paced(ParallelSourceFunction):
    """The subtasks are far apart in time, and each keeps its own order."""

    def run(self, ctx: Any) -> None:
        index = self.get_runtime_context().get_index_of_this_subtask()
        pause = threading.Event()
        for step in range(5):
            ctx.collect((index, step * 10))
            pause.wait(0.02 * (1 + 2 * index))

    def cancel(self) -> None:
        pass


def test_no_record_of_a_slow_parallel_source_is_late(make_env: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    stamped = make_env(3).add_source(Paced()).assign_timestamps_and_watermarks(strategy)
    windows = stamped.key_by(lambda value: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))

    results = windows.reduce(lambda left, right: (left[0] + right[0], left[1])).execute_and_collect()

    assert sorted(results) == [(3, step * 10) for step in range(5)]


class SecondField:
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Fires(ProcessWindowFunction):
    """Counts per window and over all windows of a key."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window_state().get_state(ValueStateDescriptor("fires", Types.INT()))
        total = context.global_state().get_state(ValueStateDescriptor("total", Types.INT()))
        window.update((window.value() or 0) + 1)
        total.update((total.value() or 0) + 1)
        yield key, context.window().start, window.value(), total.value(), len(list(elements))

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fires", Types.INT())).clear()


def test_late_elements_fire_again_within_lateness_and_leave_by_the_side_after_it() -> None:
    late = OutputTag("late")

    def build(stream: Any) -> Any:
        fired = (
            stream.key_by(lambda value: value)
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .allowed_lateness(10)
            .side_output_late_data(late)
            .process(Fires())
            .uid("windows")
        )
        return fired.union(fired.get_side_output(late).map(lambda value: ("late", value)))

    script = [
        *[AT(1, "a"), WATERMARK(10), AT(2, "a"), CHECKPOINT, CRASH, AT(3, "a"), RESCALE(2)],
        *[AT(12, "a"), WATERMARK(25), AT(4, "a"), END],
    ]

    assert run_script(build, script) == [
        ("a", 0, 1, 1, 1),
        ("a", 0, 2, 2, 2),
        ("a", 0, 3, 3, 3),
        ("a", 10, 1, 4, 1),
        ("late", "a"),
    ]


def test_processing_time_windows_follow_the_injected_clock_through_a_crash() -> None:
    def build(stream: Any) -> Any:
        windows = stream.key_by(lambda value: value[0]).window(
            TumblingProcessingTimeWindows.of(Time.milliseconds(10))
        )
        return windows.reduce(lambda left, right: (left[0], left[1] + right[1])).uid("windows")

    script = [
        ("a", 1),
        ADVANCE(5),
        ("a", 2),
        CHECKPOINT,
        CRASH,
        ("b", 5),
        ADVANCE(5),
        ("a", 9),
        ADVANCE(10),
        END,
    ]

    assert sorted(run_script(build, script)) == [("a", 3), ("a", 9), ("b", 5)]


def test_an_idle_input_does_not_hold_windows_back(make_env: Any, release: str) -> None:
    env = make_env()
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_idleness(Duration.of_millis(100))
        .with_timestamp_assigner(SecondField())
    )
    busy = env.add_source(Until([("busy", 1), ("busy", 500)], release)).uid("busy")
    quiet = env.add_source(Until([("quiet", 2)], release)).uid("quiet")
    streams = [stream.assign_timestamps_and_watermarks(strategy) for stream in (busy, quiet)]
    windows = streams[0].union(streams[1]).key_by(lambda value: value[0])

    fired = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(max)
    with fired.execute_and_collect() as results:
        first = {next(results), next(results)}
        RELEASES[release].set()

    assert first == {("busy", 1), ("quiet", 2)}


# Batch mode


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
def test_batch_mode_reads_the_broadcast_side_first(mode: RuntimeExecutionMode, make_env: Any) -> None:
    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    class Known(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, sorted(ctx.get_broadcast_state(descriptor).items())

        def process_broadcast_element(self, value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(descriptor).put(*value)

    env = make_env(2, mode)
    rules = env.from_collection([("x", 1), ("y", 2)]).broadcast(descriptor)

    results = env.from_collection([1, 2, 3]).connect(rules).process(Known()).execute_and_collect()

    assert sorted(results) == [(value, [("x", 1), ("y", 2)]) for value in (1, 2, 3)]


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
def test_batch_mode_emits_one_value_per_key_and_replays_after_a_failure(
    mode: RuntimeExecutionMode, make_env: Any, tmp_path: Path
) -> None:
    def fails_once(value: Any) -> Any:
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("the first time")
        return value

    env = make_env(2, mode)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    pairs = env.from_collection([("a", 1), ("b", 2), ("a", 3)]).map(fails_once)

    assert sorted(pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect()) == [("a", 4), ("b", 2)]


@pytest.mark.parametrize("mode", list(RuntimeExecutionMode))
def test_an_empty_source_ends_the_job(mode: RuntimeExecutionMode, make_env: Any) -> None:
    empty = make_env(2, mode).from_collection([], type_info=Types.INT())

    assert list(empty.key_by(lambda value: value).reduce(max).map(Hosted()).execute_and_collect()) == []


def test_operators_of_many_parallelisms_work_together(make_env: Any) -> None:
    env = make_env(5)
    pairs = env.from_collection([("a", number) for number in range(10)] + [("b", 1)])
    sums = pairs.key_by(lambda pair: pair[0]).sum(1).set_parallelism(2).map(Hosted()).set_parallelism(4)
    fives = sums.key_by(lambda pair: pair[0]).count_window(5)
    totals = fives.reduce(lambda left, right: (left[0], left[1] + right[1])).set_parallelism(1)

    results = list(totals.map(Hosted()).execute_and_collect())

    assert [key for key, _ in results] == ["a", "a"]
    assert sum(total for _, total in results) == sum(n * (n + 1) // 2 for n in range(10))


class Scripted(SourceFunction):
    """An element, a watermark, then an element that is late and one that is not."""

    def run(self, ctx: Any) -> None:
        ctx.collect_with_timestamp(("a", 1), 1)
        ctx.emit_watermark(20)
        ctx.collect_with_timestamp(("a", 5), 5)
        ctx.collect_with_timestamp(("a", 25), 25)

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_watermark_of_a_source_is_everywhere_before_the_records_behind_it(
    depth: int, make_env: Any
) -> None:
    late = OutputTag("late")
    stream = make_env(2).add_source(Scripted())
    for _ in range(depth):
        stream = stream.key_by(lambda value: value[0]).map(Hosted())
    sums = (
        stream.key_by(lambda value: value[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .side_output_late_data(late)
        .reduce(lambda left, right: (left[0], left[1] + right[1]))
    )

    results = sums.union(sums.get_side_output(late).map(lambda value: ("late", value)))

    assert sorted(results.execute_and_collect()) == [("a", 1), ("a", 25), ("late", ("a", 5))]


class FailsToClose(Hosted):
    def close(self) -> None:
        raise ValueError("stuck")


def test_a_failing_close_at_the_regular_end_fails_the_job(make_env: Any) -> None:
    env = make_env()
    env.from_collection([1]).map(FailsToClose()).name("op").print()

    with pytest.raises(JobExecutionException, match=r"'op'.*ValueError: stuck"):
        env.execute()
