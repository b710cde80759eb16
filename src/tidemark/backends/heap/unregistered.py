"""Restored state between `restore_table` and its registration.

Rows stay in Arrow form until the state is registered, because only then is it known how its type evolves;
state nobody asks for goes into later snapshots as it came. Rows of custom serializers become objects at once, as
Flink's heap backends do it (a user's serializer may count on that), unless their serializer cannot be rebuilt; then
whoever asks for the state is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidemark.backends.heap.cut import LiveStateTable, StoredStateTable
from tidemark.backends.heap.tables import (
    HeapListTable,
    HeapMapTable,
    HeapTable,
    HeapValueTable,
    unit_copier,
)
from tidemark.backends.registration import StateMigration
from tidemark.errors import StateMigrationException
from tidemark.state.backend import KeyToken
from tidemark.state.canonical import MAX_BATCH_ROWS, Rows, StateSerializers, read_rows
from tidemark.state.descriptors import StateKind
from tidemark.state.key_memory import KeyMemory
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.layers import FrozenView
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.snapshot import StateMeta, state_schema

__all__ = ["RestoredColumns", "UnregisteredState", "new_table"]

RestoredColumns = tuple[pa.Array, pa.Array, pa.Array | None, Sequence[pa.Array]]
"""Keys, values, stamps with time-to-live, and the columns of the namespace."""


def new_table(kind: StateKind) -> HeapTable:
    """An empty table for a kind of state."""
    if kind is StateKind.LIST:
        return HeapListTable(None)
    return HeapMapTable(None) if kind is StateKind.MAP else HeapValueTable(None)


class UnregisteredState:
    """The rows of one state that nobody has registered yet.

    Attributes:
        meta: What the snapshot says of it.
        table: The rows as objects, if they had to be decoded at once.
    """

    def __init__(self, meta: StateMeta) -> None:
        """Start without rows."""
        self.meta = meta
        self.table: HeapTable | None = None
        self._batches: list[pa.RecordBatch] = []
        self._serializers: StateSerializers | None = None
        if _is_custom(meta.value):
            self._decode_at_once()

    def _decode_at_once(self) -> None:
        try:
            self._serializers = StateSerializers.of(self.meta)
        except StateMigrationException:
            return
        assert self._serializers.value is not None
        self.table = new_table(self.meta.kind)
        self.table.copy = unit_copier(self._serializers.value, self.meta.ttl)

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take over more rows."""
        if self.table is None:
            self._batches += [batch for batch in batches if batch.num_rows]
        else:
            assert self._serializers is not None
            _fill(self.table, self.meta, self._serializers, batches)

    def num_entries(self) -> int:
        """Rows are entries: one per key, for map state one per map entry."""
        if self.table is not None:
            return self.table.num_entries()
        return sum(batch.num_rows for batch in self._batches)

    def erase(self, token: KeyToken) -> int:
        """Drop the rows of a key; how many there were."""
        if self.table is not None:
            return self.table.erase(token, self.meta.namespace)
        key = load_serializer_snapshot(self.meta.key).restore_serializer()
        tokens = KeyTokens(key)
        kept, gone = [], 0
        for batch in self._batches:
            stays = [each != token for each in tokens.of_stored(key.from_arrow(batch.column("key")))]
            gone += stays.count(False)
            kept.append(batch if all(stays) else batch.filter(pa.array(stays, pa.bool_())))
        self._batches = [batch for batch in kept if batch.num_rows]
        return gone

    def decoded(self) -> HeapTable:
        """The rows as objects of the old type, for reading only."""
        if self.table is not None:
            return self.table
        table = new_table(self.meta.kind)
        _fill(table, self.meta, StateSerializers.of(self.meta), self._batches)
        return table

    def take_over(self, migration: StateMigration) -> HeapTable:
        """The table of the state now that it is registered, with values of the new type."""
        table = self.table
        if table is None:
            spec = migration.spec
            table = new_table(self.meta.kind)
            serializers = StateSerializers(spec.key, migration.old, spec.map_key)
            _fill(table, self.meta, serializers, self._batches)
        # Snapshots of the state as it was restored remember keys as the old serializer writes them.
        table.keys = KeyMemory()
        if migration.convert is not None:
            _convert(table, self.meta, migration.convert)
        return table

    def take_columns(self, migration: StateMigration) -> Iterator[RestoredColumns]:
        """The columns of a state with one value per address now that it is registered, of the new type."""
        spec, names = migration.spec, self.meta.namespace.columns
        same = migration.old.arrow_type() == spec.value.arrow_type() and not migration.rewrite
        if self.table is None and migration.convert is None and same:
            for batch in self._batches:
                stamps = batch.column("last_access") if self.meta.ttl else None
                yield (
                    batch.column("key"),
                    batch.column("value"),
                    stamps,
                    [batch.column(name) for name in names],
                )
            return
        items = list(self.take_over(migration).store.items())
        for at in range(0, len(items), MAX_BATCH_ROWS):
            piece = items[at : at + MAX_BATCH_ROWS]
            units = [unit for _, unit in piece]
            stamps = pa.array([unit[1] for unit in units], pa.int64()) if self.meta.ttl else None
            values = [unit[0] for unit in units] if self.meta.ttl else units
            addresses = [at for at, _ in piece]
            tokens = [at[0] for at in addresses] if names else addresses
            windows = [
                pa.array([at[1][place] for at in addresses], pa.int64()) for place in range(len(names))
            ]
            keys = KeyTokens(spec.key).keys(tokens)
            yield spec.key.to_arrow(keys), spec.value.to_arrow(values), stamps, windows

    def freeze(self, max_parallelism: int) -> tuple[LiveStateTable | StoredStateTable, FrozenView | None]:
        """The rows for a snapshot, and the view to release if they were decoded."""
        if self.table is not None:
            assert self._serializers is not None
            view = self.table.store.freeze()
            memory = self.table.keys
            return LiveStateTable(self.meta, self._serializers, view, max_parallelism, None, memory), view
        batches = self._batches
        if len(batches) > 1:
            # Several old subtasks, each sorted by itself.
            table = pa.Table.from_batches(batches).sort_by("key_group")
            batches = self._batches = table.to_batches(max_chunksize=MAX_BATCH_ROWS)
        return StoredStateTable(self.meta, batches[0].schema if batches else self._schema(), batches), None

    def _schema(self) -> pa.Schema:
        try:
            serializers = StateSerializers.of(self.meta)
        except StateMigrationException:
            return pa.schema([("key_group", pa.uint16()), ("key", pa.binary()), ("value", pa.binary())])
        return state_schema(self.meta, serializers.key, serializers.value, serializers.map_key)


