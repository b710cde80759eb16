"""What all operators around user functions share: life cycle, operator state and snapshots.

`FunctionOperator` serves streams without keys. `tidemark.operators.keyed_operator` adds keys on top.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemark.errors import UnmappedStateError
from tidemark.operators.base import Operator, OperatorEnvironment, Output, RestoredState
from tidemark.operators.contexts import OperatorTimerService
from tidemark.operators.runtime_context import KeyedStateAccess, OperatorRuntimeContext
from tidemark.operators.user_function import UserFunctions
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.state.decoding import decoding
from tidemark.state.operator_state import OperatorStateStore
from tidemark.state.snapshot import Increment, OperatorCut

if TYPE_CHECKING:
    from tidemark.protocol.batch import Batch

__all__ = ["FunctionOperator", "PassThroughOperator", "emit_batch"]


class FunctionOperator(Operator):
    """An operator without keyed state."""

    def __init__(self, functions: Iterable[Any] = ()) -> None:
        """Wrap user functions.

        Args:
            functions: Every user function of the operator; those that have a life cycle live it.
        """
        self._functions = UserFunctions(functions)

    def setup(self, environment: OperatorEnvironment) -> None:
        """Attach to the host and give the user functions their runtime context."""
        self._environment = environment
        self._operator_state = OperatorStateStore()
        self._service = self._make_service(environment)
        self._runtime_context = self._make_runtime_context(environment)
        self._functions.attach(self._runtime_context)
        self._make_contexts()

    @property
    def operator_state(self) -> OperatorStateStore:
        """The operator state of this subtask; after `setup`."""
        return self._operator_state

    def _make_service(self, environment: OperatorEnvironment) -> OperatorTimerService:
        return OperatorTimerService(environment.clock)

    def _make_runtime_context(self, environment: OperatorEnvironment) -> OperatorRuntimeContext:
        return OperatorRuntimeContext(environment.info, environment.metrics)

    def _make_contexts(self) -> None:
        """Create the objects passed to user calls; `setup` has done the rest already."""

    def initialize(self, restored: RestoredState | None) -> None:
        """Load state, then let the user functions initialise theirs."""
        if restored is not None:
            uid = self._environment.info.uid
            with decoding(f"State of operator '{uid}'", uid):
                self._restore(restored)
        self._register_states()
        self._functions.initialize(restored is not None, self._operator_state, self._keyed_state_access())

    def _register_states(self) -> None:
        """Register the operator's own states; restored state is loaded, user code has not run yet."""

    def _keyed_state_access(self) -> KeyedStateAccess | None:
        return None

    def _restore(self, restored: RestoredState) -> None:
        if restored.tables or restored.native:
            uid = self._environment.info.uid
            raise UnmappedStateError(
                f"The snapshot holds keyed state of operator '{uid}', which is not keyed any more. "
                "Put key_by() in front of it or give it a new uid.",
                operator_uid=uid,
            )
        self._operator_state = OperatorStateStore(restored.operator)

    def open(self) -> None:
        """Call the user's `open`."""
        self._functions.open(self._runtime_context)

    def restore_watermark(self, watermark: int) -> None:
        """Let contexts show the watermark of the cut."""
        self._service.watermark = watermark

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """Remember the watermark for contexts."""
        if watermark > self._service.watermark:
            self._service.watermark = watermark

    def begin_round(self) -> None:
        """Stand at the beginning of time."""
        self._service.watermark = MIN_WATERMARK

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Call `snapshot_state`, then freeze the operator state."""
        self._functions.snapshot(checkpoint_id, timestamp, self._operator_state)
        return OperatorCut(operator=self._operator_state.cut())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell listeners."""
        self._functions.notify_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell listeners."""
        self._functions.notify_aborted(checkpoint_id)

    def close(self) -> None:
        """Call the user's `close`."""
        self._functions.close()


class PassThroughOperator(FunctionOperator):
    """Emits what it gets: the head of an iteration."""

    passes_values = True

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Emit the batch."""
        emit_batch(batch, out)


def emit_batch(batch: Batch, out: Output) -> None:
    """Emit the records of a batch as they are."""
    if batch.timestamps is not None and out.timestamps is None:
        out.timestamps = [None] * len(out.values)
    out.values += batch.values
    if out.timestamps is not None:
        out.timestamps += batch.timestamps or [None] * len(batch)
