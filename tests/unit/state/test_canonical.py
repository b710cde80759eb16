from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemark.state.canonical as canonical
from tidemark.state.canonical import (
    RowEncoder,
    Rows,
    StateSerializers,
    read_rows,
)
from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.key_memory import KeyColumns, KeyMemory
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.layers import KeyMark
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers import serializer_for
from tidemark.state.snapshot import StateMeta, state_schema
from tidemark.types.typeinfo import Types


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        (Types.LONG(), [0, 1, -1, 1 << 62]),
        (Types.INT(), [0, 1, -1]),
        (Types.STRING(), ["", "a", "é", "longer than eight bytes"]),
        (Types.STRING(), ["a", None]),
        (Types.CHAR(), ["a", "é"]),
        (Types.BOOLEAN(), [True, False]),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, "a"), (2, None)]),
        (Types.STRING(), ["a", "\ud800"]),
        (Types.BIG_INT(), [1, 1 << 100, None]),
        (Types.DOUBLE(), [0.0, -0.0, 1.5]),
        (Types.PICKLED_BYTE_ARRAY(), [{"a": 1}, (1, 2), None]),
    ],
)
def test_key_groups_of_tokens_are_those_of_the_key_bytes(key_type: Any, keys: list[Any]) -> None:
    serializer = serializer_for(key_type)
    tokens = KeyTokens(serializer).of_stored(keys)

    meta = StateMeta("s", StateKind.VALUE, b"", b"")
    serializers = StateSerializers(serializer, serializer_for(Types.LONG()))
    encoder = RowEncoder(meta, state_schema(meta, serializer, serializers.value), serializers, 128)
    whole = encoder.whole(Rows(tokens, [0] * len(tokens)).pieces)

    assert whole is not None
    assert whole[0].groups.tolist() == [assign_to_key_group(serializer.key_bytes(key), 128) for key in keys]


def batches_of(count: int, **meta: Any) -> tuple[StateMeta, StateSerializers, list[Any]]:
    described = StateMeta("s", StateKind.VALUE, b"", b"", **meta)
    serializers = StateSerializers(serializer_for(Types.LONG()), serializer_for(Types.STRING()))
    schema = state_schema(described, serializers.key, serializers.value)
    rows = Rows(list(range(count)), [str(key) for key in range(count)])
    return described, serializers, list(RowEncoder(described, schema, serializers, 16).batches(rows.pieces))


@pytest.mark.parametrize("whole_bytes", [1 << 30, 10])
def test_batches_are_bounded_and_end_at_key_groups(monkeypatch: pytest.MonkeyPatch, whole_bytes: int) -> None:
    monkeypatch.setattr(canonical, "_PIECE_ROWS", 30)
    monkeypatch.setattr(canonical, "MAX_BATCH_ROWS", 100)
    monkeypatch.setattr(canonical, "_MAX_WHOLE_BYTES", whole_bytes)

    meta, serializers, batches = batches_of(1000)

    assert max(batch.num_rows for batch in batches) <= 100
    groups = [set(batch.column("key_group").to_pylist()) for batch in batches]
    assert all(not left & right for left, right in itertools.pairwise(groups))
    rows = [read_rows(meta, serializers, batch) for batch in batches]
    found = {key: value for row in rows for key, value in zip(row.tokens, row.values, strict=True)}
    assert found == {key: str(key) for key in range(1000)}


def test_a_key_group_too_large_for_one_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_BATCH_ROWS", 10)

    _, _, batches = batches_of(1000)

    assert max(batch.num_rows for batch in batches) <= 10
    groups = [group for batch in batches for group in batch.column("key_group").to_pylist()]
    assert groups == sorted(groups)
    assert len(groups) == 1000


def test_lists_with_stamps_and_windows_come_back() -> None:
    meta = StateMeta("s", StateKind.LIST, b"", b"", None, NamespaceKind.WINDOW, True)
    serializers = StateSerializers(serializer_for(Types.STRING()), serializer_for(Types.LONG()))
    schema = state_schema(meta, serializers.key, serializers.value)
    rows = Rows(["a"], [[1, 2]], [(0, 10)], None, [[5, 6]])

    [batch] = RowEncoder(meta, schema, serializers, 128).batches(rows.pieces)
    again = read_rows(meta, serializers, batch)

    assert batch.schema.names == ["key_group", "key", "window_start", "window_end", "value", "last_access"]
    assert (again.tokens, again.values, again.namespaces, again.stamps) == (
        ["a"],
        [[1, 2]],
        [(0, 10)],
        [[5, 6]],
    )


def test_no_rows_make_no_batches() -> None:
    assert batches_of(0)[2] == []


def columns_of(count: int) -> KeyColumns:
    return KeyColumns(np.zeros(count, np.uint16), pa.array(range(count), pa.int64()))


def test_keys_are_remembered_from_the_second_snapshot_without_removals_on() -> None:
    memory, columns = KeyMemory(), columns_of(2)

    memory.keep(KeyMark(removals=0, entries=2), columns)
    assert memory.recall(KeyMark(0, 2)) is None
    memory.keep(KeyMark(0, 2), columns)

    assert memory.recall(KeyMark(0, 2)) is columns
    assert memory.recall(KeyMark(0, 3)) is columns, "the first two of three"
    assert memory.recall(KeyMark(0, 1)) is None, "a snapshot from before"
    assert memory.recall(KeyMark(1, 2)) is None, "other keys"
    memory.forget()
    assert memory.recall(KeyMark(0, 2)) is None


def test_keys_that_come_and_go_are_not_remembered() -> None:
    memory = KeyMemory()

    for removals in range(3):
        memory.keep(KeyMark(removals, 2), columns_of(2))
        assert memory.recall(KeyMark(removals, 2)) is None


@pytest.mark.parametrize(("new", "fits"), [(0, True), (4, True), (400, False)])
def test_known_keys_are_put_in_front_of_new_ones(
    monkeypatch: pytest.MonkeyPatch, new: int, fits: bool
) -> None:
    monkeypatch.setattr(canonical, "_PIECE_ROWS", 3)
    monkeypatch.setattr(canonical, "_MAX_WHOLE_BYTES", 2_000)
    meta = StateMeta("s", StateKind.VALUE, b"", b"")
    serializers = StateSerializers(serializer_for(Types.STRING()), serializer_for(Types.LONG()))
    encoder = RowEncoder(meta, state_schema(meta, serializers.key, serializers.value), serializers, 16)
    keys, values = [f"key {number}" for number in range(10 + new)], list(range(10 + new))
    first = encoder.whole(Rows(keys[:10], values[:10]).pieces)
    assert first is not None

    def source(size: int) -> Iterator[Rows]:
        yield Rows(keys[10:], ())
        yield Rows((), values)

    whole = encoder.whole(source, first[0])

    assert (whole is not None) == fits
    if whole is not None:
        assert whole[0].keys.to_pylist() == keys
        assert whole[0].groups.tolist() == [assign_to_key_group(key.encode(), 16) for key in keys]
        assert whole[1].column("value").to_pylist() == values