def _is_custom(snapshot: bytes) -> bool:
    """Whether the snapshot class was written by a user, or cannot be found."""
    try:
        return not type(load_serializer_snapshot(snapshot)).__module__.startswith("tidemark.")
    except StateMigrationException:
        return True


def _fill(
    table: HeapTable, meta: StateMeta, serializers: StateSerializers, batches: Iterable[pa.RecordBatch]
) -> None:
    live = table.store.live
    for batch in batches:
        rows = read_rows(meta, serializers, batch)
        addresses: Sequence[Any] = rows.tokens
        if rows.namespaces is not None:
            addresses = list(zip(rows.tokens, rows.namespaces, strict=True))
        units = _units(meta, rows)
        if rows.map_keys is None:
            live.update(zip(addresses, units, strict=True))
            continue
        for at, map_key, unit in zip(addresses, rows.map_keys, units, strict=True):
            entries = live.get(at)
            if entries is None:
                live[at] = {map_key: unit}
            else:
                entries[map_key] = unit


def _units(meta: StateMeta, rows: Rows) -> Sequence[Any]:
    if rows.stamps is None:
        return rows.values
    if meta.kind is StateKind.LIST:
        pairs = zip(rows.values, rows.stamps, strict=True)
        return [list(zip(values, stamps, strict=True)) for values, stamps in pairs]
    return list(zip(rows.values, rows.stamps, strict=True))


def _convert(table: HeapTable, meta: StateMeta, convert: Callable[[Any], Any]) -> None:
    def unit(old: Any) -> Any:
        return (convert(old[0]), old[1]) if meta.ttl else convert(old)

    for at, held in list(table.store.items()):
        if meta.kind is StateKind.LIST:
            new: Any = [unit(element) for element in held]
        elif meta.kind is StateKind.MAP:
            new = {key: unit(value) for key, value in held.items()}
        else:
            new = unit(held)
        table.store.put(at, new)
