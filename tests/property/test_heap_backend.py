"""Random programs on the heap backend against plain dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.state.key_groups import assign_to_key_group
from tidemark.testing.backend_driver import BackendDriver, as_key, read_cut
from tidemark.testing.backend_model import Step, programs, run_program
from tidemark.types.typeinfo import Types


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=300)
@given(program=programs())
def test_heap_state_agrees_with_dictionaries(ttl: bool, program: list[Step]) -> None:
    run_program(BackendDriver(HeapKeyedStateBackend, Path("unused")), program, ttl)


_ACCESSES = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 8), st.integers(-5, 5)),
    st.tuples(st.just("put"), st.integers(0, 8), st.integers(-5, 5)),
    st.tuples(st.just("remove"), st.integers(0, 8), st.none()),
)


@pytest.mark.parametrize("key_type", [Types.LONG(), Types.STRING()])
@settings(max_examples=200)
@given(rounds=st.lists(st.lists(_ACCESSES, max_size=6), min_size=2, max_size=8))
def test_snapshots_in_a_row_hold_each_key_with_its_value(key_type: Any, rounds: list[Any]) -> None:
    """Snapshots remember the order of the keys from one to the next; half of them overlap with the next."""
    backend = BackendDriver(HeapKeyedStateBackend, Path("unused")).open(key_type=key_type)
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    model: dict[Any, int] = {}
    pending: list[tuple[Any, dict[Any, int]]] = []
    for number, accesses in enumerate(rounds):
        for _, key, value in accesses:
            key = key if key_type == Types.LONG() else f"key {key}"
            with as_key(backend, key):
                state.update(value)
            model[key] = value
            if value is None:
                del model[key]
        pending.append((backend.cut(), dict(model)))
        while len(pending) > number % 2:
            cut, expected = pending.pop(0)
            [(_, batches)] = read_cut(cut)
            rows = [row for batch in batches for row in batch.to_pylist()]
            assert {row["key"]: row["value"] for row in rows} == expected
            groups = [
                assign_to_key_group(backend.parameters.key_serializer.key_bytes(row["key"]), 128)
                for row in rows
            ]
            assert [row["key_group"] for row in rows] == groups == sorted(groups)
