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
from tidemark.state.descriptors import ListStateDescriptor, ValueStateDescriptor
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
