"""What measures: counter, gauge, meter and distribution.

An instrument is written by one thread at a time (functions are never called twice at once) and may be read by
others at any moment; so writing takes no lock, and a reader sees a value that was true a moment ago.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from tidemark.clock import Clock
from tidemark.errors import ConfigError

__all__ = ["Counter", "Distribution", "Gauge", "Instrument", "Meter"]


class Instrument(ABC):
    """Anything with a value that can be put into a snapshot."""

    __slots__ = ()

    @abstractmethod
    def read(self) -> Any:
        """Return the value as plain data (number, text or dict of numbers)."""


class Counter(Instrument):
    """A number that goes up and down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        """Start at zero."""
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""
        self._count -= n

    def get_count(self) -> int:
        """Return the number."""
        return self._count

    def read(self) -> int:
        """Return the number."""
        return self._count


class Gauge(Instrument):
    """A value somebody else keeps; asked for when it is read."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], Any]) -> None:
        """Read through `ask`, which is called from the reporting thread."""
        self._ask = ask

    def read(self) -> Any:
        """Return the current value as plain data; `None` if asking fails, because a report must not fail a job."""
        try:
            return _plain(self._ask())
        except Exception:
            return None


def _plain(value: Any) -> float | str | None:
    """A number or text that any process can read; an object of the user's own might not get there."""
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else str(value)


class Meter(Instrument):
    """Counts events and knows their rate over the last span of time."""

    __slots__ = ("_buckets", "_clock", "_count", "_span")

    def __init__(self, clock: Clock, time_span_in_seconds: int = 60) -> None:
        """Measure the rate over `time_span_in_seconds`.

        Raises:
            ConfigError: The span is shorter than a second.
        """
        if time_span_in_seconds < 1:
            raise ConfigError(f"A meter needs a span of at least 1 second, got {time_span_in_seconds}.")
        self._clock = clock
        self._span = time_span_in_seconds
        self._count = 0
        # [second, events in it], oldest first; never more entries than the span has seconds.
        self._buckets: deque[list[int]] = deque(maxlen=time_span_in_seconds)

    def mark_event(self, value: int = 1) -> None:
        """Record `value` events now."""
        self._count += value
        second = self._clock.now() // 1000
        if self._buckets and self._buckets[-1][0] == second:
            self._buckets[-1][1] += value
        else:
            self._buckets.append([second, value])

    def get_count(self) -> int:
        """Return the number of events so far."""
        return self._count

    def get_rate(self) -> float:
        """Return events per second over the span."""
        oldest = self._clock.now() // 1000 - self._span
        return sum(events for second, events in tuple(self._buckets) if second > oldest) / self._span

    def read(self) -> dict[str, float]:
        """Return count and rate."""
        return {"count": self._count, "rate": self.get_rate()}


class Distribution(Instrument):
    """Count, sum and extremes of a stream of whole numbers."""

    __slots__ = ("_summary",)

    def __init__(self) -> None:
        """Start empty."""
        # Replaced as a whole on each update, so that a reader never sees two fields of different updates.
        self._summary = (0, 0, 0, 0)

    def update(self, value: int) -> None:
        """Record one value."""
        count, total, low, high = self._summary
        self._summary = (
            (count + 1, total + value, min(low, value), max(high, value))
            if count
            else (1, value, value, value)
        )

    def read(self) -> dict[str, float]:
        """Return count, sum, min, max and mean; all zero before the first value."""
        count, total, low, high = self._summary
        return {
            "count": count,
            "sum": total,
            "min": low,
            "max": high,
            "mean": total / count if count else 0.0,
        }
