"""Accesses to keyed state are timed where that is asked for, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueState,
    ValueStateDescriptor,
)
from tidemark.metrics import MetricRegistry
from tidemark.state.descriptors import StateKind
from tidemark.state.latency import track_latency


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return value + accumulator

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Everything(KeyedProcessFunction):
    """Touches a state of every kind, and yields what is in them."""

    def open(self, runtime_context: Any) -> None:
        aging = ValueStateDescriptor("aging", Types.LONG())
        aging.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.aging = runtime_context.get_state(aging)
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )
        self.total = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("total", Sum(), Types.LONG())
        )

    def process_element(self, value: int, ctx: Any) -> Any:
        self.value.update((self.value.value() or 0) + value)
        self.aging.update((self.aging.value() or 0) + value)
        self.list.add(value)
        self.map.put(value, value)
        self.sum.add(value)
        self.total.add(value)
        yield (
            self.value.value(),
            self.aging.value(),
            len(list(self.list.get())),
            self.map.get(value),
            self.sum.get(),
            self.total.get(),
        )
        if value == 19:
            self.value.clear()


def run(backend: Any, settings: dict[str, str]) -> list[Any]:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", **settings})
    )
    env.set_parallelism(1).set_state_backend(backend)
    stream = env.from_collection(list(range(20)), Types.LONG())
    keyed = stream.key_by(lambda value: value % 2, key_type=Types.LONG())
    with keyed.process(Everything()).execute_and_collect() as found:
        return list(found)


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_job_computes_the_same_with_and_without_tracking(backend: Any) -> None:
    plain = run(backend(), {})
    tracked = run(
        backend(),
        {
            "state.latency-track.keyed-state-enabled": "true",
            "state.latency-track.sample-interval": "1",
        },
    )

    assert tracked == plain
    assert len(plain) == 20


@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.LIST])
def test_one_access_in_so_many_is_timed(kind: StateKind) -> None:
    class Cell(ValueState[int]):
        __slots__ = ("held",)

        def value(self) -> int | None:
            return self.held

        def update(self, value: int | None) -> None:
            self.held = value

        def clear(self) -> None:
            self.held = None

    cell, registry = Cell(), MetricRegistry()
    track_latency(cell, kind, registry.group("op", "cell"), 4)
    for number in range(10):
        cell.update(number)
    cell.clear()

    metric = {StateKind.VALUE: "valueStateUpdateLatency", StateKind.LIST: "listStateUpdateLatency"}[kind]
    assert registry.snapshot()[f"op.cell.{metric}"]["count"] == 2
    assert registry.snapshot()["op.cell.stateClearLatency"]["count"] == 0
    assert isinstance(cell, Cell)
    assert cell.held is None
