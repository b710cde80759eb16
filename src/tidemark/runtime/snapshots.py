"""What a job does for its checkpoint coordinator: barriers, metadata, commits, deletions.

The coordinator decides, purely, from events; its commands are carried out here, in order, and what comes of
them are its next events. The commit point of a snapshot is `write_metadata`; sinks commit behind it, once all
that the metadata names was seen in the storage. A storage may hang: it is only touched in the worker's thread.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tidemark.api.executor import JobSettings
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.coordinator import CheckpointCoordinator
from tidemark.checkpoint.layout import (
    JobLayout,
    SnapshotLocation,
    new_savepoint_directory,
    savepoint_location,
)
from tidemark.checkpoint.messages import (
    Command,
    Discard,
    DiscardJob,
    Event,
    FailJob,
    JobEnded,
    MetadataWritten,
    NotifyAborted,
    NotifyComplete,
    RejectSavepoint,
    SavepointRequest,
    SavepointRequested,
    SinksCommitted,
    SlotDeclined,
    Started,
    StorageFailed,
    TriggerBarrier,
    WriteMetadata,
)
from tidemark.checkpoint.metadata.model import CheckpointMetadata, OperatorState
from tidemark.checkpoint.metadata.registry import digest_of, write_metadata
from tidemark.checkpoint.presence import has_vanished, holds_checkpoints, holds_metadata, missing_files
from tidemark.checkpoint.retention import (
    discard,
    discard_former_runs,
    discard_job,
    discard_spent,
    mark_quarantined,
)
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.config import Options
from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.futures import CompletableFuture
from tidemark.paths import parent
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.deployment import BackendChoice
from tidemark.protocol.frames import CutRequest
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.runtime.worker import Worker

__all__ = ["DriverState", "Effects", "JobSnapshots"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriverState:
    """What the driver itself contributes to a snapshot, as of its barrier."""

    positions: dict[str, bytes]
    commits: dict[str, bytes]
    watermarks: dict[str, int]
    partition_marks: dict[str, bytes]
    epoch: int
    lineage: str


class Effects(Protocol):
    """What the snapshots of a job do to its sources, sinks and slots, in the order of a snapshot's life.

    Whatever a method raises without saying so fails the attempt.
    """

    def cut(self, request: CutRequest) -> SlotDeclined | None:
        """Let the barrier reach everybody: sinks pre-commit, slots freeze their state and write it.

        Tells the first slot that is known to have failed when this returns; others say so later.
        """

    def driver_state(self, checkpoint_id: int) -> DriverState:
        """Every slot has acknowledged: where sources stood at the barrier, what sinks pre-committed, how far time was.

        The answer is the caller's; it is not kept.
        """

    def verify_claims(self) -> None:
        """Make sure that every sink still belongs to this driver.

        Raises:
            FencedError: A newer driver owns one; the snapshot must not complete.
            StorageError: The place of a sink cannot be reached.
        """

    def announce(self, snapshot: CompletedSnapshot) -> None:
        """The snapshot is durable, and counts behind this: let whoever runs the job next find it.

        Raises:
            FencedError: Somebody else runs it already; the snapshot must not complete.
            StorageError: Nobody knows whether they would find it.
        """

    def complete(self, checkpoint_id: int) -> None:
        """The snapshot is durable: let sinks commit, then tell slots and sources."""

    def abort(self, checkpoint_id: int) -> None:
        """The snapshot was given up: tell the slots, without waiting for them."""

    def reached(self, point: str, /) -> None:
        """A crash point; tests raise here."""


class JobSnapshots:
    """Checkpoints and savepoints of one job, over all its attempts.

    Attributes:
        coordinator: Decides; told everything that happens through `handle`.
        layout: Where the job's checkpoints lie.
    """

    def __init__(
        self,
        effects: Effects,
        worker: Worker,
        clock: Clock,
        plan: JobPlan,
        settings: JobSettings,
        storage: StoragePlan,
        backend: BackendChoice,
        restored: Sequence[CompletedSnapshot] = (),
        run: str = "",
    ) -> None:
        """Serve the job of `plan`, which starts from the newest of `restored` that is intact.

        With a `run` other drivers have written checkpoints of the job, or will; what they left goes in the end.
        """
        self._effects = effects
        self._worker = worker
        self._clock = clock
        self._plan = plan
        self._settings = settings
        self._storage_plan = storage
        self._storage: Storage = storage.driver
        self._backend = backend
        self.layout = JobLayout.create(storage.root, plan.job_id, run)
        self._savepoints: dict[str, CompletableFuture[str]] = {}
        self._wanted: list[tuple[int, CompletableFuture[str]]] = []
        """Who waits for a checkpoint of that id or a later one."""
        self._requests = itertools.count()
        self.fenced = False
        """Whether a newer driver of the lineage owns the sinks; it may depend on our snapshots, so they stay."""
        self.took_savepoint = False
        """Whether a savepoint of this job has completed."""
        self._canonical_from: int | None = None
        """The first checkpoint that has to be in canonical form, if any has."""
        self._postponed: list[WriteMetadata] = []
        """Snapshots that every slot acknowledged while something else was under way."""
        self._former_runs = bool(run)
        """Whether there may be checkpoints of former drivers."""
        self._discarded = False
        """Whether the job's checkpoints have been deleted for good."""
        history = settings.configuration.get(Options.CHECKPOINTS_HISTORY)
        self.coordinator = CheckpointCoordinator(
            settings.checkpointing, restored_from=restored, history=history
        )

    def handle(self, event: Event) -> None:
        """Tell the coordinator, and carry out what it says, and what it says to that.

        Raises:
            CheckpointError: More checkpoints have failed than the job tolerates.
            Whatever a sink, a source, an engine or a listener raises on the way; it fails the attempt.
        """
        now = self._clock.now
        if isinstance(event, SlotDeclined) and self._newest_vanished():
            # A write fails when its directory is moved away under it: the cause counts, not the symptom.
            event = StorageFailed(event.checkpoint_id, event.message, vanished=True)
        commands: list[Command] = self.coordinator.handle(event, now())
        pending = self.coordinator.pending()
        commands = [*[late for late in self._postponed if late.checkpoint_id in pending], *commands]
        self._postponed.clear()
        while commands:
            answer = self._carry_out(commands.pop(0))
            if answer is not None:
                commands += self.coordinator.handle(answer, now())

    def observe(self, event: Event) -> None:
        """Tell the coordinator amid an epoch or another command: giving a snapshot up cannot wait.

        What completes one can: it runs user code and publishes output, and is left to the next `handle`.
        Nothing is waited for, neither a storage nor user code: whoever calls this waits for something already.

        Raises:
            CheckpointError: More checkpoints have failed than the job tolerates.
        """
        for command in self.coordinator.handle(event, self._clock.now()):
            if isinstance(command, WriteMetadata):
                self._postponed.append(command)
            else:
                self._carry_out(command, wait=False)

    def held(self) -> frozenset[int]:
        """Snapshots that every slot has acknowledged, whose metadata waits for the next `handle`."""
        return frozenset(command.checkpoint_id for command in self._postponed)

    def request_savepoint(self, target: str | None) -> CompletableFuture[str]:
        """Ask for a savepoint at the next barrier; the future gets its directory.

        Raises:
            ConfigError: No directory was given and none is configured.
        """
        directory = new_savepoint_directory(target or self._settings.savepoint_directory, self._plan.job_id)
        request = SavepointRequest(f"savepoint-{next(self._requests)}", directory)
        future: CompletableFuture[str] = CompletableFuture()
        self._savepoints[request.request_id] = future
        self.observe(SavepointRequested(request))
        return future

    def rescaled(self, plan: JobPlan) -> None:
        """The next attempt runs with another plan."""
        self._plan = plan
        self._canonical_from = None

    def request_checkpoint(self, *, canonical: bool = False) -> CompletableFuture[str]:
        """Ask for a checkpoint at the next barrier; the future gets its id as text.

        With `canonical` it and those behind it are written in full, until the job is rescaled.
        """
        future: CompletableFuture[str] = CompletableFuture()
        self._canonical_from = self.coordinator.next_checkpoint_id if canonical else None
        self._wanted.append((self.coordinator.next_checkpoint_id, future))
        self.coordinator.request_checkpoint(self._clock.now())
        return future

    def quarantine(self, snapshot: CompletedSnapshot, problem: str) -> None:
        """A completed snapshot is damaged: keep it, say so, and do not restore from it again.

        One that the user named is the user's: nothing here would delete it.
        """
        of_former_driver = parent(parent(snapshot.directory)) == self.layout.of_all_runs
        if snapshot.origin is Origin.EXTERNAL and not of_former_driver:
            return
        _log.error(
            "%s %s cannot be used and is kept in quarantine at %s: %s",
            snapshot.origin.value.capitalize(),
            snapshot.checkpoint_id,
            snapshot.directory,
            problem,
        )
        self.coordinator.quarantine(snapshot.checkpoint_id, problem)
        if snapshot.origin is not Origin.SAVEPOINT:
            self._worker.call(mark_quarantined, self._storage, snapshot.directory, problem)

    def new_attempt(self, slots: frozenset[int], *, first: bool) -> None:
        """Nothing that an earlier attempt has begun can complete; a crash may have left files of it."""
        self._refuse_wanted("The job restarted before the checkpoint began.")
        if not first and self._settings.checkpointing.enabled:
            self._discard_leftovers()
        self.handle(Started(slots))

    def end(self, event: JobEnded) -> bool:
        """Apply the retention rules.

        Returns:
            Whether something remains that another job could be started from, be it because it could not be deleted;
            also if nobody can tell.
        """
        # What is away now (an unmounted disk) cannot be deleted, and may come back.
        vanished = self._newest_vanished()
        self.handle(event)
        if vanished or not self.coordinator.statistics.triggered:
            return vanished
        aborted = [request.directory for request in self.coordinator.aborted_savepoints()]
        savepoints = self._storage_plan.savepoints
        try:
            return self._worker.call(holds_checkpoints, self._storage, self.layout) or any(
                [self._worker.call(holds_metadata, savepoints, directory) for directory in aborted]
            )
        except StorageError as exc:
            _log.warning("What is left of the snapshots of job %s is not known: %s", self._plan.job_id, exc)
            return True

    def discard_all_runs(self) -> None:
        """Nothing of the job is to be kept, whichever driver of it wrote it."""
        self._worker.call(partial(discard_former_runs, self._storage, self.layout, all_runs=True))

    def sweep(self) -> None:
        """Every slot is gone now: remove what they still wrote for snapshots that were given up."""
        self._refuse_wanted("The job has ended.")
        if self.fenced:
            return
        for request in self.coordinator.aborted_savepoints():
            spent = Discard(None, savepoint=request)
            self._worker.call(discard, self._storage_plan.savepoints, self.layout, spent)
        if self._discarded:
            self._worker.call(discard_job, self._storage, self.layout)
        elif self._settings.checkpointing.enabled:
            self._discard_leftovers()

    def _discard_leftovers(self) -> None:
        """Remove what a crash left of checkpoints that never completed or were about to be deleted."""
        if self._newest_vanished():
            _log.warning("Nothing is swept in %s: the newest checkpoint is not there.", self.layout.directory)
            return
        spent, needed = self.coordinator.is_spent, self.coordinator.needs_shared_file
        try:
            self._worker.call(discard_spent, self._storage, self.layout, spent, needed)
        except StorageError as exc:
            _log.warning("Leftovers of failed checkpoints stay behind: %s", exc)

    def _carry_out(self, command: Command, *, wait: bool = True) -> Event | None:
        match command:
            case TriggerBarrier():
                return self._trigger(command)
            case WriteMetadata():
                return self._write_metadata(command)
            case NotifyComplete():
                return self._complete(command)
            case NotifyAborted():
                self._effects.abort(command.checkpoint_id)
                if command.savepoint is None:
                    self._answer_wanted(command.checkpoint_id, command)
                if command.savepoint is not None:
                    self._fail_savepoint(command.savepoint, command.reason, command.message)
                elif command.reason.counts_as_failure:
                    _log.warning("Checkpoint %s failed: %s", command.checkpoint_id, command.message)
            case RejectSavepoint():
                self._fail_savepoint(command.request, command.reason, command.message)
            case Discard() | DiscardJob() if self.fenced:
                _log.info("Another driver owns the sinks and may depend on our snapshots; they stay.")
            case Discard():
                self._effects.reached("retention")
                storage = self._storage_plan.savepoints if command.savepoint is not None else self._storage
                (self._worker.call if wait else self._worker.post)(discard, storage, self.layout, command)
            case DiscardJob():
                self._discarded = True
                self._worker.call(discard_job, self._storage, self.layout)
            case FailJob():
                raise command.error
        return None

    def _location(self, checkpoint_id: int, savepoint: SavepointRequest | None) -> SnapshotLocation:
        if savepoint is not None:
            return savepoint_location(savepoint.directory)
        return self.layout.checkpoint(checkpoint_id)

    def _trigger(self, command: TriggerBarrier) -> Event | None:
        request = CutRequest(
            command.checkpoint_id,
            command.timestamp,
            self._location(command.checkpoint_id, command.savepoint),
            # Shared files need a place; checkpoints in the driver's memory have none.
            incremental=self._backend.incremental
            and command.savepoint is None
            and (self._canonical_from is None or command.checkpoint_id < self._canonical_from)
            and self._storage_plan.driver is self._storage_plan.savepoints,
            base=self._usable_base(command),
            savepoint=command.savepoint is not None,
            synchronous=not self._backend.asynchronous,
        )
        return self._effects.cut(request)

    def _usable_base(self, command: TriggerBarrier) -> int | None:
        """The checkpoint slots may refer to; None if its files are gone, so that everything is written anew."""
        if command.base is None or not self._newest_vanished():
            return command.base
        _log.warning(
            "Checkpoint %s of job %s has vanished from %s: somebody has moved or deleted files there. The job "
            "cannot be restored until the next checkpoint is complete; snapshot %s is written in full.",
            command.base,
            self._plan.job_id,
            self.layout.directory,
            command.checkpoint_id,
        )
        return None

    def _newest_vanished(self) -> bool:
        """Whether the newest checkpoint is known to be gone; not if the storage gives no answer."""
        newest = self.coordinator.completed.latest_checkpoint()
        if newest is None:
            return False
        try:
            return self._worker.call(
                has_vanished, self._storage, self._storage_plan.savepoints, newest, self.layout.shared
            )
        except StorageError as exc:
            _log.warning("Checkpoint %s cannot be looked up: %s", newest.checkpoint_id, exc)
            return False

    def _write_metadata(self, command: WriteMetadata) -> Event:
        barrier = self._effects.driver_state(command.checkpoint_id)
        by_uid = {vertex.uid: vertex for vertex in self._plan.in_slots()}
        metadata = CheckpointMetadata(
            checkpoint_id=command.checkpoint_id,
            timestamp=command.timestamp,
            job_id=self._plan.job_id,
            job_name=self._plan.job_name,
            is_savepoint=command.savepoint is not None,
            source_positions=barrier.positions,
            sink_commits=barrier.commits,
            watermarks=barrier.watermarks,
            partition_marks=barrier.partition_marks,
            properties={"epoch": str(barrier.epoch)},
            lineage=barrier.lineage,
            operators=tuple(
                OperatorState(
                    uid,
                    by_uid[uid].name,
                    by_uid[uid].parallelism,
                    by_uid[uid].max_parallelism,
                    tuple(states),
                )
                for uid, states in command.states.items()
            ),
        )
        location = self._location(command.checkpoint_id, command.savepoint)
        storage = self._storage_plan.savepoints if command.savepoint is not None else self._storage
        self._effects.reached("before-metadata")
        try:
            self._effects.verify_claims()
            missing = self._worker.call(self._publish, storage, location, metadata)
        except StorageError as exc:
            return StorageFailed(command.checkpoint_id, str(exc))
        if missing:
            message = (
                f"{len(missing)} of the files it refers to are gone, the first is {missing[0]}: somebody has "
                "moved or deleted the checkpoint directory. The next checkpoint is written in full."
            )
            return StorageFailed(command.checkpoint_id, message, vanished=True)
        digest = self._worker.call(digest_of, metadata)
        origin = Origin.CHECKPOINT if command.savepoint is None else Origin.SAVEPOINT
        try:
            self._effects.announce(
                CompletedSnapshot(
                    command.checkpoint_id, location.directory, origin, metadata.timestamp, digest=digest
                )
            )
        except StorageError as exc:
            return StorageFailed(command.checkpoint_id, str(exc))
        return MetadataWritten(command.checkpoint_id, location.directory, digest)

    def _publish(
        self, storage: Storage, location: SnapshotLocation, metadata: CheckpointMetadata
    ) -> list[str]:
        """Write the metadata; tells which of the snapshot's files are not there, itself among them."""
        write_metadata(storage, location.directory, metadata)
        # Looked for behind the write: a directory that is moved away just before would be made again by it.
        subtasks = [subtask for operator in metadata.operators for subtask in operator.subtasks]
        missing = missing_files(self._storage_plan.savepoints, location, subtasks)
        if not storage.is_file(location.metadata_path):
            missing.append(location.metadata_path)
        return missing

    def _complete(self, command: NotifyComplete) -> Event:
        try:
            self._effects.reached("after-metadata")
            self._effects.complete(command.checkpoint_id)
        finally:
            # The snapshot is durable, whatever happens to the attempt now.
            if command.savepoint is not None:
                self.took_savepoint = True
                self._savepoints.pop(command.savepoint.request_id).set_result(command.directory)
            else:
                self._answer_wanted(command.checkpoint_id)
        if self._former_runs and command.savepoint is None:
            # Nobody goes back behind a checkpoint of this driver's own any more.
            self._former_runs = False
            self._worker.call(discard_former_runs, self._storage, self.layout)
        return SinksCommitted(command.checkpoint_id)

    def _answer_wanted(self, checkpoint_id: int, aborted: NotifyAborted | None = None) -> None:
        """A checkpoint has ended: tell those who waited for it."""
        waiting, self._wanted = self._wanted, []
        for wanted, future in waiting:
            if checkpoint_id < wanted:
                self._wanted.append((wanted, future))
            elif aborted is None:
                future.set_result(str(checkpoint_id))
            else:
                future.set_exception(
                    CheckpointError(aborted.message, reason=aborted.reason, checkpoint_id=checkpoint_id)
                )

    def _refuse_wanted(self, message: str) -> None:
        waiting, self._wanted = self._wanted, []
        for _wanted, future in waiting:
            future.set_exception(CheckpointError(message, reason=FailureReason.NOT_RUNNING))

    def _fail_savepoint(self, request: SavepointRequest, reason: FailureReason, message: str) -> None:
        future = self._savepoints.pop(request.request_id, None)
        if future is not None:
            future.set_exception(
                CheckpointError(f"The savepoint to '{request.directory}' failed: {message}", reason=reason)
            )
