"""Raw state: bytes that an operator writes itself and nobody else understands.

Raw operator state is a list of partitions, which are dealt out to the subtasks of a restored job. Raw keyed state is
bytes per key group, and a key group goes to the subtask that owns it.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.api.functions.checkpointed import FunctionInitializationContext, FunctionSnapshotContext
from tidemark.errors import ConfigError, IllegalStateError

__all__ = [
    "KeyGroupStatePartitionStreamProvider",
    "KeyedStateCheckpointOutputStream",
    "OperatorStateCheckpointOutputStream",
    "StateInitializationContext",
    "StatePartitionStreamProvider",
    "StateSnapshotContext",
]


class OperatorStateCheckpointOutputStream:
    """Takes the raw operator state of one subtask; what is not put into a partition is the first one."""

    def __init__(self) -> None:
        self._partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Let the bytes from here on be a partition of their own, which may go to another subtask."""
        self._partitions.append(bytearray())

    def write(self, data: bytes) -> int:
        """Append bytes."""
        if not self._partitions:
            self.start_new_partition()
        self._partitions[-1] += data
        return len(data)

    def get_number_of_partitions(self) -> int:
        """Partitions so far."""
        return len(self._partitions)

    def partitions(self) -> tuple[bytes, ...]:
        """What was written."""
        return tuple([bytes(partition) for partition in self._partitions])


class KeyedStateCheckpointOutputStream:
    """Takes the raw keyed state of one subtask, key group by key group."""

    def __init__(self, key_groups: tuple[int, int]) -> None:
        self._first, self._last = key_groups
        self._groups: dict[int, bytearray] = {}
        self._current: int | None = None

    def get_key_group_list(self) -> list[int]:
        """The key groups of this subtask, the only ones that can be written."""
        return list(range(self._first, self._last + 1))

    def start_new_key_group(self, key_group_id: int) -> None:
        """Let the bytes from here on belong to a key group.

        Raises:
            ConfigError: The key group belongs to another subtask, or was written before.
        """
        if not self._first <= key_group_id <= self._last:
            raise ConfigError(
                f"Key group {key_group_id} is not one of this subtask's, which are {self._first} to {self._last}."
            )
        if key_group_id in self._groups:
            raise ConfigError(f"Key group {key_group_id} was written before; write each of them at once.")
        self._groups[key_group_id] = bytearray()
        self._current = key_group_id

    def get_current_key_group(self) -> int | None:
        """The key group that is being written."""
        return self._current

    def write(self, data: bytes) -> int:
        """Append bytes.

        Raises:
            IllegalStateError: No key group was begun.
        """
        if self._current is None:
            raise IllegalStateError(
                "Raw keyed state belongs to key groups: call start_new_key_group() first."
            )
        self._groups[self._current] += data
        return len(data)

    def key_groups(self) -> dict[int, bytes]:
        """What was written."""
        return {group: bytes(data) for group, data in self._groups.items()}


@dataclass(frozen=True, slots=True)
class StatePartitionStreamProvider:
    """One restored partition of raw operator state."""

    data: bytes

    def get_stream(self) -> io.BytesIO:
        """Its bytes, from the beginning."""
        return io.BytesIO(self.data)


@dataclass(frozen=True, slots=True)
class KeyGroupStatePartitionStreamProvider:
    """The restored raw keyed state of one key group."""

    key_group_id: int
    data: bytes

    def get_key_group_id(self) -> int:
        """The key group."""
        return self.key_group_id

    def get_stream(self) -> io.BytesIO:
        """Its bytes, from the beginning."""
        return io.BytesIO(self.data)


class StateSnapshotContext(FunctionSnapshotContext):
    """What `snapshot_state` of an operator is given."""

    __slots__ = ()

    @abstractmethod
    def get_raw_operator_state_output(self) -> OperatorStateCheckpointOutputStream:
        """Where to write raw operator state; the same stream every time."""

    @abstractmethod
    def get_raw_keyed_operator_state_output(self) -> KeyedStateCheckpointOutputStream:
        """Where to write raw keyed state; the same stream every time.

        Raises:
            RuntimeError: The operator is not keyed.
        """

    def get_raw_keyed_state_output(self) -> KeyedStateCheckpointOutputStream:
        """The same by a shorter name."""
        return self.get_raw_keyed_operator_state_output()


class StateInitializationContext(FunctionInitializationContext):
    """What `initialize_state` of an operator is given."""

    __slots__ = ()

    @abstractmethod
    def get_raw_operator_state_inputs(self) -> Sequence[StatePartitionStreamProvider]:
        """The restored partitions of raw operator state of this subtask."""

    @abstractmethod
    def get_raw_keyed_state_inputs(self) -> Sequence[KeyGroupStatePartitionStreamProvider]:
        """The restored raw keyed state of this subtask's key groups, those that have some.

        Raises:
            RuntimeError: The operator is not keyed.
        """
