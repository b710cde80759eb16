"""A checkpoint or savepoint opened for reading: what is in it, and what is said when something is not."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.checkpoint.layout import SnapshotLocation, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState, read_metadata
from tidemark.checkpoint.rescale import restore_range
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import UnknownStateError
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import OperatorStatePart, StateMeta
from tidemark.state_processor.input_splits import InputSplit, ranges_to_read

__all__ = ["OpenSnapshot", "metas_of"]


class OpenSnapshot:
    """The metadata of a snapshot, with lookups that say what is there when something is not."""

    def __init__(self, storage: Storage, directory: str, metadata: CheckpointMetadata) -> None:
        self.storage = storage
        self.location: SnapshotLocation = savepoint_location(directory)
        self.metadata = metadata

    @classmethod
    def open(cls, path: str, storage: Storage | None = None) -> OpenSnapshot:
        """Open whatever names a snapshot: its directory, its `_metadata`, a retained `chk-<n>`.

        Raises:
            SavepointNotFoundError: Nothing complete is there.
            MetadataError: The metadata cannot be understood.
        """
        storage = storage or FileSystemStorage()
        directory = resolve_snapshot_path(storage, path)
        return cls(storage, directory, read_metadata(storage, directory))

    @property
    def path(self) -> str:
        """Directory of the snapshot."""
        return self.location.directory

    def operator(self, uid: str) -> OperatorState:
        """State of one operator.

        Raises:
            UnknownStateError: There is none with that uid.
        """
        found = self.metadata.operator(uid)
        if found is None:
            known = ", ".join(repr(operator.uid) for operator in self.metadata.operators) or "none"
            raise UnknownStateError(
                f"The snapshot at {self.path} has no operator with uid '{uid}'. It has: {known}.",
                operator_uid=uid,
            )
        return found

    def keyed_operator(self, uid: str) -> OperatorState:
        """State of one operator that has keys.

        Raises:
            UnknownStateError: There is none with that uid, or it is not keyed.
        """
        operator = self.operator(uid)
        if not operator.is_keyed:
            raise UnknownStateError(
                f"Operator '{uid}' of the snapshot at {self.path} has no keyed state.", operator_uid=uid
            )
        return operator

    def metas(self, uid: str) -> list[StateMeta]:
        """Keyed states and timers of an operator, each once, by name."""
        return metas_of(self.operator(uid))

    def meta(self, uid: str, name: str) -> StateMeta:
        """One keyed state, or the timers of one domain.

        Raises:
            UnknownStateError: The operator has no such keyed state.
        """
        for meta in self.metas(uid):
            if meta.name == name:
                return meta
        raise self.no_state(uid, name)

    def parts(self, uid: str, name: str) -> list[tuple[int, OperatorStatePart]]:
        """One operator state of every subtask that holds it, with the subtask's index."""
        return [
            (subtask.index, part)
            for subtask in _in_order(self.operator(uid))
            for part in subtask.operator
            if part.name == name
        ]

    def no_state(self, uid: str, name: str) -> UnknownStateError:
        """The error that says which states an operator has."""
        operator = self.operator(uid)
        names = [meta.name for meta in metas_of(operator)]
        names += [part.name for subtask in operator.subtasks for part in subtask.operator]
        known = ", ".join(repr(known) for known in dict.fromkeys(names)) or "none"
        return UnknownStateError(
            f"Operator '{uid}' of the snapshot at {self.path} has no state '{name}'. It has: {known}.",
            state_name=name,
            operator_uid=uid,
        )

    def split(self, operator: OperatorState, groups: tuple[int, int]) -> InputSplit:
        """What is needed to read one key-group range of an operator."""
        restore = restore_range(operator, self.metadata, self.location, groups)
        return InputSplit(restore, operator.max_parallelism)

    def splits(
        self, operator: OperatorState, at_least: int = 1, within: Sequence[tuple[int, int]] | None = None
    ) -> list[InputSplit]:
        """Split an operator into splits that are small enough for one task each.

        Args:
            operator: A keyed operator.
            at_least: Number of splits wanted, as far as there are key groups.
            within: Key-group ranges to read, in order; None reads all.
        """
        return [self.split(operator, groups) for groups in ranges_to_read(operator, at_least, within)]


def metas_of(operator: OperatorState) -> list[StateMeta]:
    """Keyed states and timers of an operator, each once."""
    metas: dict[tuple[bool, str], StateMeta] = {}
    for subtask in operator.subtasks:
        found = [table.meta for table in subtask.tables]
        found += subtask.native.metas if subtask.native is not None else ()
        for meta in found:
            metas.setdefault((meta.kind is StateKind.TIMER, meta.name), meta)
    return [metas[key] for key in sorted(metas)]


def _in_order(operator: OperatorState) -> list[SubtaskState]:
    return sorted(operator.subtasks, key=lambda subtask: subtask.index)
