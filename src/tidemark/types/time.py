"""Lengths and points of time as users write them, and the one function that turns them into milliseconds.

Inside tidemark every time is an `int` of milliseconds; only public signatures accept the richer forms.
"""

from __future__ import annotations

import time as _time
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

__all__ = ["Duration", "Instant", "Time", "TimeLike", "to_millis"]

_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000
_MILLI = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True, init=False)
class Time:
    """A length of time in whole milliseconds."""

    _millis: int

    def __init__(self, milliseconds: int) -> None:
        """Refuse anything but whole milliseconds."""
        object.__setattr__(self, "_millis", _require_int(milliseconds))

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a time of that many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a time of that many seconds."""
        return Time(_require_int(seconds) * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a time of that many minutes."""
        return Time(_require_int(minutes) * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a time of that many hours."""
        return Time(_require_int(hours) * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Return a time of that many days."""
        return Time(_require_int(days) * 86_400_000)

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._millis

    def __str__(self) -> str:
        """Return e.g. `10 ms`."""
        return f"{self._millis} ms"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time in whole nanoseconds."""

    _nanos: int

    def __post_init__(self) -> None:
        """Refuse anything but whole nanoseconds."""
        _require_int(self._nanos)

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration of that many days of 24 hours."""
        return Duration(_require_int(days) * 86_400 * _NANOS_PER_SECOND)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration of that many hours."""
        return Duration(_require_int(hours) * 3_600 * _NANOS_PER_SECOND)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration of that many minutes."""
        return Duration(_require_int(minutes) * 60 * _NANOS_PER_SECOND)

    @staticmethod
    def of_seconds(seconds: int, nano_adjustment: int = 0) -> Duration:
        """Return a duration of that many seconds, plus some nanoseconds."""
        return Duration(_require_int(seconds) * _NANOS_PER_SECOND + _require_int(nano_adjustment))

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration of that many milliseconds."""
        return Duration(_require_int(millis) * _NANOS_PER_MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration of that many nanoseconds."""
        return Duration(nanos)

    def to_millis(self) -> int:
        """Return the length in milliseconds, rounded down."""
        return self._nanos // _NANOS_PER_MILLI

    def to_nanos(self) -> int:
        """Return the length in nanoseconds."""
        return self._nanos

    def __str__(self) -> str:
        """Return e.g. `10 ms`, or nanoseconds where milliseconds do not divide evenly."""
        whole, rest = divmod(self._nanos, _NANOS_PER_MILLI)
        return f"{self._nanos} ns" if rest else f"{whole} ms"


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point on the time line: seconds since the Unix epoch and nanoseconds within that second."""

    seconds: int
    nanos: int = 0

    @staticmethod
    def now() -> Instant:
        """Return the current wall-clock instant."""
        return Instant(*divmod(_time.time_ns(), _NANOS_PER_SECOND))

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant that many milliseconds after (or before) the epoch."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def to_epoch_milli(self) -> int:
        """Return milliseconds since the epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MILLI

    def __repr__(self) -> str:
        """Return e.g. `Instant<1, 500000000>`."""
        return f"Instant<{self.seconds}, {self.nanos}>"


TimeLike: TypeAlias = int | Time | Duration | timedelta
"""Every form in which a public signature accepts a length of time."""


def _require_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"A length of time needs a whole number, got {value!r} ({type(value).__name__}).")
    return value


def to_millis(value: TimeLike, name: str = "time") -> int:
    """Return `value` in milliseconds.

    Args:
        value: Milliseconds, `Time`, `Duration` or `timedelta`; finer parts are rounded down.
        name: What the value is for; used in the error message.

    Raises:
        TypeError: Any other type, `bool` and `float` included.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Time):
        return value.to_milliseconds()
    if isinstance(value, Duration):
        return value.to_millis()
    if isinstance(value, timedelta):
        return value // _MILLI
    raise TypeError(
        f"{name} must be int milliseconds, Time, Duration or timedelta, "
        f"got {value!r} ({type(value).__name__})."
    )
