"""One job, step by step: attempts, epochs, barriers. Decides nothing about time or threads.

`JobExecution` turns what engines, sources and slots say into events of the checkpoint coordinator, whose
commands `runtime.snapshots` carries out. A loop on top of it (`runtime.runner`) or a script
(`testing.scripts`) says when the next step is taken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph, NodeKind
from tidemark.checkpoint.completed import CompletedSnapshot, Origin, is_kept
from tidemark.checkpoint.coordinator import CheckpointCoordinator
from tidemark.checkpoint.messages import (
    BarrierReached,
    Event,
    JobEnd,
    JobEnded,
    JobRestarting,
    Overdue,
    SlotAcknowledged,
    SlotDeclined,
    Tick,
)
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.clock import Clock
from tidemark.config import Options
from tidemark.config.modes import FallbackPolicy
from tidemark.errors import ConfigError, FailureReason, FencedError, RestoreError, SlotLostError, StorageError
from tidemark.paths import absolute
from tidemark.plan.job_plan import JobPlan, build_plan
from tidemark.plan.vertex import Placement, dump_functions
from tidemark.protocol.deployment import BackendChoice, Deployment
from tidemark.protocol.events import SlotLost
from tidemark.protocol.failure import first_failure
from tidemark.protocol.frames import CutRequest
from tidemark.protocol.reports import EpochDirective
from tidemark.runtime.deployments import deployments, open_savepoint
from tidemark.runtime.engine import Engine, EpochResult, EpochWork, TaskInput
from tidemark.runtime.leadership import Leadership
from tidemark.runtime.left_behind import Belongings, StagingPlace
from tidemark.runtime.progress import LatencyMarks, Progress, add_numbers
from tidemark.runtime.sinks.factory import make_driver_sink
from tidemark.runtime.sinks.task import row_tag
from tidemark.runtime.snapshot_choice import SnapshotChoice
from tidemark.runtime.snapshots import DriverState, JobSnapshots
from tidemark.runtime.sources.factory import DriverSourceContext, MakeSource
from tidemark.runtime.sources.positions import pack, start_source
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.runtime.watermarks import WatermarkTracker
from tidemark.state.key_groups import compute_default_max_parallelism

__all__ = ["CRASH_POINTS", "STATISTICS_S", "JobExecution"]

_log = logging.getLogger(__name__)

CRASH_POINTS = (
    "epoch",
    "barrier",
    "task-barrier",
    "before-metadata",
    "after-metadata",
    "commit",
    "notify",
    "retention",
    "restore",
)
"""Where a crash leaves something behind; what, and what recovery does about it, is a table of ARCHITECTURE.md."""

STATISTICS_S = 0.5
"""How long somebody who asks for statistics waits for slots that are busy with user code."""


class JobExecution:
    """A job over all its attempts; also the `Effects` of its snapshots."""

    def __init__(
        self,
        graph: Graph,
        settings: JobSettings,
        job_id: str,
        engine: Engine,
        make_source: MakeSource,
        clock: Clock,
        storage: StoragePlan,
        backend: BackendChoice,
        leadership: Leadership | None = None,
    ) -> None:
        """Prepare a job; nothing runs yet. With `leadership` other drivers may go on with it, or have run it before.

        Raises:
            RestoreError: The savepoint to start from is missing, damaged or does not fit the job.
        """
        self.settings = settings
        self.job_id = str(job_id)
        self.engine = engine
        self.clock = clock
        self.progress = Progress()
        self.latency = LatencyMarks(settings.configuration.get(Options.LATENCY_INTERVAL))
        self.backend = backend
        self.leadership = leadership
        self._storage_plan = storage
        self._timers: dict[tuple[int, int], int | None] = {}
        self.epoch = 0
        """The next one; `progress.epoch` is the last one done."""
        self._catch_up = False
        """Restored slots have not said yet when their processing-time timers are due."""
        self.lineage = self.job_id
        """Id of the first job of the chain of restores; known for sure once an attempt has started."""
        self.attempt = -1
        self._unread = False
        """Whether the last attempt to read the job's snapshots failed."""
        self._refused = False
        """Whether a sink belongs to another driver, or has published what this one does not know of."""
        self._running = False
        """Whether an attempt has started completely and has not been abandoned."""
        self.on_input: Callable[[], None] = lambda: None
        """Called, from any thread, when a source has something to read."""
        self.reached: Callable[[str], None] = lambda _point: None
        """Called at every crash point; tests raise here."""
        self._paused = False
        """While set, sources are not read: the job is about to stop."""
        self._barriers: dict[int, DriverState] = {}
        """Snapshots in the making -> what the driver contributes, as of their barrier."""
        plan = build_plan(graph, settings, self.job_id)
        recovered = () if leadership is None else leadership.recovered
        run = "" if leadership is None else leadership.run
        self.plan, restored = open_savepoint(plan, graph, settings, storage.savepoints, recovered)
        self.snapshots = JobSnapshots(
            self, engine.worker, clock, self.plan, settings, storage, backend, restored, run
        )
        self._graph = graph
        self._make_source = make_source
        self._use_plan()
        sinks = [v for v in self.plan.of_kind(NodeKind.SINK) if v.placement is Placement.TASK]
        self.sinks = {v.id: make_driver_sink(v, self.job_id, settings) for v in sinks}
        durable = storage.driver is storage.savepoints
        checkpoints = self.snapshots.layout.of_all_runs if durable else ""
        self._belongings = Belongings(self.job_id, checkpoints, round(time.time() * 1000))
        self._fallback = settings.configuration.get(Options.CHECKPOINTING_ALLOW_FALLBACK)
        self._choice = SnapshotChoice(
            self.coordinator.completed,
            storage,
            self._fallback,
            self.sinks.values(),
            self.plan.in_slots(),
            engine.worker,
            self.snapshots.quarantine,
        )

    def _use_plan(self) -> None:
        """Make what follows from the plan and lasts no longer."""
        self._functions = dump_functions(self.plan.in_slots())
        self.watermarks = WatermarkTracker(self.plan)
        context = DriverSourceContext(
            self.plan, self.clock, self.engine.source_status, lambda: self.on_input(), self.engine.worker
        )
        self.sources = {v.id: self._make_source(v, context) for v in self.plan.of_kind(NodeKind.SOURCE)}

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """Decides about checkpoints; knows those that are complete."""
        return self.snapshots.coordinator

    # Attempts

    def start_attempt(self) -> None:
        """Bring slots, sources and sinks to the newest usable snapshot, or to the beginning.

        Raises:
            StorageError: A snapshot could not be reached; another attempt may find it.
            RestoreError: There are completed snapshots, but all are damaged, or none fits the job or what it
                has published.
            FencedError: A newer driver runs the job or owns a sink, or an older one has ended meanwhile.
        """
        self.attempt += 1
        self.progress.attempt = self.attempt
        self.engine.start(self.plan, self.attempt)
        if self.leadership is not None:
            # Whoever leads the job now has perhaps deleted our snapshots, which is not why this attempt must not run.
            self.engine.worker.call(self.leadership.verify)
        try:
            snapshot, metadata = self._choice.restore_newest(self._deploy)
        except (StorageError, RestoreError):
            self._unread = True
            raise
        self._unread = False
        self.reached("restore")
        try:
            self._claim_sinks(snapshot, metadata)
        except FencedError:
            self._refused = True
            raise
        self._refused = False
        self._timers.clear()
        self._catch_up = snapshot is not None
        if metadata is not None:
            # Counting goes on behind the snapshot, whoever took it: replayed epochs carry their old ids, so that a
            # writer can replace what it wrote for them, though they may be cut differently.
            self.epoch = int(metadata.properties.get("epoch", self.epoch))
        for vertex_id, source in self.sources.items():
            uid = self.plan.vertices[vertex_id].uid
            data = metadata.source_positions.get(uid) if metadata is not None else None
            self.engine.worker.call(start_source, source, data)
        for vertex_id, sink in self.sinks.items():
            uid = self.plan.vertices[vertex_id].uid
            prepared = metadata.sink_commits.get(uid, b"") if metadata is not None else b""
            restored = None if snapshot is None else snapshot.checkpoint_id
            self.engine.worker.call(sink.restore, restored, prepared)
        self._barriers.clear()
        self.snapshots.new_attempt(self._participants(), first=self.attempt == 0)
        self.progress.first_checkpoint = self.coordinator.next_checkpoint_id
        self.progress.restored_from = None if snapshot is None else snapshot.checkpoint_id
        self.progress.restored(self.progress.restored_from)
        if snapshot is not None:
            self.coordinator.statistics.restored += 1
        restored = self.progress.restored_from
        origin = "without state" if restored is None else f"from checkpoint {restored}"
        _log.info("Attempt %s starts %s", self.attempt, origin)
        self._running = True

    def _participants(self) -> frozenset[int]:
        """Who has to acknowledge every snapshot."""
        return frozenset(range(self.plan.slots))

    def _claim_sinks(self, snapshot: CompletedSnapshot | None, metadata: CheckpointMetadata | None) -> None:
        if metadata is not None:
            self.lineage = metadata.lineage_id
        following = None
        if snapshot is not None and self._fallback is FallbackPolicy.WITHDRAW:
            following = partial(self._choice.following, snapshot)
        repeat = self._fallback is FallbackPolicy.DUPLICATE
        for sink in self.sinks.values():
            claim = partial(sink.claim, self.lineage, metadata, repeat=repeat, following=following)
            self.engine.worker.call(claim)
        self.verify_claims()
        staged = [(s.vertex.uid, at) for s in self.sinks.values() if (at := s.claimed_at) is not None]
        places = [StagingPlace(uid, absolute(base), directory) for uid, (base, directory) in staged]
        foreign = None if snapshot is None or snapshot.origin is not Origin.EXTERNAL else snapshot
        started_from = "" if foreign is None else absolute(foreign.directory)
        self.engine.worker.call(self._belongings.stages_at, places, started_from)
        if snapshot is not None and metadata is not None and snapshot.origin is Origin.EXTERNAL:
            # Whoever had the sinks may have ended between our reading and our claim, and taken its notes along.
            self._choice.require_unchanged(snapshot, metadata)

    def abandon_attempt(self) -> None:
        """The attempt failed: nothing pending can complete any more, sources stop."""
        self._running = False
        # Something of it may hang in the worker's thread; the next attempt settles that.
        self.snapshots.observe(JobRestarting())
        for source in self.sources.values():
            source.stop()

    def rescaled_plan(self, parallelism: int) -> JobPlan:
        """The plan with another parallelism of everything that has none of its own.

        Keyed operators keep their key groups as long as these suffice.

        Raises:
            ConfigError: That would change nothing, or there cannot be so many subtasks.
        """
        plan = build_plan(self._graph, replace(self.settings, parallelism=parallelism), self.job_id)
        now = {v.id: v.parallelism for v in self.plan.vertices.values()}
        if all(now[v.id] == v.parallelism for v in plan.vertices.values()):
            raise ConfigError(
                f"Parallelism {parallelism} changes nothing: every operator runs with it, or has one of its own."
            )
        groups = {}
        for vertex in plan.in_slots():
            kept = self.plan.vertices[vertex.id].max_parallelism
            enough = vertex.parallelism <= kept
            groups[vertex.uid] = kept if enough else compute_default_max_parallelism(vertex.parallelism)
        return plan.with_max_parallelism(groups)

    def rehashes(self, plan: JobPlan) -> bool:
        """Whether a plan gives an operator other key groups, so that the snapshot must be in canonical form."""
        return any(v.max_parallelism != self.plan.vertices[v.id].max_parallelism for v in plan.in_slots())

    def rescale(self, plan: JobPlan, parallelism: int) -> None:
        """Let the next attempt run with another plan; call it between attempts."""
        self.settings = replace(self.settings, parallelism=parallelism)
        self.plan = plan
        self._use_plan()
        self.snapshots.rescaled(plan)
        self._choice = replace(self._choice, functions=plan.in_slots())
        for vertex_id, sink in self.sinks.items():
            sink.vertex = plan.vertices[vertex_id]

    # Steps

    def advance(self) -> bool:
        """Do the next piece of work; False if there is nothing to do now.

        Raises:
            ExecutionError: User code, a task, a worker or a slot failed; the attempt is over.
        """
        work = self.poll()
        if work is not None:
            self.run_epoch(work)
        return work is not None

    def finished(self) -> bool:
        """Whether the end of all input has passed every operator."""
        return self.watermarks.finished()

    def marks(self) -> dict[str, int]:
        """Uid -> watermark of sources, assigners and slot vertices, for displays; from any thread."""
        return self.watermarks.marks()

    def pause(self) -> None:
        """Read nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False

    def drain(self) -> None:
        """Let every source end here."""
        self.watermarks.end_all()

    def draining(self) -> bool:
        """Whether the end of time is still on its way."""
        return self.watermarks.travelling()

    def poll(self) -> EpochWork | None:
        """Work for the next epoch, or None if nothing is to be done now."""
        now = self.clock.now()
        self._observe_sources()
        self.watermarks.tick(now)
        if self._catch_up:
            # What became due while the job was down fires before anything is read.
            self._catch_up = False
            return EpochWork(self._directive())
        inputs: list[TaskInput] = []
        frames: dict[int, Any] = {}
        for vertex_id, source in self.sources.items():
            polled = None if self._paused else source.poll()
            if polled is None:
                continue
            inputs += [TaskInput(vertex_id, at, split) for at, split in polled.numbered()]
            if polled.dataframe is not None:
                frames[vertex_id] = polled.dataframe
        due = self.next_timer()
        if not inputs and not frames and not self.watermarks.travelling() and (due is None or due > now):
            return None
        return EpochWork(self._directive(), inputs, frames)

    def _directive(self) -> EpochDirective:
        staging = {key: sink.staging for key, sink in self.sinks.items() if sink.staging is not None}
        return EpochDirective(self.attempt, self.epoch, self.watermarks.directive(), staging)

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
        self.progress.epoch = self.epoch
        self.progress.watermark = self.watermarks.lowest()
        self.progress.last_epoch_ms = (time.perf_counter() - started) * 1000
        if work.inputs or work.dataframes:
            self.progress.latency_ms = self.progress.last_epoch_ms
            self.latency.mark(self.clock.now(), self.progress.last_epoch_ms)
        self.epoch += 1

    def _take(self, work: EpochWork, result: EpochResult) -> None:
        failed = [report.failure for report in result.reports if report.failure is not None]
        if failed:
            raise first_failure(failed).error(self.epoch, self.job_id)
        positions: dict[int, dict[int, Any]] = {}
        for report in result.reports:
            self.progress.records += report.records_in
            if report.position is not None:
                positions.setdefault(report.source, {})[report.partition] = report.position
            add_numbers(self.progress.task_metrics, report.metrics)
            for vertex, count in report.records_out.items():
                self.progress.records_out[vertex] = self.progress.records_out.get(vertex, 0) + count
            for side, count in report.side_records.items():
                self.progress.side_records[side] = self.progress.side_records.get(side, 0) + count
        self._timers.update(_next_timers(result))
        self.watermarks.epoch_done(work.directive.watermarks)
        self.watermarks.rounds.observe(result.reports)
        self.watermarks.observe(result.reports, self.clock.now())
        for vertex_id in {task.source for task in work.inputs} | set(work.dataframes):
            self.sources[vertex_id].advanced(positions.get(vertex_id, {}))
        self._observe_sources()
        self._deliver(result)

    def _deliver(self, result: EpochResult) -> None:
        call = self.engine.worker.call
        for vertex_id, sink in self.sinks.items():
            staged = [file for report in result.reports for file in report.staged.get(vertex_id, ())]
            frame = result.frames.get(vertex_id)
            rows = result.rows.get(row_tag(vertex_id), [])
            call(sink.take, rows, [frame] if frame is not None else staged, self.epoch)
            if not self.settings.checkpointing.enabled:
                call(sink.finish)

    def barrier(self) -> None:
        """No record is in flight now: let a due checkpoint or savepoint start."""
        self.snapshots.handle(BarrierReached())

    def tick(self) -> None:
        """Take what slots said since the last call, and let timeouts pass.

        Raises:
            SlotLostError: A slot died.
        """
        self._take_events(self.snapshots.handle)

    def observe(self) -> None:
        """What `tick` does, amid an epoch, a barrier or a notification: snapshots may fail here, none completes.

        Raises:
            SlotLostError: A slot died.
            CheckpointError: More checkpoints have failed than the job tolerates.
        """
        if self._running:
            self._take_events(self.snapshots.observe)
            held = self.snapshots.held()
            if self.coordinator.is_overdue(self.clock.now(), held):
                self.snapshots.observe(Overdue(self.engine.blocked_ms(), held))

    def _take_events(self, handle: Callable[[Event], None]) -> None:
        if self.leadership is not None:
            self.leadership.check()
        for event in self.engine.events():
            match event:
                case SlotAcknowledged() | SlotDeclined():
                    handle(event)
                case SlotLost():
                    raise SlotLostError(f"Slot {event.slot} is gone: {event.why}", slot=event.slot)
        handle(Tick())

    def next_timer(self) -> int | None:
        """When the earliest processing-time timer of any slot is due."""
        return min((due for due in self._timers.values() if due is not None), default=None)

    # Effects of snapshots

    def driver_state(self, checkpoint_id: int) -> DriverState:
        """What the driver contributes to a snapshot, as of its barrier."""
        return self._barriers.pop(checkpoint_id)

    def _take_stock(self, checkpoint_id: int) -> DriverState:
        """Nothing is in flight: where sources stand, how far time is; sinks prepare their commit."""
        self.progress.cut(checkpoint_id)
        positions = {
            source.vertex.uid: pack(position)
            for source in self.sources.values()
            if (position := self.engine.worker.call(source.position, checkpoint_id)) is not None
        }
        commits = {
            sink.vertex.uid: data
            for sink in self.sinks.values()
            if (data := self.engine.worker.call(sink.prepare, checkpoint_id))
        }
        marks, partition_marks = self.watermarks.marks(), self.watermarks.partition_marks()
        return DriverState(positions, commits, marks, partition_marks, self.epoch, self.lineage)

    def cut(self, request: CutRequest) -> SlotDeclined | None:
        """Take stock, and cut every slot."""
        state = self._take_stock(request.checkpoint_id)
        if request.checkpoint_id not in self.coordinator.pending():
            # It took a source so long to say where it stands that the snapshot has been given up.
            return None
        self._barriers[request.checkpoint_id] = state
        for slot, outcome in self.engine.cut(request):
            if isinstance(outcome, BaseException):
                reason = getattr(outcome, "reason", FailureReason.DECLINED)
                return SlotDeclined(request.checkpoint_id, slot, reason, str(outcome))
        self.reached("barrier")
        return None

    def verify_claims(self) -> None:
        """Make sure that no newer driver has taken the job or a sink."""
        if self.leadership is not None:
            self.engine.worker.call(self.leadership.verify)
        for sink in self.sinks.values():
            self.engine.worker.call(sink.verify_claim)

    def announce(self, snapshot: CompletedSnapshot) -> None:
        """Tell the next driver of the job, if there may be one, and whoever cleans up behind this one."""
        if snapshot.origin is Origin.SAVEPOINT:
            self.engine.worker.call(self._belongings.took_savepoint, snapshot.directory)
        if self.leadership is not None:
            known = self.coordinator.completed.candidates()
            parallelism = self.settings.parallelism
            self.engine.worker.call(self.leadership.point_to, [*known, snapshot], parallelism)

    def complete(self, checkpoint_id: int) -> None:
        """Commit sinks, then tell slots, then sources."""
        for sink in self.sinks.values():
            self.engine.worker.call(sink.commit, checkpoint_id)
            self.reached("commit")
        self.engine.notify_complete(checkpoint_id)
        self.reached("notify")
        for source in self.sources.values():
            source.notify_checkpoint_complete(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """Tell slots that a snapshot was given up."""
        self._barriers.pop(checkpoint_id, None)
        self.engine.notify_aborted(checkpoint_id)

    # The end

    def end(self, how: JobEnd) -> None:
        """The job is over: last commits, retention, release. The engine is stopped by its owner.

        Sinks release behind the retention: their notes of what is published go when nothing is left that a job could
        be started from, and a crash in between leaves notes without snapshots, never the other way round.
        """
        self._running = False
        for source in self.sources.values():
            source.stop()
        newest = self.coordinator.completed.last_commit()
        self.snapshots.fenced = fenced = self._has_lost_a_claim()
        call = self.engine.worker.call
        for sink in self.sinks.values():
            if how is JobEnd.FINISHED:
                call(sink.finish)
            elif newest is not None and not fenced:
                # The attempt may have failed between the commit point and the commit.
                call(sink.commit, newest)
        restorable = self._is_restorable(how)
        if not restorable:
            for sink in self.sinks.values():
                call(sink.conclude)
        kept = self._keeps_checkpoints(how)
        if self.leadership is not None and how is not JobEnd.SUSPENDED and not fenced:
            call(partial(self.leadership.end, how, restorable=kept))
        remaining = self.snapshots.end(JobEnded(how, unread=how is JobEnd.FAILED and self._unread))
        if self.leadership is not None and not kept and not fenced:
            self.snapshots.discard_all_runs()
        if self._release_sinks(restorable=restorable or remaining):
            call(self._belongings.forget)

    def _release_sinks(self, *, restorable: bool) -> bool:
        """Close every sink; whether all of them are. What one cannot clear away does not undo what is published."""
        closed = True
        for sink in self.sinks.values():
            try:
                self.engine.worker.call(partial(sink.close, restorable=restorable))
            except StorageError as exc:
                closed = False
                _log.warning(
                    "What is published stays, but a sink has left its notes behind; 'tidemark clean' removes them "
                    "when this driver has ended. %s",
                    exc,
                )
        return closed

    def _has_lost_a_claim(self) -> bool:
        if self._refused:
            # Whoever has published more may need every snapshot there is.
            return True
        try:
            self.verify_claims()
        except FencedError as exc:
            _log.warning("Sinks and snapshots are left as they are. %s", exc)
            return True
        except StorageError:
            # Whether it can be reached at all shows when the sink has something to do.
            return False
        return False

    def _is_restorable(self, how: JobEnd) -> bool:
        """Whether snapshots are to outlive the job that it, or another one of its lineage, can be started from."""
        given = self.snapshots.took_savepoint or self.settings.savepoint_path is not None
        return self._keeps_checkpoints(how) or given

    def _keeps_checkpoints(self, how: JobEnd) -> bool:
        checkpointing = self.settings.checkpointing
        kept = checkpointing.enabled and is_kept(checkpointing.retention, how)
        # Snapshots that could not be read stay, whatever the retention.
        unread = how is JobEnd.FAILED and self._unread
        return kept or unread or bool(self.coordinator.completed.quarantined())

    def accumulators(self) -> dict[str, Any]:
        """Numeric metrics of the user's functions, summed over subtasks, as of the last statistics."""
        merged = dict(self.progress.task_metrics)
        add_numbers(merged, self.progress.metrics)
        return merged

    def refresh_statistics(self, timeout: float = STATISTICS_S) -> list[dict[str, Any]]:
        """Ask every slot for its statistics and remember its metrics; from any thread."""
        stats = self.engine.stats(timeout)
        merged: dict[str, Any] = {}
        for slot in stats:
            add_numbers(merged, slot["metrics"])
        self.progress.metrics = merged
        return stats

    # Restoring

    def _deploy(self, snapshot: CompletedSnapshot | None, metadata: CheckpointMetadata | None) -> None:
        self.watermarks = WatermarkTracker(self.plan)
        marks: dict[str, int] = {}
        if metadata is not None:
            marks = self.watermarks.restore(metadata.watermarks, metadata.partition_marks, self.clock.now())
        common = Deployment(
            job_id=self.job_id,
            attempt=self.attempt,
            slot=0,
            vertices=self._functions,
            backend=self.backend,
            storage=self._storage_plan.choice,
            batch_mode=self.plan.batch_mode,
            queryable=self._storage_plan.queryable,
            job_parameters=self.plan.job_parameters,
            watermarks=marks,
            file_systems=self.plan.file_systems,
        )
        self._deploy_all(common, snapshot, metadata)

    def _deploy_all(
        self, common: Deployment, snapshot: CompletedSnapshot | None, metadata: CheckpointMetadata | None
    ) -> None:
        self.engine.deploy(deployments(common, self.plan, self.snapshots.layout, snapshot, metadata))

    def _observe_sources(self) -> None:
        for vertex_id, source in self.sources.items():
            watermark, idle = source.watermark()
            self.watermarks.source(vertex_id, watermark, idle=idle, ended=source.ended)
            splits = source.live_splits()
            if splits is not None:
                self.watermarks.expect(vertex_id, splits, self.clock.now())


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
