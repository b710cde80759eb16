"""Session windows: activity followed by a gap; windows that overlap or touch merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, Self

from tidemark.api.windows.assigners import (
    ByEventTime,
    ByProcessingTime,
    MergeCallback,
    MergingWindowAssigner,
    TimeWindowAssigner,
    WindowAssignerContext,
)
from tidemark.api.windows.window import TimeWindow
from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]

GapOf = Callable[[Any], int]


class SessionWindowTimeGapExtractor(ABC):
    """Gives each element a session gap of its own."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap in ms; must be positive."""


class _SessionWindows(MergingWindowAssigner[Any, TimeWindow], TimeWindowAssigner):
    """The part all session assigners share."""

    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergeCallback) -> None:
        """Merge what overlaps or touches."""
        TimeWindow.merge_windows(windows, callback)

    @abstractmethod
    def _gap(self, element: Any) -> int:
        """Gap after this element, in ms."""

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """A window from the element's time to the end of the gap."""
        at = self._time(timestamp, context)
        return (TimeWindow(at, at + self._gap(element)),)


class _FixedGap(_SessionWindows):
    """Sessions whose gap is the same for all elements."""

    def __init__(self, session_gap: int) -> None:
        self._session_gap = _positive_gap(session_gap)

    @classmethod
    def with_gap(cls, size: TimeLike) -> Self:
        """Sessions that end after `size` without an element.

        Raises:
            ConfigError: The gap is not positive.
        """
        return cls(to_millis(size, "session gap"))

    def _gap(self, element: Any) -> int:
        return self._session_gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_gap})"


class _DynamicGap(_SessionWindows):
    """Sessions whose gap depends on the element."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor | GapOf) -> None:
        extractor = session_window_time_gap_extractor
        extract = getattr(extractor, "extract", extractor)
        if not callable(extract):
            raise TypeError(
                f"Expected a SessionWindowTimeGapExtractor or a callable, not {type(extractor).__name__}."
            )
        self._extract: GapOf = extract

    def _gap(self, element: Any) -> int:
        return _positive_gap(to_millis(self._extract(element), "session gap"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class DynamicEventTimeSessionWindows(ByEventTime, _DynamicGap):
    """Sessions by event time with a gap per element."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | GapOf,
    ) -> DynamicEventTimeSessionWindows:
        """Sessions whose gap the extractor gives for each element."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(ByProcessingTime, _DynamicGap):
    """Sessions by the clock with a gap per element."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | GapOf,
    ) -> DynamicProcessingTimeSessionWindows:
        """Sessions whose gap the extractor gives for each element."""
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(ByEventTime, _FixedGap):
    """Sessions by event time."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | GapOf,
    ) -> DynamicEventTimeSessionWindows:
        """Sessions whose gap the extractor gives for each element."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(ByProcessingTime, _FixedGap):
    """Sessions by the clock."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | GapOf,
    ) -> DynamicProcessingTimeSessionWindows:
        """Sessions whose gap the extractor gives for each element."""
        return DynamicProcessingTimeSessionWindows(extractor)


def _positive_gap(gap: int) -> int:
    if gap <= 0:
        raise ConfigError(f"A session gap must be positive, not {gap} ms.")
    return gap
