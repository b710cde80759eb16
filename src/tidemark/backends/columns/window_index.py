"""From pairs of a key and a window to row numbers, many at a time: where columns keep what belongs to such a pair.

Keys and windows are numbered, each by itself, and a pair is one integer made of both numbers, which `IntegerIndex`
looks up. There are few windows in a batch as a rule, and they come in runs; each run costs one look-up in a dictionary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.backends.columns.key_index import IntegerIndex, KeyIndex, Rows, index_for
from tidemark.state.grouping import run_heads
from tidemark.state.key_tokens import KeyTokens, key_serializer_for
from tidemark.types.typeinfo import Types

__all__ = ["WindowIndex"]

_FEW_RUNS = 64


class WindowIndex(KeyIndex):
    """Rows of windows of keys.

    `keys` has the fields `token`, `start` and `end`; an address is `(token, (start, end))`.
    """

    def __init__(self, tokens: KeyTokens) -> None:
        """Start empty."""
        super().__init__(tokens)
        self._pairs = IntegerIndex(KeyTokens(key_serializer_for(Types.LONG())))
        self._forget_numbers()
        self.keys = np.empty(self.capacity, self._dtype)

    def _forget_numbers(self) -> None:
        self._key_rows = index_for(self._tokens)
        self._windows: dict[tuple[int, int], int] = {}
        self._dtype = np.dtype([("token", self._key_rows.keys.dtype), ("start", "i8"), ("end", "i8")])

    def rows(self, column: pa.Array, windows: tuple[Rows, Rows] | None = None) -> tuple[Rows, Rows, Rows]:
        """Rows of the windows (starts and ends) of the keys of a batch; see `KeyIndex`."""
        assert windows is not None
        starts, ends = windows
        key_rows, pairs = self._numbered(column, starts, ends)
        rows, codes, firsts = self._pairs.rows(pa.array(pairs))
        known, self.count, self.capacity = self.count, self._pairs.count, self._pairs.capacity
        if self.count > known:
            if len(self.keys) < self.capacity:
                self.keys = self._grown(self.keys[:known])
            new = rows >= known
            at, first = rows[new], firsts[new]
            self.keys["token"][at] = self._key_rows.keys[key_rows[first]]
            self.keys["start"][at] = starts[first]
            self.keys["end"][at] = ends[first]
        return rows, codes, firsts

    def _numbered(self, column: pa.Array, starts: Rows, ends: Rows) -> tuple[Rows, Rows]:
        """The number of the key of each row, and that of its pair."""
        rows, codes, _ = self._key_rows.rows(column)
        key_rows = rows.take(codes)
        return key_rows, key_rows.astype(np.int64) << 32 | self._window_numbers(starts, ends)

    def _window_numbers(self, starts: Rows, ends: Rows) -> Rows:
        if not len(starts):
            return np.zeros(0, np.int64)
        heads = run_heads(starts, ends)
        lengths = np.diff(heads, append=len(starts))
        starts, ends = starts[heads], ends[heads]
        if len(heads) > _FEW_RUNS and (ends - starts == ends[0] - starts[0]).all():
            distinct, inverse = np.unique(starts, return_inverse=True)
            return np.repeat(self._numbers_of(distinct, distinct + (ends[0] - starts[0]))[inverse], lengths)
        return np.repeat(self._numbers_of(starts, ends), lengths)

    def _numbers_of(self, starts: Rows, ends: Rows) -> Rows:
        known = self._windows
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        return np.fromiter([known.setdefault(each, len(known)) for each in bounds], np.int64, len(starts))

    def row_of(self, token: Any) -> int:
        """Row of an address, -1 if it has none."""
        key, window = token
        row, number = self._key_rows.row_of(key), self._windows.get(window)
        return -1 if row < 0 or number is None else self._pairs.row_of(row << 32 | number)

    def rows_of_key(self, token: Any) -> Rows:
        """See `KeyIndex`."""
        # One by one: a token may be a tuple, which numpy would take for an array.
        tokens = self.keys["token"][: self.count].tolist()
        return np.flatnonzero(np.fromiter([each == token for each in tokens], np.bool_, len(tokens)))

    def addresses(self, keys: np.ndarray[Any, Any]) -> list[Any]:
        """See `KeyIndex`."""
        return [(token, (start, end)) for token, start, end in keys.tolist()]

    def column(self, keys: np.ndarray[Any, Any]) -> pa.Array:
        """See `KeyIndex`."""
        return self._key_rows.column(np.ascontiguousarray(keys["token"]))

    def namespaces(self, keys: np.ndarray[Any, Any]) -> list[pa.Array]:
        """See `KeyIndex`."""
        return [pa.array(np.ascontiguousarray(keys[name])) for name in ("start", "end")]

    def keep(self, rows: Rows) -> None:
        """See `KeyIndex`; keys and windows of which nothing is left are forgotten, too."""
        kept = self.keys[rows]
        column = self.column(kept)
        self._forget_numbers()
        _, self._pairs.keys = self._numbered(
            column, np.ascontiguousarray(kept["start"]), np.ascontiguousarray(kept["end"])
        )
        self._pairs.keep(np.arange(len(kept)))
        self.count = len(kept)
        self.keys = np.empty(self.capacity, self._dtype)
        self.keys[: self.count] = kept
