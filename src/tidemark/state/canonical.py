"""Between Python objects and the canonical Arrow form of keyed state (drawn in `tidemark.state.snapshot`).

Rows travel as columns of live objects (`Rows`): whoever keeps objects (heap state, timers) turns them into
sorted record batches with `sorted_batches` and gets them back with `read_rows`. Everything per row is
vectorised or runs in C loops; batches are bounded, so that a writer in the background never holds the
interpreter for long.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import key_groups_of, stable_hash_array, stable_hash_words
from tidemark.state.namespace import Namespace
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import StateMeta

__all__ = [
    "MAX_BATCH_ROWS",
    "Rows",
    "StateSerializers",
    "keys_to_tokens",
    "read_rows",
    "sorted_batches",
    "token_key_groups",
    "tokens_to_keys",
]

MAX_BATCH_ROWS = 1 << 16
_PROBES = (258, -2)


@dataclass(frozen=True, slots=True)
class StateSerializers:
    """The serializers of one state, as far as its kind has them."""

    key: TypeSerializer[Any]
    value: TypeSerializer[Any] | None = None
    map_key: TypeSerializer[Any] | None = None


@dataclass(slots=True)
class Rows:
    """Rows of one state, column by column.

    Attributes:
        tokens: Key tokens.
        namespaces: Namespaces, or None for state without.
        map_keys: Tokens of map keys, for map state.
        values: Values; for list state lists of values; for timers the timestamps.
        stamps: Times of last access with TTL; for list state lists of them.
    """

    tokens: Sequence[Hashable]
    values: Sequence[Any]
    namespaces: Sequence[Namespace] | None = None
    map_keys: Sequence[Hashable] | None = None
    stamps: Sequence[Any] | None = None


def keys_to_tokens(keys: list[Any], serializer: TypeSerializer[Any]) -> list[Hashable]:
    """Tokens of keys: the keys themselves where Python equality will do, else their canonical bytes."""
    if serializer.identity_key:
        return keys
    key_bytes = serializer.key_bytes
    return [key_bytes(key) for key in keys]


def tokens_to_keys(tokens: list[Any], serializer: TypeSerializer[Any]) -> list[Any]:
    """The inverse of `keys_to_tokens`."""
    if serializer.identity_key:
        return tokens
    from_bytes = serializer.from_bytes
    return [from_bytes(token) for token in tokens]


def token_key_groups(
    tokens: Sequence[Any], serializer: TypeSerializer[Any], max_parallelism: int
) -> np.ndarray[Any, Any]:
    """Key group (uint16) of every token; agrees with `assign_to_key_group` of the key's bytes."""
    hashes = [
        _hash(tokens[at : at + MAX_BATCH_ROWS], serializer) for at in range(0, len(tokens), MAX_BATCH_ROWS)
    ]
    return key_groups_of(np.concatenate(hashes) if hashes else np.empty(0, np.uint64), max_parallelism)


def _hash(tokens: Sequence[Any], serializer: TypeSerializer[Any]) -> np.ndarray[Any, Any]:
    if not serializer.identity_key:
        return stable_hash_array(pa.array(tokens, pa.binary()))
    if _is_plain_int64(serializer):
        words = np.fromiter(tokens, dtype=np.int64, count=len(tokens)).astype(">i8").view("<u8")
        return stable_hash_words(words.astype(np.uint64), 8)
    if _is_plain_utf8(serializer):
        try:
            texts = pa.array(tokens, pa.string())
        except UnicodeEncodeError:
            texts = None
        # Lone surrogates and None: only the serializer knows how to encode them.
        if texts is not None and not texts.null_count:
            return stable_hash_array(texts)
    key_bytes = serializer.key_bytes
    return stable_hash_array(pa.array([key_bytes(token) for token in tokens], pa.binary()))


def _is_plain_int64(serializer: TypeSerializer[Any]) -> bool:
    """Whether keys are encoded as eight big-endian bytes, tried out on two values."""
    if serializer.fixed_width != 8 or serializer.arrow_type() != pa.int64():
        return False
    return all(serializer.key_bytes(probe) == struct.pack(">q", probe) for probe in _PROBES)


def _is_plain_utf8(serializer: TypeSerializer[Any]) -> bool:
    return serializer.arrow_type() == pa.string() and serializer.key_bytes("aé") == "aé".encode()


