"""One job, step by step: attempts, epochs, barriers. Decides nothing about time or threads.

`JobExecution` carries the commands of the checkpoint coordinator out and turns what engines, sources and
slots say into its events. A loop on top of it (`runtime.runner`) or a script (`testing.scripts`) says when
the next step is taken.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph, NodeKind
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.coordinator import CheckpointCoordinator, CoordinatorSettings
from tidemark.checkpoint.layout import (
    JobLayout,
    SnapshotLocation,
    new_savepoint_directory,
    savepoint_location,
)
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
    RejectSavepoint,
    SavepointRequest,
    SavepointRequested,
    SlotAcknowledged,
    SlotDeclined,
    Started,
    StorageFailed,
    Tick,
    TriggerBarrier,
    WriteMetadata,
)
from tidemark.checkpoint.metadata.model import CheckpointMetadata, OperatorState
from tidemark.checkpoint.metadata.registry import read_metadata, write_metadata
from tidemark.checkpoint.retention import discard, discard_job, discard_unfinished
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.errors import (
    CheckpointError,
    FailureReason,
    MetadataError,
    RestoreError,
    SavepointNotFoundError,
    SlotLostError,
    StorageError,
)
from tidemark.futures import CompletableFuture
from tidemark.runtime.engine import Engine, EpochResult, EpochWork, TaskInput
from tidemark.runtime.pipeline import EpochDirective
from tidemark.runtime.plan import build_plan
from tidemark.runtime.progress import Progress, add_numbers
from tidemark.runtime.restoration import deployments, open_savepoint
from tidemark.runtime.sinks.driver import DriverSink
from tidemark.runtime.sources.driver import Source
from tidemark.runtime.storage import StoragePlan
from tidemark.runtime.watermarks import WatermarkTracker
from tidemark.slot.deploy import BackendChoice, Deployment
from tidemark.slot.host import CutRequest
from tidemark.slot.vertex import dump_functions

__all__ = ["CRASH_POINTS", "JobExecution", "JobParts"]

CRASH_POINTS = (
    "epoch",
    "barrier",
    "before-metadata",
    "after-metadata",
    "commit",
    "notify",
    "retention",
    "restore",
)
"""Where a crash leaves something behind (ARCHITECTURE.md, crash points): an epoch processed but not taken; slots
cut but nothing written; files without metadata; metadata without commit; sinks committed in part; slots notified
but sources not; a checkpoint half deleted; slots restored but sources not rewound."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobParts:
    """What makes a job concrete: how sources and sinks of its kind are built."""

    make_source: Callable[[Any], Source]
    make_sink: Callable[[Any], DriverSink]


@dataclass(frozen=True, slots=True)
class _Barrier:
    """What the driver itself contributes to a snapshot, as of its barrier."""

    positions: dict[str, bytes]
    commits: dict[str, bytes]
    watermarks: dict[str, int]
    epoch: int


