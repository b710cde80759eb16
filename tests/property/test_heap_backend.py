"""Random programs on the heap backend against plain dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaign import examples

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.state import canonical
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.ttl import StateTtlConfig
from tidemark.testing.backend_driver import BackendDriver, as_key, read_cut
from tidemark.testing.backend_model import Step, programs, run_program
from tidemark.types.typeinfo import Types


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=examples(300))
@given(program=programs())
def test_heap_state_agrees_with_dictionaries(ttl: bool, program: list[Step]) -> None:
    run_program(BackendDriver(HeapKeyedStateBackend, Path("unused")), program, ttl)


_ACCESSES = st.one_of(
    st.tuples(st.integers(0, 8), st.integers(-5, 5)),
    st.tuples(st.integers(0, 8), st.integers(-5, 5)),
    st.tuples(st.integers(0, 8), st.none()),
)
"""Key and new value; None clears."""
_ROUNDS = st.lists(st.tuples(st.lists(_ACCESSES, max_size=6), st.booleans()), min_size=2, max_size=8)
"""What happens between two snapshots, and whether the second one is too large to be put together."""


def _expiring() -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("v", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(1000).build())
    return descriptor


@pytest.mark.parametrize(
    ("key_type", "descriptor"),
    [
        (Types.LONG(), ValueStateDescriptor("v", Types.LONG())),
        (Types.STRING(), ListStateDescriptor("v", Types.LONG())),
        (Types.LONG(), _expiring()),
    ],
)
@settings(max_examples=examples(150))
@given(rounds=_ROUNDS)
def test_snapshots_in_a_row_hold_each_key_with_its_value(
    key_type: Any, descriptor: Any, rounds: list[Any]
) -> None:
    """Snapshots remember the keys from one to the next; half of them overlap with the next."""
    backend = BackendDriver(HeapKeyedStateBackend, Path("unused")).open(key_type=key_type)
    state: Any = backend.state(descriptor)
    is_list = isinstance(descriptor, ListStateDescriptor)
    model: dict[Any, Any] = {}
    pending: list[tuple[Any, dict[Any, Any]]] = []
    for number, (accesses, too_large) in enumerate(rounds):
        for key, value in accesses:
            key = key if key_type == Types.LONG() else f"key {key}"
            with as_key(backend, key):
                if value is None:
                    state.clear()
                    model.pop(key, None)
                else:
                    model[key] = [value, value] if is_list else value
                    state.update(model[key])
        pending.append((backend.cut(), dict(model)))
        while len(pending) > number % 2:
            cut, expected = pending.pop(0)
            with (
                mock.patch.object(canonical, "_PIECE_ROWS", 2),
                mock.patch.object(canonical, "_MAX_WHOLE_BYTES", 20 if too_large else 1 << 30),
            ):
                [(_, batches)] = read_cut(cut)
            rows = [row for batch in batches for row in batch.to_pylist()]
            assert {row["key"]: row["value"] for row in rows} == expected
            key_bytes = backend.parameters.key_serializer.key_bytes
            groups = [assign_to_key_group(key_bytes(row["key"]), 128) for row in rows]
            assert [row["key_group"] for row in rows] == groups == sorted(groups)


_TTL = 100
_CLEANUP_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("put"), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("drop"), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("read"), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 99, 100, 250]), st.just(0)),
        st.tuples(st.just("cut"), st.just(0), st.just(0)),
    ),
    max_size=60,
)
"""What happens to (key, item); items are map keys, or list elements, or the value itself."""


def _touch(state: Any, kind: str, step: str, item: int) -> None:
    """Carry out one step on the state of the current key."""
    if step == "read":
        (state.value if kind == "value" else state.keys if kind == "map" else state.get)()
    elif step == "drop":
        if kind == "map":
            state.remove(item)
        else:
            state.clear()
    elif kind == "map":
        state.put(item, item)
    elif kind == "list":
        state.add(item)
    else:
        state.update(item)


class _Stamped:
    """The same state as dictionaries: (key, item) -> when it was written; a list keeps every write."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.units: list[tuple[int, int, int]] = []

    def touch(self, step: str, key: int, item: int, now: int) -> None:
        if step == "read":
            return
        if self.kind == "value" or (self.kind == "list" and step == "drop"):
            self.units = [unit for unit in self.units if unit[0] != key]
        elif self.kind == "map":
            self.units = [unit for unit in self.units if unit[:2] != (key, item)]
        if step == "put":
            self.units.append((key, item, now))

    def living(self, key: int, now: int) -> list[int]:
        return [item for owner, item, stamp in self.units if owner == key and now < stamp + _TTL]


def _read_items(state: Any, kind: str) -> list[int]:
    if kind == "value":
        return [] if state.value() is None else [state.value()]
    return sorted(state.keys()) if kind == "map" else list(state.get() or ())


@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize("asynchronous", [False, True])
@settings(max_examples=examples(150))
@given(steps=_CLEANUP_STEPS, size=st.integers(1, 4), every_record=st.booleans())
def test_incremental_cleanup_keeps_its_place_while_entries_come_and_go(
    kind: str, asynchronous: bool, steps: list[Any], size: int, every_record: bool
) -> None:
    """Nothing alive is ever removed, snapshots hold all of it, and in the end nothing expired is left."""
    driver = BackendDriver(HeapKeyedStateBackend, Path("unused"))
    backend = driver.open(asynchronous=asynchronous)
    descriptor: Any = {
        "value": ValueStateDescriptor("s", Types.LONG()),
        "list": ListStateDescriptor("s", Types.LONG()),
        "map": MapStateDescriptor("s", Types.LONG(), Types.LONG()),
    }[kind]
    config = StateTtlConfig.new_builder(_TTL).cleanup_incrementally(size, every_record)
    descriptor.enable_time_to_live(config.build())
    state: Any = backend.state(descriptor)
    model = _Stamped(kind)

    for step, key, item in steps:
        if step == "wait":
            driver.clock.advance(key)
        elif step == "cut":
            content = read_cut(backend.cut())
            again = driver.open(content=content)
            copied: Any = again.state(descriptor)
            for each in range(7):
                with as_key(again, each):
                    assert _read_items(copied, kind) == _ordered(model.living(each, driver.clock.now()), kind)
        else:
            with as_key(backend, key):
                if backend.wants_records:
                    backend.record_processed()
                _touch(state, kind, step, item)
            model.touch(step, key, item, driver.clock.now())
    for key in range(7):
        with as_key(backend, key):
            assert _read_items(state, kind) == _ordered(model.living(key, driver.clock.now()), kind)

    driver.clock.advance(_TTL)
    # A round may have to end, then one looks at everything; the key that is touched has nothing.
    for _ in range(2 * len(steps) + 2):
        with as_key(backend, 99):
            _touch(state, kind, "read", 0)
            _touch(state, kind, "put", 0)
            _touch(state, kind, "drop", 0)
    assert backend.num_entries("s") == 0
    driver.close()


def _ordered(items: list[int], kind: str) -> list[int]:
    return sorted(items) if kind == "map" else items
