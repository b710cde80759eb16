"""Between Python objects and the canonical Arrow form of keyed state (drawn in `tidemark.state.snapshot`).

Rows travel as columns of live objects (`Rows`): whoever keeps objects (heap state, timers) turns them into
sorted record batches with `sorted_batches` and gets them back with `read_rows`. Everything per row is
vectorised or runs in C loops; pieces are bounded, so that a writer in the background never holds the
interpreter for long.

What encoding costs is mostly waiting for memory: the objects of a state lie where they were made. Rows are
therefore taken in pieces whose objects fit into the processor's cache, everything that has to look at
objects looks at one piece after the other, and only the columns are then brought into the order of the key
groups.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import key_groups_of, stable_hash_array, stable_hash_words
from tidemark.state.layers import KeyMark
from tidemark.state.namespace import Namespace
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import StateMeta

__all__ = [
    "MAX_BATCH_ROWS",
    "KeyMemory",
    "RowSource",
    "Rows",
    "SortedKeys",
    "StateSerializers",
    "batches_with_known_keys",
    "keys_to_tokens",
    "read_rows",
    "sorted_batches",
    "token_key_groups",
    "tokens_to_keys",
]

MAX_BATCH_ROWS = 1 << 16
_PIECE_ROWS = 1 << 11
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

    def pieces(self, size: int) -> Iterator[Rows]:
        """The rows, `size` at a time."""
        for at in range(0, len(self.tokens), size):
            yield self._chosen(itemgetter(slice(at, at + size)))

    def at(self, index: list[int]) -> Rows:
        """The rows at these places, in this order."""
        return self._chosen(lambda column: list(map(column.__getitem__, index)))

    def _chosen(self, choose: Callable[[Any], Any]) -> Rows:
        others = (self.namespaces, self.map_keys, self.stamps)
        chosen = [None if column is None else choose(column) for column in others]
        return Rows(choose(self.tokens), choose(self.values), *chosen)


RowSource = Callable[[int], Iterator[Rows]]
"""Gives all rows of a state in pieces of about so many; may be called again."""


def keys_to_tokens(keys: list[Any], serializer: TypeSerializer[Any]) -> list[Hashable]:
    """Tokens of keys: the keys themselves where Python equality will do, else their canonical bytes."""
    if serializer.identity_key:
        return keys
    key_bytes = serializer.key_bytes
    return [key_bytes(key) for key in keys]


def tokens_to_keys(tokens: Sequence[Any], serializer: TypeSerializer[Any]) -> Sequence[Any]:
    """The inverse of `keys_to_tokens`."""
    if serializer.identity_key:
        return tokens
    from_bytes = serializer.from_bytes
    return [from_bytes(token) for token in tokens]


def token_key_groups(
    tokens: Sequence[Any], keys: pa.Array, serializer: TypeSerializer[Any], max_parallelism: int
) -> np.ndarray[Any, Any]:
    """Key group (uint16) of every token; agrees with `assign_to_key_group` of the key's bytes.

    `keys` is the Arrow form of the same keys. Where it holds their very bytes no object is looked at.
    """
    return key_groups_of(_hash(tokens, keys, serializer), max_parallelism)


def _hash(tokens: Sequence[Any], keys: pa.Array, serializer: TypeSerializer[Any]) -> np.ndarray[Any, Any]:
    if not serializer.identity_key:
        return stable_hash_array(pa.array(tokens, pa.binary()))
    if _is_plain_int64(serializer):
        return stable_hash_words(keys.to_numpy().astype(">i8").view("<u8").astype(np.uint64), 8)
    # How None is written only the serializer knows.
    if _is_plain_utf8(serializer) and not keys.null_count:
        return stable_hash_array(keys)
    key_bytes = serializer.key_bytes
    return stable_hash_array(pa.array([key_bytes(token) for token in tokens], pa.binary()))


def _is_plain_int64(serializer: TypeSerializer[Any]) -> bool:
    """Whether keys are encoded as eight big-endian bytes, tried out on two values."""
    if serializer.fixed_width != 8 or serializer.arrow_type() != pa.int64():
        return False
    return all(serializer.key_bytes(probe) == struct.pack(">q", probe) for probe in _PROBES)


def _is_plain_utf8(serializer: TypeSerializer[Any]) -> bool:
    return serializer.arrow_type() == pa.string() and serializer.key_bytes("aé") == "aé".encode()


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """The keys of a state in the order of their key groups, as every snapshot needs them.

    Attributes:
        order: Where each of the sorted rows is among the unsorted ones.
        groups: Key groups, sorted.
        keys: Keys in that order.
    """

    order: np.ndarray[Any, Any]
    groups: np.ndarray[Any, Any]
    keys: pa.Array

    def batches(self, others: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Record batches of these keys and the other columns, which are not sorted yet."""
        for start, end in _batch_borders(self.groups):
            taken = others.take(pa.array(self.order[start:end]))
            columns = [column.combine_chunks() for column in taken.columns]
            groups, keys = pa.array(self.groups[start:end]), self.keys.slice(start, end - start)
            yield pa.RecordBatch.from_arrays([groups, keys, *columns], schema=schema)


