"""Count windows: the elements of a key in groups of n. Incomplete windows are never emitted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tidemark.api.windows.assigners import WindowAssigner, WindowAssignerContext
from tidemark.api.windows.serializers import CountWindowSerializer, WindowSerializer
from tidemark.api.windows.triggers import CountTrigger, PurgingTrigger, Trigger
from tidemark.api.windows.window import CountWindow
from tidemark.errors import ConfigError
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.types.typeinfo import Types

__all__ = ["CountSlidingWindowAssigner", "CountTumblingWindowAssigner"]


class CountSlidingWindowAssigner(WindowAssigner[Any, CountWindow]):
    """Windows of `size` elements, a new one every `slide` elements, per key."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        if window_size <= 0 or window_slide <= 0:
            raise ConfigError(
                f"Count windows need a positive size and slide, not {window_size} and {window_slide}."
            )
        self._size = int(window_size)
        self._slide = int(window_slide)
        self._seen = ValueStateDescriptor("window-element-count", Types.LONG())

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """An assigner of that size and slide."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int | None, context: WindowAssignerContext
    ) -> Collection[CountWindow]:
        """The windows that hold the key's next element."""
        seen = context.get_runtime_context().get_state(self._seen)
        index = seen.value() or 0
        seen.update(index + 1)
        last = index // self._slide
        # The first window k with k * slide + size > index.
        first = max(0, (index - self._size) // self._slide + 1)
        return [CountWindow(number) for number in range(first, last + 1)]

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Fire on the last element of a window and forget the window."""
        return PurgingTrigger.of(CountTrigger.of(self._size))

    def is_event_time(self) -> bool:
        """No."""
        return False

    def get_window_serializer(self) -> WindowSerializer[Any]:
        """Of count windows."""
        return CountWindowSerializer()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide})"


class CountTumblingWindowAssigner(CountSlidingWindowAssigner):
    """Adjacent windows of `size` elements, per key."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:  # type: ignore[override]
        """An assigner of that size."""
        return CountTumblingWindowAssigner(window_size)
