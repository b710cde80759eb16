"""Triggers: when a window is evaluated, and whether its content is dropped then."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, Self, TypeVar

from tidemark.api.windows import contexts
from tidemark.api.windows.contexts import OnMergeContext, TriggerContext
from tidemark.api.windows.window import Window
from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.state.descriptors import ReducingStateDescriptor
from tidemark.types.time import TimeLike, to_millis
from tidemark.types.typeinfo import Types

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "OnMergeContext",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """What happens to the window after a trigger call: (evaluate it, drop its content)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether its content is dropped."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides about windows; has no state of its own, only what it keeps through its context."""

    TriggerContext = contexts.TriggerContext
    OnMergeContext = contexts.OnMergeContext

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int | None, window: W, ctx: contexts.TriggerContext
    ) -> TriggerResult:
        """An element was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: contexts.TriggerContext) -> TriggerResult:
        """A processing-time timer of this trigger fired."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: contexts.TriggerContext) -> TriggerResult:
        """An event-time timer of this trigger fired."""

    def can_merge(self) -> bool:
        """Whether the trigger can follow merging windows."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: contexts.OnMergeContext) -> None:
        """Several windows became `window`; called only if `can_merge`."""

    @abstractmethod
    def clear(self, window: W, ctx: contexts.TriggerContext) -> None:
        """The window is dropped: delete timers and state."""


class _BuiltInTrigger(Trigger[Any, Window]):
    """Follows merging windows and fires at nothing; each trigger below says what it waits for."""

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Never fires."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Never fires."""
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Never fires."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Has nothing to forget."""


class EventTimeTrigger(_BuiltInTrigger):
    """Fires when the watermark passes the end of the window, and on each late element after that."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """A new trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Fire at once if the watermark is already past the window."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end of the window."""
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Wait for the end of the merged window."""
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the timer."""
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_BuiltInTrigger):
    """Fires when the clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """A new trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Wait for the end of the window."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire."""
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Wait for the end of the merged window."""
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the timer."""
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(_BuiltInTrigger):
    """Fires on every n-th element of a window."""

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise ConfigError(f"CountTrigger needs a positive count, not {window_size}.")
        self._size = int(window_size)
        self._count = ReducingStateDescriptor("trigger-count", operator.add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """A trigger that fires on every `window_size`-th element."""
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Count, and fire when full."""
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self._size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Add the counts."""
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the count."""
        ctx.get_partitioned_state(self._count).clear()


class _ContinuousTrigger(_BuiltInTrigger):
    """Keeps the next multiple of an interval, as state and as a timer; after a merge the earliest wins."""

    def __init__(self, interval: TimeLike) -> None:
        self._interval = to_millis(interval, "interval")
        if self._interval <= 0:
            raise ConfigError(f"{type(self).__name__} needs a positive interval, not {self._interval} ms.")
        self._fire_time = ReducingStateDescriptor("trigger-fire-time", min, Types.LONG())

    @classmethod
    def of(cls, interval: TimeLike) -> Self:
        """A trigger with that interval."""
        return cls(interval)

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Keep the earliest next time."""
        ctx.merge_partitioned_state(self._fire_time)
        next_fire = ctx.get_partitioned_state(self._fire_time).get()
        if next_fire is not None:
            self._register(next_fire, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the timer and the state."""
        fire_time = ctx.get_partitioned_state(self._fire_time)
        next_fire = fire_time.get()
        if next_fire is not None:
            self._delete(next_fire, ctx)
            fire_time.clear()

    def _at_multiple(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        fire_time = ctx.get_partitioned_state(self._fire_time)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        self._register_next(time, window, ctx)
        return TriggerResult.FIRE

    def _register_next(self, time: int, window: Window, ctx: TriggerContext) -> None:
        next_fire = min(time + self._interval, window.max_timestamp())
        ctx.get_partitioned_state(self._fire_time).add(next_fire)
        self._register(next_fire, ctx)

    @abstractmethod
    def _register(self, time: int, ctx: TriggerContext) -> None: ...

    @abstractmethod
    def _delete(self, time: int, ctx: TriggerContext) -> None: ...


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires at every multiple of an interval of event time, and at the end of the window."""

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Fire at once behind the watermark, else see that timers exist."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if timestamp is not None and ctx.get_partitioned_state(self._fire_time).get() is None:
            self._register_next(timestamp - timestamp % self._interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end of the window or at the next multiple of the interval."""
        return TriggerResult.FIRE if time == window.max_timestamp() else self._at_multiple(time, window, ctx)

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Keep the earliest next time, and wait for the end of the merged window."""
        super().on_merge(window, ctx)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget both timers and the state."""
        super().clear(window, ctx)
        ctx.delete_event_time_timer(window.max_timestamp())

    def _register(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires at every multiple of an interval of processing time."""

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """See that a timer exists."""
        if ctx.get_partitioned_state(self._fire_time).get() is None:
            now = ctx.get_current_processing_time()
            self._register_next(now - now % self._interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the next multiple of the interval."""
        return self._at_multiple(time, window, ctx)

    def _register_next(self, time: int, window: Window, ctx: TriggerContext) -> None:
        # At the end of a time window there is no later multiple to wait for.
        if time < window.max_timestamp():
            super()._register_next(time, window, ctx)

    def _register(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


class PurgingTrigger(_BuiltInTrigger):
    """Does what another trigger does, and drops the window's content whenever that one fires."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise TypeError(f"PurgingTrigger needs a Trigger, not {type(nested_trigger).__name__}.")
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """A purging form of `nested_trigger`."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Ask the nested trigger."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Ask the nested trigger."""
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Ask the nested trigger."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        """If the nested trigger can."""
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Tell the nested trigger."""
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Tell the nested trigger."""
        self.nested_trigger.clear(window, ctx)


class NeverTrigger(_BuiltInTrigger):
    """Never fires; the default of global windows."""

    def can_merge(self) -> bool:
        """No."""
        return False

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Not reached: global windows do not merge."""
        raise UnsupportedOperationException("NeverTrigger cannot follow merging windows.")


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result
