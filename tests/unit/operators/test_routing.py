"""Which subtask a key goes to, whole batches at a time."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import TypeInformation, Types
from tidemark.errors import SerializationError
from tidemark.operators.routing import KeyRouter, taken
from tidemark.state.key_groups import assign_to_key_group, compute_operator_index_for_key_group

LONG, INT, SHORT, BYTE = Types.LONG(), Types.INT(), Types.SHORT(), Types.BYTE()


def test_no_keys_have_no_subtasks() -> None:
    for kind in (LONG, Types.TUPLE([LONG, INT]), Types.STRING()):
        router = KeyRouter(lambda value: value, kind, 128, 7)

        for keys in ([], router.token_column([])):
            found = router.subtasks(keys)
            assert found is not None
            assert found.tolist() == []


def test_a_missing_part_of_a_key_is_refused() -> None:
    router = KeyRouter(lambda value: value, Types.TUPLE([LONG, LONG]), 128, 7)
    keys = pa.array([{"f0": 2**53 + 3, "f1": 1}, {"f0": None, "f1": 1}], router.serializer.arrow_type())

    with pytest.raises(SerializationError):
        router.subtasks(keys)


def _integers(*bits: int) -> list[Any]:
    rng = random.Random(sum(bits))
    rows = [tuple([rng.randrange(-(1 << b - 1), 1 << b - 1) for b in bits]) for _ in range(40)]
    rows += [tuple([-(1 << b - 1) for b in bits]), tuple([(1 << b - 1) - 1 for b in bits]), (0,) * len(bits)]
    return rows if len(bits) > 1 else [row[0] for row in rows]


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        (LONG, _integers(64)),
        (INT, _integers(32)),
        (SHORT, _integers(16)),
        (BYTE, _integers(8)),
        (Types.TUPLE([LONG, LONG]), _integers(64, 64)),
        (Types.TUPLE([INT, BYTE]), _integers(32, 8)),
        (Types.TUPLE([BYTE, LONG, SHORT, INT]), _integers(8, 64, 16, 32)),
        (Types.STRING(), ["", "a", "é", "a longer text than one word"]),
        (Types.TUPLE([Types.STRING(), LONG]), [("a", 1), ("", -1)]),
        (Types.DOUBLE(), [0.0, -0.0, 1.5]),
        (None, [1, "a", (1, "b")]),
    ],
)
def test_batches_are_split_as_single_keys_are(key_type: TypeInformation | None, keys: list[Any]) -> None:
    router = KeyRouter(lambda value: value, key_type, 128, 7)
    owners = [
        compute_operator_index_for_key_group(128, 7, assign_to_key_group(router.serializer.key_bytes(k), 128))
        for k in keys
    ]

    lists, column = router.subtasks(router.tokens(keys)), router.token_column(keys)

    assert lists is not None
    assert lists.tolist() == owners
    as_column = router.subtasks(column if router.serializer.identity_key else column.to_pylist())
    assert as_column is not None
    assert as_column.tolist() == owners
    part = router.subtasks(column[1:] if router.serializer.identity_key else column[1:].to_pylist())
    assert part is not None
    assert part.tolist() == owners[1:]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([3, 1, -(2**63)]),
        pa.array([1, None, 3]),
        pa.array([1.5, float("nan"), -0.0]),
        pa.array([1, 2, 255], pa.uint8()),
        pa.array([True, False, True]),
        pa.array(["a", None, "c"]),
        pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        pa.array([{}, {}, {}], pa.struct([])),
        pa.array(
            [{"a": 1, "b": {"c": "x", "d": None}}, {"a": 2, "b": None}, {"a": 3, "b": {"c": "y", "d": 2.0}}]
        ),
        pa.array([{"a": 1}, None, {"a": 3}]),
        pa.array([9, 9, 3, 1, 2, 9]).slice(2, 3),
        pa.array([{"a": 9}, {"a": 1}, {"a": 2}, {"a": 3}]).slice(1, 3),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("rows", [[], [2, 0, 0], [1]])
def test_rows_taken_are_those_that_arrow_takes(column: pa.Array, rows: list[int]) -> None:
    found = taken(column, np.array(rows, np.int64))

    found.validate(full=True)
    assert found.type == column.type
    # As text, where NaN equals itself and -0.0 is not 0.0.
    assert repr(found.to_pylist()) == repr(column.take(pa.array(rows, pa.int64())).to_pylist())
