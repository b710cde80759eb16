"""Where time comes from.

TTL, processing-time timers, restart delays and checkpoint triggers read the clock they were given and
nothing else, so that a test can own time. All values are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol, runtime_checkable

__all__ = ["Clock", "ManualClock", "SystemClock", "has_passed"]


@runtime_checkable
class Clock(Protocol):
    """Anything that can tell the current time in milliseconds."""

    def now(self) -> int:
        """Return the current time in milliseconds."""
        ...


def has_passed(interval_ms: int, since: int, now: int) -> bool:
    """Whether a time span is over at `now`; it is, too, if the clock was set back behind its beginning.

    What is done every so often is then done once too early, and not only when the clock is there again.
    """
    return not 0 <= now - since < interval_ms


class SystemClock:
    """The wall clock of this machine."""

    __slots__ = ()

    def now(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to; safe to share between threads."""

    def __init__(self, start_ms: int = 0) -> None:
        """Start at `start_ms`."""
        self._now = start_ms
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the time last set."""
        return self._now

    def set(self, ms: int) -> None:
        """Jump to `ms`; going back is allowed, as wall clocks do it too."""
        with self._lock:
            self._now = ms

    def advance(self, ms: int) -> None:
        """Move forward by `ms`.

        Raises:
            ValueError: `ms` is negative; use `set` to go back on purpose.
        """
        if ms < 0:
            raise ValueError(f"Cannot advance a clock by {ms} ms. Use set() to move it back.")
        with self._lock:
            self._now += ms

    def __getstate__(self) -> dict[str, int]:
        """Pickle the reading only; the copy moves on its own."""
        return {"now": self._now}

    def __setstate__(self, state: dict[str, int]) -> None:
        """Restore the reading."""
        self._now = state["now"]
        self._lock = threading.Lock()
