"""A job goes from functions of records to functions of batches through a savepoint, and back, on either backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BatchProcessFunction,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    ManualClock,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from tidemark.testing import OneInputHarness

BACKENDS = [HashMapStateBackend, EmbeddedRocksDBStateBackend]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TEXT = Types.TUPLE([Types.LONG(), Types.STRING()])


class Mean(AggregateFunction):
    """Sum and number of what was added."""

    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, a: Any, b: Any) -> Any:
        return (a[0] + b[0], a[1] + b[1])


def add(a: int, b: int) -> int:
    return a + b


class ByRecord(KeyedProcessFunction):
    """Tells what a key holds, as text, and adds to it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, runtime_context: Any) -> None:
        self.state = _state(self.kind, runtime_context)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        state, number = self.state, value[1]
        if self.kind == "value":
            held = state.value()
            state.update((held or 0) + number)
        elif self.kind == "pair":
            held = state.value()
            state.update((number, -number))
        elif self.kind == "text":
            held = state.value()
            state.update((held or "") + str(number))
        elif self.kind == "list":
            held = list(state.get()) or None
            state.add(number)
        elif self.kind == "map":
            held = state.get(str(number))
            state.put(str(number), (held or 0) + number)
        else:
            held = state.get()
            state.add(number)
        yield value[0], repr(held)


