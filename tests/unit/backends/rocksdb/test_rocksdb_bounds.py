"""What a RocksDB store may use and hold, and what it says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.clock import ManualClock
from tidemark.errors import StateError
from tidemark.state.backend import NO_KEY, BackendParameters
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor
from tidemark.state.serializers import serializer_for
from tidemark.state.ttl import StateTtlConfig

Make = Callable[..., RocksDBKeyedStateBackend]
MIB = 1 << 20


def write(backend: RocksDBKeyedStateBackend, keys: Any, change: Callable[[Any], None]) -> None:
    backend.start_batch(list(keys))
    for key in keys:
        backend.context.token = key
        change(key)
    backend.context.token = NO_KEY
    backend.end_batch()


def test_rocksdb_stays_within_the_memory_of_its_share_of_the_slot(make: Make) -> None:
    backend = make(memory_per_slot=8 * MIB, stores_per_slot=2)
    state: Any = backend.state(ValueStateDescriptor("v", Types.STRING()))
    most = {"cache": 0, "buffers": 0}

    for first in range(0, 40_000, 4000):
        write(backend, range(first, first + 4000), lambda key: state.update(str(key) * 40))
        write(backend, range(0, first + 4000, 7), lambda key: state.value())
        figures = backend.figures()
        most["cache"] = max(most["cache"], figures["block-cache-usage"])
        most["buffers"] = max(most["buffers"], figures["cur-size-all-mem-tables"])

    assert figures["block-cache-capacity"] == 2 * MIB
    assert figures["total-sst-files-size"] > 4 * MIB, "the state is larger than its memory"
    assert most["cache"] <= 2 * MIB
    assert most["buffers"] <= 2 * MIB + MIB, "one write buffer more while another is written"
    assert figures["estimate-table-readers-mem"] < MIB // 4, "indexes and filters count as cache"


class Last(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.last.update(value)
        yield value


class Endless(SourceFunction):
    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: Any) -> None:
        number = 0
        while self.running:
            with ctx.get_checkpoint_lock():
                ctx.collect(number % 100)
                number += 1

    def cancel(self) -> None:
        self.running = False


@pytest.mark.parametrize("enabled", [True, False])
def test_the_stores_of_a_slot_share_its_memory_and_report_figures_if_asked(enabled: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "execution.target": "local",
                "state.backend.rocksdb.metrics.enabled": str(enabled).lower(),
                "state.backend.rocksdb.memory.fixed-per-slot": "8mb",
            }
        )
    )
    env.set_parallelism(1)
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    stream = env.add_source(Endless(), type_info=Types.LONG())
    for uid in ("one", "two"):
        stream = stream.key_by(lambda n: n, Types.LONG()).process(Last(), Types.LONG()).uid(uid)
    stream.print()
    client = env.execute_async()
    try:
        deadline = time.monotonic() + 600
        progress = client.get_progress()
        while progress["state_entries"] < 200:
            assert time.monotonic() < deadline
            progress = client.get_progress()
    finally:
        client.cancel().result()

    if not enabled:
        assert progress["stores"] == {}
        return
    assert set(progress["stores"]) == {"one", "two"}
    assert [figures["block-cache-capacity"] for figures in progress["stores"].values()] == [2 * MIB, 2 * MIB]
    assert all(figures["cur-size-all-mem-tables"] > 0 for figures in progress["stores"].values())


class Ticking(ManualClock):
    """Moves on by ten milliseconds whenever somebody looks at it."""

    ticks = False

    def now(self) -> int:
        if self.ticks:
            self.advance(10)
        return super().now()


@pytest.mark.parametrize(("after", "dropped"), [(1, 40), (20, 30), (1000, 20)])
def test_the_clean_up_looks_at_the_clock_after_so_many_entries(
    after: int, dropped: int, tmp_path: Any
) -> None:
    clock = Ticking(1000)
    parameters = BackendParameters(
        serializer_for(Types.LONG()),
        1,
        (0, 0),
        clock,
        directory=tmp_path,
        options={"ttl_compaction_filter_enabled": True},
    )
    backend = RocksDBKeyedStateBackend(parameters)
    try:
        config = StateTtlConfig.new_builder(100).cleanup_in_rocksdb_compact_filter(after).build()
        descriptor = ValueStateDescriptor("v", Types.LONG())
        descriptor.enable_time_to_live(config)
        state: Any = backend.state(descriptor)
        # In the order of the store, each entry expires a millisecond after the one before it.
        order = sorted(range(40), key=lambda key: serializer_for(Types.LONG()).to_bytes(key))
        for number, key in enumerate(order):
            clock.set(1000 + number)
            write(backend, [key], lambda key: state.update(key))
        clock.set(1000 + 100 - 1)
        clock.ticks = True
        backend._cleanup.run(0)
        clock.ticks = False

        assert 40 - backend.num_entries("v") == dropped
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("name", "key", "change", "message"),
    [
        (
            "blob",
            "a",
            lambda state: state.update("x" * 1001),
            r"A value.* of state 'blob' has 1001 bytes.*1000",
        ),
        ("blob", "k" * 1001, lambda state: state.update("x"), r"A key of state 'blob' has 10\d\d bytes"),
        ("pairs", "a", lambda state: state.put("k", "x" * 1001), r"A value.* of state 'pairs'"),
        ("pairs", "a", lambda state: state.put("k" * 1001, "x"), r"A key of state 'pairs'"),
        ("items", "a", lambda state: state.add("x" * 1001), r"segment of a list, of state 'items'"),
    ],
)
def test_keys_and_values_that_are_too_large_are_refused_by_name(
    make: Make, name: str, key: str, change: Any, message: str
) -> None:
    backend = make(Types.STRING(), max_entry_size=1000)
    states: dict[str, Any] = {
        "blob": backend.state(ValueStateDescriptor("blob", Types.STRING())),
        "pairs": backend.state(MapStateDescriptor("pairs", Types.STRING(), Types.STRING())),
        "items": backend.state(ListStateDescriptor("items", Types.STRING())),
    }
    write(backend, ["a", "b", "c"], lambda key: states["blob"].update("x" * 900))

    with pytest.raises(StateError, match=message) as caught:
        write(backend, [key], lambda key: change(states[name]))

    assert caught.value.state_name == name


def test_a_list_that_grew_too_large_unread_is_refused_by_snapshots_and_readers(make: Make) -> None:
    backend = make(Types.STRING(), max_entry_size=1000, read_cache_size=0)
    items: Any = backend.state(ListStateDescriptor("items", Types.STRING()))
    for _ in range(3):
        write(backend, ["a"], lambda key: items.add("x" * 400))

    cut = backend.cut()
    with pytest.raises(StateError, match=r"list of state 'items' has 12\d\d bytes"):
        for table in cut.tables():
            list(table.batches())
    cut.release()
    with pytest.raises(StateError, match="MapState"):
        write(backend, ["a"], lambda key: items.get())
