"""Arithmetic by key gives what a loop over the rows gives, to the bit."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark import Keys, Types
from tidemark.backends.columns.key_index import IntegerIndex, ObjectIndex, index_for
from tidemark.errors import ConfigError
from tidemark.state.grouping import row_order
from tidemark.state.key_tokens import KeyTokens, key_serializer_for


def keys_of(values: list[Any], key_type: Any = None) -> Keys:
    """Keys as a heap backend makes them."""
    tokens = KeyTokens(key_serializer_for(key_type or Types.LONG()))
    column = tokens.to_arrow(tokens.of(values))
    rows, codes, firsts = index_for(tokens).rows(column)
    return Keys(column, codes, firsts, rows, tokens, None)


_ROWS = st.lists(st.tuples(st.integers(0, 6), st.floats(-1e9, 1e9, allow_nan=False)), min_size=1, max_size=60)


@given(_ROWS)
@settings(max_examples=25)
def test_tools_give_what_a_loop_gives(rows: list[tuple[int, float]]) -> None:
    keys = keys_of([key for key, _ in rows])
    values = np.array([value for _, value in rows])
    distinct = list(dict.fromkeys([key for key, _ in rows]))
    of_key: dict[int, list[float]] = defaultdict(list)
    start = {key: float(at) / 3 for at, key in enumerate(distinct)}
    sums, mins, maxs, counts = [], [], [], []
    running = dict(start)
    for key, value in rows:
        counts.append(len(of_key[key]))
        of_key[key].append(value)
        running[key] += value
        sums.append(running[key])
        mins.append(min(of_key[key]))
        maxs.append(max([start[key], *of_key[key]]))
    begin = np.array([start[key] for key in distinct])

    assert keys.distinct.to_pylist() == distinct
    assert [distinct[code] for code in keys.codes.tolist()] == [key for key, _ in rows]
    assert keys.running_sum(values, begin).tolist() == sums
    assert keys.running_min(values).tolist() == mins
    assert keys.running_max(values, begin).tolist() == maxs
    assert keys.cumcount().tolist() == counts
    assert keys.running_count(np.arange(len(distinct))).tolist() == [
        count + 1 + distinct.index(key) for count, (key, _) in zip(counts, rows, strict=True)
    ]
    assert keys.sum(values, begin).tolist() == [running[key] for key in distinct]
    assert keys.count().tolist() == [len(of_key[key]) for key in distinct]
    assert keys.min(values).tolist() == [min(of_key[key]) for key in distinct]
    assert keys.max(pa.array(values)).tolist() == [max(of_key[key]) for key in distinct]
    assert keys.first(values).tolist() == [of_key[key][0] for key in distinct]
    assert keys.last(pa.array(values)).to_pylist() == [of_key[key][-1] for key in distinct]
    assert np.allclose(keys.mean(values), [sum(of_key[key]) / len(of_key[key]) for key in distinct])
    assert [rows[at][0] for at in keys.order] == sorted([key for key, _ in rows], key=distinct.index)


def test_one_hot_key_among_many_is_folded_as_a_loop_would() -> None:
    rng = np.random.default_rng(7)
    picked = np.where(rng.random(3000) < 0.5, 0, rng.integers(0, 900, 3000))
    values = rng.random(3000) * 10.0 ** rng.integers(-8, 8, 3000)
    keys = keys_of(picked.tolist())
    total: dict[int, float] = defaultdict(float)
    expected = []
    for key, value in zip(picked.tolist(), values.tolist(), strict=True):
        total[key] += value
        expected.append(total[key])

    assert keys.running_sum(values).tolist() == expected


def test_integer_sums_are_exact_and_wrap_like_numpy() -> None:
    keys = keys_of([1, 2, 1])

    assert keys.running_sum(pa.array([2**62, 5, 2**61])).tolist() == [2**62, 5, 2**62 + 2**61]
    assert keys.running_sum(np.array([1, 1, 1], np.int8), np.array([300, -300])).tolist() == [301, -299, 302]
    assert keys.sum(np.array([True, True, True])).tolist() == [2, 1]


def test_rows_of_more_than_65536_keys_are_put_in_order() -> None:
    codes = np.random.default_rng(3).permutation(np.repeat(np.arange(70_000, dtype=np.int32), 2))

    assert np.array_equal(row_order(codes, 70_000), np.argsort(codes, kind="stable"))


@pytest.mark.parametrize(
    ("key_type", "values", "kind"),
    [
        (Types.LONG(), [5, -(2**63), 2**63 - 1, 5, 0], IntegerIndex),
        (Types.INT(), [5, -1, 5], IntegerIndex),
        (Types.STRING(), ["a", "", "a", "ä", None], ObjectIndex),
        (Types.DOUBLE(), [0.0, -0.0, 1.5, float("nan"), 1.5], ObjectIndex),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, "a"), (1, "b"), (1, "a")], ObjectIndex),
        (Types.BOOLEAN(), [True, False, True], ObjectIndex),
        (Types.PICKLED_BYTE_ARRAY(), [{"a": 1}, (1,), {"a": 1}], ObjectIndex),
    ],
)
def test_keys_of_every_type_are_told_apart_by_their_bytes(
    key_type: Any, values: list[Any], kind: Any
) -> None:
    tokens = KeyTokens(key_serializer_for(key_type))
    index = index_for(tokens)
    column = tokens.to_arrow(tokens.of(values))
    rows, codes, firsts = index.rows(column)
    again, _, _ = index.rows(column)
    distinct = list(dict.fromkeys(tokens.of(values)))

    assert type(index) is kind
    assert rows.tolist() == again.tolist()
    assert len(set(rows.tolist())) == len(distinct)
    assert index.addresses(index.keys[rows]) == distinct
    assert [distinct[code] for code in codes.tolist()] == tokens.of(values)
    assert [tokens.of(values)[at] for at in firsts.tolist()] == distinct
    assert [index.row_of(token) for token in distinct] == rows.tolist()
    if kind is IntegerIndex:
        assert index.row_of(123456) == -1


def test_an_index_grows_and_lets_go() -> None:
    tokens = KeyTokens(key_serializer_for(Types.LONG()))
    index = index_for(tokens)
    rng = np.random.default_rng(11)
    model: dict[int, int] = {}
    for _ in range(40):
        # Multiples of a power of two meet in the upper bits, where a poor hash would put them all into one slot.
        batch = rng.integers(0, 20_000, 700) * (1 << 40)
        rows, codes, _ = index.rows(pa.array(batch))
        for key, row in zip(batch.tolist(), rows[codes].tolist(), strict=True):
            assert model.setdefault(key, row) == row
    kept = rng.permutation(index.count)[:500]
    keys = index.keys[kept].tolist()

    index.keep(kept)

    assert index.count == 500
    assert [index.row_of(key) for key in keys] == list(range(500))
    assert index.row_of(next(key for key in model if key not in set(keys))) == -1


def test_wrong_lengths_and_nulls_are_refused() -> None:
    keys = keys_of([1, 2, 1])

    with pytest.raises(ConfigError, match="one value per row"):
        keys.sum([1, 2])
    with pytest.raises(ConfigError, match="one per distinct key"):
        keys.running_sum([1, 2, 3], [0])
    with pytest.raises(ConfigError, match="without nulls"):
        keys.sum(pa.array([1, None, 3]))
    with pytest.raises(ConfigError, match="distinct keys"):
        keys[np.array([True])]
