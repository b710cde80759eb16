"""The checkpoint coordinator: decides when snapshots start, complete, fail and are deleted. Nothing more.

It is a pure state machine. Events and the current time go in, commands come out; it opens no file, starts no
thread and reads no clock. Whoever drives it carries the commands out, in order, and reports back:

    BarrierReached ─► TriggerBarrier(k) ─► slots cut and write ─► SlotAcknowledged(k, slot) from each
        ─► WriteMetadata(k) ─► MetadataWritten(k)                                     = commit point
        ─► NotifyComplete(k) ─► SinksCommitted(k) ─► Discard(what k pushes out)
    SlotDeclined, StorageFailed, or too old at a Tick or at an acknowledgement
        ─► NotifyAborted(k), Discard(k), and FailJob if one failure too many
    SavepointRequested, but no BarrierReached within the timeout
        ─► RejectSavepoint at a Tick
    Overdue: a checkpoint is due, but no BarrierReached within the timeout
        ─► NotifyAborted(k); it counts as failed if one call into user code has blocked a slot for that long
    Overdue: WriteMetadata(k) waits for the end of an epoch, and a call into user code has not returned for the timeout
        ─► NotifyAborted(k), Discard(k), and FailJob if one failure too many
    StorageFailed because files vanished: the same, but the first in a row is not counted and k+1 is due at once

Otherwise the timeout ends with the last acknowledgement. Once WriteMetadata is carried out the snapshot may exist,
so it neither expires nor is given up while the attempt lasts: a write that takes longer than the timeout and then
succeeds completes the snapshot, one that never returns is waited for until somebody cancels the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.checkpoint.completed import CompletedSnapshot, CompletedSnapshots, Origin, is_kept
from tidemark.checkpoint.messages import (
    BarrierReached,
    Command,
    Discard,
    DiscardJob,
    Event,
    FailJob,
    JobEnd,
    JobEnded,
    JobRestarting,
    MetadataWritten,
    NotifyAborted,
    NotifyComplete,
    Overdue,
    RejectSavepoint,
    SavepointRequest,
    SavepointRequested,
    SinksCommitted,
    SlotAcknowledged,
    SlotDeclined,
    Started,
    StorageFailed,
    Tick,
    TriggerBarrier,
    WriteMetadata,
)
from tidemark.checkpoint.pending import PendingSnapshot
from tidemark.checkpoint.shared_files import SharedFiles
from tidemark.checkpoint.statistics import CheckpointStatistics
from tidemark.checkpoint.tolerance import FailureTracker
from tidemark.config import CheckpointSettings
from tidemark.errors import FailureReason

__all__ = ["CheckpointCoordinator"]


class CheckpointCoordinator:
    """Coordinates the snapshots of one job over all its attempts.

    Attributes:
        completed: Snapshots to recover from.
        statistics: Records for REST and the web page.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        *,
        restored_from: Sequence[CompletedSnapshot] = (),
        history: int = 50,
    ) -> None:
        """Start before the first attempt.

        Args:
            settings: When and how.
            restored_from: The snapshots the job may be started from, if any; ids continue after the newest one and
                recovery falls back to them until a checkpoint is complete.
            history: Records to keep.
        """
        self.settings = settings
        self.completed = CompletedSnapshots(settings.num_retained)
        self.statistics = CheckpointStatistics(history)
        self._shared = SharedFiles()
        self._failures = FailureTracker(settings.tolerable_failures)
        self._pending: dict[int, PendingSnapshot] = {}
        self._aborted: dict[int, SavepointRequest | None] = {}
        self._requests: list[tuple[SavepointRequest, int]] = []
        """Savepoints that wait for a barrier, and since when."""
        self._slots: frozenset[int] = frozenset()
        self._running = False
        self._next_id = 1
        self._due_at: int | None = None
        self._seen = -(1 << 62)
        """Time of the last event."""
        self._last_end: int | None = None
        self._repairing = False
        """Files have vanished, and no checkpoint has completed since."""
        for snapshot in restored_from:
            self.completed.add(snapshot)
            self._next_id = max(self._next_id, snapshot.checkpoint_id + 1)
        self._first_id = self._next_id

    @property
    def next_checkpoint_id(self) -> int:
        """The id the next snapshot will have."""
        return self._next_id

    def aborted_savepoints(self) -> list[SavepointRequest]:
        """Savepoints that were given up after they had begun."""
        return [request for request in self._aborted.values() if request is not None]

    def needs_shared_file(self, name: str) -> bool:
        """Whether a completed checkpoint of the job refers to that file in `shared/`."""
        return self._shared.is_referenced(name)

    def is_spent(self, checkpoint_id: int) -> bool:
        """Whether this job began that checkpoint and needs nothing of it: given up, or pushed out by newer ones.

        A checkpoint that somebody else left in the directory, or that cannot be read, is never spent.
        """
        ours = self._first_id <= checkpoint_id < self._next_id
        return ours and checkpoint_id not in self._pending and not self.completed.holds(checkpoint_id)

    def quarantine(self, checkpoint_id: int, problem: str) -> None:
        """A completed snapshot turned out to be damaged: never restore from it, never delete it."""
        self.completed.quarantine(checkpoint_id)
        self.statistics.was_quarantined(checkpoint_id, problem)

    def pending(self) -> list[int]:
        """Ids of the snapshots in the making."""
        return sorted(self._pending)

    def request_checkpoint(self, now: int) -> None:
        """Let a checkpoint start at the next barrier, whatever interval and pause say."""
        # In vain while the job does not run: the next attempt begins with an interval of its own.
        self._due_at = now
        self._last_end = None

    def is_overdue(self, now: int, held: Iterable[int] = ()) -> bool:
        """Whether something has waited for the end of the epoch as long as it may take: amid one, say `Overdue`.

        Args:
            now: The time.
            held: Snapshots whose metadata waits for the end of the epoch.
        """
        return self._is_barrier_late(now) or bool(self._held_too_long(held, now))

    def _is_barrier_late(self, now: int) -> bool:
        due = self._periodic_due()
        return due is not None and now - due >= self.settings.timeout

    def _held_too_long(self, held: Iterable[int], now: int) -> list[PendingSnapshot]:
        waiting = [self._pending[checkpoint_id] for checkpoint_id in held if checkpoint_id in self._pending]
        return [pending for pending in waiting if now - pending.waiting_since >= self.settings.timeout]

    def next_wakeup(self, now: int) -> int | None:
        """When the next `BarrierReached` or `Tick` will have an effect, if nothing else happens before."""
        self._follow(now)
        if self._requests and self._running:
            return now
        times = [p.waiting_since + self.settings.timeout for p in self._pending.values() if not p.finalizing]
        due = self._periodic_due()
        if due is not None:
            times.append(due)
        return max(min(times), now) if times else None

    def handle(self, event: Event, now: int) -> list[Command]:
        """Take one event at time `now` (ms); return what has to be done, in this order."""
        self._follow(now)
        match event:
            case Started():
                return self._start(event.slots, now)
            case Tick():
                return [*self._expire(now), *self._expire_requests(now)]
            case Overdue():
                return [*self._give_up_held(event, now), *self._give_up_due(event, now)]
            case BarrierReached():
                return [*self._expire(now), *self._trigger(now)]
            case SlotAcknowledged():
                return self._acknowledge(event, now)
            case SlotDeclined():
                return self._abort_if_pending(event.checkpoint_id, event.reason, event.message, now)
            case MetadataWritten():
                return self._complete(event, now)
            case SinksCommitted():
                return self._committed(event.checkpoint_id)
            case StorageFailed():
                return self._storage_failed(event, now)
            case SavepointRequested():
                return self._request(event.request, now)
            case JobRestarting():
                return self._halt(FailureReason.JOB_RESTARTING, "The job is restarting.", now)
            case JobEnded():
                return self._end(event, now)

    def _follow(self, now: int) -> None:
        """The clock was set back: what is due stays as far away as it was, what waits has waited as long as it had."""
        back, self._seen = self._seen - now, now
        if back <= 0:
            return
        if self._due_at is not None:
            self._due_at -= back
        if self._last_end is not None:
            self._last_end -= back
        for pending in self._pending.values():
            pending.waiting_since -= back
        self._requests = [(request, since - back) for request, since in self._requests]

    # Starting

    def _start(self, slots: frozenset[int], now: int) -> list[Command]:
        commands = self._halt(FailureReason.JOB_RESTARTING, "A new attempt has started.", now)
        self._slots = slots
        self._running = True
        self._failures.restarted()
        self._due_at = self._one_interval_after(now)
        self._last_end = None
        newest = self.completed.latest()
        if newest is not None:
            # The attempt before may have failed amid its commit; sinks have been restored to it since.
            commands += self._committed(newest.checkpoint_id)
        return commands

    def _request(self, request: SavepointRequest, now: int) -> list[Command]:
        if not self._running:
            return [RejectSavepoint(request, FailureReason.NOT_RUNNING, "The job is not running.")]
        self._requests.append((request, now))
        return []

    def _trigger(self, now: int) -> list[Command]:
        if not self._running:
            return []
        commands: list[Command] = []
        while self._requests:
            commands.append(self._begin(now, self._requests.pop(0)[0]))
        due = self._periodic_due()
        if due is not None and now >= due:
            self._due_at = self._one_interval_after(now)
            commands.append(self._begin(now, None))
        return commands

    def _one_interval_after(self, now: int) -> int | None:
        return now + self.settings.interval if self.settings.enabled else None

    def _periodic_due(self) -> int | None:
        """When the next checkpoint may start as things are, or None if something has to end first."""
        if not self._running or self._due_at is None or self._requests:
            return None
        checkpoints = [p for p in self._pending.values() if not p.is_savepoint]
        if len(checkpoints) >= self.settings.concurrency or len(checkpoints) < len(self._pending):
            return None
        if self._last_end is None:
            return self._due_at
        return max(self._due_at, self._last_end + self.settings.min_pause)

    def _take_up(self, now: int, savepoint: SavepointRequest | None) -> PendingSnapshot:
        pending = PendingSnapshot(self._next_id, now, self._slots, savepoint)
        self._next_id += 1
        self._pending[pending.checkpoint_id] = pending
        self.statistics.started(pending)
        return pending

    def _begin(self, now: int, savepoint: SavepointRequest | None) -> Command:
        pending = self._take_up(now, savepoint)
        base = self.completed.latest_checkpoint()
        return TriggerBarrier(
            pending.checkpoint_id, now, None if base is None else base.checkpoint_id, savepoint
        )

    # Completing

    def _acknowledge(self, event: SlotAcknowledged, now: int) -> list[Command]:
        pending = self._pending.get(event.checkpoint_id)
        if pending is None:
            files = [name for state in event.states.values() for name in state.shared_files()]
            return self._clean_up_after_abort(event.checkpoint_id, files)
        last = pending.acknowledge(event)
        self.statistics.progressed(pending, event, now)
        if self._is_expired(pending, now):
            return self._expire_one(pending, now)
        if not last:
            return []
        pending.finalizing = True
        return [WriteMetadata(pending.checkpoint_id, pending.started_at, pending.states(), pending.savepoint)]

    def _complete(self, event: MetadataWritten, now: int) -> list[Command]:
        pending = self._pending.get(event.checkpoint_id)
        if pending is None or not pending.finalizing:
            return self._clean_up_after_abort(event.checkpoint_id, ())
        del self._pending[pending.checkpoint_id]
        self._failures.succeeded()
        self.statistics.succeeded(pending, now, event.directory)
        if not pending.is_savepoint:
            self._last_end = now
            self._repairing = False
        snapshot = CompletedSnapshot(
            pending.checkpoint_id,
            event.directory,
            Origin.SAVEPOINT if pending.is_savepoint else Origin.CHECKPOINT,
            pending.started_at,
            pending.shared_files(),
            event.digest,
        )
        self._shared.register(snapshot.checkpoint_id, snapshot.shared_files)
        commands: list[Command] = [NotifyComplete(pending.checkpoint_id, event.directory, pending.savepoint)]
        self.completed.add(snapshot)
        freed = self._shared.ended(pending.checkpoint_id)
        if freed:
            commands.append(Discard(None, freed))
        return commands

    def _committed(self, checkpoint_id: int) -> list[Command]:
        """Behind a snapshot whose output is out nobody has to go: the oldest retained ones make room."""
        commands: list[Command] = []
        for old in self.completed.committed(checkpoint_id):
            self.statistics.was_discarded(old.checkpoint_id)
            commands.append(
                Discard(old.checkpoint_id, self._shared.release(old.checkpoint_id, self._pending))
            )
        return commands

    def _clean_up_after_abort(self, checkpoint_id: int, files: Iterable[str]) -> list[Command]:
        """Something was written for an attempt that had been given up: it must go as well."""
        if checkpoint_id not in self._aborted:
            return []
        freed = self._shared.drop(files, self._pending)
        return [Discard(checkpoint_id, freed, self._aborted[checkpoint_id])]

    # Ending

    def _expire(self, now: int) -> list[Command]:
        commands: list[Command] = []
        for pending in list(self._pending.values()):
            if self._is_expired(pending, now):
                commands += self._expire_one(pending, now)
        return commands

    def _expire_requests(self, now: int) -> list[Command]:
        late = [request for request, since in self._requests if now - since >= self.settings.timeout]
        self._requests = [entry for entry in self._requests if entry[0] not in late]
        message = (
            f"It has not begun after {self.settings.timeout} ms: user code or a storage keeps the job busy."
        )
        return [RejectSavepoint(request, FailureReason.EXPIRED, message) for request in late]

    def _give_up_held(self, event: Overdue, now: int) -> list[Command]:
        """A long epoch lets a snapshot that is written complete in the end; user code that hangs may never."""
        commands: list[Command] = []
        for pending in self._held_too_long(event.held, now):
            if event.blocked_ms < self.settings.timeout:
                # The next look is due when what blocks now, or from now on, has blocked for the timeout.
                pending.waiting_since = now - event.blocked_ms
                continue
            message = f"Not complete: user code has not returned for {event.blocked_ms} ms."
            commands += self._abort(pending, FailureReason.EXPIRED, message, now)
        return commands

    def _give_up_due(self, event: Overdue, now: int) -> list[Command]:
        """An epoch that is only long is nobody's failure, and a restart would run it again."""
        due = self._periodic_due()
        if due is None or not self._is_barrier_late(now):
            return []
        self._due_at = self._one_interval_after(now)
        blocked = event.blocked_ms >= self.settings.timeout
        message = f"It has not begun after {self.settings.timeout} ms: "
        if blocked:
            message += f"user code has not returned for {event.blocked_ms} ms."
        else:
            message += "the epoch before it takes longer."
        pending = self._take_up(due, None)
        return self._abort(pending, FailureReason.EXPIRED, message, now, forgiven=not blocked)

    def _is_expired(self, pending: PendingSnapshot, now: int) -> bool:
        # Once the metadata is being written the snapshot may already exist; its outcome is awaited.
        return not pending.finalizing and now - pending.waiting_since >= self.settings.timeout

    def _expire_one(self, pending: PendingSnapshot, now: int) -> list[Command]:
        waiting = ", ".join(str(slot) for slot in sorted(pending.missing)) or "none, the last one came late"
        message = f"Not complete after {self.settings.timeout} ms; missing slots: {waiting}."
        return self._abort(pending, FailureReason.EXPIRED, message, now)

    def _storage_failed(self, event: StorageFailed, now: int) -> list[Command]:
        """Files that vanished are forgiven once: a restart would need them, a new checkpoint replaces them."""
        pending = self._pending.get(event.checkpoint_id)
        if pending is None:
            return []
        forgiven = event.vanished and not self._repairing and not pending.is_savepoint
        if forgiven:
            self._repairing = True
            self.request_checkpoint(now)
        return self._abort(pending, FailureReason.FINALIZE, event.message, now, forgiven=forgiven)

    def _abort_if_pending(
        self, checkpoint_id: int, reason: FailureReason, message: str, now: int
    ) -> list[Command]:
        pending = self._pending.get(checkpoint_id)
        return [] if pending is None else self._abort(pending, reason, message, now)

    def _abort(
        self,
        pending: PendingSnapshot,
        reason: FailureReason,
        message: str,
        now: int,
        *,
        forgiven: bool = False,
    ) -> list[Command]:
        del self._pending[pending.checkpoint_id]
        self._aborted[pending.checkpoint_id] = pending.savepoint
        self.statistics.aborted(pending.checkpoint_id, now, reason, message)
        freed = self._shared.ended(pending.checkpoint_id)
        freed += self._shared.drop(pending.shared_files(), self._pending)
        commands: list[Command] = [
            NotifyAborted(pending.checkpoint_id, reason, message, pending.savepoint),
            Discard(pending.checkpoint_id, freed, pending.savepoint),
        ]
        if pending.is_savepoint or forgiven:
            return commands
        self._last_end = now
        error = self._failures.failed(pending.checkpoint_id, reason, message)
        if error is not None:
            commands.append(FailJob(error))
        return commands

    def _halt(self, reason: FailureReason, message: str, now: int) -> list[Command]:
        self._running = False
        commands: list[Command] = []
        for pending in list(self._pending.values()):
            commands += self._abort(pending, reason, message, now)
        commands += [RejectSavepoint(request, reason, message) for request, _since in self._requests]
        self._requests.clear()
        return commands

    def _end(self, event: JobEnded, now: int) -> list[Command]:
        commands = self._halt(FailureReason.JOB_STOPPING, "The job has ended.", now)
        if event.how is JobEnd.SUSPENDED:
            # Whoever goes on with the job may depend on any of them.
            return commands
        kept = is_kept(self.settings.retention, event.how) or event.unread
        if kept and self.completed.checkpoints():
            return commands
        for old in self.completed.clear():
            self.statistics.was_discarded(old.checkpoint_id)
            commands.append(Discard(old.checkpoint_id, self._shared.release(old.checkpoint_id, ())))
        if self.statistics.triggered and not self.completed.quarantined():
            commands.append(DiscardJob())
        return commands
