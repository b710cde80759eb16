"""Rounds of iterations on bounded input: the head that starts them, and the solution set of the delta form.

The driver runs a round as it runs a batch job: the end of input goes through the operators of the loop, then all of
them begin again (`Operator.begin_round`). What comes back to the head waits there for the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.api.functions import DeltaFunction
from tidemark.api.specs import CHANGED_TAG, RESULT_TAG
from tidemark.operators.base import Output
from tidemark.operators.detach import detached
from tidemark.operators.function_operator import FunctionOperator, emit_batch
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.protocol.batch import MAX_WATERMARK, Batch
from tidemark.state.backend import NO_KEY
from tidemark.state.descriptors import ValueStateDescriptor

if TYPE_CHECKING:
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["DeltaOperator", "SuperstepHead"]


class SuperstepHead(FunctionOperator):
    """Keeps the elements of the next round; lets them into the loop, or out of it after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._next = Output()

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Keep records: the first elements, or what comes back."""
        emit_batch(batch, self._next)

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """A round begins; at the end of time there is none any more."""
        super().advance_watermark(watermark, out)
        elements, _ = self._next.drain()
        if watermark == MAX_WATERMARK:
            emit_batch(elements, out.side.setdefault(RESULT_TAG, Output()))
        else:
            emit_batch(elements, out)


class DeltaOperator(KeyedOperator):
    """The solution set in keyed state; input 0 is the workset of a round, input 1 what the set begins with."""

    inputs = 2

    def __init__(
        self, function: DeltaFunction, element_type: TypeInformation | None, key_type: TypeInformation | None
    ) -> None:
        super().__init__([function], key_type)
        self._function = function
        self._element_type = element_type

    def _register_states(self) -> None:
        self._solution: Any = self.keyed_state(ValueStateDescriptor("solution", self._element_type))

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        raise AssertionError("supersteps run in batch mode, where records wait for the end of the round")

    def end_input(self, input_index: int, out: Output) -> None:
        """The round is complete: update what the workset has something for. Unlike other state, this one stays."""
        self._open_inputs.discard(input_index)
        if not self._ended or self._buffer is None:
            return
        for token, runs in self._buffer.drain():
            batches = list(runs)
            self._backend.start_batch([token])
            self._keys.token = token
            try:
                self._update_key(batches, out)
            finally:
                self._keys.token = NO_KEY
                self._backend.end_batch()

    def _update_key(self, batches: list[tuple[int, Batch]], out: Output) -> None:
        for index, batch in batches:
            if index == 1:
                self._solution.update(batch.values[-1])
        work = [value for index, batch in batches if index == 0 for value in batch.values]
        if not work:
            return
        element, more = self._function.update(self._solution.value(), work)
        if element is not None:
            self._solution.update(element)
            out.emit_side(CHANGED_TAG, detached(element), None)
        for value in more or ():
            out.emit(detached(value), None)
