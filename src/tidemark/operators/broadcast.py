"""Operators with one broadcast input: input 0 is the data, input 1 the broadcast side.

The broadcast side writes the state, the data side reads it. Batch mode consumes the broadcast side first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidemark.operators.base import Output
from tidemark.operators.broadcast_contexts import (
    DataContext,
    KeyedDataContext,
    KeyedRulesContext,
    KeyedRulesTimerContext,
    RulesContext,
)
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.keyed import process_keyed
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.stateless import method_of, process_plain
from tidemark.protocol.batch import Batch

if TYPE_CHECKING:
    from tidemark.state.descriptors import MapStateDescriptor
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["BROADCAST", "DATA", "BroadcastOperator", "KeyedBroadcastOperator"]

DATA, BROADCAST = 0, 1


class _BroadcastStates:
    """The broadcast states of an operator in both views; filled before user code runs."""

    def __init__(self, descriptors: Sequence[MapStateDescriptor]) -> None:
        self._descriptors = descriptors
        self.writable: dict[str, Any] = {}
        self.readable: dict[str, Any] = {}

    def register(self, store: Any) -> None:
        """Get every state from the operator state store."""
        for descriptor in self._descriptors:
            state = store.get_broadcast_state(descriptor)
            self.writable[descriptor.name] = state
            self.readable[descriptor.name] = state.read_only()


class BroadcastOperator(FunctionOperator):
    """`BroadcastProcessFunction`: the data side has no keys."""

    def __init__(self, function: Any, descriptors: Sequence[MapStateDescriptor]) -> None:
        """Wrap a function.

        Args:
            function: Has `process_element` and `process_broadcast_element`.
            descriptors: What was passed to `broadcast(...)`.
        """
        super().__init__([function])
        self._states = _BroadcastStates(descriptors)
        self._calls = method_of(function, "process_element"), method_of(function, "process_broadcast_element")
        self._held: list[Batch] | None = None

    def _make_contexts(self) -> None:
        self._contexts = (
            DataContext(self._service, self._states.readable),
            RulesContext(self._service, self._states.writable),
        )
        if self._environment.batch_mode:
            self._held = []

    def _register_states(self) -> None:
        self._states.register(self._operator_state)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process a batch of either side; batch mode holds data back until the broadcast side ended."""
        if input_index == DATA and self._held is not None:
            self._held.append(batch)
            return
        process_plain(self._calls[input_index], self._contexts[input_index], batch, out)

    def end_input(self, input_index: int, out: Output) -> None:
        """Batch mode: the end of the broadcast side lets the data through."""
        if input_index == BROADCAST and self._held is not None:
            held, self._held = self._held, None
            for batch in held:
                self.process(DATA, batch, out)


class KeyedBroadcastOperator(KeyedOperator):
    """`KeyedBroadcastProcessFunction`: the data side has keys, keyed state and timers."""

    inputs = 2

    def __init__(
        self,
        function: Any,
        descriptors: Sequence[MapStateDescriptor],
        key_type: TypeInformation | None,
    ) -> None:
        """Wrap a function.

        Args:
            function: Has `process_element`, `process_broadcast_element` and perhaps `on_timer`.
            descriptors: What was passed to `broadcast(...)`.
            key_type: Type of the key; None means pickled.
        """
        super().__init__([function], key_type)
        self._states = _BroadcastStates(descriptors)
        self._data_call = method_of(function, "process_element")
        self._broadcast_call = method_of(function, "process_broadcast_element")
        self._timer_call = getattr(function, "on_timer", None)

    def _make_contexts(self) -> None:
        service, states = self._service, self._states
        self._data_context = KeyedDataContext(service, states.readable, self)
        self._rules_context = KeyedRulesContext(service, states.writable, self)
        self._timer_context = KeyedRulesTimerContext(service, states.readable, self)

    def _register_states(self) -> None:
        self._states.register(self._operator_state)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process a batch of either side; batch mode runs the broadcast side at once."""
        if input_index == BROADCAST and self._buffer is not None:
            self._run(input_index, batch, out)
            return
        super().process(input_index, batch, out)

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        if input_index == BROADCAST:
            process_plain(self._broadcast_call, self._rules_context, batch, out)
            return
        call = self._observed(self._data_call)
        process_keyed(call, self._keys, self._data_context, batch, out, self._must_copy())
