"""Window assigners: which windows an element belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, Self, TypeVar

from tidemark.api.windows import contexts
from tidemark.api.windows.contexts import MergeCallback, WindowAssignerContext
from tidemark.api.windows.serializers import (
    GlobalWindowSerializer,
    TimeWindowSerializer,
    WindowSerializer,
)
from tidemark.api.windows.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger, Trigger
from tidemark.api.windows.window import GlobalWindow, TimeWindow, Window
from tidemark.errors import ConfigError
from tidemark.state.namespace import Namespace, NamespaceKind
from tidemark.types.time import TimeLike, to_millis

__all__ = [
    "ByEventTime",
    "ByProcessingTime",
    "GlobalWindows",
    "MergeCallback",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeWindowAssigner",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowAssignerContext",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns windows to elements."""

    WindowAssignerContext = contexts.WindowAssignerContext

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int | None, context: contexts.WindowAssignerContext
    ) -> Collection[W]:
        """The windows of the element; none drops it."""

    @abstractmethod
    def get_default_trigger(self, env: Any = None) -> Trigger[T, W]:
        """The trigger used when the user sets none. `env` is there for PyFlink's sake and is None."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by watermark (True) or by clock."""

    def get_window_serializer(self) -> WindowSerializer[Any]:
        """Which of the kinds of windows this assigner deals in; time windows unless overridden."""
        return TimeWindowSerializer()

    def namespace_kind(self) -> NamespaceKind:
        """How many integers identify a window of this assigner.

        Raises:
            TypeError: `get_window_serializer` returns none of our window serializers.
        """
        return self._known_serializer().namespace_kind

    def window_from_namespace(self, namespace: Namespace) -> W:
        """The window that `Window.to_namespace` turned into `namespace`."""
        return self._known_serializer().from_namespace(namespace)  # type: ignore[no-any-return]

    def _known_serializer(self) -> WindowSerializer[Any]:
        serializer = self.get_window_serializer()
        if not isinstance(serializer, WindowSerializer):
            raise TypeError(
                f"{type(self).__name__}.get_window_serializer() must return a TimeWindowSerializer, "
                f"CountWindowSerializer or GlobalWindowSerializer, not {type(serializer).__name__}."
            )
        return serializer


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge."""

    MergeCallback = contexts.MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: contexts.MergeCallback) -> None:
        """Report every group of windows that become one."""


class TimeWindowAssigner(WindowAssigner[Any, TimeWindow]):
    """An assigner of windows in time; which time is said by one of the two classes below."""

    @abstractmethod
    def _time(self, timestamp: int | None, context: WindowAssignerContext) -> int:
        """The moment an element counts for."""


class ByEventTime(TimeWindowAssigner):
    """Elements count for their timestamps, windows end by watermark."""

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Fire at the end of the window."""
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Yes."""
        return True

    def _time(self, timestamp: int | None, context: WindowAssignerContext) -> int:
        if timestamp is None or timestamp <= -(2**63):
            raise ConfigError(
                "An element without a timestamp reached an event-time window. Call "
                "assign_timestamps_and_watermarks(...) with a timestamp assigner before the window, "
                "or use processing-time windows."
            )
        return timestamp


class ByProcessingTime(TimeWindowAssigner):
    """Elements count for the moment they come, windows end by the clock."""

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Fire at the end of the window."""
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        """No."""
        return False

    def _time(self, timestamp: int | None, context: WindowAssignerContext) -> int:
        return context.get_current_processing_time()


class _TumblingWindows(TimeWindowAssigner):
    """Adjacent windows of one size."""

    def __init__(self, size: int, offset: int) -> None:
        self._size, self._offset = _checked(size, size, offset, type(self).__name__)

    @classmethod
    def of(cls, size: TimeLike, offset: TimeLike | None = None) -> Self:
        """Windows `[n * size + offset, (n + 1) * size + offset)`.

        Raises:
            ConfigError: Not `size > 0` and `abs(offset) < size`.
        """
        return cls(to_millis(size, "size"), 0 if offset is None else to_millis(offset, "offset"))

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """The one window that holds the element's time."""
        at = self._time(timestamp, context)
        start = TimeWindow.get_window_start_with_offset(at, self._offset, self._size)
        return (TimeWindow(start, start + self._size),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size})"


class TumblingEventTimeWindows(ByEventTime, _TumblingWindows):
    """Adjacent windows of one size, by event time."""


class TumblingProcessingTimeWindows(ByProcessingTime, _TumblingWindows):
    """Adjacent windows of one size, by the clock."""


class _SlidingWindows(TimeWindowAssigner):
    """Windows of one size that start every `slide`; they overlap if `slide < size`."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        self._size, self._offset = _checked(size, slide, offset, type(self).__name__)
        self._slide = slide

    @classmethod
    def of(cls, size: TimeLike, slide: TimeLike, offset: TimeLike | None = None) -> Self:
        """Windows `[n * slide + offset, n * slide + offset + size)`.

        Raises:
            ConfigError: Not `size > 0`, `slide > 0` and `abs(offset) < slide`.
        """
        shift = 0 if offset is None else to_millis(offset, "offset")
        return cls(to_millis(size, "size"), to_millis(slide, "slide"), shift)

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """Every window that holds the element's time, latest first."""
        at = self._time(timestamp, context)
        last = TimeWindow.get_window_start_with_offset(at, self._offset, self._slide)
        return [TimeWindow(start, start + self._size) for start in range(last, at - self._size, -self._slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide})"


class SlidingEventTimeWindows(ByEventTime, _SlidingWindows):
    """Windows of one size that start every `slide`, by event time."""


class SlidingProcessingTimeWindows(ByProcessingTime, _SlidingWindows):
    """Windows of one size that start every `slide`, by the clock."""


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for everything; useful only with a trigger."""

    @staticmethod
    def create() -> GlobalWindows:
        """A new assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        """The global window."""
        return (GlobalWindow.get(),)

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Never fires."""
        return NeverTrigger()

    def is_event_time(self) -> bool:
        """No."""
        return False

    def get_window_serializer(self) -> WindowSerializer[Any]:
        """Of the global window."""
        return GlobalWindowSerializer()

    def __repr__(self) -> str:
        return "GlobalWindows()"


def _checked(size: int, slide: int, offset: int, what: str) -> tuple[int, int]:
    if size <= 0 or slide <= 0 or abs(offset) >= slide:
        raise ConfigError(
            f"{what} needs size > 0, slide > 0 and abs(offset) < slide (or size, for tumbling windows); "
            f"got size={size}, slide={slide}, offset={offset} ms."
        )
    return size, offset
