"""How a task spends its time: working, waiting for slots with something to send, or idle."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Shares"]


class Shares:
    """Adds up the three shares between two calls of `take`."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """Measure with a clock that never goes back."""
        self._clock = clock_s
        self._since = clock_s()
        self._waits = False
        self._busy = self._waiting = self._idle = 0.0

    def begin(self) -> None:
        """A step begins: since the last one the task has waited, or had nothing to do."""
        now = self._clock()
        if self._waits:
            self._waiting += now - self._since
        else:
            self._idle += now - self._since
        self._since = now

    def end(self, *, waiting: bool) -> None:
        """A step has ended; `waiting` if the task cannot send what it has."""
        now = self._clock()
        self._busy += now - self._since
        self._since, self._waits = now, waiting

    def take(self) -> tuple[int, int, int]:
        """Milliseconds busy, waiting (back-pressured) and idle since the last call."""
        taken = round(self._busy * 1000), round(self._waiting * 1000), round(self._idle * 1000)
        self._busy = self._waiting = self._idle = 0.0
        return taken
