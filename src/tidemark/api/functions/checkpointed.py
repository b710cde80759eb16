"""Interfaces of functions that take part in checkpoints with operator state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tidemark.api.functions.base import KeyedStateStore, OperatorStateStore

__all__ = [
    "CheckpointListener",
    "CheckpointedFunction",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "ListCheckpointed",
]


class FunctionSnapshotContext(ABC):
    """Which checkpoint a snapshot is for."""

    __slots__ = ()

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Id of the checkpoint or savepoint."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """When it was triggered, in ms."""


class FunctionInitializationContext(ABC):
    """What `initialize_state` is given."""

    __slots__ = ()

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether this start used a checkpoint or savepoint, even if it held nothing for this operator."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Where to get operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Where to get keyed state; raises on operators that are not keyed."""


class CheckpointedFunction(ABC):
    """A function that keeps operator state in handles."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called on every checkpoint and savepoint before state is copied; raising declines it."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called at every start, the first included, before `open`."""


class ListCheckpointed(ABC):
    """A function that hands out its operator state as a list; redistribution is by even split."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any] | None:
        """The state as a list whose elements can be spread; None counts as empty."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Take state over; called before `open`, and only when the job is restored."""


class CheckpointListener:
    """A function that wants to know how checkpoints end."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete for the whole job; an id may be skipped, never repeated."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
