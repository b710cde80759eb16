"""What `initialize_state` and `snapshot_state` of an operator get, and how raw state is kept in a snapshot.

Raw operator state:  a split list, one element per partition
Raw keyed state:     one element per key group, `key_group:u16be | bytes`; a rescaled subtask gets all and takes its own
"""

from __future__ import annotations

import struct
from typing import cast

from tidemark.api import functions
from tidemark.api.raw_state import (
    KeyedStateCheckpointOutputStream,
    KeyGroupStatePartitionStreamProvider,
    OperatorStateCheckpointOutputStream,
    StateInitializationContext,
    StatePartitionStreamProvider,
    StateSnapshotContext,
)
from tidemark.operators.runtime_context import KeyedStateAccess
from tidemark.state.operator_state import (
    RAW_KEYED_STATE,
    RAW_OPERATOR_STATE,
    OperatorStateStore,
    RawState,
)
from tidemark.state.snapshot import OperatorStatePart, Redistribution

__all__ = ["RawInitialization", "RawSnapshot", "RawStates"]

_GROUP = struct.Struct(">H")


def _not_keyed() -> RuntimeError:
    return RuntimeError("Raw keyed state needs a KeyedStream: call key_by() before transform().")


class RawSnapshot(StateSnapshotContext):
    """Collects the raw state of one snapshot."""

    def __init__(self, checkpoint_id: int, timestamp: int, key_groups: tuple[int, int] | None) -> None:
        self._checkpoint_id = checkpoint_id
        self._timestamp = timestamp
        self.operator = OperatorStateCheckpointOutputStream()
        self.keyed = None if key_groups is None else KeyedStateCheckpointOutputStream(key_groups)

    def get_checkpoint_id(self) -> int:
        """Number of the checkpoint or savepoint."""
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """When it was triggered, in ms."""
        return self._timestamp

    def get_raw_operator_state_output(self) -> OperatorStateCheckpointOutputStream:
        """The stream."""
        return self.operator

    def get_raw_keyed_operator_state_output(self) -> KeyedStateCheckpointOutputStream:
        """The stream."""
        if self.keyed is None:
            raise _not_keyed()
        return self.keyed


class RawInitialization(StateInitializationContext):
    """Hands out what was restored."""

    def __init__(
        self, restored: bool, store: OperatorStateStore, keyed: KeyedStateAccess | None, raw: RawStates
    ) -> None:
        self._restored = restored
        self._store = store
        self._keyed = keyed
        self._raw = raw

    def is_restored(self) -> bool:
        """Whether this start used a checkpoint or savepoint."""
        return self._restored

    def get_operator_state_store(self) -> functions.OperatorStateStore:
        """Where operator state is registered."""
        # The store lives below the API and so cannot inherit from its abstract class.
        return cast("functions.OperatorStateStore", self._store)

    def get_keyed_state_store(self) -> KeyedStateAccess:
        """Where keyed state is registered."""
        if self._keyed is None:
            raise RuntimeError("Keyed state needs a KeyedStream: call key_by() before transform().")
        return self._keyed

    def get_raw_operator_state_inputs(self) -> list[StatePartitionStreamProvider]:
        """The partitions."""
        return [StatePartitionStreamProvider(data) for data in self._raw.operator.restored]

    def get_raw_keyed_state_inputs(self) -> list[KeyGroupStatePartitionStreamProvider]:
        """The key groups."""
        return self._raw.restored_key_groups()


class RawStates:
    """The raw state of one subtask among its operator state."""

    def __init__(self, store: OperatorStateStore, key_groups: tuple[int, int] | None) -> None:
        """Take over what was restored, so that nothing of it is carried along behind the operator's back."""
        self._key_groups = key_groups
        self.operator: RawState = store.get_raw_state(RAW_OPERATOR_STATE, Redistribution.SPLIT)
        self._keyed: RawState = store.get_raw_state(RAW_KEYED_STATE)

    def restored_key_groups(self) -> list[KeyGroupStatePartitionStreamProvider]:
        """Those of this subtask, in order."""
        if self._key_groups is None:
            raise _not_keyed()
        first, last = self._key_groups
        found = [(_GROUP.unpack_from(data)[0], data[_GROUP.size :]) for data in self._keyed.restored]
        own = sorted((group, data) for group, data in found if first <= group <= last)
        return [KeyGroupStatePartitionStreamProvider(group, data) for group, data in own]

    def take(self, snapshot: RawSnapshot) -> None:
        """Let what an operator wrote be part of the next cut."""
        self.operator.elements = snapshot.operator.partitions()
        keyed = {} if snapshot.keyed is None else snapshot.keyed.key_groups()
        self._keyed.elements = tuple([_GROUP.pack(group) + data for group, data in sorted(keyed.items())])

    @staticmethod
    def written(parts: list[OperatorStatePart]) -> list[OperatorStatePart]:
        """The parts of a cut without raw state that is empty."""
        names = (RAW_OPERATOR_STATE, RAW_KEYED_STATE)
        return [part for part in parts if part.elements or part.name not in names]
