"""Rolling reduce by column: what small batches keep in front of the columns."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark import EmbeddedRocksDBStateBackend, HashMapStateBackend, Types
from tidemark.api.stateful_functions import SumFunction
from tidemark.operators.column_reduce import ColumnReduceOperator
from tidemark.state.key_tokens import key_serializer_for
from tidemark.testing import OneInputHarness

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_key_that_is_erased_begins_anew(backend: Any) -> None:
    operator = ColumnReduceOperator(SumFunction(1), Types.LONG(), PAIR)
    harness = OneInputHarness(operator, lambda pair: pair[0], Types.LONG(), state_backend=backend())
    for key in (1, 2):
        harness.process_element((key, 10), 0)

    erased = operator.erase_key(key_serializer_for(Types.LONG()).key_bytes(1))
    for key in (1, 2):
        harness.process_element((key, 1), 0)

    assert list(erased.values()) == [1]
    assert harness.output() == [(1, 10), (2, 10), (1, 1), (2, 11)]