class KeyMemory:
    """Remembers the sorted keys of one state from one snapshot to the next.

    While no key is removed and none is new, a snapshot then looks at values only. The memory is used for
    states whose keys were not removed from between two snapshots; others would only pay for it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        """Know nothing."""
        # One attribute, so that two writers at a time never see the mark of one with the keys of the other.
        self._kept: tuple[KeyMark, SortedKeys | None] | None = None

    def recall(self, mark: KeyMark) -> SortedKeys | None:
        """The keys that were kept under that mark."""
        kept = self._kept
        return kept[1] if kept is not None and kept[0] == mark else None

    def keep(self, mark: KeyMark, keys: SortedKeys) -> None:
        """Remember the keys of a snapshot, if they seem to last."""
        kept = self._kept
        lasting = kept is not None and kept[0].removals == mark.removals
        self._kept = (mark, keys if lasting else None)


def sorted_batches(
    meta: StateMeta,
    schema: pa.Schema,
    serializers: StateSerializers,
    source: RowSource,
    max_parallelism: int,
    keep: Callable[[SortedKeys], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Record batches of all rows sorted by key group, each of whole key groups unless one is too large.

    `keep` is told the sorted keys, unless the state is so large that its columns are not put together.
    """
    encoder = _Encoder(meta, schema, serializers, max_parallelism)
    whole = encoder.whole(source)
    if whole is None:
        [rows] = source(sys.maxsize)
        yield from encoder.batches_of(rows)
        return
    groups, keys = whole.column(0).to_numpy(), whole.column(1)
    order = np.argsort(groups, kind="stable").astype(np.uint32 if len(groups) < 1 << 32 else np.int64)
    known = SortedKeys(order, groups[order], keys.take(pa.array(order)).combine_chunks())
    if keep is not None:
        keep(known)
    yield from known.batches(whole.select(range(2, whole.num_columns)), schema)


def batches_with_known_keys(
    meta: StateMeta, schema: pa.Schema, serializers: StateSerializers, source: RowSource, keys: SortedKeys
) -> Iterator[pa.RecordBatch] | None:
    """The same for rows of which only the values are looked at; None if they are too large for that."""
    whole = _Encoder(meta, schema, serializers, 0).whole(source, with_keys=False)
    return None if whole is None else keys.batches(whole, schema)


