"""What users see of past and running snapshots: one record each, the newest ones kept."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum

from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.pending import PendingSnapshot
from tidemark.errors import FailureReason

__all__ = ["CheckpointRecord", "CheckpointStatistics", "CheckpointStatus"]


class CheckpointStatus(Enum):
    """Where a snapshot is in its life."""

    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One snapshot, as listed by REST and the web page."""

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


class CheckpointStatistics:
    """Counts over the whole job and the last `history` records."""

    def __init__(self, history: int = 50) -> None:
        self._history = history
        self._records: OrderedDict[int, CheckpointRecord] = OrderedDict()
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
        while len(self._records) > self._history:
            self._records.popitem(last=False)

    def progressed(self, pending: PendingSnapshot) -> None:
        """A slot acknowledged."""
        states: list[SubtaskState] = [s for e in pending.acknowledged.values() for s in e.states.values()]
        self._change(
            pending.checkpoint_id,
            acknowledged=len(pending.acknowledged),
            state_size=sum(state.state_size for state in states),
            written_size=sum(state.written_size for state in states),
            sync_ms=max((event.sync_ms for event in pending.acknowledged.values()), default=0),
            async_ms=max((event.async_ms for event in pending.acknowledged.values()), default=0),
            alignment_ms=max((event.alignment_ms for event in pending.acknowledged.values()), default=0),
        )

    def succeeded(self, checkpoint_id: int, now: int, directory: str) -> None:
        """A snapshot is complete."""
        self.completed += 1
        self._change(checkpoint_id, status=CheckpointStatus.COMPLETED, ended_at=now, directory=directory)

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
        return list(reversed(self._records.values()))

    def _change(self, checkpoint_id: int, **facts: object) -> None:
        record = self._records.get(checkpoint_id)
        if record is not None:
            self._records[checkpoint_id] = replace(record, **facts)  # type: ignore[arg-type]
