"""The job whose snapshots release 0.1 wrote. Frozen: a later release restores them with this very program.

In its first life the job stores something of every kind of state under eight keys and then waits. In its
second life it asks for all of it and ends, so that timers and windows fire.
"""

from __future__ import annotations

import datetime
import decimal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    EventTimeSessionWindows,
    Instant,
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    NullableSerializer,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    Row,
    RowKind,
    SimpleTypeSerializerSnapshot,
    SourceFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    TypeSerializer,
    ValueStateDescriptor,
    WatermarkStrategy,
)

KEYS = tuple(f"key-{number}" for number in range(8))
ROUNDS = 3
RULES = {"red": 1, "green": 2}
FAR = 7_258_118_400_000
"""The year 2200, in ms: processing-time timers are never due before."""
WINDOW = 100_000


@dataclass
class Item:
    name: str
    price: float


@dataclass
class Account:
    owner: str
    balance: int
    items: list[Item] = field(default_factory=list)
    best: Item | None = None
    limits: dict[str, int] = field(default_factory=dict)


class Reversed(TypeSerializer[str]):
    """Text, written backwards."""

    def serialize(self, element: str, stream: Any) -> None:
        stream.write_utf(element[::-1])

    def deserialize(self, stream: Any) -> str:
        return stream.read_utf()[::-1]

    def snapshot_configuration(self) -> Any:
        return ReversedSnapshot()


class ReversedSnapshot(SimpleTypeSerializerSnapshot[str]):
    def __init__(self) -> None:
        super().__init__(Reversed)


AVRO = Types.AVRO(
    '{"type": "record", "name": "User", "namespace": "golden", "fields": ['
    '{"name": "id", "type": "int"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]}'
)

# A type, and the value a number has in it.
TYPES: list[tuple[Any, Any]] = [
    (Types.STRING(), lambda n: f"text {n} é"),
    (Types.BOOLEAN(), lambda n: n % 2 == 0),
    (Types.BYTE(), lambda n: -n),
    (Types.SHORT(), lambda n: -300 * n),
    (Types.INT(), lambda n: 70_000 * n),
    (Types.LONG(), lambda n: -(2**40) * n),
    (Types.FLOAT(), lambda n: n / 2),
    (Types.DOUBLE(), lambda n: n / 10),
    (Types.CHAR(), lambda n: chr(ord("a") + n)),
    (Types.BIG_INT(), lambda n: 10**30 * n),
    (Types.BIG_DEC(), lambda n: decimal.Decimal(n).scaleb(-2)),
    (Types.INSTANT(), lambda n: Instant(n, 5)),
    (Types.SQL_DATE(), lambda n: datetime.date(2020, 1, n + 1)),
    (Types.SQL_TIME(), lambda n: datetime.time(n, 30, 5, 1000)),
    (Types.SQL_TIMESTAMP(), lambda n: datetime.datetime(2021, 2, n + 1, 3, 4, 5, 6000)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), lambda n: bytes([n, 255])),
    (Types.PRIMITIVE_ARRAY(Types.LONG()), lambda n: [n, -n]),
    (Types.BASIC_ARRAY(Types.STRING()), lambda n: [str(n), None]),
    (Types.OBJECT_ARRAY(Types.TUPLE([Types.LONG()])), lambda n: [(n,)]),
    (Types.LIST(Types.DOUBLE()), lambda n: [n / 4] * n),
    (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), lambda n: {"a": [n], "b": []}),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), lambda n: (n, str(n))),
    (Types.ROW([Types.LONG(), Types.STRING()]), lambda n: Row(f0=n, f1=None)),
    (Types.ROW_NAMED(["x", "y"], [Types.LONG(), Types.LONG()]), lambda n: _updated(n)),
    (Types.PICKLED_BYTE_ARRAY(), lambda n: {"n": {n}}),
    (Types.DATACLASS(Account), lambda n: account(n)),
    (AVRO, lambda n: {"id": n, "tags": ["t"] * (n % 3)}),
    (Types.SERIALIZED(Reversed()), lambda n: f"abc{n}"),
    (Types.SERIALIZED(NullableSerializer(Reversed())), lambda n: None if n % 2 else "odd"),
]
EVERY_TYPE = Types.TUPLE([type_info for type_info, _ in TYPES])


def _updated(n: int) -> Row:
    row = Row(x=n, y=None)
    row.set_row_kind(RowKind.UPDATE_AFTER)
    return row


def account(n: int) -> Account:
    item = Item(f"i{n}", n / 8)
    return Account(f"owner {n}", n, [item] * (n % 3), item if n % 2 else None, {"day": n})


def of_every_type(n: int) -> tuple[Any, ...]:
    return tuple([value(n) for _, value in TYPES])


@dataclass
class Life:
    """What the functions of one run tell its test; they share the process."""

    emitted: threading.Event = field(default_factory=threading.Event)
    split: list[int] = field(default_factory=list)
    union: list[list[int]] = field(default_factory=list)


lives: dict[str, Life] = {}


class Elements(SourceFunction, CheckpointedFunction):
    """First life: rules, then every key in every round. Second life: a question about every key."""

    def __init__(self, life: str, asks: bool) -> None:
        self._life, self._asks = life, asks
        self._running = True

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._state = store.get_list_state(ListStateDescriptor("next", Types.LONG()))
        self._next = next(iter(self._state.get()), 0)

    def snapshot_state(self, context: Any) -> None:
        self._state.update([self._next])

    def run(self, ctx: Any) -> None:
        stored = [("rule", name, number) for name, number in RULES.items()]
        stored += [("put", key, n) for n in range(ROUNDS) for key in KEYS]
        elements = stored + [("get", key, ROUNDS) for key in KEYS if self._asks]
        while self._running and self._next < len(elements):
            with ctx.get_checkpoint_lock():
                ctx.collect(elements[self._next])
                self._next += 1
        lives[self._life].emitted.set()
        while self._running and not self._asks:
            threading.Event().wait(0.01)

    def cancel(self) -> None:
        self._running = False


