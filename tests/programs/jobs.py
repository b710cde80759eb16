"""Small jobs over the whole DataStream surface, with what they must give on any executor.

Each builder takes an environment and returns a stream whose elements, as a multiset, do not depend on
parallelism, state backend or executor. `everything` unites them into one job.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tidemark.common import Instant, Row, Time, Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import OutputTag, StreamExecutionEnvironment
from tidemark.datastream.functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tidemark.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
READINGS = [("a", 1), ("b", 2), ("a", 3), ("a", 11), ("c", 12), ("b", 25), ("a", 26), ("c", 41)]
LATE = OutputTag("late", PAIR)
ODD = OutputTag("odd", Types.INT())
UNREAD = OutputTag("unread")


@dataclasses.dataclass
class Point:
    """A value with a declared type of its own."""

    x: int = 0
    name: str = ""


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Describe(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, context.window().end, sorted(elements)


class Total(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        yield key, sum(value for _, value in inputs)


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 20 if element[0] == "a" else 5


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[1] / accumulator[0]

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class Rich(MapFunction):
    """Has `open`, so it runs in a slot and its input crosses the wire."""

    def open(self, runtime_context: Any) -> None:
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def map(self, value: Any) -> Any:
        return value


def readings(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    return env.from_collection(READINGS, type_info=PAIR).assign_timestamps_and_watermarks(strategy)


def keyed(env: StreamExecutionEnvironment) -> Any:
    return readings(env).key_by(lambda value: value[0], key_type=Types.STRING())


def add(left: Any, right: Any) -> Any:
    return left[0], left[1] + right[1]


def tumbling(env: Any) -> Any:
    return keyed(env).window(TumblingEventTimeWindows.of(Time.milliseconds(10))).process(Describe())


def sliding(env: Any) -> Any:
    window = SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10))
    return keyed(env).window(window).reduce(add)


def session(env: Any) -> Any:
    return keyed(env).window(EventTimeSessionWindows.with_gap(Time.milliseconds(10))).process(Describe())


def dynamic_session(env: Any) -> Any:
    return keyed(env).window(EventTimeSessionWindows.with_dynamic_gap(Gap())).aggregate(Mean())


def counts(env: Any) -> Any:
    return keyed(env).count_window(2).apply(Total(), PAIR).map(lambda value: value)


def global_window(env: Any) -> Any:
    trigger = PurgingTrigger.of(CountTrigger.of(2))
    return keyed(env).window(GlobalWindows.create()).trigger(trigger).reduce(add)


def chained_windows(env: Any) -> Any:
    first = keyed(env).window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(add)
    second = first.key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    totals = second.reduce(lambda left, right: ("all", left[1] + right[1]))
    return totals.window_all(TumblingEventTimeWindows.of(Time.milliseconds(50))).process(AllOf())


class AllOf(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Any:
        yield context.window().end, sorted(value for _, value in elements)


def aggregate_and_window(env: Any) -> Any:
    return (
        keyed(env)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(30)))
        .aggregate(
            Mean(),
            window_function=Describe(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
        )
    )


class Timers(KeyedProcessFunction):
    """Counts per key; timers tell the count, and the one of `b` is deleted."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.INT(), Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.put(value[1], True)
        ctx.timer_service().register_event_time_timer(100)
        if value[0] == "b":
            ctx.timer_service().delete_event_time_timer(100)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp, self.count.value(), sorted(self.seen.keys())


def timers(env: Any) -> Any:
    return keyed(env).process(Timers())


