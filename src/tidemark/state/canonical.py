"""Between Python objects and the canonical Arrow form of keyed state (drawn in `tidemark.state.snapshot`).

Rows travel as columns of live objects (`Rows`): whoever keeps objects (heap state, timers) turns them into
sorted record batches with a `RowEncoder` and gets them back with `read_rows`. Everything per row is
vectorised or runs in C loops; pieces are bounded, so that a writer in the background never holds the
interpreter for long.

What encoding costs is mostly waiting for memory: the objects of a state lie where they were made. Rows are
therefore taken in pieces whose objects fit into the processor's cache, everything that has to look at
objects looks at one piece after the other, and only the columns are then brought into the order of the key
groups.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import key_groups_of
from tidemark.state.key_hashing import hash_tokens, layout_of
from tidemark.state.key_memory import KeyColumns
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import Namespace
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.snapshot import StateMeta

__all__ = [
    "MAX_BATCH_ROWS",
    "RowEncoder",
    "RowSource",
    "Rows",
    "StateSerializers",
    "batch_borders",
    "by_key_group",
    "read_rows",
]

MAX_BATCH_ROWS = 1 << 16
_PIECE_ROWS = 1 << 11
"""Rows whose keys and values (two cache lines each) take a quarter of a common second-level cache of 1 MiB."""
_MAX_WHOLE_BYTES = 1 << 30
"""Columns of a state that may be in memory besides the state; one Arrow array of text holds at most twice that."""


@dataclass(frozen=True, slots=True)
class StateSerializers:
    """The serializers of one state, as far as its kind has them."""

    key: TypeSerializer[Any]
    value: TypeSerializer[Any] | None = None
    map_key: TypeSerializer[Any] | None = None

    @staticmethod
    def of(meta: StateMeta) -> StateSerializers:
        """The serializers a state was written with.

        Raises:
            StateMigrationException: One of them cannot be rebuilt, for instance because its class is gone.
        """

        def restored(snapshot: bytes | None) -> TypeSerializer[Any] | None:
            return load_serializer_snapshot(snapshot).restore_serializer() if snapshot else None

        return StateSerializers(StateSerializers.key_of(meta), restored(meta.value), restored(meta.map_key))

    @staticmethod
    def key_of(meta: StateMeta) -> TypeSerializer[Any]:
        """The serializer of the keys; the class of the values need not be here.

        Raises:
            StateMigrationException: It cannot be rebuilt.
        """
        return load_serializer_snapshot(meta.key).restore_serializer()


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
        for at in range(0, max(len(self.tokens), len(self.values)), size):
            yield self._chosen(itemgetter(slice(at, at + size)))

    def at(self, index: list[int]) -> Rows:
        """The rows at these places, in this order."""
        return self._chosen(lambda column: list(map(column.__getitem__, index)))

    def _chosen(self, choose: Callable[[Any], Any]) -> Rows:
        others = (self.namespaces, self.map_keys, self.stamps)
        chosen = [None if column is None else choose(column) for column in others]
        return Rows(choose(self.tokens), choose(self.values), *chosen)


RowSource = Callable[[int], Iterator[Rows]]
"""Gives all rows of a state, those of so many addresses at a time; may be called again."""


class RowEncoder:
    """Turns the rows of one state into its canonical batches: sorted by key group, and of bounded size.

    A batch holds whole key groups unless one is too large. There are two ways: the columns of all rows are put
    together (`whole`) and then brought into order (`in_order`), or, if they are too large for that, each batch
    is encoded when it is its turn (`one_by_one`).
    """

    def __init__(
        self, meta: StateMeta, schema: pa.Schema, serializers: StateSerializers, max_parallelism: int
    ) -> None:
        """Encode rows of the state `meta` with this schema."""
        self._meta = meta
        self._schema = schema
        self._serializers = serializers
        self._layout = layout_of(serializers.key)
        self._tokens = KeyTokens(serializers.key)
        self._max_parallelism = max_parallelism

    def batches(self, source: RowSource) -> Iterator[pa.RecordBatch]:
        """All rows; the source is not asked any more when this returns."""
        whole = self.whole(source)
        return self.one_by_one(source) if whole is None else self.in_order(*whole)

    def whole(self, source: RowSource, known: KeyColumns | None = None) -> tuple[KeyColumns, pa.Table] | None:
        """The keys of all rows and their other columns, or None if they are too large.

        Args:
            source: The rows. Tokens and values may come apart, each in their order.
            known: Columns of the first keys, whose tokens the source then leaves out.
        """
        keys, groups, parts, size = [], [], [], 0 if known is None else known.nbytes
        for rows in source(_PIECE_ROWS):
            for piece in rows.pieces(_PIECE_ROWS):
                if piece.tokens:
                    keys.append(self._keys(piece.tokens))
                    groups.append(self._groups(piece.tokens, keys[-1]))
                    size += keys[-1].nbytes
                if piece.values:
                    parts.append(self._others(piece))
                    size += sum(column.nbytes for column in parts[-1])
                if size > _MAX_WHOLE_BYTES:
                    return None
        columns = self._key_columns(groups, keys)
        return columns if known is None else known.followed_by(columns), self._other_columns(parts)

    def in_order(self, keys: KeyColumns, others: pa.Table) -> Iterator[pa.RecordBatch]:
        """The batches of rows whose columns were put together."""
        order = np.argsort(keys.groups, kind="stable")
        groups = keys.groups[order]
        table = others.add_column(0, self._schema.field(1), keys.keys)
        for start, end in batch_borders(groups):
            taken = table.take(pa.array(order[start:end]))
            columns = [column.combine_chunks() for column in taken.columns]
            yield pa.RecordBatch.from_arrays([pa.array(groups[start:end]), *columns], schema=self._schema)

    def one_by_one(self, source: RowSource) -> Iterator[pa.RecordBatch]:
        """The batches of rows of which only one batch at a time may be in memory as columns."""
        [rows] = source(sys.maxsize)
        return self._one_by_one(rows)

    def _one_by_one(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        pieces = (piece.tokens for piece in rows.pieces(_PIECE_ROWS))
        groups = np.concatenate([self._groups(tokens, self._keys(tokens)) for tokens in pieces])
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        for start, end in batch_borders(groups):
            yield from self._batches_at(groups[start:end], rows, order[start:end].tolist())

    def _batches_at(
        self, groups: np.ndarray[Any, Any], rows: Rows, index: list[int]
    ) -> Iterator[pa.RecordBatch]:
        """The rows at `index`; more than one batch only if a column would outgrow an Arrow array."""
        chosen = rows.at(index)
        columns = [self._keys(chosen.tokens), *self._others(chosen)]
        if len(index) > 1 and any(isinstance(column, pa.ChunkedArray) for column in columns):
            half = len(index) // 2
            yield from self._batches_at(groups[:half], rows, index[:half])
            yield from self._batches_at(groups[half:], rows, index[half:])
            return
        yield pa.RecordBatch.from_arrays([pa.array(groups), *columns], schema=self._schema)

    def _keys(self, tokens: Sequence[Hashable]) -> Any:
        return self._serializers.key.to_arrow(self._tokens.keys(tokens))

    def _groups(self, tokens: Sequence[Hashable], keys: pa.Array) -> np.ndarray[Any, Any]:
        """Key group (uint16) of every key; where keys are their own tokens, their column is enough."""
        hashed = keys if self._tokens.are_keys else tokens
        return key_groups_of(hash_tokens(hashed, self._serializers.key, self._layout), self._max_parallelism)

    def _key_columns(self, groups: list[Any], keys: list[Any]) -> KeyColumns:
        column = pa.chunked_array(keys, self._schema.field(1).type).combine_chunks()
        return KeyColumns(np.concatenate([np.empty(0, np.uint16), *groups]), column)

    def _other_columns(self, parts: list[list[Any]]) -> pa.Table:
        schema = pa.schema(list(self._schema)[2:])
        batches = [pa.RecordBatch.from_arrays(columns, schema=schema) for columns in parts]
        return pa.Table.from_batches(batches, schema=schema).combine_chunks()

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
                columns.append(map_key.to_arrow(KeyTokens(map_key).keys(rows.map_keys)))
            columns.append(value.to_arrow(rows.values))
        if rows.stamps is not None:
            columns.append(pa.array(rows.stamps, pa.list_(pa.int64()) if is_list else pa.int64()))
        return columns


def by_key_group(
    tokens: pa.Array, key: TypeSerializer[Any], max_parallelism: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The key groups of a column of tokens, sorted, and where each of them came from."""
    groups = key_groups_of(hash_tokens(tokens, key, layout_of(key)), max_parallelism)
    order = np.argsort(groups, kind="stable")
    return groups[order], order


def batch_borders(groups: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
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


def _list_column(
    lists: Sequence[list[Any]], serializer: TypeSerializer[Any], arrow_type: pa.DataType
) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    flat = serializer.to_arrow([element for elements in lists for element in elements])
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=arrow_type)


def read_rows(meta: StateMeta, serializers: StateSerializers, batch: pa.RecordBatch) -> Rows:
    """The live objects behind one canonical batch."""
    tokens = KeyTokens(serializers.key).of_stored(serializers.key.from_arrow(batch.column("key")))
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
        found = serializers.map_key.from_arrow(batch.column("map_key"))
        map_keys = KeyTokens(serializers.map_key).of_stored(found)
    return Rows(tokens, serializers.value.from_arrow(column), namespaces, map_keys, stamps)
