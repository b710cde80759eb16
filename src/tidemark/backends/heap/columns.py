"""The columnar half of the heap backend: the keys of a batch, and the tables that share their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.backends.columns.key_index import KeyIndex, Rows, index_for
from tidemark.backends.columns.table import ColumnTable, ColumnView
from tidemark.backends.columns.window_index import WindowIndex
from tidemark.backends.heap.column_cut import FrozenColumns
from tidemark.backends.table import ABSENT
from tidemark.state.column_keys import Keys
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import VOID, Namespace, NamespaceKind

if TYPE_CHECKING:
    from tidemark.backends.heap.unregistered import RestoredColumns
    from tidemark.backends.outside import OutsideView
    from tidemark.backends.registration import StateSpec
    from tidemark.state.snapshot import StateMeta

__all__ = ["HeapColumns"]

_FEW_ROWS = 1 << 10


class HeapColumns:
    """States by column: those of keys all over one index, those of windows of keys over another.

    Attributes:
        tables: By the name of the state.
        asked_for: The oldest cut since which changes may be asked for; None: there is none.
    """

    def __init__(self, tokens: KeyTokens) -> None:
        """Start without states."""
        self._tokens = tokens
        self._indexes: dict[NamespaceKind, KeyIndex] = {
            NamespaceKind.VOID: index_for(tokens),
            NamespaceKind.WINDOW: WindowIndex(tokens),
        }
        self._looked_at = dict.fromkeys(self._indexes, _FEW_ROWS)
        self.tables: dict[str, ColumnTable] = {}
        self.asked_for: int | None = None

    def add(self, spec: StateSpec, restored: Iterable[RestoredColumns]) -> ColumnTable:
        """Begin a state with restored columns."""
        index = self._indexes[spec.namespace]
        table = ColumnTable(index, spec.value, spec.ttl is not None)
        self.tables[spec.name] = table
        for keys, values, stamps, windows in restored:
            bounds = [column.to_numpy(zero_copy_only=False) for column in windows]
            rows, codes, _ = index.rows(
                self._tokens.of_key_column(keys), (bounds[0], bounds[1]) if bounds else None
            )
            stamped = None if stamps is None else stamps.to_numpy(zero_copy_only=False)
            table.restore(rows[codes], table.kind.split(values), stamped)
        return table

    def keys(self, column: pa.Array, batch: object, windows: tuple[Rows, Rows] | None = None) -> Keys:
        """The keys of a batch, or the windows of keys, each with a row of its own in every table."""
        namespace = NamespaceKind.VOID if windows is None else NamespaceKind.WINDOW
        self._let_go(namespace)
        rows, codes, firsts = self._indexes[namespace].rows(column, windows)
        return Keys(column, codes, firsts, rows, self._tokens, batch)

    def _let_go(self, namespace: NamespaceKind) -> None:
        """Give up the rows that hold nothing any more, if they are many."""
        index = self._indexes[namespace]
        if index.count < self._looked_at[namespace]:
            return
        held = np.zeros(index.count, np.bool_)
        tables = [table for table in self.tables.values() if table.index is index]
        for table in tables:
            present = table.present[: index.count]
            held[: len(present)] |= present
            if self.asked_for is not None:
                # A key that was dropped is needed until a checkpoint has said so.
                held[table.changed_rows(self.asked_for)] = True
        kept = np.flatnonzero(held)
        if len(kept) < index.count * 3 // 4:
            for table in tables:
                table.keep(kept)
            index.keep(kept)
        # Looking costs as much as there are rows, so it has to wait until there are twice as many.
        self._looked_at[namespace] = max(_FEW_ROWS, 2 * index.count)

    def tokens(
        self, name: str, view: OutsideView, limit: int | None, namespace: Namespace = VOID
    ) -> list[Any]:
        """Tokens of the keys that hold a visible value, in a window if it has windows; `limit` at most."""
        addresses: Iterator[Any] = iter(self._visible(self.tables[name], view))
        if view.namespace.columns:
            addresses = (at[0] for at in addresses if at[1] == namespace)
        return list(islice(addresses, limit))

    def _visible(self, table: ColumnTable, view: OutsideView) -> list[Any]:
        present = table.present[: table.index.count]
        if view.living is not None:
            assert table.stamps is not None
            present = present & (table.stamps[: len(present)] > view.living.dead_before)
        return table.index.addresses(table.index.keys[np.flatnonzero(present)])

    def namespaces(self, name: str, view: OutsideView, token: Any) -> list[Namespace]:
        """Namespaces in which a key holds a visible value."""
        table, index = self.tables[name], self.tables[name].index
        rows = [
            row for row in index.rows_of_key(token).tolist() if view.visible(table.unit(row)) is not ABSENT
        ]
        if not view.namespace.columns:
            return [VOID] * len(rows)
        return [at[1] for at in index.addresses(index.keys[rows])]

    def erase(self, token: Any) -> dict[str, int]:
        """Drop what a key holds; how many rows of the states that held any."""
        erased = {}
        for name, table in self.tables.items():
            rows = [row for row in table.index.rows_of_key(token) if table.unit(row) is not ABSENT]
            if rows:
                table.drop(rows)
                erased[name] = len(rows)
        return erased

    def unit(self, name: str, at: Any) -> Any:
        """What an address holds, as an object, with its stamp if there is one; `ABSENT` if it holds nothing."""
        table = self.tables[name]
        return table.unit(table.index.row_of(at))

    def freeze(
        self, spec: StateSpec, meta: StateMeta, max_parallelism: int, now: int, since: int | None = None
    ) -> tuple[FrozenColumns, ColumnView]:
        """A state for a snapshot, in constant time; with `since` what changed behind that cut, expired or not."""
        table = self.tables[spec.name]
        view = table.freeze()
        living = None if spec.expiry is None or since is not None else spec.expiry.snapshot_at(now)
        dead_before = None if living is None else living.dead_before
        frozen = FrozenColumns(meta, spec.serializers, table.kind, view, max_parallelism, dead_before, since)
        return frozen, view
