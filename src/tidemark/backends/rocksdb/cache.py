"""A bounded cache that outlives batches: hot keys are not read from RocksDB again.

Two generations: the units of the last batches are added to the young one; when it has grown to half the
limit it becomes the old one, and what was in the old one is forgotten. That is an approximation of
least-recently-used that costs nothing per hit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

__all__ = ["MISS", "GenerationCache"]


class _Miss:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


MISS: Final = _Miss()
"""Answer of a cache that does not know."""

_OVERHEAD: Final = 150
"""Bytes an entry costs besides its value: dictionary slot, object headers, a small key."""


class GenerationCache:
    """What is known of some addresses, in whatever form the owner chose.

    Attributes:
        young: What was learnt lately; the owner adds to it and then calls `grown`.
        old: What was learnt before that.
        limit: Bytes of one generation; 0: nothing is kept.
    """

    __slots__ = ("_size", "limit", "old", "young")

    def __init__(self, limit: int) -> None:
        """Keep about `limit` bytes at most; 0 keeps nothing."""
        self.limit = limit // 2
        self._size = 0
        self.young: dict[Hashable, Any] = {}
        self.old: dict[Hashable, Any] = {}

    def get(self, at: Hashable) -> Any:
        """The value, or `MISS`."""
        kept = self.young.get(at, MISS)
        return kept if kept is not MISS else self.old.get(at, MISS)

    def drop(self, at: Hashable) -> None:
        """Forget one address."""
        self.young.pop(at, None)
        self.old.pop(at, None)

    def grown(self, entries: int, size: int) -> None:
        """Account for what a batch added to `young`: so many entries of so many serialised bytes."""
        size += entries * _OVERHEAD
        self._size += size
        if self._size > self.limit:
            # What a single batch made too large is not worth keeping at all.
            self.old = self.young if size <= self.limit else {}
            self.young = {}
            self._size = 0

    def clear(self) -> None:
        """Forget everything."""
        self.young, self.old, self._size = {}, {}, 0

    def __len__(self) -> int:
        return len(self.young.keys() | self.old.keys())
