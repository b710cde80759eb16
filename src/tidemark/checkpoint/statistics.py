"""What users see of past and running snapshots: one record each, the newest ones kept."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum

from tidemark.checkpoint.messages import BarrierTimes, SlotAcknowledged
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.pending import PendingSnapshot
from tidemark.errors import FailureReason

__all__ = ["CheckpointRecord", "CheckpointStatistics", "CheckpointStatus", "StateSize", "SubtaskRecord"]

_SUBTASKS_KEPT = 100_000
"""Records of subtasks over all snapshots, about 10 MB: those of 2,000 snapshots of a job with 50 of them."""


class CheckpointStatus(Enum):
    """Where a snapshot is in its life."""

    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One snapshot, as listed by REST and the page."""

    checkpoint_id: int
    status: CheckpointStatus
    is_savepoint: bool
    triggered_at: int
    slots: int
    acknowledged: int = 0
    ended_at: int | None = None
    state_size: int = 0
    written_size: int = 0
    sync_ms: int = 0
    """Longest synchronous part of any slot."""
    async_ms: int = 0
    """Longest asynchronous part of any slot."""
    alignment_ms: int = 0
    """Longest time an operator waited for its last barrier; 0 in epochs, where nothing is in flight."""
    directory: str | None = None
    reason: FailureReason | None = None
    message: str | None = None
    discarded: bool = False
    quarantined: bool = False
    """Complete, but damaged since; `message` says how. Kept on disk and never restored from."""

    @property
    def is_completed(self) -> bool:
        """Whether the snapshot is complete."""
        return self.status is CheckpointStatus.COMPLETED

    @property
    def duration_ms(self) -> int | None:
        """From trigger to end, once it has ended."""
        return None if self.ended_at is None else self.ended_at - self.triggered_at


