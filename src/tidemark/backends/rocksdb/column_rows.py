"""Value state by column over RocksDB: columns hold what batches have read and written, the store holds everything.

A batch asks for the rows of all keys whose values are not known yet with one sorted multi-get, and writes what it
changed with one write batch at its end. What is known stays known from batch to batch, up to `read_cache_size` bytes
for each state; then all of it is forgotten, which costs the keys that come again one more read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.backends.columns.table import ColumnTable
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.rocksdb.value_bytes import ValueBytes
from tidemark.backends.table import ABSENT
from tidemark.state.column_keys import Keys, KeySet

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemark.backends.columns.key_index import KeyIndex, Rows
    from tidemark.state.backend import Windows
    from tidemark.state.column_types import Part
    from tidemark.state.key_tokens import KeyTokens
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ColumnCache", "ColumnRows"]

_KEY_BYTES = 24
"""Of a key in the index: itself, its place in the hash table, twice for the room to grow."""
_OBJECT_BYTES = 150
"""Of a value that is a Python object, as a guess."""


class _CachedColumns(ColumnTable):
    """Columns of which only some rows are known, and of which some have to be written."""

    def __init__(self, index: KeyIndex, serializer: TypeSerializer[Any], ttl: bool, rows: ColumnRows) -> None:
        super().__init__(index, serializer, ttl)
        self._rows = rows

    def fetch(self, keys: KeySet) -> None:
        """Read what is not known."""
        self._rows.fetch(keys)

    def scatter(self, rows: Rows, parts: list[Part], now: int) -> None:
        """Store values, and write them at the end of the batch."""
        super().scatter(rows, parts, now)
        self._rows.changed(rows)

    def stamp(self, rows: Rows, now: int) -> None:
        """Say that rows were accessed, and write that at the end of the batch."""
        super().stamp(rows, now)
        self._rows.changed(rows)

    def drop(self, rows: Any) -> None:
        """Remove the values of rows, from the store at the end of the batch."""
        super().drop(rows)
        self._rows.changed(rows)


class ColumnRows(RowTable):
    """The rows of one state in the store.

    Attributes:
        table: What is known of them.
    """

    def __init__(
        self, scope: BatchScope, state_id: int, serializer: TypeSerializer[Any], ttl: bool, cache: ColumnCache
    ) -> None:
        """Know nothing yet."""
        super().__init__(scope, state_id, serializer, ttl, cache.namespaced)
        self._serializer, self._ttl = serializer, ttl
        self._cache = cache
        self.begin()
        self._bytes = ValueBytes(self.table.kind, ttl)
        width = sum(
            [_OBJECT_BYTES if dtype.kind == "O" else dtype.itemsize for dtype in self.table.kind.dtypes]
        )
        self.width = width + 3 + (8 if ttl else 0)

    def begin(self) -> None:
        """Forget everything; nothing is pending."""
        self.table = _CachedColumns(self._cache.index, self._serializer, self._ttl, self)
        self._known = np.zeros(0, np.bool_)
        self._stored = np.zeros(0, np.bool_)
        self._dirty: list[Rows] = []

    def _fit(self) -> None:
        missing = self._cache.index.capacity - len(self._known)
        if missing > 0:
            more = np.zeros(missing, np.bool_)
            self._known = np.concatenate([self._known, more])
            self._stored = np.concatenate([self._stored, more])

    def fetch(self, keys: KeySet) -> None:
        """Have the values of these keys in the columns."""
        self._fit()
        rows = keys.places[~self._known[keys.places]]
        if not len(rows):
            return
        row_keys, order = self._codec.row_keys(self._cache.index.keys[rows], self._state)
        rows = rows[order]
        raws = self._store.get_many(row_keys) if len(row_keys) > 1 else [self._store.get(row_keys[0])]
        found = np.fromiter([raw is not None for raw in raws], np.bool_, len(raws))
        self._known[rows] = True
        self._stored[rows] = found
        if found.any():
            parts, stamps = self._bytes.decode([raw for raw in raws if raw is not None])
            self.table.restore(rows[found], parts, stamps)

    def changed(self, rows: Rows) -> None:
        """Write these rows at the end of the batch."""
        self._dirty.append(rows)

    def write_back(self) -> None:
        """Write or delete each changed row once."""
        if not self._dirty:
            return
        rows = self._dirty[0] if len(self._dirty) == 1 else np.unique(np.concatenate(self._dirty))
        self._dirty = []
        present = self.table.held(rows)
        gone, kept = rows[~present & self._stored[rows]], rows[present]
        if len(gone):
            for row in self._codec.row_keys(self._cache.index.keys[gone], self._state)[0]:
                self._scope.delete(row)
        if len(kept):
            row_keys, order = self._codec.row_keys(self._cache.index.keys[kept], self._state)
            kept = kept[order]
            stamps = None if self.table.stamps is None else self.table.stamps[kept]
            self._scope.put_sorted(row_keys, self._bytes.encode(self.table.gather(kept), stamps))
        self._stored[rows] = present

    def forget(self) -> None:
        """Nothing: what is known is the cache's business."""

    def invalidate(self) -> None:
        """Drop everything that was read."""
        self.begin()

    def peek(self, token: Any) -> Any:
        """What a key holds, as an object, with its stamp if there is one; `ABSENT` if it holds nothing."""
        table, row = self.table, self._cache.index.row_of(token)
        if not 0 <= row < len(self._known) or not self._known[row]:
            raw = self._store.get(self.row(token))
            return ABSENT if raw is None else self._decode(raw)
        return table.unit(row)


class ColumnCache:
    """The keys, or windows of keys, whose values may be known, shared by such column states of a backend.

    Attributes:
        index: Their rows.
        tables: The states.
        namespaced: Whether these are windows of keys.
    """

    def __init__(
        self,
        tokens: KeyTokens,
        limit: int,
        make_index: Callable[[KeyTokens], KeyIndex],
        *,
        namespaced: bool = False,
    ) -> None:
        """Keep about `limit` bytes for each state."""
        self._tokens = tokens
        self._limit = limit
        self._make_index = make_index
        self.namespaced = namespaced
        self.index = make_index(tokens)
        self.tables: list[ColumnRows] = []

    def keys(self, column: pa.Array, batch: object, windows: Windows | None = None) -> Keys:
        """The keys of a batch; nothing is pending, so whatever has grown too large may go."""
        width = _KEY_BYTES + sum([table.width for table in self.tables])
        if self.index.count * width > self._limit * max(len(self.tables), 1):
            self.index = self._make_index(self._tokens)
            for table in self.tables:
                table.begin()
        rows, codes, firsts = self.index.rows(column, windows)
        return Keys(column, codes, firsts, rows, self._tokens, batch)
