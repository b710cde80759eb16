"""The contexts that element and timer callbacks get.

An operator owns one object per kind of callback and reuses it for every call, so a context costs nothing
per record; it is valid during the call it was passed to. Operators write `stamp` and `out` directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tidemark.api.context import (
    KeyedProcessContext,
    OnTimerContext,
    ProcessContext,
    SinkContext,
    TimerService,
)
from tidemark.api.time_domain import TimeDomain
from tidemark.errors import UnsupportedOperationException
from tidemark.operators.base import Output
from tidemark.operators.detach import detached
from tidemark.protocol.batch import MIN_WATERMARK

if TYPE_CHECKING:
    from tidemark.api.output_tag import OutputTag
    from tidemark.clock import Clock
    from tidemark.state.backend import KeyedStateBackend
    from tidemark.state.timers import InternalTimers

__all__ = [
    "ElementAndOutput",
    "ElementContext",
    "FunctionSinkContext",
    "KeyedElementContext",
    "KeyedTimerService",
    "OperatorTimerService",
    "SupportsElement",
    "TimerContext",
]


class SupportsElement(Protocol):
    """What the loops of the operators write before each call."""

    stamp: int | None
    out: Output


class OperatorTimerService(TimerService):
    """Time of an operator without keys: it can be read, but there is no key a timer could belong to."""

    __slots__ = ("_clock", "watermark")

    def __init__(self, clock: Clock) -> None:
        self.watermark = MIN_WATERMARK
        self._clock = clock

    def current_processing_time(self) -> int:
        """Now, from the injected clock."""
        return self._clock.now()

    def current_watermark(self) -> int:
        """The watermark of this operator; the minimum long before the first one."""
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Refused: there is no key."""
        _refuse_timer()

    def register_event_time_timer(self, timestamp: int) -> None:
        """Refused: there is no key."""
        _refuse_timer()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Refused: there is no key."""
        _refuse_timer()

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Refused: there is no key."""
        _refuse_timer()


def _refuse_timer() -> NoReturn:
    raise UnsupportedOperationException(
        "Timers belong to a key. Use them in process_element or on_timer of a keyed process function."
    )


class KeyedTimerService(OperatorTimerService):
    """Time and timers of the current key."""

    __slots__ = ("_timers",)

    def __init__(self, clock: Clock, timers: InternalTimers) -> None:
        super().__init__(clock)
        self._timers = timers

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Fire for the current key when the clock reaches `timestamp`."""
        self._timers.register_processing_timer(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        """Fire for the current key when the watermark reaches `timestamp`."""
        self._timers.register_event_timer(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget the timer of the current key with exactly that time."""
        self._timers.delete_processing_timer(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget the timer of the current key with exactly that time."""
        self._timers.delete_event_timer(timestamp)


class ElementAndOutput:
    """What every context of an element has; operators set both attributes before each call."""

    __slots__ = ("_service", "out", "stamp")

    def __init__(self, service: TimerService) -> None:
        self._service = service
        self.stamp: int | None = None
        self.out = Output()

    def timestamp(self) -> int | None:
        """Timestamp of the element, or None; in `on_timer` the timer's time."""
        return self.stamp

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit to a side output."""
        self.out.emit_side(tag.tag_id, detached(value), self.stamp)


class ElementContext(ElementAndOutput, ProcessContext):
    """Context of process and co-process functions on streams without keys."""

    __slots__ = ()

    def timer_service(self) -> TimerService:
        """Time and, on keyed streams, timers."""
        return self._service


class KeyedElementContext(ElementContext, KeyedProcessContext):
    """Context of keyed process and co-process functions."""

    __slots__ = ("_keys", "_read_key")

    def __init__(self, service: TimerService, backend: KeyedStateBackend) -> None:
        super().__init__(service)
        self._keys = backend.context
        self._read_key = backend.parameters.tokens.to_key

    def get_current_key(self) -> Any:
        """Key of the element or timer."""
        read = self._read_key
        return self._keys.token if read is None else read(self._keys.token)


class TimerContext(KeyedElementContext, OnTimerContext):
    """Context of `on_timer`."""

    __slots__ = ("domain",)

    def __init__(self, service: TimerService, backend: KeyedStateBackend) -> None:
        super().__init__(service, backend)
        self.domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        """Which clock fired the timer."""
        return self.domain


class FunctionSinkContext(SinkContext):
    """Second argument of `SinkFunction.invoke`."""

    __slots__ = ("_service", "stamp")

    def __init__(self, service: TimerService) -> None:
        self._service = service
        self.stamp: int | None = None

    def current_processing_time(self) -> int:
        """Now, from the injected clock."""
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        """The watermark of the sink."""
        return self._service.current_watermark()

    def timestamp(self) -> int | None:
        """Timestamp of the element, or None."""
        return self.stamp
