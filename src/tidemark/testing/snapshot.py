"""Snapshots of one operator subtask, as the test harnesses take and restore them.

They are made by the real snapshot writer, redistributed by the real rescaling code and encoded as real
checkpoint metadata, with every file inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tidemark.checkpoint.layout import SnapshotLocation
from tidemark.checkpoint.metadata.model import (
    CheckpointMetadata,
    FileHandle,
    NativeHandle,
    OperatorState,
    SubtaskState,
)
from tidemark.checkpoint.metadata.registry import decode, encode
from tidemark.checkpoint.rescale import SubtaskRestore, plan_restore, resolve_max_parallelism
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, WriterOptions
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.errors import ConfigError, MaxParallelismError
from tidemark.operators.base import RestoredState
from tidemark.paths import join
from tidemark.state.redistribution import redistribute
from tidemark.subtask.restored_state import load_restored_state
from tidemark.subtask.subtask import SubtaskCut

__all__ = ["OperatorSnapshot"]

_LOCATION = SnapshotLocation("/harness/snapshot", "/harness/shared")
_JOB = "0" * 32


class OperatorSnapshot:
    """State of one subtask at a cut. Until `to_bytes` (or a use) it is only the synchronous part.

    Attributes:
        checkpoint_id: Number of the checkpoint or savepoint.
        is_savepoint: Whether it was taken as a savepoint.
    """

    def __init__(self, checkpoint_id: int, is_savepoint: bool, finish: Callable[[], OperatorState]) -> None:
        """Wrap a cut.

        Args:
            checkpoint_id: Number of the snapshot.
            is_savepoint: Whether it is a savepoint.
            finish: Does the asynchronous part; called once.
        """
        self.checkpoint_id = checkpoint_id
        self.is_savepoint = is_savepoint
        self._finish = finish
        self._state: OperatorState | None = None

    @classmethod
    def of_cut(
        cls, cut: SubtaskCut, options: WriterOptions, *, is_savepoint: bool = False
    ) -> OperatorSnapshot:
        """A snapshot whose asynchronous part writes `cut`."""

        def finish() -> OperatorState:
            info, storage = cut.info, MemoryStorage()
            subtask = _with_files_inside(cut.write(SnapshotWriter(storage, options), _LOCATION), storage)
            return OperatorState(info.uid, info.name, info.parallelism, info.max_parallelism, (subtask,))

        return cls(cut.checkpoint_id, is_savepoint, finish)

    @property
    def state(self) -> OperatorState:
        """The finished state.

        Raises:
            CheckpointError: There is more state than the memory backend may carry.
        """
        if self._state is None:
            self._state = self._finish()
        return self._state

    def to_bytes(self) -> bytes:
        """Finish the asynchronous part and encode the snapshot, with all its files.

        Raises:
            CheckpointError: There is more state than the memory backend may carry.
        """
        return encode(
            CheckpointMetadata(
                self.checkpoint_id, 0, _JOB, is_savepoint=self.is_savepoint, operators=(self.state,)
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> OperatorSnapshot:
        """Read what `to_bytes` wrote.

        Raises:
            MetadataError: The bytes are something else, or damaged.
        """
        metadata = decode(data, "OperatorSnapshot")
        state = metadata.operators[0]
        return cls(metadata.checkpoint_id, metadata.is_savepoint, lambda: state)

    @staticmethod
    def repartition(
        snapshots: Sequence[OperatorSnapshot], max_parallelism: int, new_parallelism: int
    ) -> list[OperatorSnapshot]:
        """Redistribute the state of all old subtasks over `new_parallelism` new ones.

        Args:
            snapshots: One per old subtask, in order.
            max_parallelism: Number of key groups; that of the snapshots.
            new_parallelism: Number of new subtasks.

        Raises:
            ConfigError: There are no snapshots, or more subtasks than key groups.
            MaxParallelismError: The snapshots have another number of key groups.
        """
        if not snapshots:
            raise ConfigError("repartition needs the snapshots of all old subtasks, and got none.")
        states = [snapshot.state for snapshot in snapshots]
        subtasks = tuple([subtask for state in states for subtask in state.subtasks])
        operator = replace(states[0], parallelism=len(snapshots), subtasks=subtasks)
        groups = resolve_max_parallelism(operator, new_parallelism, max_parallelism, max_parallelism)
        metadata = CheckpointMetadata(snapshots[0].checkpoint_id, 0, _JOB, operators=(operator,))
        plans = plan_restore(operator, metadata, _LOCATION, new_parallelism)
        # Again here, because a repartitioned snapshot may consist of several subtasks (see `_fixed`).
        parts = redistribute([list(state.subtasks[0].operator) for state in states], new_parallelism)
        return [
            OperatorSnapshot(
                plan.checkpoint_id,
                snapshots[0].is_savepoint,
                _fixed(replace(plan, operator=tuple(part)), operator, groups),
            )
            for plan, part in zip(plans, parts, strict=True)
        ]

    def restored(
        self, key_groups: tuple[int, int] | None, max_parallelism: int, scratch: Path
    ) -> RestoredState:
        """What a subtask with these key groups gets from this snapshot.

        Args:
            key_groups: First and last key group of the subtask; None without a key.
            max_parallelism: Its number of key groups.
            scratch: Directory for native files.

        Raises:
            MaxParallelismError: The snapshot has another number of key groups.
        """
        state = self.state
        if state.is_keyed and key_groups is not None and state.max_parallelism != max_parallelism:
            raise MaxParallelismError(
                f"The snapshot has {state.max_parallelism} key groups, the harness {max_parallelism}. "
                "Create the harness with the same max_parallelism.",
                restored=state.max_parallelism,
                requested=max_parallelism,
            )
        plan = SubtaskRestore(
            state.uid,
            0,
            self.checkpoint_id,
            _LOCATION,
            key_groups,
            tuple([table for subtask in state.subtasks for table in subtask.tables]),
            tuple([subtask.native for subtask in state.subtasks if subtask.native is not None]),
            tuple([part for subtask in state.subtasks for part in subtask.operator]),
        )
        return load_restored_state(plan, MemoryStorage(), scratch)

    def __repr__(self) -> str:
        kind = "savepoint" if self.is_savepoint else "checkpoint"
        return f"OperatorSnapshot({kind} {self.checkpoint_id})"


def _fixed(plan: SubtaskRestore, operator: OperatorState, groups: int) -> Callable[[], OperatorState]:
    """The state a plan hands to a new subtask.

    A subtask has one native snapshot; those of several old subtasks come as subtasks of their own.
    Snapshots that were repartitioned but not restored share tables, so each is taken once.
    """
    natives: list[NativeHandle | None] = list(dict.fromkeys(plan.natives))
    first = SubtaskState(
        plan.index,
        plan.key_groups,
        tuple(dict.fromkeys(plan.tables)),
        natives[0] if natives else None,
        plan.operator,
    )
    others = [SubtaskState(plan.index, plan.key_groups, native=native) for native in natives[1:]]
    state = replace(operator, max_parallelism=groups, subtasks=(first, *others))
    return lambda: state


def _with_files_inside(subtask: SubtaskState, storage: MemoryStorage) -> SubtaskState:
    native = subtask.native
    if native is None:
        return subtask
    files = tuple([_inlined(file, storage) for file in native.files])
    return replace(subtask, native=replace(native, files=files))


def _inlined(file: FileHandle, storage: MemoryStorage) -> FileHandle:
    if file.inline is not None or file.path is None:
        return file
    data = storage.read(join(_LOCATION.shared if file.shared else _LOCATION.directory, file.path))
    return replace(file, path=None, shared=False, inline=data)
