"""How event time is read from elements and how far it has certainly come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis

__all__ = ["TimestampAssigner", "WatermarkAlignment", "WatermarkStrategy"]


class TimestampAssigner(ABC):
    """Reads the timestamp of an element."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The timestamp in ms; `record_timestamp` is the one it already has, negative without one."""


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """How far sources of one group may drift apart."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Timestamps and watermarks of a stream. Immutable: every `with_` method returns a new strategy.

    Attributes:
        out_of_orderness_ms: How much older than the newest element one may be; None: no watermarks.
        assigner: `extract_timestamp` of the timestamp assigner, or None to keep existing timestamps.
        idle_timeout_ms: After how long without elements an input is left out of the minimum.
        alignment: How far ahead of others a source may read; in continuous execution, epochs need no such bound.
    """

    out_of_orderness_ms: int | None = None
    assigner: Callable[[Any, int], int] | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back: the watermark is the newest timestamp - 1."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: TimeLike) -> WatermarkStrategy:
        """The watermark is the newest timestamp - `max_out_of_orderness` - 1.

        Raises:
            ConfigError: The bound is negative.
        """
        bound = to_millis(max_out_of_orderness, "max_out_of_orderness")
        if bound < 0:
            raise ConfigError(f"max_out_of_orderness must not be negative, got {bound} ms.")
        return WatermarkStrategy(bound)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """No watermark until the end of input."""
        return WatermarkStrategy(None)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Read timestamps from elements with this assigner (or a callable of two arguments)."""
        extract = getattr(timestamp_assigner, "extract_timestamp", timestamp_assigner)
        if not callable(extract):
            raise TypeError(
                f"Expected a TimestampAssigner or a callable, not {type(timestamp_assigner).__name__}."
            )
        return replace(self, assigner=extract)

    def with_idleness(self, idle_timeout: TimeLike) -> WatermarkStrategy:
        """Leave inputs without elements for that long out of the minimum of watermarks.

        Raises:
            ConfigError: The time is not positive.
        """
        timeout = to_millis(idle_timeout, "idle_timeout")
        if timeout <= 0:
            raise ConfigError(f"idle_timeout must be positive, got {timeout} ms.")
        return replace(self, idle_timeout_ms=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: TimeLike,
        update_interval: TimeLike | None = None,
    ) -> WatermarkStrategy:
        """Let no source of the group run further ahead of the slowest one than the drift.

        That is kept in continuous execution, by not reading what is ahead; in epochs sources advance together anyway.
        """
        drift = to_millis(max_allowed_watermark_drift, "max_allowed_watermark_drift")
        interval = 1000 if update_interval is None else to_millis(update_interval, "update_interval")
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))

    def watermark_after(self, max_timestamp: int) -> int | None:
        """The watermark once `max_timestamp` is the newest timestamp seen; None: the strategy has none."""
        if self.out_of_orderness_ms is None:
            return None
        return max_timestamp - self.out_of_orderness_ms - 1
