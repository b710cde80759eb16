"""Between Python objects and the canonical Arrow form of keyed state (drawn in `tidemark.state.snapshot`).

Rows travel as columns of live objects (`Rows`): whoever keeps objects (heap state, timers) turns them into
sorted record batches with `sorted_batches` and gets them back with `read_rows`. Everything per row is
vectorised or runs in C loops; batches are bounded, so that a writer in the background never holds the
interpreter for long.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
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
_MAX_WHOLE_BYTES = 1 << 30
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
    encode = _Encoder(meta, schema, serializers, rows)
    groups = token_key_groups(rows.tokens, serializers.key, max_parallelism)
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    whole = encode.whole()
    start = 0
    while start < len(order):
        end = _batch_end(groups, start)
        group_column = pa.array(groups[start:end], pa.uint16())
        if whole is None:
            yield from encode.batches(group_column, order[start:end].tolist())
        else:
            taken = whole.take(pa.array(order[start:end]))
            columns = [column.combine_chunks() for column in taken.columns]
            yield pa.RecordBatch.from_arrays([group_column, *columns], schema=schema)
        start = end


def _batch_end(groups: np.ndarray[Any, Any], start: int) -> int:
    """Where a batch that begins at `start` ends: on a key-group border if that leaves rows at all."""
    limit = start + MAX_BATCH_ROWS
    if limit >= len(groups):
        return len(groups)
    border = int(np.searchsorted(groups, groups[limit], side="left"))
    return border if border > start else limit


class _Encoder:
    """Turns rows into Arrow columns, all columns of the schema but the key group."""

    def __init__(self, meta: StateMeta, schema: pa.Schema, serializers: StateSerializers, rows: Rows) -> None:
        self._meta = meta
        self._schema = schema
        self._serializers = serializers
        self._rows = rows

    def whole(self) -> pa.Table | None:
        """All rows in their own order, or None if they are too large to be kept twice in memory.

        Objects are visited in the order in which they were made. Visiting them in key-group order would
        wait for memory at every single one, which takes several times as long as the encoding itself.
        """
        schema = self._schema.remove(0)
        parts, size = [], 0
        for at in range(0, len(self._rows.tokens), MAX_BATCH_ROWS):
            columns = self._columns(operator.itemgetter(slice(at, at + MAX_BATCH_ROWS)))
            size += sum(column.nbytes for column in columns)
            if size > _MAX_WHOLE_BYTES:
                return None
            parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        return pa.Table.from_batches(parts, schema=schema).combine_chunks()

    def batches(self, groups: pa.Array, index: list[int]) -> Iterator[pa.RecordBatch]:
        """The rows at `index`; more than one batch only if a column would outgrow an Arrow array."""
        columns = [groups, *self._columns(lambda column: list(map(column.__getitem__, index)))]
        if len(index) > 1 and any(isinstance(column, pa.ChunkedArray) for column in columns):
            half = len(index) // 2
            yield from self.batches(groups[:half], index[:half])
            yield from self.batches(groups[half:], index[half:])
            return
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _columns(self, choose: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
        meta, rows = self._meta, self._rows
        key, value, map_key = self._serializers.key, self._serializers.value, self._serializers.map_key
        columns = [key.to_arrow(tokens_to_keys(choose(rows.tokens), key))]
        if rows.namespaces is not None:
            parts = zip(*choose(rows.namespaces), strict=True)
            columns += [pa.array(part, pa.int64()) for part in parts]
        values = choose(rows.values)
        if meta.kind is StateKind.TIMER:
            return [*columns, pa.array(values, pa.int64())]
        assert value is not None
        is_list = meta.kind is StateKind.LIST
        if is_list:
            columns.append(_list_column(values, value, self._schema.field("value").type))
        else:
            if rows.map_keys is not None and map_key is not None:
                columns.append(map_key.to_arrow(tokens_to_keys(choose(rows.map_keys), map_key)))
            columns.append(value.to_arrow(values))
        if rows.stamps is not None:
            columns.append(pa.array(choose(rows.stamps), pa.list_(pa.int64()) if is_list else pa.int64()))
        return columns


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