@dataclass(frozen=True, slots=True)
class SubtaskRecord:
    """What one subtask did for a snapshot."""

    index: int
    acknowledged_at: int
    state_size: int
    written_size: int
    sync_ms: int
    async_ms: int
    barrier: BarrierTimes | None = None
    """None in epochs, where no barrier travels."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """How large one state was in the newest completed snapshot, over all subtasks."""

    rows: int
    size: int
    """Bytes, serialised."""


class CheckpointStatistics:
    """Counts over the whole job and the last `history` records; read by any thread.

    Attributes:
        changes: Grows with every change of a record, so that whoever computes something from them can keep it.
        state_sizes: Operator uid -> state -> size in the newest completed snapshot.
        last_completed: The newest completed snapshot as it was when it completed.
    """

    def __init__(self, history: int = 50) -> None:
        self._history = history
        self._records: OrderedDict[int, CheckpointRecord] = OrderedDict()
        self._subtasks: OrderedDict[int, dict[str, list[SubtaskRecord]]] = OrderedDict()
        self._subtasks_kept = 0
        self.changes = 0
        self.state_sizes: dict[str, dict[str, StateSize]] = {}
        self.last_completed: CheckpointRecord | None = None
        self.triggered = 0
        self.completed = 0
        self.failed = 0
        self.restored = 0

    def started(self, pending: PendingSnapshot) -> None:
        """A snapshot was triggered."""
        self.triggered += 1
        self._records[pending.checkpoint_id] = CheckpointRecord(
            pending.checkpoint_id,
            CheckpointStatus.IN_PROGRESS,
            pending.is_savepoint,
            pending.started_at,
            len(pending.slots),
        )
        self.changes += 1
        while len(self._records) > self._history:
            forgotten, _record = self._records.popitem(last=False)
            self._forget_subtasks(forgotten)

    def progressed(self, pending: PendingSnapshot, event: SlotAcknowledged, now: int) -> None:
        """A slot acknowledged."""
        if pending.acknowledged.get(event.slot) is not event:
            # Only the first of a slot counts.
            return
        self._remember(event, now)
        record = self._records.get(pending.checkpoint_id)
        if record is None:
            return
        states: list[SubtaskState] = list(event.states.values())
        # Added to what was known, not summed up anew: there may be ten thousand of them.
        self._change(
            pending.checkpoint_id,
            acknowledged=len(pending.acknowledged),
            state_size=record.state_size + sum(state.state_size for state in states),
            written_size=record.written_size + sum(state.written_size for state in states),
            sync_ms=max(record.sync_ms, event.sync_ms),
            async_ms=max(record.async_ms, event.async_ms),
            alignment_ms=max([record.alignment_ms, *(b.alignment_ms for b in event.barriers.values())]),
        )

    def succeeded(self, pending: PendingSnapshot, now: int, directory: str) -> None:
        """A snapshot is complete."""
        self.completed += 1
        self.state_sizes = _state_sizes(pending)
        self._change(
            pending.checkpoint_id, status=CheckpointStatus.COMPLETED, ended_at=now, directory=directory
        )
        self.last_completed = self._records.get(pending.checkpoint_id, self.last_completed)

    def aborted(self, checkpoint_id: int, now: int, reason: FailureReason, message: str) -> None:
        """A snapshot was given up."""
        self.failed += 1
        self._change(
            checkpoint_id, status=CheckpointStatus.FAILED, ended_at=now, reason=reason, message=message
        )

    def was_discarded(self, checkpoint_id: int) -> None:
        """A completed checkpoint was pushed out by a newer one."""
        self._change(checkpoint_id, discarded=True)

    def was_quarantined(self, checkpoint_id: int, problem: str) -> None:
        """A completed snapshot turned out to be damaged."""
        self._change(checkpoint_id, quarantined=True, message=problem)

    def records(self) -> list[CheckpointRecord]:
        """The records, newest first."""
        return list(reversed(self._records.copy().values()))

    def record(self, checkpoint_id: int) -> CheckpointRecord | None:
        """The record of that snapshot, None if it is too old or never was."""
        return self._records.get(checkpoint_id)

    def subtasks(self, checkpoint_id: int) -> dict[str, tuple[SubtaskRecord, ...]]:
        """Operator uid -> the subtasks that have acknowledged; empty if that was too long ago."""
        known = self._subtasks.get(checkpoint_id, {})
        return {uid: tuple(records) for uid, records in known.copy().items()}

    def _remember(self, event: SlotAcknowledged, now: int) -> None:
        known = self._subtasks.setdefault(event.checkpoint_id, {})
        for uid, state in event.states.items():
            record = SubtaskRecord(
                state.index,
                now,
                state.state_size,
                state.written_size,
                state.sync_ms,
                state.async_ms,
                event.barriers.get(uid),
            )
            known.setdefault(uid, []).append(record)
        self._subtasks_kept += len(event.states)
        while self._subtasks_kept > _SUBTASKS_KEPT and len(self._subtasks) > 1:
            self._forget_subtasks(next(iter(self._subtasks)))

    def _forget_subtasks(self, checkpoint_id: int) -> None:
        forgotten = self._subtasks.pop(checkpoint_id, {})
        self._subtasks_kept -= sum(len(records) for records in forgotten.values())

    def _change(self, checkpoint_id: int, **facts: object) -> None:
        record = self._records.get(checkpoint_id)
        if record is not None:
            self._records[checkpoint_id] = replace(record, **facts)  # type: ignore[arg-type]
            self.changes += 1


def _state_sizes(pending: PendingSnapshot) -> dict[str, dict[str, StateSize]]:
    sizes: dict[str, dict[str, StateSize]] = {}
    for uid, subtasks in pending.states().items():
        known = sizes.setdefault(uid, {})
        for state in subtasks:
            for table in state.tables:
                before = known.get(table.meta.name, StateSize(0, 0))
                known[table.meta.name] = StateSize(before.rows + table.rows, before.size + table.state_size)
            for part in state.operator:
                before = known.get(part.name, StateSize(0, 0))
                size = sum(len(element) for element in part.elements)
                known[part.name] = StateSize(before.rows + len(part.elements), before.size + size)
    return sizes
