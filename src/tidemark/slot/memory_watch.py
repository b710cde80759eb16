"""Whether a slot stays within its budget of memory; says so before the kernel does it its own way.

Pure: whoever watches gives the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MemoryWatch", "resident_bytes"]

_NEAR = 18
"""Twentieths of the budget from which on a slot says how much it uses, and again with every one more."""
_PARTS = 20


@dataclass(slots=True)
class MemoryWatch:
    """Tells when a slot comes near its budget, exceeds it, and grows beyond it."""

    budget: int
    _told: int = 0

    def look(self, used: int) -> bool:
        """Whether `used` bytes are to be reported now."""
        share = used * _PARTS // self.budget
        if share < _NEAR - 1:
            # It has let go of memory: the next time it comes near is news.
            self._told = 0
        if share < _NEAR or share <= self._told:
            return False
        self._told = share
        return True


def resident_bytes() -> int:
    """Memory of this process that the kernel counts."""
    import psutil

    return int(psutil.Process().memory_info().rss)
