"""What users write for the state processor: reader and bootstrap functions, and the contexts they get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tidemark.api.context import TimerService
from tidemark.api.functions import (
    CheckpointedFunction,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
)
from tidemark.api.windows.window import Window
from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor
from tidemark.state.primitives import BroadcastState

__all__ = [
    "BroadcastStateBootstrapFunction",
    "KeyedStateBootstrapFunction",
    "KeyedStateReaderFunction",
    "StateBootstrapFunction",
    "WindowReaderFunction",
]


class KeyedStateReaderFunction(Function):
    """Reads the keyed state of one operator, key by key.

    `open(runtime_context)` registers the descriptors of the states to read.
    """

    class Context(ABC):
        """What `read_key` may ask about the key besides its state."""

        @abstractmethod
        def registered_event_time_timers(self) -> set[int]:
            """Times of the key's event-time timers."""

        @abstractmethod
        def registered_processing_time_timers(self) -> set[int]:
            """Times of the key's processing-time timers."""

    @abstractmethod
    def read_key(self, key: Any, ctx: KeyedStateReaderFunction.Context) -> Iterable[Any] | None:
        """Called once for each key that holds a value in any registered state; yield what shall come out.

        State is read-only here: every writing method raises `UnsupportedOperationException`.
        """


class WindowReaderFunction(Function):
    """Reads the windows of a window operator, one key and window at a time."""

    class Context(ABC):
        """What `read_window` may ask about the window."""

        @abstractmethod
        def window(self) -> Window:
            """The window."""

        @abstractmethod
        def registered_event_time_timers(self) -> set[int]:
            """Times of the event-time timers of this key and window."""

        @abstractmethod
        def registered_processing_time_timers(self) -> set[int]:
            """Times of the processing-time timers of this key and window."""

        @abstractmethod
        def trigger_state(self, descriptor: StateDescriptor) -> Any:
            """State the trigger keeps for this key and window; read-only."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State a window function keeps for this key and window; read-only."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State a window function keeps for this key over all windows; read-only."""

    @abstractmethod
    def read_window(
        self, key: Any, ctx: WindowReaderFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any] | None:
        """Called once per key and window; `elements` holds one value for reducing and aggregating windows."""


class KeyedStateBootstrapFunction(Function):
    """Fills the keyed state and the timers of an operator from data."""

    class Context(ABC):
        """What `process_element` gets besides the element."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Registers timers of the current key; none of them fires here."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the element."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        """Write the state of the element's key."""


class StateBootstrapFunction(Function):
    """Fills the operator state of an operator from data. It is a `CheckpointedFunction`."""

    class Context(ABC):
        """What `process_element` gets besides the element."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Tells the time."""

    @abstractmethod
    def process_element(self, value: Any, ctx: StateBootstrapFunction.Context) -> None:
        """Take one element in."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the operator state from `context.get_operator_state_store()`."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called once, after the last element, before the state is written."""


# Virtually, so that a user class may name both as its bases in any order.
CheckpointedFunction.register(StateBootstrapFunction)  # type: ignore[type-abstract]


class BroadcastStateBootstrapFunction(Function):
    """Fills the broadcast state of an operator from data."""

    class Context(ABC):
        """What `process_element` gets besides the element."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """The broadcast state of that descriptor, for reading and writing."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Now."""

    @abstractmethod
    def process_element(self, value: Any, ctx: BroadcastStateBootstrapFunction.Context) -> None:
        """Write broadcast state."""
