"""Namespaces: the second coordinate of window state. Ordinary state lives in the void namespace.

A namespace value is a small hashable tuple of ints: `()` for none, `(start, end)` for a time window,
`(id,)` for count and global windows. In snapshots it is stored as columns `window_start`, `window_end`.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["VOID", "Namespace", "NamespaceKind"]

Namespace = tuple[int, ...]
VOID: Namespace = ()


class NamespaceKind(Enum):
    """How many integers a namespace of a state has."""

    VOID = 0
    SINGLE = 1
    WINDOW = 2

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the snapshot columns that hold the namespace."""
        return (("window_id",), ("window_start", "window_end"))[self.value - 1] if self.value else ()