class Stamps(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 10 * value[2]


class Witness(MapFunction, CheckpointedFunction):
    """Numbers of the keys it saw, in an even-split list and in a union list."""

    def __init__(self, life: str) -> None:
        self._life = life

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._split = store.get_list_state(ListStateDescriptor("split", Types.LONG()))
        self._union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
        if context.is_restored():
            lives[self._life].split += self._split.get()
            lives[self._life].union.append(sorted(self._union.get()))

    def snapshot_state(self, context: Any) -> None:
        pass

    def map(self, value: Any) -> Any:
        if value[0] == "put" and value[2] == 0:
            self._split.add(KEYS.index(value[1]))
            self._union.add(value[1])
        return value


class Sum(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[1] / accumulator[0]

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


BROADCAST = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ledger(KeyedBroadcastProcessFunction):
    """Every kind of keyed state, with and without time-to-live, and timers."""

    def open(self, runtime_context: Any) -> None:
        get = runtime_context
        self._all = get.get_state(ValueStateDescriptor("every type", EVERY_TYPE))
        self._list = get.get_list_state(ListStateDescriptor("list", Types.DATACLASS(Account)))
        self._map = get.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.STRING()))
        self._sum = get.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()))
        self._mean = get.get_aggregating_state(
            AggregatingStateDescriptor("mean", Sum(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )
        self._ttl_value = get.get_state(_expiring(ValueStateDescriptor("ttl value", Types.STRING())))
        self._ttl_list = get.get_list_state(_expiring(ListStateDescriptor("ttl list", Types.LONG())))
        self._ttl_map = get.get_map_state(
            _expiring(MapStateDescriptor("ttl map", Types.STRING(), Types.LONG()))
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        kind, key, n = value
        if kind == "put":
            number = KEYS.index(key) + n
            self._all.update(of_every_type(KEYS.index(key)))
            self._list.add(account(number))
            self._map.put(n, f"{key}/{n}")
            self._sum.add(number)
            self._mean.add(number)
            self._ttl_value.update(f"{key}!{n}")
            self._ttl_list.add(number)
            self._ttl_map.put(f"m{n % 2}", number)
            ctx.timer_service().register_event_time_timer(WINDOW + number)
            ctx.timer_service().register_processing_time_timer(FAR + number)
            return
        stored = (
            self._all.value(),
            list(self._list.get()),
            dict(self._map.items()),
            self._sum.get(),
            self._mean.get(),
            self._ttl_value.value(),
            list(self._ttl_list.get()),
            dict(self._ttl_map.items()),
            dict(ctx.get_broadcast_state(BROADCAST).items()),
        )
        yield "ledger", key, stored

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(BROADCAST).put(value[1], value[2])
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), timestamp


def _expiring(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(365_000)).build())
    return descriptor


class Contents(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield "window", key, (context.window().start, sorted(n for _, _, n in elements))

    def clear(self, context: Any) -> None:
        pass


ELEMENT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def build(env: StreamExecutionEnvironment, life: str, asks: bool) -> Any:
    """The stream of everything the job says."""
    lives.setdefault(life, Life())
    env.set_max_parallelism(128)
    source = env.add_source(Elements(life, asks), type_info=ELEMENT).uid("elements")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamps())
    stamped = source.assign_timestamps_and_watermarks(strategy).uid("stamps")
    rules = stamped.filter(lambda e: e[0] == "rule").broadcast(BROADCAST)
    data = stamped.filter(lambda e: e[0] != "rule").rebalance().map(Witness(life), ELEMENT).uid("witness")
    puts = data.filter(lambda e: e[0] == "put")
    keyed = data.key_by(lambda e: e[1], Types.STRING())
    ledger = keyed.connect(rules).process(Ledger()).uid("ledger")
    by_key = puts.key_by(lambda e: e[1], Types.STRING())
    by_pair = puts.key_by(lambda e: (len(e[1]), e[1]), Types.TUPLE([Types.LONG(), Types.STRING()]))
    windows = by_pair.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW))).process(Contents())
    sessions = by_key.window(EventTimeSessionWindows.with_gap(Time.milliseconds(WINDOW))).reduce(
        lambda a, b: ("session", a[1], a[2] + b[2])
    )
    return ledger.union(windows.uid("windows"), sessions.uid("sessions"))


def expected() -> dict[tuple[str, Any], list[Any]]:
    """What the second life says, by part and key."""
    rounds = range(ROUNDS)
    said: dict[tuple[str, Any], list[Any]] = {}
    for index, key in enumerate(KEYS):
        numbers = [index + n for n in rounds]
        said["ledger", key] = [
            (
                of_every_type(index),
                [account(number) for number in numbers],
                {n: f"{key}/{n}" for n in rounds},
                sum(numbers),
                sum(numbers) / ROUNDS,
                f"{key}!{ROUNDS - 1}",
                numbers,
                {"m0": numbers[2], "m1": numbers[1]},
                RULES,
            )
        ]
        said["timer", key] = [WINDOW + number for number in numbers]
        said["window", (len(key), key)] = [(0, list(rounds))]
        said["session", key] = [sum(rounds)]
    return said
