"""The columnar half of the heap backend: the keys of a batch, and the tables that share their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.backends.columns.key_index import index_for
from tidemark.backends.columns.table import ColumnTable, ColumnView
from tidemark.backends.heap.column_cut import FrozenColumns
from tidemark.backends.table import ABSENT
from tidemark.state.column_keys import Keys
from tidemark.state.key_tokens import KeyTokens

if TYPE_CHECKING:
    from tidemark.backends.outside import OutsideView
    from tidemark.backends.registration import StateSpec
    from tidemark.state.snapshot import StateMeta

__all__ = ["HeapColumns"]

_FEW_ROWS = 1 << 10


class HeapColumns:
    """Value states by column, all over one index of keys.

    Attributes:
        tables: By the name of the state.
        asked_for: The oldest cut since which changes may be asked for; None: there is none.
    """

    def __init__(self, tokens: KeyTokens) -> None:
        """Start without states."""
        self._tokens = tokens
        self._index = index_for(tokens)
        self._looked_at = _FEW_ROWS
        self.tables: dict[str, ColumnTable] = {}
        self.asked_for: int | None = None

    def add(
        self, spec: StateSpec, restored: Iterable[tuple[pa.Array, pa.Array, pa.Array | None]]
    ) -> ColumnTable:
        """Begin a state with restored key, value and stamp columns."""
        table = ColumnTable(self._index, spec.value, spec.ttl is not None)
        self.tables[spec.name] = table
        for keys, values, stamps in restored:
            rows, codes, _ = self._index.rows(self._token_column(keys))
            stamped = None if stamps is None else stamps.to_numpy(zero_copy_only=False)
            table.restore(rows[codes], table.kind.split(values), stamped)
        return table

    def _token_column(self, keys: pa.Array) -> pa.Array:
        if self._tokens.are_keys:
            return keys.cast(self._tokens.arrow_type())
        return self._tokens.to_arrow(self._tokens.of_stored(self._tokens.serializer.from_arrow(keys)))

    def keys(self, column: pa.Array, batch: object) -> Keys:
        """The keys of a batch, each with a row of its own in every table."""
        self._let_go()
        rows, codes, firsts = self._index.rows(column)
        return Keys(column, codes, firsts, rows, self._tokens, batch)

    def _let_go(self) -> None:
        """Give up the rows of keys that hold nothing any more, if they are many."""
        index = self._index
        if index.count < self._looked_at:
            return
        held = np.zeros(index.count, np.bool_)
        for table in self.tables.values():
            present = table.present[: index.count]
            held[: len(present)] |= present
            if self.asked_for is not None:
                # A key that was dropped is needed until a checkpoint has said so.
                held[table.changed_rows(self.asked_for)] = True
        kept = np.flatnonzero(held)
        if len(kept) < index.count * 3 // 4:
            for table in self.tables.values():
                table.keep(kept)
            index.keep(kept)
        # Looking costs as much as there are rows, so it has to wait until there are twice as many.
        self._looked_at = max(_FEW_ROWS, 2 * index.count)

    def tokens(self, name: str, view: OutsideView, limit: int | None) -> list[Any]:
        """Tokens of the keys that hold a visible value, `limit` at most."""
        return list(islice(self._visible(self.tables[name], view), limit))

    def _visible(self, table: ColumnTable, view: OutsideView) -> Iterator[Any]:
        present = table.present[: self._index.count]
        if view.living is not None:
            assert table.stamps is not None
            present = present & (table.stamps[: len(present)] > view.living.dead_before)
        yield from self._index.tokens_at(np.flatnonzero(present))

    def erase(self, token: Any) -> dict[str, int]:
        """Drop what a key holds; the states that held anything."""
        row = self._index.row_of(token)
        held = [name for name, table in self.tables.items() if table.unit(row) is not ABSENT]
        for name in held:
            self.tables[name].drop([row])
        return dict.fromkeys(held, 1)

    def unit(self, name: str, token: Any) -> Any:
        """What a key holds, as an object, with its stamp if there is one; `ABSENT` if it holds nothing."""
        return self.tables[name].unit(self._index.row_of(token))

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