class ByBatch(BatchProcessFunction):
    """The same for all keys of a batch, which holds each key once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, runtime_context: Any) -> None:
        self.state = _state(self.kind, runtime_context)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        state, numbers = self.state, batch["f1"].to_numpy()
        if self.kind == "value":
            values, present = state.read(keys, with_mask=True)
            held = [value if there else None for value, there in zip(values.tolist(), present, strict=True)]
            state.write(keys, values + numbers)
        elif self.kind == "pair":
            (first, second), present = state.read(keys, with_mask=True)
            pairs = zip(first.tolist(), second.tolist(), present, strict=True)
            held = [(one, two) if there else None for one, two, there in pairs]
            state.write(keys, (numbers, -numbers))
        elif self.kind == "text":
            held = state.read(keys).to_pylist()
            texts = [(text or "") + str(number) for text, number in zip(held, numbers.tolist(), strict=True)]
            state.write(keys, pa.array(texts))
        elif self.kind == "list":
            held = [elements or None for elements in state.read(keys).to_pylist()]
            state.append(keys, numbers)
        elif self.kind == "map":
            names = pa.array([str(number) for number in numbers.tolist()])
            found = state.read(keys, names)
            held = found.to_pylist()
            state.write(keys, names, pa.compute.add(found.fill_null(0), pa.array(numbers)))
        else:
            held = state.read(keys).to_pylist()
            state.append(keys, batch["f1"])
        return {"f0": batch["f0"], "f1": [repr(each) for each in held]}


def _state(kind: str, context: Any, ttl: StateTtlConfig | None = None) -> Any:
    if kind == "list":
        return context.get_list_state(ListStateDescriptor("s", Types.LONG()))
    if kind == "map":
        return context.get_map_state(MapStateDescriptor("s", Types.STRING(), Types.LONG()))
    if kind == "reducing":
        return context.get_reducing_state(ReducingStateDescriptor("s", add, Types.LONG()))
    if kind == "aggregating":
        return context.get_aggregating_state(AggregatingStateDescriptor("s", Mean(), PAIR))
    types = {"value": Types.LONG(), "pair": PAIR, "text": Types.STRING()}
    return context.get_state(ValueStateDescriptor("s", types[kind]))


def harness_of(style: str, kind: str, backend: Any) -> OneInputHarness:
    function = ByRecord(kind) if style == "record" else ByBatch(kind)
    return OneInputHarness(
        function,
        key_selector=lambda value: value[0],
        key_type=Types.LONG(),
        state_backend=backend(),
        input_type=PAIR,
        output_type=TEXT,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("styles", [("record", "batch", "record"), ("batch", "record", "batch")])
@pytest.mark.parametrize("kind", ["value", "pair", "text", "list", "map", "reducing", "aggregating"])
def test_state_crosses_between_records_and_batches(kind: str, styles: tuple[str, ...], backend: Any) -> None:
    others = [each for each in BACKENDS if each is not backend]
    elements = [[(key, key % 3) for key in range(first, first + 8)] for first in (0, 2, 4)]

    def run(chosen: tuple[str, ...], stores: list[Any]) -> list[Any]:
        seen: list[Any] = []
        savepoint = None
        for style, store, batch in zip(chosen, stores, elements, strict=True):
            harness = harness_of(style, kind, store)
            if savepoint is not None:
                harness.initialize_state(savepoint)
            harness.process_elements(batch)
            seen += harness.output()
            harness.process_elements(batch[:3])
            seen += harness.output()
            savepoint = harness.savepoint()
            savepoint.to_bytes()
            harness.close()
        return seen

    assert run(styles, [backend, *others, backend]) == run(("record",) * 3, [HashMapStateBackend] * 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_savepoint_of_columns_is_that_of_records(backend: Any) -> None:
    elements = [(key * 7, key) for key in range(300)]
    tables = []
    for style in ("record", "batch"):
        harness = harness_of(style, "pair", backend)
        harness.process_elements(elements)
        cut = harness._subtask.cut(1, 0)
        table = next(table for table in cut.cut.tables() if table.meta.name == "s")
        rows = pa.Table.from_batches(list(table.batches()), schema=table.schema)
        groups = rows["key_group"].to_pylist()
        assert groups == sorted(groups)
        tables.append(rows.sort_by("key"))
        cut.cut.release()
        harness.close()

    assert tables[0].equals(tables[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cut_shows_the_state_at_the_barrier(backend: Any) -> None:
    harness = harness_of("batch", "value", backend)
    harness.process_elements([(key, 1) for key in range(100)])
    cut = harness._subtask.cut(1, 0)
    harness.process_elements([(key, 5) for key in range(50, 5_000)])
    table = next(table for table in cut.cut.tables() if table.meta.name == "s")
    rows = pa.Table.from_batches(list(table.batches()), schema=table.schema)

    assert rows.sort_by("key").select(["key", "value"]).to_pydict() == {
        "key": list(range(100)),
        "value": [1] * 100,
    }
    cut.cut.release()
    harness.process_elements([(60, 0)])
    assert harness.output()[-1] == (60, "6")


class _Expiring(BatchProcessFunction):
    """What is visible of each key, then a write to the keys whose number is not 0."""

    def __init__(self, ttl: StateTtlConfig, kind: Any) -> None:
        self.ttl, self.kind = ttl, kind

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("s", self.kind)
        descriptor.enable_time_to_live(self.ttl)
        self.state = runtime_context.get_state(descriptor)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        present = self.state.read(keys, with_mask=True)[1]
        writes = batch["f1"].to_numpy() != 0
        values = batch["f1"].to_numpy()[writes]
        self.state.write(keys[writes], values if self.kind == Types.LONG() else pa.array(values.astype(str)))
        return {"f0": batch["f0"], "f1": present.astype(np.int64)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [Types.LONG(), Types.STRING()], ids=["LONG", "STRING"])
@pytest.mark.parametrize("renewed", [False, True])
def test_values_expire_in_columns(backend: Any, kind: Any, renewed: bool) -> None:
    builder = StateTtlConfig.new_builder(100)
    ttl = (builder.update_ttl_on_read_and_write() if renewed else builder).build()
    clock = ManualClock()

    def opened(snapshot: Any = None) -> OneInputHarness:
        harness = OneInputHarness(
            _Expiring(ttl, kind),
            key_selector=lambda value: value[0],
            key_type=Types.LONG(),
            state_backend=backend(),
            clock=clock,
            input_type=PAIR,
        )
        if snapshot is not None:
            harness.initialize_state(snapshot)
        return harness

    harness = opened()
    harness.process_elements([(1, 1), (2, 1)])
    clock.set(60)
    harness.process_elements([(1, 0), (2, 7)])
    clock.set(110)
    harness.process_elements([(1, 0), (2, 0)])
    assert harness.output() == [(1, 0), (2, 0), (1, 1), (2, 1), (1, int(renewed)), (2, 1)]
    savepoint = harness.savepoint()
    savepoint.to_bytes()
    harness.close()
    harness = opened(savepoint)
    clock.set(120)
    harness.process_elements([(2, 0)])
    clock.set(300)
    harness.process_elements([(2, 0)])
    assert harness.output() == [(2, 1), (2, 0)]
    harness.process_elements([(2, 0)])
    harness.close()


def test_incremental_cleanup_walks_over_columns() -> None:
    ttl = (
        StateTtlConfig.new_builder(100)
        .disable_cleanup_in_background()
        .cleanup_incrementally(5, False)
        .build()
    )
    clock = ManualClock()
    harness = OneInputHarness(
        _Expiring(ttl, Types.LONG()),
        key_selector=lambda value: value[0],
        key_type=Types.LONG(),
        state_backend=HashMapStateBackend(),
        clock=clock,
        input_type=PAIR,
    )
    harness.process_elements([(key, 1) for key in range(1_000)])
    backend = harness._operator.backend  # type: ignore[attr-defined]
    assert backend.num_entries("s") == 1_000
    clock.set(500)
    harness.process_elements([(5_000, 1)])
    assert 900 < backend.num_entries("s") < 1_000
    for batch in range(3):
        harness.process_elements([(5_000 + batch * 50 + key, 1) for key in range(50)])
    assert backend.num_entries("s") < 200


@pytest.mark.parametrize("backend", BACKENDS)
def test_columns_are_read_from_outside(backend: Any) -> None:
    harness = harness_of("batch", "pair", backend)
    harness.process_elements([(1, 5), (2, 7)])
    store = harness._operator.backend  # type: ignore[attr-defined]

    assert store.query("s", 1) == (True, (5, -5))
    assert store.query("s", 3) == (False, None)
    assert sorted(store.keys("s")) == [1, 2]
    assert len(store.keys("s", limit=1)) == 1
    assert store.namespaces("s", 2) == [()]
    assert store.namespaces("s", 3) == []
    assert store.num_entries("s") == store.num_entries() == 2
    harness.close()


def test_keys_without_state_give_their_rows_back() -> None:
    class Passing(BatchProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))

        def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
            held = self.state.read(keys)
            self.state.write(keys, batch["f1"].to_numpy() + held)
            self.state.clear(keys[keys.distinct.to_numpy() >= 100])
            return None

    harness = OneInputHarness(
        Passing(), key_selector=lambda value: value[0], key_type=Types.LONG(), input_type=PAIR
    )
    for first in range(0, 60_000, 500):
        harness.process_elements([(key, 1) for key in range(first, first + 500)])
        harness.process_elements([(key, 1) for key in range(100)])
    columns = harness._operator.backend._columns  # type: ignore[attr-defined]

    assert columns.tables["s"].index.capacity <= 4_096
    assert harness._operator.backend.query("s", 7) == (True, 121)  # type: ignore[attr-defined]
    assert harness._operator.backend.num_entries() == 100  # type: ignore[attr-defined]


def test_a_small_read_cache_forgets_and_reads_again() -> None:

    harness = OneInputHarness(
        ByBatch("value"),
        key_selector=lambda value: value[0],
        key_type=Types.LONG(),
        state_backend=EmbeddedRocksDBStateBackend(),
        input_type=PAIR,
        output_type=TEXT,
    )
    harness.open()
    cache = harness._operator.backend._columns  # type: ignore[attr-defined]
    cache._limit = 2_000
    for _ in range(3):
        for first in range(0, 400, 40):
            harness.process_elements([(key, 1) for key in range(first, first + 40)])

    assert cache.index.count < 200
    assert harness.output()[-1] == (399, "2")
    harness.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_type_of_a_state_evolves_on_the_way_to_columns(backend: Any) -> None:
    class Old(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("s", Types.STRING()))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.state.update(str(value[1]))

    class New(BatchProcessFunction):
        def open(self, runtime_context: Any) -> None:
            descriptor = ValueStateDescriptor("s", Types.LONG())
            self.state = runtime_context.get_state(descriptor.migrate_from(Types.STRING(), int))

        def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
            return {"f0": keys.distinct, "f1": self.state.read(keys, default=-1)}

    settings: Any = {"key_selector": lambda value: value[0], "key_type": Types.LONG()}
    old = OneInputHarness(Old(), state_backend=backend(), **settings)
    old.process_elements([(1, 10), (2, 20)])
    savepoint = old.savepoint()
    savepoint.to_bytes()
    old.close()
    new = OneInputHarness(New(), state_backend=backend(), input_type=PAIR, **settings)
    new.initialize_state(savepoint)
    new.process_elements([(1, 0), (2, 0), (3, 0)])

    assert new.output() == [(1, 10), (2, 20), (3, -1)]
    new.close()
