"""What a user function is handed during a call: contexts and the timer service.

Only the shapes live here; `tidemark.operators` has the objects behind them. The classes have empty
`__slots__` so that implementations may use slots too. A context is valid only during the call it
was passed to. The function classes expose them under PyFlink's nested names, such as
`KeyedProcessFunction.OnTimerContext`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from tidemark.api.functions.base import KeyedStateStore
    from tidemark.api.output_tag import OutputTag
    from tidemark.api.time_domain import TimeDomain
    from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor
    from tidemark.state.primitives import BroadcastState, ReadOnlyBroadcastState

__all__ = [
    "BroadcastBaseContext",
    "BroadcastContext",
    "BroadcastReadOnlyContext",
    "KeyedBroadcastContext",
    "KeyedBroadcastOnTimerContext",
    "KeyedBroadcastReadOnlyContext",
    "KeyedProcessContext",
    "OnTimerContext",
    "ProcessAllWindowContext",
    "ProcessContext",
    "ProcessWindowContext",
    "SinkContext",
    "SourceContext",
    "TimerService",
]

W = TypeVar("W")
T = TypeVar("T")


class _Clocks(ABC):
    """Both times of an operator, for reading."""

    __slots__ = ()

    @abstractmethod
    def current_processing_time(self) -> int:
        """Milliseconds since the epoch, from the job's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's watermark; -2**63 before there is one."""


class TimerService(_Clocks):
    """Reads both clocks and, for a current key, registers and deletes timers."""

    __slots__ = ()

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key when the clock reaches `timestamp`; once per time."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key when the watermark reaches `timestamp`; once per time."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget the current key's timer of exactly that time; absent: no effect."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget the current key's timer of exactly that time; absent: no effect."""


class _ElementContext(ABC):
    """What every context offers."""

    __slots__ = ()

    @abstractmethod
    def timestamp(self) -> int | None:
        """Timestamp of the element, None without one; in `on_timer` the timer's time."""

    @abstractmethod
    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit to a side output; a tag nobody reads is dropped silently."""


class ProcessContext(_ElementContext):
    """Context of `ProcessFunction` and `CoProcessFunction`."""

    __slots__ = ()

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Time; registering and deleting timers needs a keyed stream."""


class KeyedProcessContext(ProcessContext):
    """Context of `KeyedProcessFunction` and `KeyedCoProcessFunction`."""

    __slots__ = ()

    @abstractmethod
    def get_current_key(self) -> Any:
        """Key of the element or timer."""


class OnTimerContext(KeyedProcessContext):
    """Context of `on_timer`."""

    __slots__ = ()

    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Which clock fired the timer."""


class BroadcastBaseContext(_ElementContext, _Clocks):
    """What both sides of a broadcast function share."""

    __slots__ = ()


class BroadcastReadOnlyContext(BroadcastBaseContext):
    """The data side of a `BroadcastProcessFunction`."""

    __slots__ = ()

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """The broadcast state of that name, for reading.

        Raises:
            UnknownStateError: The descriptor was not passed to `broadcast(...)`.
        """


class BroadcastContext(BroadcastBaseContext):
    """The broadcast side of a `BroadcastProcessFunction`."""

    __slots__ = ()

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """The broadcast state of that name, for reading and writing.

        Raises:
            UnknownStateError: The descriptor was not passed to `broadcast(...)`.
        """


class KeyedBroadcastReadOnlyContext(BroadcastReadOnlyContext):
    """The data side of a `KeyedBroadcastProcessFunction`."""

    __slots__ = ()

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Time and timers of the current key."""

    @abstractmethod
    def get_current_key(self) -> Any:
        """Key of the element or timer."""


class KeyedBroadcastOnTimerContext(KeyedBroadcastReadOnlyContext):
    """Context of `KeyedBroadcastProcessFunction.on_timer`."""

    __slots__ = ()

    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Which clock fired the timer."""


class KeyedBroadcastContext(BroadcastContext):
    """The broadcast side of a `KeyedBroadcastProcessFunction`; there is no current key."""

    __slots__ = ()

    @abstractmethod
    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Any) -> None:
        """Call `function(key, state)` for every key of this subtask that holds a value in that state.

        The set of keys is fixed before the first call; the function may change the visited key's state.
        """


class ProcessAllWindowContext(ABC, Generic[W]):
    """Context of `ProcessAllWindowFunction`."""

    __slots__ = ()

    @abstractmethod
    def window(self) -> W:
        """The window being evaluated or dropped."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """State of this key, if there is one, in this window; clear it in `clear(context)`."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """State of this key, if there is one, shared by all its windows."""


class ProcessWindowContext(ProcessAllWindowContext[W], _Clocks):
    """Context of `ProcessWindowFunction`."""

    __slots__ = ()


class SourceContext(ABC, Generic[T]):
    """How a `SourceFunction` emits (docs/guides/writing-sources-and-sinks.md)."""

    __slots__ = ()

    @abstractmethod
    def collect(self, value: T) -> None:
        """Emit an element without a timestamp; takes the checkpoint lock itself."""

    @abstractmethod
    def collect_with_timestamp(self, value: T, timestamp: int) -> None:
        """Emit an element with a timestamp; takes the checkpoint lock itself."""

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """Promise that no element at or below `watermark` follows."""

    @abstractmethod
    def mark_as_temporarily_idle(self) -> None:
        """Leave this source out of the minimum of watermarks until it emits again."""

    @abstractmethod
    def get_checkpoint_lock(self) -> Any:
        """Re-entrant lock (for `with`); no snapshot of this source is taken while it is held."""

    @abstractmethod
    def close(self) -> None:
        """Release what the context holds; called by the runtime after `run`."""


class SinkContext(_Clocks):
    """Second argument of `SinkFunction.invoke`."""

    __slots__ = ()

    @abstractmethod
    def timestamp(self) -> int | None:
        """Timestamp of the element, or None."""
