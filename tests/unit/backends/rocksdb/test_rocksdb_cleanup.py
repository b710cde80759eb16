"""Removing expired state in passes over the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend, cleanup
from tidemark.clock import ManualClock
from tidemark.state.backend import NO_KEY
from tidemark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import Types

Make = Callable[..., RocksDBKeyedStateBackend]


def ttl(periodic: int | None = None, background: bool = True) -> StateTtlConfig:
    builder = StateTtlConfig.new_builder(100)
    if not background:
        builder.disable_cleanup_in_background()
    if periodic is not None:
        builder.cleanup_in_rocksdb_compact_filter(2, periodic)
    return builder.build()


def states(backend: RocksDBKeyedStateBackend, config: StateTtlConfig) -> list[Any]:
    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor("v", Types.LONG()),
        ListStateDescriptor("l", Types.STRING()),
        MapStateDescriptor("m", Types.STRING(), Types.LONG()),
    ]
    for descriptor in descriptors:
        descriptor.enable_time_to_live(config)
    return [backend.state(descriptor) for descriptor in descriptors]


def write(backend: RocksDBKeyedStateBackend, handles: list[Any], keys: range, text: str) -> None:
    value, items, pairs = handles
    backend.start_batch(list(keys))
    for key in keys:
        backend.context.token = key
        value.update(key)
        items.add(text)
        pairs.put(text, key)
    backend.context.token = NO_KEY
    backend.end_batch()


def sizes(backend: RocksDBKeyedStateBackend) -> list[int]:
    return [backend.num_entries(name) for name in ("v", "l", "m")]


def test_a_compaction_drops_expired_units_and_says_so(
    make: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make(ttl_compaction_filter_enabled=True)
    handles = states(backend, ttl())
    write(backend, handles, range(10), "old")
    clock.advance(60)
    write(backend, handles, range(5, 15), "new")
    clock.advance(40)

    with caplog.at_level(logging.DEBUG, "tidemark.backends.rocksdb.compaction_filter"):
        backend.compact()

    assert sizes(backend) == [10, 10, 10]
    assert backend.query("l", 7) == (True, ["new"])
    assert backend.query("l", 2) == (False, None)
    dropped = [record.args for record in caplog.records]
    assert sum(args[0] for args in dropped) == 5 + 10 + 10  # type: ignore[index,misc]
    backend.start_batch([2, 7])
    backend.context.token = 2
    assert handles[0].value() is None
    backend.context.token = 7
    assert handles[0].value() == 7
    backend.end_batch()


@pytest.mark.parametrize("gate", [False, True])
def test_without_gate_or_strategy_a_compaction_keeps_expired_units(
    make: Make, clock: ManualClock, gate: bool
) -> None:
    backend = make(ttl_compaction_filter_enabled=gate)
    write(backend, states(backend, ttl(background=not gate)), range(10), "old")
    clock.advance(100)

    backend.compact()

    assert sizes(backend) == [10, 10, 10]


def test_a_periodic_pass_goes_on_a_bounded_step_per_batch(
    make: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "_STEP_ROWS", 60)
    monkeypatch.setattr(cleanup, "_SEEK_COST", 0)
    backend = make(ttl_compaction_filter_enabled=True)
    handles = states(backend, ttl(periodic=1000))
    write(backend, handles, range(100), "old")
    clock.advance(999)
    write(backend, handles, range(1000, 1001), "new")
    assert sizes(backend) == [101, 101, 101]

    clock.advance(1)
    seen = []
    for _ in range(8):
        backend.start_batch([])
        backend.end_batch()
        seen.append(sum(sizes(backend)))

    assert seen[0] == 303 - 60
    assert all(before - after <= 60 for before, after in pairwise(seen))
    assert seen[-1] == 3


def test_much_writing_starts_a_pass(make: Make, clock: ManualClock) -> None:
    backend = make(ttl_compaction_filter_enabled=True, write_buffer_size=64 * 1024)
    handles = states(backend, ttl())
    write(backend, handles, range(10), "old")
    clock.advance(100)

    for at in range(100, 6000, 1000):
        write(backend, handles, range(at, at + 1000), "x" * 20)

    assert all(backend.query(name, 3) == (False, None) for name in ("v", "l", "m"))
    gone = [key for key in range(10) if key not in backend.keys("v")]
    assert gone == list(range(10))


def test_a_unit_renewed_during_a_pass_survives_it(
    make: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "_STEP_ROWS", 1)
    monkeypatch.setattr(cleanup, "_SEEK_COST", 0)
    backend = make(ttl_compaction_filter_enabled=True)
    handles = states(backend, ttl(periodic=50))
    write(backend, handles, range(4), "old")
    clock.advance(100)
    backend.start_batch([])
    backend.end_batch()

    write(backend, handles, range(4), "renewed")
    for _ in range(600):
        backend.start_batch([])
        backend.end_batch()

    assert sizes(backend) == [4, 4, 4]
    assert backend.query("l", 2) == (True, ["renewed"])


def test_the_clock_is_read_again_every_few_entries(
    make: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make(key_groups=(0, 127), ttl_compaction_filter_enabled=True)
    config = StateTtlConfig.new_builder(100).cleanup_in_rocksdb_compact_filter(2).build()
    descriptor = MapStateDescriptor("m", Types.LONG(), Types.LONG())
    descriptor.enable_time_to_live(config)
    state: Any = backend.state(descriptor)
    backend.start_batch([1])
    backend.context.token = 1
    state.put_all({n: n for n in range(9)})
    backend.end_batch()
    looked = []
    now = clock.now

    def counted() -> int:
        looked.append(1)
        return now()

    monkeypatch.setattr(clock, "now", counted)
    backend.compact()

    # Once when the pass begins, then for entries 0, 2, 4, 6 and 8.
    assert len(looked) == 6
