"""From keys to row numbers, many at a time: where the columns of a backend keep what belongs to a key.

Integer keys lie in a hash table made of numpy arrays, with linear probing: a look-up goes over all keys of a batch
at once and then again over those that met another key, a quarter of them at the usual load. Other keys are made
distinct by Arrow and then looked up in a dictionary, one Python object per distinct key of the batch.

Measured per row of a batch of 65,536, at 100, 10,000 and 1,000,000 keys (`benchmarks/bench_columns.py index`): this
table 16, 11 and 26 ns, a dictionary of Python integers 75, 99 and 686, Arrow's dictionary encoding, which forgets
everything behind each batch, 10, 10 and 32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.state.key_tokens import KeyTokens

__all__ = ["IntegerIndex", "KeyIndex", "ObjectIndex", "index_for"]

Rows = np.ndarray[Any, Any]

_FIRST_ROWS = 1 << 10
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class KeyIndex(ABC):
    """The rows of keys; a key keeps its row until `keep` is called.

    Attributes:
        count: Rows given out; every row below is the row of a key.
        capacity: Rows there is room for in `keys`, and should be in columns.
    """

    count = 0
    capacity = _FIRST_ROWS
    keys: np.ndarray[Any, Any]
    """Token of each row. Replaced, never changed, below `count`."""

    def __init__(self, tokens: KeyTokens) -> None:
        """Start empty."""
        self._tokens = tokens

    @abstractmethod
    def rows(self, column: pa.Array, windows: tuple[Rows, Rows] | None = None) -> tuple[Rows, Rows, Rows]:
        """Rows of the keys of a batch; unknown ones get one.

        Args:
            column: Tokens.
            windows: Start and end of the window of each, for an index of windows.

        Returns:
            Row of each distinct key, code of each key of the batch (place among the distinct ones), and where each
            distinct one is first.
        """

    @abstractmethod
    def row_of(self, token: Any) -> int:
        """Row of one key, -1 if it has none."""

    def rows_of_key(self, token: Any) -> Rows:
        """All rows of one key."""
        row = self.row_of(token)
        return np.array([row] if row >= 0 else [], np.int64)

    def addresses(self, keys: np.ndarray[Any, Any]) -> list[Any]:
        """What `keys` stand for, as objects: tokens, with their windows where there are any."""
        addresses: list[Any] = keys.tolist()
        return addresses

    def namespaces(self, keys: np.ndarray[Any, Any]) -> list[pa.Array]:
        """Columns of the windows in `keys`, if these have any."""
        return []

    @abstractmethod
    def column(self, keys: np.ndarray[Any, Any]) -> pa.Array:
        """Tokens out of `keys` as a column."""

    @abstractmethod
    def keep(self, rows: Rows) -> None:
        """Let go of all keys but those of `rows`, which get the rows 0, 1, ... in that order."""

    def _grown(self, keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        while self.capacity < self.count:
            self.capacity *= 2
        grown = np.empty(self.capacity, keys.dtype)
        grown[: len(keys)] = keys
        return grown


class IntegerIndex(KeyIndex):
    """Keys that are integers of up to 64 bits."""

    def __init__(self, tokens: KeyTokens) -> None:
        super().__init__(tokens)
        self._type = tokens.arrow_type()
        self.keys = np.empty(self.capacity, np.int64)
        self._seen = np.empty(self.capacity, np.int32)
        self._make_table()

    def _make_table(self) -> None:
        # At most half of it is ever taken.
        bits = (2 * self.capacity - 1).bit_length()
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._table = np.full(1 << bits, -1, np.int32)
        self._insert(np.arange(self.count, dtype=np.int32))

    def _slots(self, keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore"):
            return ((keys.view(np.uint64) * _FACTOR) >> self._shift).view(np.int64)

    def _insert(self, rows: Rows) -> None:
        """Enter rows whose keys are new and all different."""
        table, at = self._table, self._slots(self.keys[rows])
        while len(rows):
            free = table[at] < 0
            table[at[free]] = rows[free]
            # Of several rows that wanted one slot the last has it.
            lost = table[at] != rows
            rows, at = rows[lost], (at[lost] + 1) & self._mask

    def find(self, keys: np.ndarray[Any, Any]) -> Rows:
        """Row of each key, -1 for those that have none."""
        table, known, at = self._table, self.keys, self._slots(keys)
        rows = table.take(at)
        other = np.flatnonzero((known.take(rows) != keys) & (rows >= 0))
        while len(other):
            at[other] = step = (at[other] + 1) & self._mask
            found = rows[other] = table.take(step)
            other = other[(known.take(found) != keys[other]) & (found >= 0)]
        return rows

    def rows(self, column: pa.Array, windows: tuple[Rows, Rows] | None = None) -> tuple[Rows, Rows, Rows]:
        """See `KeyIndex`."""
        keys = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        rows = self.find(keys)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            # Arrow's hash table: for keys in no order it takes a tenth of the time of np.unique.
            self._add(pa.array(keys[unknown]).unique().to_numpy())
            rows[unknown] = self.find(keys[unknown])
        return self._distinct(rows)

    def _distinct(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        if len(self._seen) < self.capacity:
            self._seen = np.empty(self.capacity, np.int32)
        seen, length = self._seen, len(rows)
        # Backwards: of several rows of the batch with one key the first writes last. By positions as numpy wants them,
        # in one piece and of its own width, which halves the time.
        seen[rows[::-1].astype(np.intp)] = np.arange(length - 1, -1, -1, dtype=np.int32)
        firsts = np.flatnonzero(seen.take(rows) == np.arange(length, dtype=np.int32))
        places = rows.take(firsts).astype(np.intp)
        seen[places] = np.arange(len(firsts), dtype=np.int32)
        return places, seen.take(rows).astype(np.intp), firsts

    def _add(self, keys: np.ndarray[Any, Any]) -> None:
        start, self.count = self.count, self.count + len(keys)
        if self.count > self.capacity:
            self.keys = self._grown(self.keys[:start])
            self.keys[start : self.count] = keys
            self._make_table()
        else:
            self.keys[start : self.count] = keys
            self._insert(np.arange(start, self.count, dtype=np.int32))

    def row_of(self, token: Any) -> int:
        """See `KeyIndex`."""
        return int(self.find(np.array([token], np.int64))[0])

    def column(self, keys: np.ndarray[Any, Any]) -> pa.Array:
        """See `KeyIndex`."""
        return pa.array(keys).cast(self._type)

    def keep(self, rows: Rows) -> None:
        """See `KeyIndex`."""
        kept = self.keys[rows]
        self.count = len(kept)
        self.keys = np.empty(self.capacity, np.int64)
        self.keys[: self.count] = kept
        self._make_table()


class ObjectIndex(KeyIndex):
    """Keys of any other type, by their tokens."""

    def __init__(self, tokens: KeyTokens) -> None:
        super().__init__(tokens)
        self.keys = np.empty(self.capacity, object)
        self._rows: dict[Any, int] = {}

    def rows(self, column: pa.Array, windows: tuple[Rows, Rows] | None = None) -> tuple[Rows, Rows, Rows]:
        """See `KeyIndex`."""
        if pa.types.is_nested(column.type) or column.null_count:
            tokens = self._tokens.from_arrow(column)
            codes_of: dict[Any, int] = {}
            codes = np.fromiter(
                [codes_of.setdefault(t, len(codes_of)) for t in tokens], np.int32, len(tokens)
            )
            distinct = list(codes_of)
        else:
            encoded = column.dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            distinct = self._tokens.from_arrow(encoded.dictionary)
        rows = self._rows_of(distinct)
        firsts = np.empty(len(distinct), np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]
        return rows, codes, firsts

    def _rows_of(self, distinct: list[Any]) -> Rows:
        known = self._rows
        found = list(map(known.get, distinct))
        if None in found:
            new = [token for token, row in zip(distinct, found, strict=True) if row is None]
            start, self.count = self.count, self.count + len(new)
            if self.count > self.capacity:
                self.keys = self._grown(self.keys[:start])
            self.keys[start : self.count] = np.fromiter(new, object, len(new))
            known.update(zip(new, range(start, self.count), strict=True))
            found = list(map(known.get, distinct))
        return np.array(found, np.int32)

    def row_of(self, token: Any) -> int:
        """See `KeyIndex`."""
        return self._rows.get(token, -1)

    def column(self, keys: np.ndarray[Any, Any]) -> pa.Array:
        """See `KeyIndex`."""
        return self._tokens.to_arrow(keys.tolist())

    def keep(self, rows: Rows) -> None:
        """See `KeyIndex`."""
        kept = self.keys[rows]
        self.count = len(kept)
        self.keys = np.empty(self.capacity, object)
        self.keys[: self.count] = kept
        self._rows = dict(zip(kept.tolist(), range(self.count), strict=True))


def index_for(tokens: KeyTokens) -> KeyIndex:
    """The index for keys of a type."""
    integers = tokens.are_keys and pa.types.is_signed_integer(tokens.arrow_type())
    return IntegerIndex(tokens) if integers else ObjectIndex(tokens)
