"""The contexts of broadcast functions: who may read and who may write which state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemark.api.context import (
    BroadcastContext,
    BroadcastReadOnlyContext,
    KeyedBroadcastContext,
    KeyedBroadcastOnTimerContext,
    KeyedBroadcastReadOnlyContext,
    TimerService,
)
from tidemark.api.time_domain import TimeDomain
from tidemark.errors import UnknownStateError, UnsupportedOperationException
from tidemark.operators.contexts import ElementAndOutput
from tidemark.operators.stateless import method_of
from tidemark.state.backend import NO_KEY

if TYPE_CHECKING:
    from tidemark.operators.keyed_operator import KeyedOperator
    from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor

__all__ = [
    "DataContext",
    "KeyedDataContext",
    "KeyedRulesContext",
    "KeyedRulesTimerContext",
    "RulesContext",
]


class _Side(ElementAndOutput):
    """What both sides of every broadcast function have."""

    __slots__ = ("_states",)

    def __init__(self, service: TimerService, states: Mapping[str, Any]) -> None:
        """Serve one side.

        Args:
            service: Tells the time.
            states: The broadcast states by name, as this side may see them.
        """
        super().__init__(service)
        self._states = states

    def current_processing_time(self) -> int:
        """Now, from the injected clock."""
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        """The watermark of this operator."""
        return self._service.current_watermark()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        """The broadcast state of that name.

        Raises:
            UnknownStateError: The descriptor was not passed to `broadcast(...)`.
        """
        state = self._states.get(state_descriptor.name)
        if state is None:
            raise UnknownStateError(
                f"Broadcast state '{state_descriptor.name}' is not registered: pass its descriptor to "
                f"broadcast(...). Registered: {sorted(self._states)}.",
                state_name=state_descriptor.name,
            )
        return state

    def timer_service(self) -> TimerService:
        """Refused: this side has no key."""
        raise UnsupportedOperationException(
            "Timers belong to a key. Use them in process_element or on_timer of a "
            "KeyedBroadcastProcessFunction, not on the broadcast side."
        )


class DataContext(_Side, BroadcastReadOnlyContext):
    """Data side without keys."""

    __slots__ = ()


class RulesContext(_Side, BroadcastContext):
    """Broadcast side without keys."""

    __slots__ = ()


class KeyedDataContext(_Side, KeyedBroadcastReadOnlyContext):
    """Data side with keys."""

    __slots__ = ("_operator",)

    def __init__(self, service: TimerService, states: Mapping[str, Any], operator: KeyedOperator) -> None:
        super().__init__(service, states)
        self._operator = operator

    def timer_service(self) -> TimerService:
        """Time and timers of the current key."""
        return self._service

    def get_current_key(self) -> Any:
        """Key of the element or timer."""
        return self._operator.current_key()


class KeyedRulesTimerContext(KeyedDataContext, KeyedBroadcastOnTimerContext):
    """Context of `on_timer`."""

    __slots__ = ("domain",)

    def __init__(self, service: TimerService, states: Mapping[str, Any], operator: KeyedOperator) -> None:
        super().__init__(service, states, operator)
        self.domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        """Which clock fired the timer."""
        return self.domain


class KeyedRulesContext(_Side, KeyedBroadcastContext):
    """Broadcast side with keys: no key is current, but all keys can be visited."""

    __slots__ = ("_operator",)

    def __init__(self, service: TimerService, states: Mapping[str, Any], operator: KeyedOperator) -> None:
        super().__init__(service, states)
        self._operator = operator

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Any) -> None:
        """Call `function(key, state)` for every key of this subtask that holds a value in that state."""
        call = method_of(function, "process")
        operator = self._operator
        state = operator.keyed_state(state_descriptor)
        keys = operator.backend.context
        try:
            for token in operator.backend.keys(state_descriptor.name):
                keys.token = token
                call(operator.current_key(), state)
        finally:
            keys.token = NO_KEY
