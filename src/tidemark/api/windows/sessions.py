"""Session windows: activity followed by a gap; windows that overlap or touch merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tidemark.api.windows.assigners import (
    MergeCallback,
    MergingWindowAssigner,
    WindowAssignerContext,
    event_time_of,
)
from tidemark.api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
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


class _SessionWindows(MergingWindowAssigner[Any, TimeWindow]):
    """The part all session assigners share."""

    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergeCallback) -> None:
        """Merge what overlaps or touches."""
        TimeWindow.merge_windows(windows, callback)

    @abstractmethod
    def _gap(self, element: Any) -> int:
        """Gap after this element, in ms."""

    def _session(self, element: Any, at: int) -> Collection[TimeWindow]:
        return (TimeWindow(at, at + self._gap(element)),)


class _FixedGap(_SessionWindows):
    """Sessions whose gap is the same for all elements."""

    def __init__(self, session_gap: int) -> None:
        self._session_gap = _positive_gap(session_gap)

    def _gap(self, element: Any) -> int:
        return self._session_gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_gap})"


class _DynamicGap(_SessionWindows):
    """Sessions whose gap depends on the element."""

    def __init__(self, extractor: SessionWindowTimeGapExtractor | GapOf) -> None:
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


class _EventTime(_SessionWindows):
    """Sessions by event time."""

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """A window from the timestamp to the end of the gap."""
        return self._session(element, event_time_of(timestamp))

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Fire at the end of the session."""
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Yes."""
        return True


class _ProcessingTime(_SessionWindows):
    """Sessions by the clock."""

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """A window from the current time to the end of the gap."""
        return self._session(element, context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Fire at the end of the session."""
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        """No."""
        return False


class DynamicEventTimeSessionWindows(_EventTime, _DynamicGap):
    """Sessions by event time with a gap per element."""


class DynamicProcessingTimeSessionWindows(_ProcessingTime, _DynamicGap):
    """Sessions by the clock with a gap per element."""


class EventTimeSessionWindows(_EventTime, _FixedGap):
    """Sessions by event time."""

    @staticmethod
    def with_gap(size: TimeLike) -> EventTimeSessionWindows:
        """Sessions that end after `size` without an element.

        Raises:
            ConfigError: The gap is not positive.
        """
        return EventTimeSessionWindows(to_millis(size, "session gap"))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | GapOf,
    ) -> DynamicEventTimeSessionWindows:
        """Sessions whose gap the extractor gives for each element."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_ProcessingTime, _FixedGap):
    """Sessions by the clock."""

    @staticmethod
    def with_gap(size: TimeLike) -> ProcessingTimeSessionWindows:
        """Sessions that end after `size` without an element.

        Raises:
            ConfigError: The gap is not positive.
        """
        return ProcessingTimeSessionWindows(to_millis(size, "session gap"))

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