def sorted_batches(
    meta: StateMeta, schema: pa.Schema, serializers: StateSerializers, rows: Rows, max_parallelism: int
) -> Iterator[pa.RecordBatch]:
    """Record batches of `rows` sorted by key group, each of whole key groups unless one is too large."""
    groups = token_key_groups(rows.tokens, serializers.key, max_parallelism)
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    start = 0
    while start < len(order):
        end = _batch_end(groups, start)
        yield from _encode(meta, schema, serializers, rows, groups[start:end], order[start:end].tolist())
        start = end


def _batch_end(groups: np.ndarray[Any, Any], start: int) -> int:
    """Where a batch that begins at `start` ends: on a key-group border if that leaves rows at all."""
    limit = start + MAX_BATCH_ROWS
    if limit >= len(groups):
        return len(groups)
    border = int(np.searchsorted(groups, groups[limit], side="left"))
    return border if border > start else limit


def _encode(
    meta: StateMeta,
    schema: pa.Schema,
    serializers: StateSerializers,
    rows: Rows,
    groups: np.ndarray[Any, Any],
    index: list[int],
) -> Iterator[pa.RecordBatch]:
    keys = tokens_to_keys(_take(rows.tokens, index), serializers.key)
    columns = [pa.array(groups, pa.uint16()), serializers.key.to_arrow(keys)]
    if meta.namespace.columns:
        assert rows.namespaces is not None
        parts = zip(*_take(rows.namespaces, index), strict=True)
        columns += [pa.array(part, pa.int64()) for part in parts]
    values = _take(rows.values, index)
    stamps = None if rows.stamps is None else _take(rows.stamps, index)
    if meta.kind is StateKind.TIMER:
        columns.append(pa.array(values, pa.int64()))
    elif meta.kind is StateKind.LIST:
        assert serializers.value is not None
        columns.append(_list_column(values, serializers.value, schema.field("value").type))
        columns += [] if stamps is None else [pa.array(stamps, pa.list_(pa.int64()))]
    else:
        assert serializers.value is not None
        if rows.map_keys is not None and serializers.map_key is not None:
            map_keys = tokens_to_keys(_take(rows.map_keys, index), serializers.map_key)
            columns.append(serializers.map_key.to_arrow(map_keys))
        columns.append(serializers.value.to_arrow(values))
        columns += [] if stamps is None else [pa.array(stamps, pa.int64())]
    if len(index) > 1 and any(isinstance(column, pa.ChunkedArray) for column in columns):
        # A column beyond 2 GiB of bytes: Arrow cannot keep it in one array, so take fewer rows at once.
        half = len(index) // 2
        yield from _encode(meta, schema, serializers, rows, groups[:half], index[:half])
        yield from _encode(meta, schema, serializers, rows, groups[half:], index[half:])
        return
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _take(column: Sequence[Any], index: list[int]) -> list[Any]:
    return list(map(column.__getitem__, index))


def _list_column(
    lists: list[list[Any]], serializer: TypeSerializer[Any], arrow_type: pa.DataType
) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    flat = serializer.to_arrow([element for elements in lists for element in elements])
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=arrow_type)


def read_rows(meta: StateMeta, serializers: StateSerializers, batch: pa.RecordBatch) -> Rows:
    """The live objects behind one canonical batch."""
    tokens = keys_to_tokens(serializers.key.from_arrow(batch.column("key")), serializers.key)
    names = meta.namespace.columns
    namespaces = (
        list(zip(*[batch.column(name).to_pylist() for name in names], strict=True)) if names else None
    )
    if meta.kind is StateKind.TIMER:
        return Rows(tokens, batch.column("timestamp").to_pylist(), namespaces)
    assert serializers.value is not None
    column = batch.column("value")
    stamps = batch.column("last_access").to_pylist() if meta.ttl else None
    if meta.kind is StateKind.LIST:
        flat = serializers.value.from_arrow(column.flatten())
        ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False)).tolist()
        starts = [0, *ends[:-1]]
        values: list[Any] = [flat[start:end] for start, end in zip(starts, ends, strict=True)]
        return Rows(tokens, values, namespaces, None, stamps)
    map_keys = None
    if serializers.map_key is not None:
        map_keys = keys_to_tokens(
            serializers.map_key.from_arrow(batch.column("map_key")), serializers.map_key
        )
    return Rows(tokens, serializers.value.from_arrow(column), namespaces, map_keys, stamps)