def _batch_borders(groups: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """Where batches of rows with these sorted key groups begin and end."""
    start = 0
    while start < len(groups):
        end = _batch_end(groups, start)
        yield start, end
        start = end


def _batch_end(groups: np.ndarray[Any, Any], start: int) -> int:
    """Where a batch that begins at `start` ends: on a key-group border if that leaves rows at all."""
    limit = start + MAX_BATCH_ROWS
    if limit >= len(groups):
        return len(groups)
    border = int(np.searchsorted(groups, groups[limit], side="left"))
    return border if border > start else limit


class _Encoder:
    """Turns rows into the Arrow columns of the schema."""

    def __init__(
        self, meta: StateMeta, schema: pa.Schema, serializers: StateSerializers, max_parallelism: int
    ) -> None:
        self._meta = meta
        self._schema = schema
        self._serializers = serializers
        self._max_parallelism = max_parallelism

    def whole(self, source: RowSource, with_keys: bool = True) -> pa.Table | None:
        """All rows in their own order, or None if they are too large to be kept twice in memory."""
        schema = self._schema if with_keys else pa.schema(list(self._schema)[2:])
        parts, size = [], 0
        for rows in source(_PIECE_ROWS):
            if not rows.values:
                continue
            columns = self._others(rows)
            if with_keys:
                keys = self._keys(rows)
                columns = [pa.array(self._groups(rows, keys)), keys, *columns]
            size += sum(column.nbytes for column in columns)
            if size > _MAX_WHOLE_BYTES:
                return None
            parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        return pa.Table.from_batches(parts, schema=schema).combine_chunks()

    def batches_of(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Sorted batches of rows that are too large for `whole`, each encoded when it is its turn."""
        parts = [self._groups(piece, self._keys(piece)) for piece in rows.pieces(_PIECE_ROWS)]
        groups = np.concatenate(parts)
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        for start, end in _batch_borders(groups):
            yield from self._batches_at(groups[start:end], rows, order[start:end].tolist())

    def _batches_at(
        self, groups: np.ndarray[Any, Any], rows: Rows, index: list[int]
    ) -> Iterator[pa.RecordBatch]:
        """The rows at `index`; more than one batch only if a column would outgrow an Arrow array."""
        chosen = rows.at(index)
        columns = [self._keys(chosen), *self._others(chosen)]
        if len(index) > 1 and any(isinstance(column, pa.ChunkedArray) for column in columns):
            half = len(index) // 2
            yield from self._batches_at(groups[:half], rows, index[:half])
            yield from self._batches_at(groups[half:], rows, index[half:])
            return
        yield pa.RecordBatch.from_arrays([pa.array(groups), *columns], schema=self._schema)

    def _keys(self, rows: Rows) -> Any:
        serializer = self._serializers.key
        return serializer.to_arrow(tokens_to_keys(rows.tokens, serializer))

    def _groups(self, rows: Rows, keys: pa.Array) -> np.ndarray[Any, Any]:
        return token_key_groups(rows.tokens, keys, self._serializers.key, self._max_parallelism)

    def _others(self, rows: Rows) -> list[Any]:
        """All columns but key group and key."""
        meta, value, map_key = self._meta, self._serializers.value, self._serializers.map_key
        columns: list[Any] = []
        if rows.namespaces is not None:
            parts = zip(*rows.namespaces, strict=True)
            columns += [pa.array(part, pa.int64()) for part in parts]
        if meta.kind is StateKind.TIMER:
            return [*columns, pa.array(rows.values, pa.int64())]
        assert value is not None
        is_list = meta.kind is StateKind.LIST
        if is_list:
            columns.append(_list_column(rows.values, value, self._schema.field("value").type))
        else:
            if rows.map_keys is not None and map_key is not None:
                columns.append(map_key.to_arrow(tokens_to_keys(rows.map_keys, map_key)))
            columns.append(value.to_arrow(rows.values))
        if rows.stamps is not None:
            columns.append(pa.array(rows.stamps, pa.list_(pa.int64()) if is_list else pa.int64()))
        return columns


def _list_column(
    lists: Sequence[list[Any]], serializer: TypeSerializer[Any], arrow_type: pa.DataType
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
