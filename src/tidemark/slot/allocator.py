"""Keeps the C allocator of a slot from holding on to what was freed.

RocksDB and the writers of snapshots allocate in many threads, and a thread of its own takes part in every checkpoint.
glibc gives threads arenas of their own, each with holes of its own, which it keeps. So slots have few arenas
(`FEW_ARENAS`, in their environment: they count from the first thread on), and give back what is free now and then.
That makes a slot a little smaller; what makes RocksDB's slots grow over hours is something else (docs/reliability.md).
Elsewhere than on glibc all of this does nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

__all__ = ["FEW_ARENAS", "FreeMemory"]

FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""Environment of a slot process, unless whoever starts it says otherwise."""

_EVERY_S = 60.0


class FreeMemory:
    """Gives free memory back to the system, at most once a minute; a call in between costs nothing."""

    def __init__(self, now: Callable[[], float], every_s: float = _EVERY_S) -> None:
        """Begin to count the time.

        Args:
            now: Seconds of a clock that never goes back.
            every_s: Between two times.
        """
        self._now = now
        self._every_s = every_s
        self._last = now()
        self._trim = _trim()

    def give_back(self) -> bool:
        """Give back what is free, if it is time; whether it was. Does not hold the interpreter meanwhile."""
        if self._trim is None or self._now() - self._last < self._every_s:
            return False
        self._last = self._now()
        self._trim(0)
        return True


def _trim() -> Any:
    """`malloc_trim` of this process, or None where there is none."""
    if os.name != "posix":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
