"""What a job does for its checkpoint coordinator: barriers, metadata, commits, deletions.

The coordinator decides, purely, from events; its commands are carried out here, in order, and what comes of
them are its next events. The commit point of a snapshot is `write_metadata`; sinks commit behind it, once all
that the metadata names was seen in the storage.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.coordinator import CheckpointCoordinator, CoordinatorSettings
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
    MetadataWritten,
    NotifyAborted,
    NotifyComplete,
    RejectSavepoint,
    SavepointRequest,
    SavepointRequested,
    SlotDeclined,
    StorageFailed,
    TriggerBarrier,
    WriteMetadata,
)
from tidemark.checkpoint.metadata.model import CheckpointMetadata, OperatorState
from tidemark.checkpoint.metadata.registry import write_metadata
from tidemark.checkpoint.presence import has_vanished, missing_files
from tidemark.checkpoint.retention import discard, discard_job, discard_spent, mark_quarantined
from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import CheckpointError, FailureReason, StorageError
from tidemark.futures import CompletableFuture
from tidemark.protocol.deployment import BackendChoice
from tidemark.protocol.frames import CutRequest
from tidemark.runtime.storage import StoragePlan

if TYPE_CHECKING:
    from tidemark.runtime.execution import JobExecution

__all__ = ["JobSnapshots"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Barrier:
    """What the driver itself contributes to a snapshot, as of its barrier."""

    positions: dict[str, bytes]
    commits: dict[str, bytes]
    watermarks: dict[str, int]
    partition_marks: dict[str, bytes]
    epoch: int


class JobSnapshots:
    """Checkpoints and savepoints of one job, over all its attempts.

    Attributes:
        coordinator: Decides; told everything that happens through `handle`.
        layout: Where the job's checkpoints lie.
    """

    def __init__(
        self,
        job: JobExecution,
        storage: StoragePlan,
        backend: BackendChoice,
        restored: CompletedSnapshot | None,
    ) -> None:
        """Serve `job`, which starts from `restored` if it starts from a savepoint."""
        self._job = job
        self._storage_plan = storage
        self._storage: Storage = storage.driver
        self._backend = backend
        self.layout = JobLayout.create(storage.root, job.job_id)
        self._savepoints: dict[str, CompletableFuture[str]] = {}
        self._requests = itertools.count()
        self._barriers: dict[int, _Barrier] = {}
        self.took_savepoint = False
        """Whether a savepoint of this job has completed."""
        self._postponed: list[WriteMetadata] = []
        """Snapshots that every slot acknowledged while something else was under way."""
        self._discarded = False
        """Whether the job's checkpoints have been deleted for good."""
        checkpointing = job.settings.checkpointing
        self.coordinator = CheckpointCoordinator(
            CoordinatorSettings(
                interval=checkpointing.interval if checkpointing.enabled else None,
                timeout=checkpointing.timeout,
                min_pause=checkpointing.min_pause,
                max_concurrent=checkpointing.max_concurrent,
                tolerable_failures=checkpointing.tolerable_failures,
                num_retained=checkpointing.num_retained,
                retention=checkpointing.retention,
            ),
            restored_from=restored,
        )

    def handle(self, event: Event) -> None:
        """Tell the coordinator, and carry out what it says, and what it says to that.

        Raises:
            CheckpointError: More checkpoints have failed than the job tolerates.
            Whatever a sink, a source, an engine or a listener raises on the way; it fails the attempt.
        """
        now = self._job.clock.now
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

        Raises:
            CheckpointError: More checkpoints have failed than the job tolerates.
        """
        for command in self.coordinator.handle(event, self._job.clock.now()):
            if isinstance(command, WriteMetadata):
                self._postponed.append(command)
            else:
                self._carry_out(command)

    def request_savepoint(self, target: str | None) -> CompletableFuture[str]:
        """Ask for a savepoint at the next barrier; the future gets its directory.

        Raises:
            ConfigError: No directory was given and none is configured.
        """
        settings = self._job.settings
        directory = new_savepoint_directory(target or settings.savepoint_directory, self._job.job_id)
        request = SavepointRequest(f"savepoint-{next(self._requests)}", directory)
        future: CompletableFuture[str] = CompletableFuture()
        self._savepoints[request.request_id] = future
        self.handle(SavepointRequested(request))
        return future

    def quarantine(self, snapshot: CompletedSnapshot, problem: str) -> None:
        """A completed snapshot is damaged: keep it, say so, and do not restore from it again."""
        _log.error(
            "%s %s cannot be used and is kept in quarantine at %s: %s",
            snapshot.origin.value.capitalize(),
            snapshot.checkpoint_id,
            snapshot.directory,
            problem,
        )
        self.coordinator.quarantine(snapshot.checkpoint_id, problem)
        if snapshot.origin is Origin.CHECKPOINT:
            mark_quarantined(self._storage, snapshot.directory, problem)

    def new_attempt(self) -> None:
        """Nothing that an earlier attempt has begun can complete; a crash may have left files of it."""
        self._barriers.clear()
        if self._job.attempt and self._job.settings.checkpointing.enabled:
            self._discard_leftovers()

    def sweep(self) -> None:
        """Every slot is gone now: remove what they still wrote for snapshots that were given up."""
        if self._job.fenced:
            return
        for request in self.coordinator.aborted_savepoints():
            discard(self._storage_plan.savepoints, self.layout, Discard(None, savepoint=request))
        if self._discarded:
            discard_job(self._storage, self.layout)
        elif self._job.settings.checkpointing.enabled:
            self._discard_leftovers()

    def _discard_leftovers(self) -> None:
        """Remove what a crash left of checkpoints that never completed or were about to be deleted."""
        if self._newest_vanished():
            _log.warning("Nothing is swept in %s: the newest checkpoint is not there.", self.layout.directory)
            return
        spent, needed = self.coordinator.is_spent, self.coordinator.needs_shared_file
        try:
            discard_spent(self._storage, self.layout, spent, needed)
        except StorageError as exc:
            _log.warning("Leftovers of failed checkpoints stay behind: %s", exc)

    def _carry_out(self, command: Command) -> Event | None:
        match command:
            case TriggerBarrier():
                return self._trigger(command)
            case WriteMetadata():
                return self._write_metadata(command)
            case NotifyComplete():
                self._complete(command)
            case NotifyAborted():
                self._barriers.pop(command.checkpoint_id, None)
                self._job.engine.notify_aborted(command.checkpoint_id)
                if command.savepoint is not None:
                    self._fail_savepoint(command.savepoint, command.reason, command.message)
                elif command.reason.counts_as_failure:
                    _log.warning("Checkpoint %s failed: %s", command.checkpoint_id, command.message)
            case RejectSavepoint():
                self._fail_savepoint(command.request, command.reason, command.message)
            case Discard() | DiscardJob() if self._job.fenced:
                _log.info("Another driver owns the sinks and may depend on our snapshots; they stay.")
            case Discard():
                self._job.reached("retention")
                storage = self._storage_plan.savepoints if command.savepoint is not None else self._storage
                discard(storage, self.layout, command)
            case DiscardJob():
                self._discarded = True
                discard_job(self._storage, self.layout)
            case FailJob():
                raise command.error
        return None

    def _location(self, checkpoint_id: int, savepoint: SavepointRequest | None) -> SnapshotLocation:
        if savepoint is not None:
            return savepoint_location(savepoint.directory)
        return self.layout.checkpoint(checkpoint_id)

    def _trigger(self, command: TriggerBarrier) -> Event | None:
        positions = {
            self._job.plan.vertices[key].uid: msgspec.msgpack.encode(position)
            for key, source in self._job.sources.items()
            if (position := source.position()) is not None
        }
        commits = {
            self._job.plan.vertices[key].uid: data
            for key, sink in self._job.sinks.items()
            if (data := sink.prepare(command.checkpoint_id))
        }
        self._barriers[command.checkpoint_id] = _Barrier(
            positions,
            commits,
            self._job.watermarks.marks(),
            self._job.watermarks.partition_marks(),
            self._job.epoch,
        )
        request = CutRequest(
            command.checkpoint_id,
            command.timestamp,
            self._location(command.checkpoint_id, command.savepoint),
            # Shared files need a place; checkpoints in the driver's memory have none.
            incremental=self._backend.incremental
            and command.savepoint is None
            and self._storage_plan.driver is self._storage_plan.savepoints,
            base=self._usable_base(command),
            savepoint=command.savepoint is not None,
            synchronous=not self._backend.asynchronous,
        )
        for slot, outcome in self._job.engine.cut(request):
            if isinstance(outcome, BaseException):
                reason = getattr(outcome, "reason", FailureReason.DECLINED)
                return SlotDeclined(command.checkpoint_id, slot, reason, str(outcome))
        self._job.reached("barrier")
        return None

    def _usable_base(self, command: TriggerBarrier) -> int | None:
        """The checkpoint slots may refer to; None if its files are gone, so that everything is written anew."""
        if command.base is None or not self._newest_vanished():
            return command.base
        _log.warning(
            "Checkpoint %s of job %s has vanished from %s: somebody has moved or deleted files there. The job "
            "cannot be restored until the next checkpoint is complete; snapshot %s is written in full.",
            command.base,
            self._job.job_id,
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
            return has_vanished(self._storage, self._storage_plan.savepoints, newest, self.layout.shared)
        except StorageError as exc:
            _log.warning("Checkpoint %s cannot be looked up: %s", newest.checkpoint_id, exc)
            return False

    def _write_metadata(self, command: WriteMetadata) -> Event:
        barrier = self._barriers[command.checkpoint_id]
        by_uid = {vertex.uid: vertex for vertex in self._job.plan.in_slots()}
        metadata = CheckpointMetadata(
            checkpoint_id=command.checkpoint_id,
            timestamp=command.timestamp,
            job_id=self._job.job_id,
            job_name=self._job.settings.job_name,
            is_savepoint=command.savepoint is not None,
            source_positions=barrier.positions,
            sink_commits=barrier.commits,
            watermarks=barrier.watermarks,
            partition_marks=barrier.partition_marks,
            properties={"epoch": str(barrier.epoch)},
            lineage=self._job.lineage,
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
        self._job.reached("before-metadata")
        try:
            for sink in self._job.sinks.values():
                sink.verify_claim()
            write_metadata(storage, location.directory, metadata)
            # Looked for behind the write: a directory that is moved away just before would be made again by it.
            subtasks = [state for states in command.states.values() for state in states]
            missing = missing_files(self._storage_plan.savepoints, location, subtasks)
            if not storage.is_file(location.metadata_path):
                missing.append(location.metadata_path)
        except StorageError as exc:
            return StorageFailed(command.checkpoint_id, str(exc))
        if missing:
            message = (
                f"{len(missing)} of the files it refers to are gone, the first is {missing[0]}: somebody has "
                "moved or deleted the checkpoint directory. The next checkpoint is written in full."
            )
            return StorageFailed(command.checkpoint_id, message, vanished=True)
        return MetadataWritten(command.checkpoint_id, location.directory)

    def _complete(self, command: NotifyComplete) -> None:
        self._barriers.pop(command.checkpoint_id, None)
        try:
            self._job.reached("after-metadata")
            for sink in self._job.sinks.values():
                self._job.engine.worker.call(sink.commit, command.checkpoint_id)
                self._job.reached("commit")
            self._job.engine.notify_complete(command.checkpoint_id)
            self._job.reached("notify")
            for source in self._job.sources.values():
                source.notify_checkpoint_complete(command.checkpoint_id)
        finally:
            # The snapshot is durable, whatever happens to the attempt now.
            if command.savepoint is not None:
                self.took_savepoint = True
                self._savepoints.pop(command.savepoint.request_id).set_result(command.directory)

    def _fail_savepoint(self, request: SavepointRequest, reason: FailureReason, message: str) -> None:
        future = self._savepoints.pop(request.request_id, None)
        if future is not None:
            future.set_exception(
                CheckpointError(f"The savepoint to '{request.directory}' failed: {message}", reason=reason)
            )