class Stamped(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def timestamps(env: Any) -> Any:
    stamped = keyed(env).map(Rich(), PAIR).filter(lambda value: value[0] != "b").process(Stamped())
    fired = keyed(env).window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(add)
    return stamped.union(fired.process(Stamped()))


class Meet(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.met = runtime_context.get_list_state(ListStateDescriptor("met", Types.INT()))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.met.add(value[1])
        ctx.timer_service().register_event_time_timer(1000)

    def process_element2(self, value: Any, ctx: Any) -> None:
        self.met.add(-value[1])
        ctx.timer_service().register_event_time_timer(1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), sorted(self.met.get())


def connected(env: Any) -> Any:
    right = env.from_collection([("a", 7), ("d", 8)])
    return readings(env).connect(right).key_by(lambda v: v[0], lambda v: v[0]).process(Meet())


class Halves(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value if value[1] % 2 else None

    def map2(self, value: Any) -> Any:
        return ("right", value)


class Spread(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        yield from [value] * 2

    def flat_map2(self, value: Any) -> None:
        return None


def connected_plain(env: Any) -> Any:
    right = env.from_collection([1, 2])
    mapped = readings(env).connect(right).map(Halves())
    return mapped.union(readings(env).connect(right).flat_map(Spread()))


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.output(UNREAD, value)
        if value % 2:
            yield ODD, value
        else:
            yield value


class SplitInSlot(Split):
    def open(self, runtime_context: Any) -> None:
        self.ready = True


def side_outputs(env: Any) -> Any:
    numbers = env.from_collection([1, 2, 3, 4], type_info=Types.INT())
    fused, hosted = numbers.process(Split(), Types.INT()), numbers.process(SplitInSlot(), Types.INT())
    odd = fused.get_side_output(ODD).map(lambda value: ("fused", value))
    odd_too = hosted.get_side_output(ODD).map(lambda value: ("slot", value))
    return fused.map(lambda v: v).union(hosted.map(lambda v: v), odd, odd_too)


class First(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        return key % num_partitions


class Here(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.here = (
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_number_of_parallel_subtasks(),
        )

    def map(self, value: Any) -> Any:
        return value, self.here[0] == value % self.here[1]


def custom_partitions(env: Any) -> Any:
    return env.from_collection(range(20)).partition_custom(First(), lambda value: value).map(Here())


def partitionings(env: Any) -> Any:
    numbers = env.from_collection(range(10)).map(lambda value: value)
    spread = [numbers.shuffle(), numbers.rebalance(), numbers.rescale(), numbers.forward()]
    streams = [stream.map(Rich()) for stream in spread]
    return streams[0].union(*streams[1:])


def broadcast_once(env: Any) -> Any:
    """Every subtask gets every element, one of them speaks."""
    return env.from_collection([1, 2, 3]).broadcast().map(OnlyFirst()).filter(lambda value: value is not None)


class OnlyFirst(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.speaks = runtime_context.get_index_of_this_subtask() == 0

    def map(self, value: Any) -> Any:
        return value if self.speaks else None


def unions(env: Any) -> Any:
    left = env.from_collection([("a", 1), ("b", 2)], type_info=PAIR)
    right = left.map(lambda value: (value[0], value[1] * 10), output_type=PAIR)
    diamond = left.union(right, left)
    return diamond.key_by(lambda value: value[0]).map(Rich(), PAIR).union(diamond.map(lambda v: v))


def iteration(env: Any) -> Any:
    loop = env.from_collection([("a", 5), ("b", 3)]).map(lambda value: value).iterate()
    body = loop.key_by(lambda value: value[0]).map_with_state(
        lambda value, rounds: ((value[0], value[1] - 1, (rounds or 0) + 1), (rounds or 0) + 1)
    )
    loop.close_with(body.filter(lambda v: v[1] > 0).map(lambda v: (v[0], v[1])))
    return body.filter(lambda v: v[1] == 0)


def rolling(env: Any) -> Any:
    rows = [Row(k=1, v=5, t="x"), Row(k=1, v=3, t="y"), Row(k=2, v=1, t="z"), Row(k=1, v=3, t="w")]
    kind = Types.ROW_NAMED(["k", "v", "t"], [Types.INT(), Types.INT(), Types.STRING()])
    typed = env.from_collection(rows, type_info=kind).key_by(lambda row: row.k, key_type=Types.INT())
    plain = env.from_collection([(1, 4), (1, 2), (1, 9)]).key_by(lambda value: value[0])
    results = [
        getattr(typed, name)("v").map(lambda row, name=name: (name, row.k, row.v, row.t))
        for name in ("sum", "min", "max", "min_by", "max_by")
    ]
    results += [plain.max(1).map(lambda v: ("max", *v)), plain.reduce(add).map(lambda v: ("reduce", *v))]
    return results[0].union(*results[1:])


MIXED_KEYS: list[Any] = [1, True, 1.0, "1", None, [1], (1,), {"a": 1}, b"1", Point(1)]


class CountKeys(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield repr(ctx.get_current_key()), self.count.value()


def mixed_keys(env: Any) -> Any:
    return env.from_collection(MIXED_KEYS * 2).key_by(lambda value: value).process(CountKeys())


TYPED: list[tuple[Any, list[Any]]] = [
    (Types.STRING(), ["a", None, "é"]),
    (Types.BOOLEAN(), [True, False]),
    (Types.BYTE(), [1, -128]),
    (Types.SHORT(), [1, 2**15 - 1]),
    (Types.INT(), [-(2**31)]),
    (Types.LONG(), [2**63 - 1]),
    (Types.FLOAT(), [1.5]),
    (Types.DOUBLE(), [0.1, float("inf")]),
    (Types.CHAR(), ["x"]),
    (Types.BIG_INT(), [10**40, None]),
    (Types.BIG_DEC(), [Decimal("1.23456789012345678901234"), None]),
    (Types.INSTANT(), [Instant.of_epoch_milli(5), None]),
    (Types.SQL_DATE(), [datetime.date(2024, 2, 29), None]),
    (Types.SQL_TIME(), [datetime.time(1, 2, 3, 4000), None]),
    (Types.SQL_TIMESTAMP(), [datetime.datetime(2024, 1, 1, 1, 1, 1, 123000), None]),
    (Types.PICKLED_BYTE_ARRAY(), [{1: 2}, None]),
    (Types.ROW([Types.INT(), Types.STRING()]), [Row(f0=1, f1=None), Row(f0=None, f1="x")]),
    (
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.ROW([Types.STRING()])]),
        [Row(a=1, b=Row(f0="q")), Row(a=None, b=None)],
    ),
    (
        Types.TUPLE([Types.INT(), Types.TUPLE([Types.STRING(), Types.LIST(Types.INT())])]),
        [(1, ("a", [1, 2]))],
    ),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [[1, 2]]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"ab"]),
    (Types.BASIC_ARRAY(Types.STRING()), [["a", None]]),
    (Types.OBJECT_ARRAY(Types.ROW([Types.INT()])), [[Row(f0=1), None]]),
    (Types.LIST(Types.DOUBLE()), [[1.0, None], []]),
    (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), [{"a": [1]}, {}]),
    (Types.DATACLASS(Point), [Point(1, "x"), None]),
]


def typed_streams(env: Any) -> Any:
    """Every declared type through a keyless and a keyed exchange, as value and as key."""
    streams = []
    for kind, values in TYPED:
        stream = env.from_collection(values, type_info=kind).map(Rich(), kind)
        streams.append(stream.key_by(lambda value: value, key_type=kind).map(Rich(), kind).map(repr))
    return streams[0].union(*streams[1:])


JOBS: dict[str, Callable[[Any], Any]] = {
    builder.__name__: builder
    for builder in (
        tumbling, sliding, session, dynamic_session, counts, global_window, chained_windows,
        aggregate_and_window, timers, timestamps, connected, connected_plain, side_outputs,
        custom_partitions, partitionings, broadcast_once, unions, iteration, rolling, mixed_keys,
        typed_streams,
    )
}  # fmt: skip

ANSWERS: dict[str, list[Any]] = {
    "tumbling": [
        ("a", 0, 10, [("a", 1), ("a", 3)]), ("b", 0, 10, [("b", 2)]), ("a", 10, 20, [("a", 11)]),
        ("c", 10, 20, [("c", 12)]), ("b", 20, 30, [("b", 25)]), ("a", 20, 30, [("a", 26)]),
        ("c", 40, 50, [("c", 41)]),
    ],
    "sliding": [
        ("a", 4), ("b", 2), ("a", 15), ("b", 2), ("c", 12), ("a", 37), ("c", 12), ("b", 25), ("a", 26),
        ("b", 25), ("c", 41), ("c", 41),
    ],
    "session": [
        ("a", 1, 21, [("a", 1), ("a", 3), ("a", 11)]), ("b", 2, 12, [("b", 2)]), ("c", 12, 22, [("c", 12)]),
        ("b", 25, 35, [("b", 25)]), ("a", 26, 36, [("a", 26)]), ("c", 41, 51, [("c", 41)]),
    ],
    "dynamic_session": [10.25, 2.0, 12.0, 25.0, 41.0],
    "counts": [("a", 4), ("a", 37), ("b", 27), ("c", 53)],
    "global_window": [("a", 4), ("a", 37), ("b", 27), ("c", 53)],
    "chained_windows": [(50, [29, 51]), (100, [41])],
    "aggregate_and_window": [
        ("a", 0, 30, [10.25]), ("b", 0, 30, [13.5]), ("c", 0, 30, [12.0]), ("c", 30, 60, [41.0]),
    ],
    "timers": [("a", 100, 4, [1, 3, 11, 26]), ("c", 100, 2, [12, 41])],
    "timestamps": [
        *((value, value[1]) for value in READINGS if value[0] != "b"),
        (("a", 4), 9), (("b", 2), 9), (("a", 11), 19), (("c", 12), 19), (("b", 25), 29), (("a", 26), 29),
        (("c", 41), 49),
    ],
    "connected": [("a", [-7, 1, 3, 11, 26]), ("b", [2, 25]), ("c", [12, 41]), ("d", [-8])],
    "connected_plain": [
        *(value for value in READINGS if value[1] % 2), ("right", 1), ("right", 2), *READINGS, *READINGS,
    ],
    "side_outputs": [2, 4, 2, 4, ("fused", 1), ("fused", 3), ("slot", 1), ("slot", 3)],
    "custom_partitions": [(value, True) for value in range(20)],
    "partitionings": [*range(10)] * 4,
    "broadcast_once": [1, 2, 3],
    "unions": [("a", 1), ("b", 2), ("a", 10), ("b", 20), ("a", 1), ("b", 2)] * 2,
    "iteration": [("a", 0, 5), ("b", 0, 3)],
    "rolling": [
        ("sum", 1, 5, "x"), ("sum", 1, 8, "x"), ("sum", 2, 1, "z"), ("sum", 1, 11, "x"),
        ("min", 1, 5, "x"), ("min", 1, 3, "x"), ("min", 2, 1, "z"), ("min", 1, 3, "x"),
        ("max", 1, 5, "x"), ("max", 1, 5, "x"), ("max", 2, 1, "z"), ("max", 1, 5, "x"),
        ("min_by", 1, 5, "x"), ("min_by", 1, 3, "y"), ("min_by", 2, 1, "z"), ("min_by", 1, 3, "y"),
        ("max_by", 1, 5, "x"), ("max_by", 1, 5, "x"), ("max_by", 2, 1, "z"), ("max_by", 1, 5, "x"),
        ("max", 1, 4), ("max", 1, 4), ("max", 1, 9), ("reduce", 1, 4), ("reduce", 1, 6), ("reduce", 1, 15),
    ],
    "mixed_keys": [(repr(key), count) for key in MIXED_KEYS for count in (1, 2)],
    "typed_streams": [repr(value) for _kind, values in TYPED for value in values],
}  # fmt: skip


def everything(env: Any) -> Any:
    """All jobs in one, each element with the name of its job."""
    streams = [
        builder(env).map(lambda value, name=name: (name, repr(value))) for name, builder in JOBS.items()
    ]
    return streams[0].union(*streams[1:])


def sorted_texts(values: Any) -> list[str]:
    """A multiset as a list that compares."""
    return sorted(map(repr, values))
