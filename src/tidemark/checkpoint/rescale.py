"""Who gets which state when a job starts from a snapshot: pure arithmetic over metadata.

Operators are matched by uid. Keyed state and timers move by key group; a subtask gets every handle that may
hold rows of its groups and filters while reading. Operator state is redistributed by its mode:
every subtask gets a share of split lists, and all of union lists and broadcast state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from tidemark.checkpoint.layout import SnapshotLocation
from tidemark.checkpoint.metadata.model import (
    CheckpointMetadata,
    NativeHandle,
    OperatorState,
    SubtaskState,
    TableHandle,
)
from tidemark.errors import ConfigError, MaxParallelismError, RestoreError, UnmappedStateError
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.operator_state import RAW_KEYED_STATE
from tidemark.state.redistribution import redistribute
from tidemark.state.snapshot import OperatorStatePart

__all__ = ["SubtaskRestore", "map_operators", "plan_restore", "resolve_max_parallelism", "restore_range"]


@dataclass(frozen=True, slots=True)
class SubtaskRestore:
    """What one subtask takes over; plain data that travels to its slot."""

    uid: str
    index: int
    checkpoint_id: int
    location: SnapshotLocation
    key_groups: tuple[int, int] | None = None
    tables: tuple[TableHandle, ...] = ()
    natives: tuple[NativeHandle, ...] = ()
    operator: tuple[OperatorStatePart, ...] = ()
    rehash: int | None = None
    """Number of key groups that `key_groups` counts in, if it is another one than that of the snapshot."""


def map_operators(
    metadata: CheckpointMetadata, job_uids: Collection[str], allow_non_restored_state: bool = False
) -> dict[str, OperatorState]:
    """State of each of the job's operators that has some, by uid.

    Args:
        metadata: The snapshot.
        job_uids: Uids of all operators, sources and sinks of the job.
        allow_non_restored_state: Drop state nobody claims instead of refusing.

    Raises:
        UnmappedStateError: The snapshot holds state of operators the job does not have.
    """
    known = set(job_uids)
    if not allow_non_restored_state:
        lost = {operator.uid: operator.name for operator in metadata.operators if operator.has_state}
        lost |= {uid: lost.get(uid, "a source") for uid, data in metadata.source_positions.items() if data}
        lost |= {uid: lost.get(uid, "a sink") for uid, data in metadata.sink_commits.items() if data}
        missing = sorted(uid for uid in lost if uid not in known)
        if missing:
            names = ", ".join(f"'{uid}' ({lost[uid]})" for uid in missing)
            raise UnmappedStateError(
                f"Snapshot {metadata.checkpoint_id} of job {metadata.job_id} holds state of operators the "
                f"job does not have: {names}. Give the operators their old uid, or allow non-restored state "
                "(-n) to drop it.",
                operator_uids=missing,
            )
    return {operator.uid: operator for operator in metadata.operators if operator.uid in known}


def resolve_max_parallelism(
    operator: OperatorState | None, parallelism: int, explicit: int | None, default: int
) -> int:
    """Number of key groups an operator runs with.

    Args:
        operator: Its restored state, if any.
        parallelism: What it is going to run with.
        explicit: What the user set, if anything.
        default: What applies if nothing was set and nothing restored.

    Raises:
        MaxParallelismError: The user set another number than the restored keyed state has.
        ConfigError: More subtasks than key groups.
    """
    groups = explicit if explicit is not None else default
    if operator is not None and operator.is_keyed:
        groups = operator.max_parallelism
        if explicit is not None and explicit != groups:
            raise MaxParallelismError(
                f"The maximum parallelism of operator '{operator.uid}' is set to {explicit}, but its "
                f"restored state has {groups} key groups. Remove the setting, set it to {groups}, or rewrite "
                f"the snapshot first: tidemark rekey PATH --max-parallelism {explicit} -o NEW.",
                operator_uid=operator.uid,
                restored=groups,
                requested=explicit,
            )
    if parallelism > groups:
        raise ConfigError(
            f"Parallelism {parallelism} exceeds the maximum parallelism {groups}"
            + (f" of the restored operator '{operator.uid}'" if operator is not None else "")
            + (
                f". Lower the parallelism, or rewrite the snapshot first: tidemark rekey PATH --max-parallelism "
                f"{parallelism} -o NEW."
                if operator is not None
                else ". Lower the parallelism."
            )
        )
    return groups


def plan_restore(
    operator: OperatorState,
    metadata: CheckpointMetadata,
    location: SnapshotLocation,
    parallelism: int,
    max_parallelism: int | None = None,
) -> list[SubtaskRestore]:
    """What each of `parallelism` new subtasks of the operator takes over, in order of subtasks.

    With another number of key groups than the snapshot has, keyed state is hashed anew while it is read.

    Raises:
        RestoreError: It is to be, but is not stored in canonical form, or nobody knows its keys.
    """
    if operator.is_keyed and max_parallelism not in (None, operator.max_parallelism):
        assert max_parallelism is not None
        return _plan_rehash(operator, metadata, location, parallelism, max_parallelism)
    old = sorted(operator.subtasks, key=lambda subtask: subtask.index)
    parts = redistribute([list(subtask.operator) for subtask in old], parallelism)
    ranges = _Ranges(old)
    plans = []
    for index in range(parallelism):
        groups = (
            compute_key_group_range_for_operator_index(operator.max_parallelism, parallelism, index)
            if operator.is_keyed
            else None
        )
        restore = _restore(operator, metadata, location, groups, ranges)
        plans.append(replace(restore, index=index, operator=tuple(parts[index])))
    return plans


def _plan_rehash(
    operator: OperatorState,
    metadata: CheckpointMetadata,
    location: SnapshotLocation,
    parallelism: int,
    max_parallelism: int,
) -> list[SubtaskRestore]:
    """Every subtask reads all rows and keeps those of its own range."""
    problem = None
    if any(subtask.native is not None for subtask in operator.subtasks):
        problem = "its state is stored in files of an incremental checkpoint, not in canonical form"
    if any(part.name == RAW_KEYED_STATE and part.elements for s in operator.subtasks for part in s.operator):
        problem = "it has raw keyed state, of which nobody but the operator knows to which keys it belongs"
    if problem is not None:
        raise RestoreError(
            f"Operator '{operator.uid}' has {operator.max_parallelism} key groups in snapshot {metadata.checkpoint_id} "
            f"and cannot get {max_parallelism}: {problem}."
        )
    old = sorted(operator.subtasks, key=lambda subtask: subtask.index)
    parts = redistribute([list(subtask.operator) for subtask in old], parallelism)
    tables = tuple(table for subtask in old for table in subtask.tables)
    return [
        SubtaskRestore(
            operator.uid,
            index,
            metadata.checkpoint_id,
            location,
            compute_key_group_range_for_operator_index(max_parallelism, parallelism, index),
            tables,
            operator=tuple(parts[index]),
            rehash=max_parallelism,
        )
        for index in range(parallelism)
    ]


def restore_range(
    operator: OperatorState,
    metadata: CheckpointMetadata,
    location: SnapshotLocation,
    groups: tuple[int, int] | None,
) -> SubtaskRestore:
    """What of the keyed state and timers of an operator lies in a range of key groups; nothing without a range."""
    return _restore(operator, metadata, location, groups, _Ranges(operator.subtasks))


def _restore(
    operator: OperatorState,
    metadata: CheckpointMetadata,
    location: SnapshotLocation,
    groups: tuple[int, int] | None,
    ranges: _Ranges,
) -> SubtaskRestore:
    if groups is None:
        return SubtaskRestore(operator.uid, 0, metadata.checkpoint_id, location)
    overlapping = ranges.overlapping(groups)
    return SubtaskRestore(
        operator.uid,
        0,
        metadata.checkpoint_id,
        location,
        groups,
        tuple(
            table
            for subtask in overlapping
            for table in subtask.tables
            # Empty tables travel too: the state's serializers must not be forgotten.
            if not table.rows or table.overlaps(*groups)
        ),
        tuple(subtask.native for subtask in overlapping if subtask.native is not None),
    )


class _Ranges:
    """The key groups of subtasks, to be asked once per new subtask: there may be ten thousand of both."""

    def __init__(self, subtasks: Iterable[SubtaskState]) -> None:
        keyed = [(s.key_groups, s) for s in subtasks if s.key_groups is not None]
        self._subtasks = sorted(keyed, key=lambda pair: (pair[0], pair[1].index))
        self._first = [groups[0] for groups, _ in self._subtasks]
        self._reach = list(accumulate([groups[1] for groups, _ in self._subtasks], max))
        """The highest key group of each subtask and those before it."""

    def overlapping(self, groups: tuple[int, int]) -> list[SubtaskState]:
        """Subtasks with a key group in the range, by index."""
        begin = bisect_left(self._reach, groups[0])
        end = bisect_right(self._first, groups[1])
        found = [subtask for mine, subtask in self._subtasks[begin:end] if mine[1] >= groups[0]]
        return sorted(found, key=lambda subtask: subtask.index)
