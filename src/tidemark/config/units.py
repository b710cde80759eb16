"""How configuration text becomes numbers: sizes, durations, booleans.

Sizes count in powers of 1024 (`20kb` is 20480 bytes), a bare number is bytes. Durations are returned in
milliseconds, a bare number is milliseconds; finer units are rounded down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from tidemark.errors import ConfigError
from tidemark.types.time import Duration, Time, to_millis

__all__ = ["MemorySize", "parse_bool", "parse_duration", "parse_memory_size"]

_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?\d+)\s*([a-zA-Zµ]*)\s*\Z")

_SIZE_UNITS: dict[str, int] = {
    name: 1024**power
    for power, names in enumerate(
        (
            ("", "b", "byte", "bytes"),
            ("k", "kb", "kib", "kibibyte", "kibibytes"),
            ("m", "mb", "mib", "mebibyte", "mebibytes"),
            ("g", "gb", "gib", "gibibyte", "gibibytes"),
            ("t", "tb", "tib", "tebibyte", "tebibytes"),
        )
    )
    for name in names
}

_NANOS_PER_UNIT: dict[str, int] = {
    name: nanos
    for nanos, names in (
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
        (1_000, ("us", "µs", "micro", "micros", "microsecond", "microseconds")),
        (1_000_000, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000_000_000, ("s", "sec", "secs", "second", "seconds")),
        (60_000_000_000, ("m", "min", "mins", "minute", "minutes")),
        (3_600_000_000_000, ("h", "hour", "hours")),
        (86_400_000_000_000, ("d", "day", "days")),
    )
    for name in names
}


def _split(text: str, units: dict[str, int], what: str, examples: str) -> tuple[int, int]:
    match = _NUMBER_AND_UNIT.match(text)
    unit = units.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise ConfigError(f"{text!r} is not a {what}. Write it like {examples}.")
    return int(match.group(1)), unit


def parse_memory_size(value: object) -> int:
    """Return a number of bytes from text, `int` or `MemorySize`.

    Raises:
        ConfigError: Not a size, or negative.
    """
    if isinstance(value, MemorySize):
        return value.get_bytes()
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        count, unit = _split(str(value), _SIZE_UNITS, "size", "'1024', '20kb' or '5 mb'")
        size = count * unit
    if size < 0:
        raise ConfigError(f"A size must not be negative, got {value!r}.")
    return size


def parse_duration(value: object) -> int:
    """Return milliseconds from text, `int`, `Time`, `Duration` or `timedelta`.

    Raises:
        ConfigError: Not a duration.
    """
    if isinstance(value, Time | Duration | timedelta) or (
        isinstance(value, int) and not isinstance(value, bool)
    ):
        return to_millis(value)
    count, nanos = _split(str(value), _NANOS_PER_UNIT, "duration", "'500', '500 ms', '10 s' or '5 min'")
    return count * nanos // 1_000_000


def parse_bool(value: object) -> bool:
    """Return a truth value from `true`/`false` in any case, or a `bool`.

    Raises:
        ConfigError: Anything else.
    """
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{value!r} is not a boolean. Write 'true' or 'false'.")
    return text == "true"


@dataclass(frozen=True, slots=True, order=True)
class MemorySize:
    """A number of bytes."""

    bytes_size: int = 0

    def __post_init__(self) -> None:
        """Refuse negative sizes."""
        if self.bytes_size < 0:
            raise ConfigError(f"A size must not be negative, got {self.bytes_size}.")

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return a size of that many MiB."""
        return MemorySize(mebi_bytes << 20)

    @staticmethod
    def parse(text: str) -> MemorySize:
        """Return the size written in `text`."""
        return MemorySize(parse_memory_size(text))

    def get_bytes(self) -> int:
        """Return the size in bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Return the size in KiB, rounded down."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Return the size in MiB, rounded down."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Return the size in GiB, rounded down."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Return the size in TiB, rounded down."""
        return self.bytes_size >> 40

    def __str__(self) -> str:
        """Return e.g. `1024 bytes`."""
        return f"{self.bytes_size} bytes"
