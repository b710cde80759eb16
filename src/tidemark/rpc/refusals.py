"""What is logged about strangers: at most a line per interval, however many there are."""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["Refusals"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 10.0


class Refusals:
    """Counts refusals and logs them at a bounded rate. For one thread."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        """Say `name` in every line; `now` counts seconds."""
        self._name = name
        self._now = now
        self._count = 0
        self._last = ""
        self._quiet_until = float("-inf")

    def add(self, why: str) -> None:
        """Count one; it is logged now or, if a line was written a moment ago, with the next line."""
        self._count += 1
        self._last = why
        self.flush()

    def flush(self) -> None:
        """Write the line that is due, if any."""
        if not self._count or self._now() < self._quiet_until:
            return
        if self._count == 1:
            _log.warning("%s refused a connection: %s", self._name, self._last)
        else:
            _log.warning("%s refused %d connections; the last one: %s", self._name, self._count, self._last)
        self._count = 0
        self._quiet_until = self._now() + _INTERVAL_S

    @property
    def due_in(self) -> float | None:
        """Seconds until `flush` has something to write; None if there is nothing."""
        return max(0.0, self._quiet_until - self._now()) if self._count else None
