"""The life cycle of user functions inside an operator, and their part in checkpoints.

    attach -> initialize -> open -> { snapshot | notify_* }* -> close (once)

A plain callable has no life cycle: every method here passes it by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tidemark.api import functions
from tidemark.api.functions import (
    CheckpointedFunction,
    CheckpointListener,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
)
from tidemark.state.descriptors import ListStateDescriptor
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.operators.runtime_context import KeyedStateAccess, OperatorRuntimeContext
    from tidemark.state.operator_state import OperatorStateStore

__all__ = ["InitializationContext", "SnapshotContext", "UserFunctions"]

LIST_STATE_NAME = "list-checkpointed"
"""Operator state that holds what a `ListCheckpointed` function returned."""


@dataclass(frozen=True, slots=True)
class SnapshotContext(FunctionSnapshotContext):
    """What `snapshot_state` of a `CheckpointedFunction` gets."""

    checkpoint_id: int
    checkpoint_timestamp: int

    def get_checkpoint_id(self) -> int:
        """Number of the checkpoint or savepoint."""
        return self.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """When it was triggered, in ms."""
        return self.checkpoint_timestamp


@dataclass(frozen=True, slots=True)
class InitializationContext(FunctionInitializationContext):
    """What `initialize_state` of a `CheckpointedFunction` gets."""

    restored: bool
    operator_state: OperatorStateStore
    keyed_state: KeyedStateAccess | None

    def is_restored(self) -> bool:
        """Whether this start used a checkpoint or savepoint."""
        return self.restored

    def get_operator_state_store(self) -> functions.OperatorStateStore:
        """Where operator state is registered."""
        # The store lives below the API and so cannot inherit from its abstract class.
        return cast("functions.OperatorStateStore", self.operator_state)

    def get_keyed_state_store(self) -> KeyedStateAccess:
        """Where keyed state is registered.

        Raises:
            RuntimeError: The operator is not keyed.
        """
        if self.keyed_state is None:
            raise RuntimeError("Keyed state needs a KeyedStream: call key_by() before this function.")
        return self.keyed_state


class UserFunctions:
    """The user functions of one operator subtask, driven through their life cycle in order."""

    def __init__(self, functions: Iterable[Any]) -> None:
        candidates = [function for function in functions if function is not None]
        self._functions: Sequence[Any] = candidates
        self._living: Sequence[Function] = [f for f in candidates if isinstance(f, Function)]
        self._started = False
        self._last_notified = 0

    def attach(self, context: OperatorRuntimeContext) -> None:
        """Give every function its runtime context."""
        for function in self._living:
            function.set_runtime_context(context)

    def initialize(
        self, restored: bool, store: OperatorStateStore, keyed_state: KeyedStateAccess | None
    ) -> None:
        """Call `initialize_state`, or `restore_state` on a restore."""
        self._started = True
        context = InitializationContext(restored, store, keyed_state)
        for index, function in enumerate(self._functions):
            if isinstance(function, CheckpointedFunction):
                function.initialize_state(context)
            elif restored and isinstance(function, ListCheckpointed):
                function.restore_state(self._list_state(index, store).get())

    def open(self, context: OperatorRuntimeContext) -> None:
        """Call `open`."""
        self._started = True
        for function in self._living:
            function.open(context)

    def snapshot(self, checkpoint_id: int, timestamp: int, store: OperatorStateStore) -> None:
        """Call `snapshot_state`; a `ListCheckpointed` function's list goes to the store."""
        for index, function in enumerate(self._functions):
            if isinstance(function, CheckpointedFunction):
                function.snapshot_state(SnapshotContext(checkpoint_id, timestamp))
            elif isinstance(function, ListCheckpointed):
                elements = function.snapshot_state(checkpoint_id, timestamp)
                # Not update(), which refuses None: the user's elements may be anything.
                self._list_state(index, store).load(list(elements or ()))

    def notify_complete(self, checkpoint_id: int) -> None:
        """Call `notify_checkpoint_complete`, at most once per id."""
        if checkpoint_id <= self._last_notified:
            return
        self._last_notified = checkpoint_id
        for function in self._functions:
            if isinstance(function, CheckpointListener):
                function.notify_checkpoint_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Call `notify_checkpoint_aborted`."""
        for function in self._functions:
            if isinstance(function, CheckpointListener):
                function.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Call `close` of every function whose life began, once; the first error is raised at the end."""
        if not self._started:
            return
        self._started = False
        failure: Exception | None = None
        for function in self._living:
            try:
                function.close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    @staticmethod
    def _list_state(index: int, store: OperatorStateStore) -> Any:
        name = LIST_STATE_NAME if index == 0 else f"{LIST_STATE_NAME}-{index}"
        return store.get_list_state(ListStateDescriptor(name, Types.PICKLED_BYTE_ARRAY()))
