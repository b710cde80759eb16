"""Snapshots of the heap backend: frozen layers that become sorted Arrow batches when somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any, BinaryIO

import pyarrow as pa

from tidemark.backends.chain_files import write_link
from tidemark.backends.columns.table import ColumnView
from tidemark.backends.heap.chains import Link
from tidemark.backends.heap.column_cut import FrozenColumns
from tidemark.state.canonical import RowEncoder, Rows, StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.expiry import Living
from tidemark.state.key_memory import KeyMemory
from tidemark.state.layers import ChangedView, FrozenView
from tidemark.state.snapshot import NativeCut, StateMeta, StateTable, state_schema

__all__ = ["FrozenTable", "HeapCut", "LinkContent", "LiveStateTable", "StoredStateTable"]


class LiveStateTable:
    """Rows of one state, taken from a frozen view."""

    def __init__(
        self,
        meta: StateMeta,
        serializers: StateSerializers,
        view: FrozenView,
        max_parallelism: int,
        living: Living | None,
        memory: KeyMemory,
    ) -> None:
        """Remember what to write.

        Args:
            meta: Which state.
            serializers: How to encode it.
            view: Its content at the cut.
            max_parallelism: Number of key groups.
            living: The units to write; None writes all.
            memory: What earlier snapshots of the same state remembered of its keys.
        """
        self.meta = meta
        self.schema = state_schema(meta, serializers.key, serializers.value, serializers.map_key)
        self._serializers = serializers
        self._view = view
        self._max_parallelism = max_parallelism
        self._living = living
        self._memory = memory

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, sorted by key group."""
        encoder = RowEncoder(self.meta, self.schema, self._serializers, self._max_parallelism)
        # With a mark the view tells how its addresses relate to those of earlier cuts: while nothing was removed
        # they begin with the very same ones, whose key columns and key groups need not be made again.
        mark = self._view.mark if self._one_row_per_address() else None
        if mark is None:
            return encoder.batches(self._pieces)
        known = self._memory.recall(mark)
        source = self._pieces if known is None else partial(self._pieces_beyond, len(known))
        whole = encoder.whole(source, known)
        if whole is None:
            # Too large to hold as columns, so remembering some of them is out of the question too.
            self._memory.forget()
            return encoder.one_by_one(self._pieces)
        self._memory.keep(mark, whole[0])
        return encoder.in_order(*whole)

    def removed(self) -> Sequence[Any]:
        """Addresses that are not there any more, of a view of changes."""
        return self._view.removed() if isinstance(self._view, ChangedView) else ()

    def _one_row_per_address(self) -> bool:
        """Whether the rows have the addresses of the view for keys, each of them, in its order."""
        return (
            self.meta.kind is not StateKind.MAP and not self.meta.namespace.columns and self._living is None
        )

    def _pieces(self, size: int) -> Iterator[Rows]:
        for addresses, units in self._view.pieces(size):
            yield self._rows(addresses, units)

    def _pieces_beyond(self, known: int, size: int) -> Iterator[Rows]:
        """The keys behind the first `known` ones, and all values."""
        # Apart: values of old keys have changed, so all of them are looked at, but only new keys are.
        yield Rows(self._view.addresses_from(known), ())
        for units in self._view.values(size):
            yield self._rows([], units)

    def _rows(self, addresses: list[Any], units: list[Any]) -> Rows:
        kind, ttl = self.meta.kind, self.meta.ttl
        map_keys: list[Any] | None = None
        if kind is StateKind.MAP:
            # From one dictionary per address to one row per entry. A frozen dictionary never changes, so the three
            # passes see the same entries in the same order.
            maps = units
            addresses = [at for at, entries in zip(addresses, maps, strict=True) for _ in entries]
            map_keys = [map_key for entries in maps for map_key in entries]
            units = [unit for entries in maps for unit in entries.values()]
        if self._living is not None:
            if kind is StateKind.LIST:
                # A list of which nothing lives is empty now, and empty lists are not alive.
                alive: list[Any] = list(map(self._living.units, units))
                units = alive
            else:
                dead_before = self._living.dead_before
                alive = [unit[1] > dead_before for unit in units]  # `Living.alive`, for every row
            addresses = list(compress(addresses, alive))
            units = list(compress(units, alive))
            map_keys = None if map_keys is None else list(compress(map_keys, alive))
        namespaces = None
        if self.meta.namespace.columns:
            namespaces = [at[1] for at in addresses]
            addresses = [at[0] for at in addresses]
        if not ttl:
            return Rows(addresses, units, namespaces, map_keys)
        if kind is StateKind.LIST:
            values: list[Any] = [[unit[0] for unit in elements] for elements in units]
            stamps: list[Any] = [[unit[1] for unit in elements] for elements in units]
        else:
            values, stamps = [unit[0] for unit in units], [unit[1] for unit in units]
        return Rows(addresses, values, namespaces, map_keys, stamps)


class StoredStateTable:
    """Rows that are Arrow already: state that could not be decoded on restore, or a synchronous cut."""

    def __init__(self, meta: StateMeta, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep the batches, which must be sorted by key group."""
        self.meta = meta
        self.schema = schema
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they are."""
        return iter(self._batches)


FrozenTable = LiveStateTable | StoredStateTable | FrozenColumns


class LinkContent:
    """Writes one file of an incremental checkpoint."""

    def __init__(self, link: Link, table: FrozenTable, max_parallelism: int) -> None:
        """Remember what to write: all rows of a state, or those that changed."""
        self._link = link
        self._table = table
        self._max_parallelism = max_parallelism

    def __call__(self, sink: BinaryIO) -> None:
        """Write it."""
        table = self._table
        # What could not be decoded was restored, is carried along and never changes.
        removed = () if isinstance(table, StoredStateTable) else table.removed()
        self._link.rows = write_link(sink, table, removed, self._max_parallelism)


class HeapCut:
    """All keyed state of one operator subtask at a barrier, or with `native` what changed of it."""

    def __init__(
        self,
        tables: Sequence[StateTable],
        views: Sequence[FrozenView | ColumnView],
        metas: Sequence[StateMeta] | None = None,
        native: NativeCut | None = None,
    ) -> None:
        """Hold the tables, and the views behind them until `release`."""
        self.metas = [table.meta for table in tables] if metas is None else metas
        self.native = native
        self._tables = tables
        self._views = views

    def tables(self) -> Sequence[StateTable]:
        """Canonical tables of all states."""
        return self._tables

    def release(self) -> None:
        """Let the backend fold its layers at its next batch; safe from any thread."""
        # Marks only: folding would race with the thread that processes records.
        for view in self._views:
            view.release()

    def materialize(self) -> HeapCut:
        """The same content, serialised here and now, independent of the backend."""
        stored = [StoredStateTable(table.meta, table.schema, list(table.batches())) for table in self._tables]
        self.release()
        return HeapCut(stored, ())
