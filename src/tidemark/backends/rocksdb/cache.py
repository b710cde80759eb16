"""A bounded cache of serialised rows that outlives batches: hot keys are not read from RocksDB again.

Two generations: rows of the last batches are added to the young one; when it has grown to half the limit it
becomes the old one, and what was in the old one is forgotten. That is an approximation of
least-recently-used that costs nothing per hit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

__all__ = ["MISS", "ByteCache"]


class _Miss:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


MISS: Final = _Miss()
"""Answer of a cache that does not know; None means "known to be absent"."""

_OVERHEAD: Final = 150
"""Bytes an entry costs besides its row: dictionary slot, object headers, a small key."""


class ByteCache:
    """Serialised rows by address, None for a row known to be absent."""

    __slots__ = ("_limit", "_old", "_size", "_young")

    def __init__(self, limit: int) -> None:
        """Keep about `limit` bytes at most; 0 keeps nothing."""
        self._limit = limit // 2
        self._young: dict[Hashable, bytes | None] = {}
        self._old: dict[Hashable, bytes | None] = {}
        self._size = 0

    def get(self, at: Hashable) -> Any:
        """The row, None if it is known to be absent, or `MISS`."""
        raw = self._young.get(at, MISS)
        return raw if raw is not MISS else self._old.get(at, MISS)

    def add(self, rows: dict[Hashable, bytes | None]) -> None:
        """Take over the rows of one batch; it supersedes what was known of them."""
        if not self._limit:
            return
        size = len(rows) * _OVERHEAD + sum([len(raw) for raw in rows.values() if raw is not None])
        if self._size + size > self._limit:
            self._old, self._young, self._size = self._young, {}, 0
        if size > self._limit:
            # Too large to be kept; older bytes of the same addresses must go, they are out of date.
            for at in rows:
                self._old.pop(at, None)
            return
        self._young.update(rows)
        self._size += size

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._size = {}, {}, 0

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())
