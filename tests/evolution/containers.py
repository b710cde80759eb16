"""Where a value can lie: one function per kind of state, driven in the same way.

An element `(key, value)` is stored under its key, `(key, None)` asks for what is stored there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    CheckpointedFunction,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from tidemark.api.specs import WindowSpec
from tidemark.operators.window import WindowOperator
from tidemark.testing import BroadcastHarness, OneInputHarness, OperatorSnapshot

NAME = "state"
KEYS = ("a", "b", "c")


class Latest(AggregateFunction):
    """The accumulator is the value added last."""

    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return b


class Keep(KeyedProcessFunction):
    """Keeps the value of each key in one keyed state."""

    def __init__(self, descriptor, write, read):
        self.descriptor = descriptor
        self.write = write
        self.read = read

    def open(self, runtime_context):
        get = {
            ValueStateDescriptor: runtime_context.get_state,
            ListStateDescriptor: runtime_context.get_list_state,
            MapStateDescriptor: runtime_context.get_map_state,
            ReducingStateDescriptor: runtime_context.get_reducing_state,
            AggregatingStateDescriptor: runtime_context.get_aggregating_state,
        }
        self.state = get[type(self.descriptor)](self.descriptor)

    def process_element(self, value, ctx):
        if value[1] is None:
            yield self.read(self.state)
        else:
            self.write(self.state, value[1])


class KeepInOperatorState(MapFunction, CheckpointedFunction):
    """Keeps all values in one operator list state, in the order in which they came."""

    def __init__(self, descriptor, union):
        self.descriptor = descriptor
        self.union = union

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        get = store.get_union_list_state if self.union else store.get_list_state
        self.state = get(self.descriptor)

    def snapshot_state(self, context):
        pass

    def map(self, value):
        if value[1] is None:
            return self.state.get()[KEYS.index(value[0])]
        self.state.add(value[1])
        return None


class KeepInBroadcastState(BroadcastProcessFunction):
    """Keeps the value of each key in the broadcast state."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def process_element(self, value, ctx):
        yield ctx.get_broadcast_state(self.descriptor).get(value[0])

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.descriptor).put(*value)


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield from elements

    def clear(self, context):
        pass


@dataclass(frozen=True)
class Container:
    """One kind of state: how to drive it with values of a type."""

    open: Callable[[Any, Sequence[Any], Any], Any]
    """From type, declared migrations and backend to a harness that is not open yet."""
    wrap: Callable[[Any], Any] = lambda value: value
    """What is read back for a value that was stored."""
    state: str = NAME
    """What the state is called."""

    def write(self, harness: Any, values: Sequence[Any]) -> None:
        for key, value in zip(KEYS, values, strict=False):
            put = getattr(harness, "process_broadcast_element", harness.process_element)
            put((key, value))
        harness.output()

    def read(self, harness: Any, count: int) -> list[Any]:
        for key in KEYS[:count]:
            harness.process_element((key, None))
        return harness.output()


def _keyed(describe, write, read, wrap=lambda value: value):
    def start(type_info, migrations, backend):
        descriptor = describe(type_info)
        for old, function in migrations:
            descriptor.migrate_from(old, function)
        return OneInputHarness(
            Keep(descriptor, write, read), lambda value: value[0], Types.STRING(), state_backend=backend
        )

    return Container(start, wrap)


def _nested(wrap_type, wrap, unwrap):
    """Value state of a type that contains the one under test; migrations are those of the whole."""

    def start(type_info, migrations, backend):
        descriptor = ValueStateDescriptor(NAME, wrap_type(type_info))
        for old, function in migrations:
            descriptor.migrate_from(wrap_type(old), lambda value, f=function: wrap(f(unwrap(value))))
        function = Keep(
            descriptor,
            lambda state, value: state.update(wrap(value)),
            lambda state: unwrap(state.value()),
        )
        return OneInputHarness(function, lambda value: value[0], Types.STRING(), state_backend=backend)

    return Container(start)