class JobExecution:
    """A job over all its attempts."""

    def __init__(
        self,
        graph: Graph,
        settings: JobSettings,
        job_id: str,
        engine: Engine,
        parts: Callable[[JobExecution], JobParts],
        clock: Clock,
        storage: StoragePlan,
        backend: BackendChoice,
    ) -> None:
        """Prepare a job; nothing runs yet.

        Raises:
            RestoreError: The savepoint to start from is missing, damaged or does not fit the job.
        """
        self.settings = settings
        self.job_id = str(job_id)
        self.engine = engine
        self.clock = clock
        self.progress = Progress()
        self.plan = build_plan(graph, settings, job_id)
        self._storage_plan = storage
        self._storage: Storage = storage.driver
        self._backend = backend
        self._layout = JobLayout.create(storage.root, job_id)
        self._savepoints: dict[str, CompletableFuture[str]] = {}
        self._requests = itertools.count()
        self._barriers: dict[int, _Barrier] = {}
        self._timers: dict[tuple[int, int], int | None] = {}
        self._epoch = 0
        self._discarded = False
        """Whether the job's checkpoints have been deleted for good."""
        self._catch_up = False
        """Restored slots have not said yet when their processing-time timers are due."""
        self.attempt = -1
        self.on_input: Callable[[], None] = lambda: None
        """Called, from any thread, when a source has something to read."""
        self.reached: Callable[[str], None] = lambda _point: None
        """Called at every crash point; tests raise here."""
        self.paused = False
        """While set, sources are not read: the job is about to stop."""
        self.plan, restored = open_savepoint(self.plan, graph, settings, storage.savepoints)
        checkpointing = settings.checkpointing
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
        self._functions = dump_functions(self.plan.in_slots())
        self.watermarks = WatermarkTracker(self.plan)
        made = parts(self)
        self.sources = {v.id: made.make_source(v) for v in self.plan.of_kind(NodeKind.SOURCE)}
        self.sinks = {
            v.id: made.make_sink(v) for v in self.plan.of_kind(NodeKind.SINK) if v.placement.value == "task"
        }

    # Attempts

    def start_attempt(self) -> None:
        """Bring slots, sources and sinks to the newest usable snapshot, or to the beginning.

        Raises:
            RestoreError: There are completed snapshots, but none can be read, or it does not fit the job.
        """
        self.attempt += 1
        self.progress.attempt = self.attempt
        self.engine.start(self.plan, self.attempt)
        snapshot, metadata = self._deploy_newest()
        self.reached("restore")
        self._timers.clear()
        self._barriers.clear()
        self._catch_up = snapshot is not None
        if metadata is not None:
            # Replayed epochs carry their old numbers, so that a writer can replace what it wrote for them.
            self._epoch = int(metadata.properties.get("epoch", self._epoch))
        for vertex_id, source in self.sources.items():
            uid = self.plan.vertices[vertex_id].uid
            data = metadata.source_positions.get(uid) if metadata is not None else None
            source.start(msgspec.msgpack.decode(data) if data else None)
        for vertex_id, sink in self.sinks.items():
            uid = self.plan.vertices[vertex_id].uid
            prepared = metadata.sink_commits.get(uid, b"") if metadata is not None else b""
            sink.restore(None if snapshot is None else snapshot.checkpoint_id, prepared)
        if self.attempt and self.settings.checkpointing.enabled:
            self._discard_leftovers()
        self._carry_out(Started(frozenset(range(self.plan.slots))))
        self.progress.first_checkpoint = self.coordinator.next_checkpoint_id
        self.progress.restored_from = None if snapshot is None else snapshot.checkpoint_id
        if snapshot is not None:
            self.coordinator.restored(snapshot.checkpoint_id)

    def abandon_attempt(self) -> None:
        """The attempt failed: nothing pending can complete any more, sources stop."""
        self._carry_out(JobRestarting())
        for source in self.sources.values():
            source.stop()

    def _discard_leftovers(self) -> None:
        """Remove what a crash left of checkpoints that never completed or were about to be deleted."""
        kept = {snapshot.checkpoint_id for snapshot in self.coordinator.completed.checkpoints()}
        try:
            discard_unfinished(self._storage, self._layout, kept, self.coordinator.needs_shared_file)
        except StorageError as exc:
            _log.warning("Leftovers of failed checkpoints stay behind: %s", exc)

    # Steps

    def poll(self) -> EpochWork | None:
        """Work for the next epoch, or None if nothing is to be done now."""
        now = self.clock.now()
        self._observe_sources()
        self.watermarks.tick(now)
        if self._catch_up:
            # What became due while the job was down fires before anything is read.
            self._catch_up = False
            return EpochWork(EpochDirective(self.attempt, self._epoch, self.watermarks.directive()))
        inputs: list[TaskInput] = []
        frames: dict[int, Any] = {}
        for vertex_id, source in self.sources.items():
            polled = None if self.paused else source.poll()
            if polled is None:
                continue
            inputs += [TaskInput(vertex_id, at, split) for at, split in polled.numbered()]
            if polled.dataframe is not None:
                frames[vertex_id] = polled.dataframe
        due = self.next_timer()
        if not inputs and not frames and not self.watermarks.travelling() and (due is None or due > now):
            return None
        return EpochWork(
            EpochDirective(self.attempt, self._epoch, self.watermarks.directive()), inputs, frames
        )

    def run_epoch(self, work: EpochWork) -> None:
        """Run one epoch and take what came out of it.

        Raises:
            ExecutionError: User code, a task, a worker or a slot failed; the attempt is over.
        """
        started = time.perf_counter()
        result = self.engine.run_epoch(work)
        self.reached("epoch")
        try:
            self._take(work, result)
        finally:
            result.release()
        self.progress.epoch = self._epoch
        self.progress.watermark = self.watermarks.lowest()
        self.progress.last_epoch_ms = (time.perf_counter() - started) * 1000
        self._epoch += 1

    def _take(self, work: EpochWork, result: EpochResult) -> None:
        failed = [report.failure for report in result.reports if report.failure is not None]
        if failed:
            # A slot that refuses further frames is a consequence; the first real failure is the cause.
            failed.sort(key=lambda info: info.summary.startswith("StaleChannel"))
            raise failed[0].error(self._epoch, self.job_id)
        positions: dict[int, dict[int, Any]] = {}
        for report in result.reports:
            self.progress.records += report.records_in
            if report.position is not None:
                positions.setdefault(report.source, {})[report.partition] = report.position
            add_numbers(self.progress.task_metrics, report.metrics)
            for vertex, count in report.records_out.items():
                self.progress.records_out[vertex] = self.progress.records_out.get(vertex, 0) + count
        self._timers.update(_next_timers(result))
        self.watermarks.epoch_done(work.directive.watermarks)
        self.watermarks.observe(result.reports, self.clock.now())
        for vertex_id in {task.source for task in work.inputs} | set(work.dataframes):
            self.sources[vertex_id].advanced(positions.get(vertex_id, {}))
        self._observe_sources()
        self._deliver(result)

    def _deliver(self, result: EpochResult) -> None:
        from tidemark.runtime.sinks.task import row_tag

        for vertex_id, sink in self.sinks.items():
            staged = [file for report in result.reports for file in report.staged.get(vertex_id, ())]
            frame = result.frames.get(vertex_id)
            rows = result.rows.get(row_tag(vertex_id), [])
            sink.take(rows, [frame] if frame is not None else staged, self._epoch)
            if not self.settings.checkpointing.enabled:
                sink.finish()

    def barrier(self) -> None:
        """No record is in flight now: let a due checkpoint or savepoint start."""
        self._carry_out(BarrierReached())

    def tick(self) -> None:
        """Take what slots said since the last call, and let timeouts pass.

        Raises:
            SlotLostError: A slot died.
        """
        for event in self.engine.events():
            match event.kind:
                case "written":
                    checkpoint_id, states, async_ms = event.payload
                    sync_ms = sum(state.sync_ms for state in states.values())
                    self._carry_out(SlotAcknowledged(checkpoint_id, event.slot, states, sync_ms, async_ms))
                case "declined":
                    checkpoint_id, reason, message = event.payload
                    self._carry_out(SlotDeclined(checkpoint_id, event.slot, FailureReason[reason], message))
                case "lost":
                    raise SlotLostError(f"Slot {event.slot} is gone: {event.payload}", slot=event.slot)
        self._carry_out(Tick())

    def next_timer(self) -> int | None:
        """When the earliest processing-time timer of any slot is due."""
        return min((due for due in self._timers.values() if due is not None), default=None)

    @property
    def finished(self) -> bool:
        """Whether all input has been read and its end has passed every operator."""
        return self.watermarks.finished()

    def drain(self) -> None:
        """Let every source end here (stop with drain)."""
        self.watermarks.end_all()

    # Savepoints and the end

    def request_savepoint(self, target: str | None) -> CompletableFuture[str]:
        """Ask for a savepoint at the next barrier; the future gets its directory.

        Raises:
            ConfigError: No directory was given and none is configured.
        """
        directory = new_savepoint_directory(target or self.settings.savepoint_directory, self.job_id)
        request = SavepointRequest(f"savepoint-{next(self._requests)}", directory)
        future: CompletableFuture[str] = CompletableFuture()
        self._savepoints[request.request_id] = future
        self._carry_out(SavepointRequested(request))
        return future

    def request_checkpoint(self) -> None:
        """Let a checkpoint be due now, whatever the interval says."""
        self.coordinator.request_checkpoint(self.clock.now())

    def end(self, how: JobEnd) -> None:
        """The job is over: last commits, retention, release. The engine is stopped by its owner."""
        newest = self.coordinator.completed.latest()
        for sink in self.sinks.values():
            if how is JobEnd.FINISHED:
                sink.finish()
            elif newest is not None:
                # The attempt may have failed between the commit point and the commit.
                sink.commit(newest.checkpoint_id)
        for source in self.sources.values():
            source.stop()
        for sink in self.sinks.values():
            sink.close()
        self._carry_out(JobEnded(how))

    def sweep(self) -> None:
        """Every slot is gone now: remove what they still wrote for snapshots that were given up."""
        for request in self.coordinator.aborted_savepoints():
            discard(self._storage_plan.savepoints, self._layout, Discard(None, savepoint=request))
        if self._discarded:
            discard_job(self._storage, self._layout)
        elif self.settings.checkpointing.enabled:
            self._discard_leftovers()

    @property
    def asynchronous(self) -> bool:
        """Whether snapshots are written while the next epochs run."""
        return self._backend.asynchronous

    def accumulators(self) -> dict[str, Any]:
        """Numeric metrics of the user's functions, summed over subtasks, as of the last statistics."""
        merged = dict(self.progress.task_metrics)
        add_numbers(merged, self.progress.metrics)
        return merged

    def refresh_statistics(self) -> list[dict[str, Any]]:
        """Ask every slot for its statistics and remember its metrics."""
        stats = self.engine.stats()
        merged: dict[str, Any] = {}
        for slot in stats:
            add_numbers(merged, slot["metrics"])
        self.progress.metrics = merged
        return stats

    # Commands

    def _carry_out(self, event: Event) -> None:
        commands: list[Command] = self.coordinator.handle(event, self.clock.now())
        while commands:
            command = commands.pop(0)
            answer = self._one(command)
            if answer is not None:
                commands += self.coordinator.handle(answer, self.clock.now())

    def _one(self, command: Command) -> Event | None:
        match command:
            case TriggerBarrier():
                return self._trigger(command)
            case WriteMetadata():
                return self._write_metadata(command)
            case NotifyComplete():
                self._complete(command)
            case NotifyAborted():
                self._barriers.pop(command.checkpoint_id, None)
                self.engine.notify_aborted(command.checkpoint_id)
                if command.savepoint is not None:
                    self._fail_savepoint(command.savepoint, command.reason, command.message)
                elif command.reason.counts_as_failure:
                    _log.warning("Checkpoint %s failed: %s", command.checkpoint_id, command.message)
            case RejectSavepoint():
                self._fail_savepoint(command.request, command.reason, command.message)
            case Discard():
                self.reached("retention")
                storage = self._storage_plan.savepoints if command.savepoint is not None else self._storage
                discard(storage, self._layout, command)
            case DiscardJob():
                self._discarded = True
                discard_job(self._storage, self._layout)
            case FailJob():
                raise command.error
        return None

    def _location(self, checkpoint_id: int, savepoint: SavepointRequest | None) -> SnapshotLocation:
        if savepoint is not None:
            return savepoint_location(savepoint.directory)
        return self._layout.checkpoint(checkpoint_id)

    def _trigger(self, command: TriggerBarrier) -> Event | None:
        positions = {
            self.plan.vertices[key].uid: msgspec.msgpack.encode(position)
            for key, source in self.sources.items()
            if (position := source.position()) is not None
        }
        commits = {
            self.plan.vertices[key].uid: data
            for key, sink in self.sinks.items()
            if (data := sink.prepare(command.checkpoint_id))
        }
        self._barriers[command.checkpoint_id] = _Barrier(
            positions, commits, self.watermarks.marks(), self._epoch
        )
        request = CutRequest(
            command.checkpoint_id,
            command.timestamp,
            self._location(command.checkpoint_id, command.savepoint),
            incremental=self._backend.incremental and command.savepoint is None,
            base=command.base,
            savepoint=command.savepoint is not None,
            synchronous=not self._backend.asynchronous,
        )
        for slot, outcome in self.engine.cut(request):
            if isinstance(outcome, BaseException):
                reason = getattr(outcome, "reason", FailureReason.DECLINED)
                return SlotDeclined(command.checkpoint_id, slot, reason, str(outcome))
        self.reached("barrier")
        return None

    def _write_metadata(self, command: WriteMetadata) -> Event:
        barrier = self._barriers[command.checkpoint_id]
        by_uid = {vertex.uid: vertex for vertex in self.plan.in_slots()}
        metadata = CheckpointMetadata(
            checkpoint_id=command.checkpoint_id,
            timestamp=command.timestamp,
            job_id=self.job_id,
            job_name=self.settings.job_name,
            is_savepoint=command.savepoint is not None,
            source_positions=barrier.positions,
            sink_commits=barrier.commits,
            watermarks=barrier.watermarks,
            properties={"epoch": str(barrier.epoch)},
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
        self.reached("before-metadata")
        try:
            write_metadata(storage, location.directory, metadata)
        except StorageError as exc:
            return StorageFailed(command.checkpoint_id, str(exc))
        return MetadataWritten(command.checkpoint_id, location.directory)

    def _complete(self, command: NotifyComplete) -> None:
        self._barriers.pop(command.checkpoint_id, None)
        try:
            self.reached("after-metadata")
            for sink in self.sinks.values():
                sink.commit(command.checkpoint_id)
                self.reached("commit")
            self.engine.notify_complete(command.checkpoint_id)
            self.reached("notify")
            for source in self.sources.values():
                source.notify_checkpoint_complete(command.checkpoint_id)
        finally:
            # The snapshot is durable, whatever happens to the attempt now.
            if command.savepoint is not None:
                self._savepoints.pop(command.savepoint.request_id).set_result(command.directory)

    def _fail_savepoint(self, request: SavepointRequest, reason: FailureReason, message: str) -> None:
        future = self._savepoints.pop(request.request_id, None)
        if future is not None:
            future.set_exception(
                CheckpointError(f"The savepoint to '{request.directory}' failed: {message}", reason=reason)
            )

    # Restoring

    def _deploy_newest(self) -> tuple[CompletedSnapshot | None, CheckpointMetadata | None]:
        """Deploy with the newest snapshot that can be read, and return it; without any if there never was one."""
        problems: list[str] = []
        for candidate in self.coordinator.completed.candidates():
            storage = self._storage_plan.for_directory(candidate.directory)
            try:
                metadata = read_metadata(storage, candidate.directory)
                self._deploy(candidate, metadata)
                return candidate, metadata
            except (StorageError, SavepointNotFoundError, MetadataError) as exc:
                problems.append(f"{candidate.directory}: {exc}")
                if candidate.origin is not Origin.EXTERNAL:
                    _log.warning("Checkpoint %s cannot be used: %s", candidate.checkpoint_id, exc)
                    self.coordinator.completed.forget(candidate.checkpoint_id)
        if problems:
            # Starting from nothing would apply every record a second time.
            raise RestoreError("None of the job's snapshots can be restored. " + " ".join(problems))
        self._deploy(None, None)
        return None, None

    def _deploy(self, snapshot: CompletedSnapshot | None, metadata: CheckpointMetadata | None) -> None:
        self.watermarks = WatermarkTracker(self.plan)
        marks = {} if metadata is None else self.watermarks.restore(metadata.watermarks)
        common = Deployment(
            job_id=self.job_id,
            attempt=self.attempt,
            slot=0,
            vertices=self._functions,
            backend=self._backend,
            storage=self._storage_plan.choice,
            batch_mode=self.plan.batch_mode,
            queryable=self._storage_plan.queryable,
            job_parameters=self.plan.job_parameters,
            watermarks=marks,
        )
        self.engine.deploy(deployments(common, self.plan, self._layout, snapshot, metadata))

    def _observe_sources(self) -> None:
        for vertex_id, source in self.sources.items():
            watermark, idle = source.watermark()
            self.watermarks.source(vertex_id, watermark, idle=idle, ended=source.ended)


def _next_timers(result: EpochResult) -> dict[tuple[int, int], int | None]:
    """(vertex, slot) -> next processing-time timer.

    Tasks ran side by side and each knows only what the slot said to it last, so the earliest time counts:
    an epoch too many does no harm, a timer overlooked would.
    """
    timers: dict[tuple[int, int], int | None] = {}
    for report in result.reports:
        for place, due in report.timers.items():
            known = timers.get(place)
            timers[place] = due if known is None else min(known, known if due is None else due)
    return timers
