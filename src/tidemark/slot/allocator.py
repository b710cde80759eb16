"""What the C allocator does with freed memory: in a slot it does not hold on to it for long, nor let go of it at once.

RocksDB and the writers of snapshots allocate in many threads, and a thread of its own takes part in every checkpoint.
glibc gives threads arenas of their own, each with holes of its own, which it keeps. So slots have few arenas
(`FEW_ARENAS`, in their environment: they count from the first thread on), and give back what is free now and then.
That makes a slot a little smaller; what grows in RocksDB's slots over hours is very likely its block cache, until it
is full (docs/reliability.md).

The columns of a batch are some hundred kilobytes each, taken and given back with every batch. By itself glibc returns
blocks of that size to the system, which then clears every page of the next one.
`keep_batches` makes it, and Arrow with it, keep what a few batches need, in slots and in the tasks that send to them.
Elsewhere than on glibc all of this does nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

__all__ = ["FEW_ARENAS", "FreeMemory", "keep_batches"]

FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""Environment of a slot process, unless whoever starts it says otherwise."""

_EVERY_S = 60.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's, from `malloc.h`."""
_KEPT = 64 << 20
"""Free bytes at the end of a heap that stay there."""
_APART = 32 << 20
"""Bytes of a block that goes back to the system as soon as it is free; glibc takes no larger number."""


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


@cache
def keep_batches() -> None:
    """Let this process keep the memory of a few batches of columns when it is free."""
    set_option = _glibc("mallopt")
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _APART)
        set_option(_M_TRIM_THRESHOLD, _KEPT)
        pa.set_memory_pool(pa.system_memory_pool())


def _trim() -> Any:
    """`malloc_trim` of this process, or None where there is none."""
    return _glibc("malloc_trim")


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