def _expiring(type_info):
    descriptor = ValueStateDescriptor(NAME, type_info)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    return descriptor


def _operator(union):
    def start(type_info, migrations, backend):
        descriptor = ListStateDescriptor(NAME, type_info)
        for old, function in migrations:
            descriptor.migrate_from(old, function)
        return OneInputHarness(KeepInOperatorState(descriptor, union), state_backend=backend)

    return Container(start)


def _broadcast(type_info, migrations, backend):
    descriptor = MapStateDescriptor(NAME, Types.STRING(), type_info)
    for old, function in migrations:
        descriptor.migrate_from(old, function)
    return BroadcastHarness(KeepInBroadcastState(descriptor), [descriptor], state_backend=backend)


class _Window(Container):
    """Contents of event-time windows, read by letting them fire."""

    def write(self, harness, values):
        for number, (key, value) in enumerate(zip(KEYS, values, strict=False)):
            harness.process_element((key, value), number)

    def read(self, harness, count):
        harness.process_watermark(100)
        fired = sorted(harness.output(), key=lambda element: element[0])
        return [value for _, value in fired]


def _window(type_info, migrations, backend):
    settings = WindowSpec(
        TumblingEventTimeWindows.of(10),
        element_type=Types.TUPLE([Types.STRING(), type_info]),
        window_function=Contents(),
        function_kind="process",
    )
    operator = WindowOperator(settings, Types.STRING())
    return OneInputHarness(operator, lambda value: value[0], Types.STRING(), state_backend=backend)


CONTAINERS = {
    "value": _keyed(
        lambda t: ValueStateDescriptor(NAME, t), lambda s, value: s.update(value), lambda s: s.value()
    ),
    "value with ttl": _keyed(_expiring, lambda s, value: s.update(value), lambda s: s.value()),
    "list": _keyed(
        lambda t: ListStateDescriptor(NAME, t),
        lambda s, value: s.add_all([value, value]),
        lambda s: list(s.get()),
        lambda value: [value, value],
    ),
    "map value": _keyed(
        lambda t: MapStateDescriptor(NAME, Types.STRING(), t),
        lambda s, value: s.put_all({"x": value, "y": value}),
        lambda s: dict(s.items()),
        lambda value: {"x": value, "y": value},
    ),
    "reducing": _keyed(
        lambda t: ReducingStateDescriptor(NAME, lambda a, b: b, t),
        lambda s, value: s.add(value),
        lambda s: s.get(),
    ),
    "accumulator": _keyed(
        lambda t: AggregatingStateDescriptor(NAME, Latest(), t),
        lambda s, value: s.add(value),
        lambda s: s.get(),
    ),
    "in a list": _nested(Types.LIST, lambda v: [v], lambda v: v[0]),
    "in a map": _nested(lambda t: Types.MAP(Types.LONG(), t), lambda v: {7: v}, lambda v: v[7]),
    "in a tuple": _nested(lambda t: Types.TUPLE([Types.LONG(), t]), lambda v: (1, v), lambda v: v[1]),
    "in a row": _nested(lambda t: Types.ROW_NAMED(["r"], [t]), lambda v: {"r": v}, lambda v: v["r"]),
    "operator list": _operator(union=False),
    "union list": _operator(union=True),
    "broadcast": Container(_broadcast),
    "window": _Window(_window, state="window-contents"),
}

BACKENDS: dict[str, Callable[[], Any]] = {
    "heap": HashMapStateBackend,
    "rocksdb": EmbeddedRocksDBStateBackend,
    "rocksdb files": lambda: EmbeddedRocksDBStateBackend(True),
}
"""The last one is restored from an incremental checkpoint instead of a savepoint."""


def take(harness: Any, backend: str) -> OperatorSnapshot:
    """A snapshot in which nothing refers to classes of this process any more."""
    snapshot = harness.snapshot() if backend == "rocksdb files" else harness.savepoint()
    return OperatorSnapshot.from_bytes(snapshot.to_bytes())
