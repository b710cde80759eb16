"""Snapshots of the heap backend: frozen layers that become sorted Arrow batches when somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidemark.state.canonical import Rows, StateSerializers, sorted_batches
from tidemark.state.descriptors import StateKind
from tidemark.state.layers import FrozenView
from tidemark.state.snapshot import NativeCut, StateMeta, StateTable, state_schema

__all__ = ["HeapCut", "LiveStateTable", "StoredStateTable"]


class LiveStateTable:
    """Rows of one state, taken from a frozen view."""

    def __init__(
        self,
        meta: StateMeta,
        serializers: StateSerializers,
        view: FrozenView,
        max_parallelism: int,
        dead_before: int | None,
    ) -> None:
        """Remember what to write.

        Args:
            meta: Which state.
            serializers: How to encode it.
            view: Its content at the cut.
            max_parallelism: Number of key groups.
            dead_before: Leave out units last accessed then or earlier; None keeps all.
        """
        self.meta = meta
        self.schema = state_schema(meta, serializers.key, serializers.value, serializers.map_key)
        self._serializers = serializers
        self._view = view
        self._max_parallelism = max_parallelism
        self._dead_before = dead_before

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, sorted by key group."""
        rows = self._rows(self._view.items())
        return sorted_batches(self.meta, self.schema, self._serializers, rows, self._max_parallelism)

    def _rows(self, items: list[tuple[Any, Any]]) -> Rows:
        map_keys = None
        kind = self.meta.kind
        if kind is StateKind.MAP:
            entries = [(at, key, unit) for at, inner in items for key, unit in inner.items()]
            if self._dead_before is not None:
                entries = [entry for entry in entries if entry[2][1] > self._dead_before]
            map_keys = [entry[1] for entry in entries]
            addresses, units = [entry[0] for entry in entries], [entry[2] for entry in entries]
        else:
            if self._dead_before is not None:
                items = self._living(items, self._dead_before)
            addresses, units = [item[0] for item in items], [item[1] for item in items]
        namespaces = None
        if self.meta.namespace.columns:
            namespaces = [at[1] for at in addresses]
            addresses = [at[0] for at in addresses]
        if not self.meta.ttl:
            return Rows(addresses, units, namespaces, map_keys)
        if kind is StateKind.LIST:
            values: list[Any] = [[unit[0] for unit in elements] for elements in units]
            stamps: list[Any] = [[unit[1] for unit in elements] for elements in units]
        else:
            values, stamps = [unit[0] for unit in units], [unit[1] for unit in units]
        return Rows(addresses, values, namespaces, map_keys, stamps)

    def _living(self, items: list[tuple[Any, Any]], dead_before: int) -> list[tuple[Any, Any]]:
        if self.meta.kind is not StateKind.LIST:
            return [item for item in items if item[1][1] > dead_before]
        lists = [(at, [unit for unit in units if unit[1] > dead_before]) for at, units in items]
        return [item for item in lists if item[1]]


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


class HeapCut:
    """All keyed state of one operator subtask at a barrier."""

    native: NativeCut | None = None

    def __init__(self, tables: Sequence[StateTable], views: Sequence[FrozenView]) -> None:
        """Hold the tables, and the views behind them until `release`."""
        self.metas: Sequence[StateMeta] = [table.meta for table in tables]
        self._tables = tables
        self._views = views

    def tables(self) -> Sequence[StateTable]:
        """Canonical tables of all states."""
        return self._tables

    def release(self) -> None:
        """Let the backend fold its layers at its next batch; safe from any thread."""
        for view in self._views:
            view.release()

    def materialize(self) -> HeapCut:
        """The same content, serialised here and now, independent of the backend."""
        stored = [StoredStateTable(table.meta, table.schema, list(table.batches())) for table in self._tables]
        self.release()
        return HeapCut(stored, ())
