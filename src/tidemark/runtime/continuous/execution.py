"""One continuous job, step by step: the tasks of an attempt run without end, and the driver listens to them.

What differs from epochs: sources are enumerators whose splits go to tasks, a barrier is sent instead of waited for, and
what the driver contributes to a snapshot is what the tasks said at theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph
from tidemark.checkpoint.completed import CompletedSnapshot
from tidemark.checkpoint.messages import JobEnd, SlotAcknowledged, SlotDeclined
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.clock import Clock
from tidemark.config import CheckpointingMode, Options
from tidemark.errors import ExecutionError, FailureReason
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.protocol.deployment import BackendChoice, Deployment
from tidemark.protocol.failure import first_failure
from tidemark.protocol.frames import CutRequest
from tidemark.protocol.tasks import (
    AbortBarrier,
    AddSplits,
    Drain,
    InjectBarrier,
    LimitWatermark,
    NoMoreSplits,
    Pause,
    Resume,
    TaskAcknowledged,
    TaskCommand,
    TaskDeclined,
    TaskDirective,
    TaskEvent,
    TaskFailed,
    TaskLost,
    TaskProgress,
    TaskRows,
    TaskStarted,
)
from tidemark.runtime.continuous.engine import TaskEngine
from tidemark.runtime.continuous.outputs import Produced, TaskOutputs
from tidemark.runtime.continuous.source import EnumeratedSource, make_continuous_source
from tidemark.runtime.execution import JobExecution
from tidemark.runtime.leadership import Leadership
from tidemark.runtime.progress import TaskTimes, add_numbers
from tidemark.runtime.sinks.task import row_tag
from tidemark.runtime.snapshots import DriverState
from tidemark.runtime.sources.positions import pack
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.runtime.watermark_generators import pack_named
from tidemark.runtime.watermarks import Mark, combined, strategy_of

__all__ = ["ContinuousExecution"]


class ContinuousExecution(JobExecution):
    """A continuous job over all its attempts."""

    engine: TaskEngine

    def __init__(
        self,
        graph: Graph,
        settings: JobSettings,
        job_id: str,
        engine: TaskEngine,
        clock: Clock,
        storage: StoragePlan,
        backend: BackendChoice,
        leadership: Leadership | None = None,
    ) -> None:
        """Prepare a job; nothing runs yet. See `JobExecution`."""
        super().__init__(
            graph, settings, job_id, engine, make_continuous_source, clock, storage, backend, leadership
        )
        self._tasks = engine.tasks
        self._aligned = settings.checkpointing.mode is not CheckpointingMode.AT_LEAST_ONCE
        self._outputs = TaskOutputs(self._tasks)
        self._finished: set[int] = set()
        self._watermarks: dict[int, int] = {}
        self._heard: dict[int, TaskProgress] = {}
        """Task -> what it said last of this attempt."""
        self._task_metrics: dict[int, dict[str, Any]] = {}
        self._past_metrics: dict[str, Any] = {}
        self._restored_marks: dict[str, int] = {}
        self._restored_partitions: dict[str, bytes] = {}
        self._drifts = {
            alignment.group: alignment.max_drift_ms
            for vertex in self.plan.vertices.values()
            if (strategy := strategy_of(vertex)) is not None and (alignment := strategy.alignment) is not None
        }
        """Watermark alignment group -> how far a source may be ahead of the slowest one."""
        self._groups: dict[int, dict[str, int]] = {}
        self._limits: dict[str, int] = {}
        self._moved = False
        self._drained = False
        self._read_before = 0
        """Records of earlier attempts."""

    @property
    def _enumerated(self) -> dict[int, EnumeratedSource]:
        return {k: s for k, s in self.sources.items() if isinstance(s, EnumeratedSource)}

    # Attempts

    def start_attempt(self) -> None:
        """Bring everything to the newest usable snapshot, then start the tasks."""
        self._forget_tasks()
        self._read_before = self.progress.records
        super().start_attempt()
        self.engine.start_tasks(self._directive_of_tasks())
        for source in self._enumerated.values():
            self._hand_out(source, source.take_new(), first=True)
            if source.is_complete:
                self._tell_all(NoMoreSplits(source.vertex.id))
        if self._paused:
            self._tell_all(Pause())

    def _forget_tasks(self) -> None:
        self._outputs = TaskOutputs(self._tasks)
        self._finished.clear()
        self._watermarks.clear()
        self._heard = {}
        self.progress.forget_tasks()
        for metrics in self._task_metrics.values():
            add_numbers(self._past_metrics, metrics)
        self._task_metrics.clear()
        self._groups.clear()
        self._limits.clear()
        self._drained = False

    def _participants(self) -> frozenset[int]:
        """Slots that have an operator, and behind them the tasks."""
        slots = {slot for vertex in self.plan.in_slots() for slot in range(vertex.parallelism)}
        return frozenset(slots | {self.plan.slots + task for task in range(self._tasks)})

    def _deploy_all(
        self, common: Deployment, snapshot: CompletedSnapshot | None, metadata: CheckpointMetadata | None
    ) -> None:
        self._restored_marks = common.watermarks
        self._restored_partitions = (
            metadata.partition_marks if metadata is not None and common.watermarks else {}
        )
        channels = replace(common, channels=self._tasks, aligned=self._aligned)
        super()._deploy_all(channels, snapshot, metadata)

    def _directive_of_tasks(self) -> TaskDirective:
        configuration = self.settings.configuration
        staging = {key: sink.staging for key, sink in self.sinks.items() if sink.staging is not None}
        return TaskDirective(
            self.attempt,
            self._tasks,
            staging,
            self._restored_marks,
            self._restored_partitions,
            max(0, configuration.get(Options.BUFFER_TIMEOUT) or 0),
            configuration.get(Options.AUTO_WATERMARK_INTERVAL),
            publish_at_once=not self.settings.checkpointing.enabled,
        )

    # Steps

    def advance(self) -> bool:
        """Hand out new splits; True if tasks did anything since the last call."""
        if not self._paused:
            now = self.clock.now()
            for source in self._enumerated.values():
                self._hand_out(source, source.discover(now))
        moved, self._moved = self._moved, False
        return moved

    def tick(self) -> None:
        """Take what slots and tasks said since the last call, and let timeouts pass."""
        self._take_task_events()
        super().tick()

    def finished(self) -> bool:
        """Whether the end of all input has passed every operator, as every task has seen."""
        return len(self._finished) == self._tasks

    def pause(self) -> None:
        """Let no task read until `resume`."""
        super().pause()
        self._tell_all(Pause())

    def resume(self) -> None:
        """Let tasks read again."""
        super().resume()
        self._tell_all(Resume())

    def drain(self) -> None:
        """Let every source end here, in every task."""
        self._drained = True
        self._finished.clear()
        self._tell_all(Drain())

    def draining(self) -> bool:
        """Whether the end of time is still on its way."""
        return self._drained and not self.finished()

    def next_timer(self) -> int | None:
        """Tasks know when timers are due."""
        return None

    def _hand_out(
        self, source: EnumeratedSource, splits: list[tuple[int, Any]], *, first: bool = False
    ) -> None:
        """Give splits to tasks by their numbers; at first every task is told, also that it has none."""
        by_task: dict[int, list[Any]] = {task: [] for task in range(self._tasks if first else 0)}
        for number, split in splits:
            by_task.setdefault(number % self._tasks, []).append(split)
        for task, assigned in by_task.items():
            self._finished.discard(task)
            self.engine.tell(task, AddSplits(source.vertex.id, assigned))

    def _tell_all(self, command: TaskCommand) -> None:
        for task in range(self._tasks):
            self.engine.tell(task, command)

    # What tasks say

    def _take_task_events(self) -> None:
        events = self.engine.task_events()
        self._moved |= any(not isinstance(event, TaskProgress) for event in events) or self.engine.moved
        failures = [event.failure for event in events if isinstance(event, TaskFailed)]
        if failures:
            raise first_failure(failures).error(self.epoch, self.job_id)
        for event in events:
            self._take_event(event)
        if not self.settings.checkpointing.enabled:
            self._deliver_now()

    def _take_event(self, event: TaskEvent) -> None:
        match event:
            case TaskRows():
                self.reached("epoch")
                self._outputs.add_rows(event.task, event.rows)
                self._let_out_at_once(event)
            case TaskAcknowledged():
                self.reached("task-barrier")
                self._outputs.acknowledge(event)
                self._complete_barriers()
                self.snapshots.handle(SlotAcknowledged(event.checkpoint_id, self.plan.slots + event.task))
            case TaskDeclined():
                slot = self.plan.slots + event.task
                declined = SlotDeclined(event.checkpoint_id, slot, FailureReason.DECLINED, event.message)
                self.snapshots.handle(declined)
            case TaskProgress():
                self._take_progress(event)
            case TaskLost():
                raise ExecutionError(f"Task {event.task} is gone: {event.why}", job_id=self.job_id)
            case TaskStarted() | TaskFailed():
                pass

    def _take_progress(self, event: TaskProgress) -> None:
        self.progress.records += event.records_in
        for vertex, count in event.records_out.items():
            self.progress.records_out[vertex] = self.progress.records_out.get(vertex, 0) + count
        for side, count in event.side_records.items():
            self.progress.side_records[side] = self.progress.side_records.get(side, 0) + count
        self.progress.spent(event.task, TaskTimes(event.busy_ms, event.waiting_ms, event.idle_ms))
        if event.latency_ms is not None:
            self.progress.latency_ms = event.latency_ms
            self.latency.mark(self.clock.now(), event.latency_ms)
        self._heard[event.task] = event
        self._watermarks[event.task] = event.watermark
        self.progress.watermark = min(self._watermarks.values(), default=MIN_WATERMARK)
        self._task_metrics[event.task] = event.metrics
        self.progress.task_metrics = dict(self._past_metrics)
        for metrics in self._task_metrics.values():
            add_numbers(self.progress.task_metrics, metrics)
        for source, ended in event.ended.items():
            self._enumerated[source].ended_splits(ended)
        self._outputs.produced(event.task).add_staged(event.staged)
        self._align_sources(event)
        if event.finished:
            self._finished.add(event.task)
        else:
            self._finished.discard(event.task)

    def _align_sources(self, event: TaskProgress) -> None:
        """Let no source run further ahead of the slowest one of its group than it is allowed."""
        self._groups[event.task] = event.groups
        for group, drift in self._drifts.items():
            marks = [marks[group] for marks in self._groups.values() if group in marks]
            limit = min(marks) + drift if marks and min(marks) > MIN_WATERMARK else None
            if limit is not None and limit != self._limits.get(group):
                self._limits[group] = limit
                self._tell_all(LimitWatermark(group, limit))

    # Sinks

    def _let_out_at_once(self, event: TaskRows) -> None:
        """Sinks that hold nothing back take rows as they come."""
        for vertex_id, sink in self.sinks.items():
            if not sink.publishes:
                rows = self._outputs.produced(event.task).take_rows(row_tag(vertex_id))
                if rows:
                    self.engine.worker.call(sink.take, rows, [], self.epoch)

    def _deliver_now(self) -> None:
        """Without checkpoints nothing is held back."""
        rest = self._outputs.rest()
        if rest.rows or any(rest.staged.values()):
            self._give(rest)
            for sink in self.sinks.values():
                self.engine.worker.call(sink.finish)

    def _give(self, produced: Produced) -> None:
        for vertex_id, sink in self.sinks.items():
            rows = produced.take_rows(row_tag(vertex_id))
            staged = produced.staged.get(vertex_id, [])
            if rows or staged:
                self.engine.worker.call(sink.take, rows, staged, self.epoch)

    # Effects of snapshots

    def cut(self, request: CutRequest) -> SlotDeclined | None:
        """Send the barrier to every task."""
        self._tell_all(InjectBarrier(request))
        self.reached("barrier")
        return None

    def _complete_barriers(self) -> None:
        """Take stock of every barrier that the last task has sent now."""
        while (whole := self._outputs.take()) is not None:
            told, produced = whole
            self._give(produced)
            for source, ended in produced.ended.items():
                self._enumerated[source].read_out(ended)
            checkpoint_id = told[0].checkpoint_id
            if checkpoint_id in self.coordinator.pending():
                self._barriers[checkpoint_id] = self._stock(checkpoint_id, told)

    def _stock(self, checkpoint_id: int, told: list[TaskAcknowledged]) -> DriverState:
        positions = {}
        for vertex_id, source in self._enumerated.items():
            reached: dict[str, Any] = {}
            for event in told:
                reached.update(event.positions.get(vertex_id, {}))
            position = self.engine.worker.call(source.position_at, checkpoint_id, reached)
            if position is not None:
                positions[source.vertex.uid] = pack(position)
        commits = {
            sink.vertex.uid: data for sink in self.sinks.values() if (data := sink.prepare(checkpoint_id))
        }
        read = sum(event.records_in for event in told)
        self.progress.cut(checkpoint_id, self._read_before + read)
        self.epoch += 1
        return DriverState(
            positions, commits, self._marks(told), self._partition_marks(told), self.epoch, self.lineage
        )

    def marks(self) -> dict[str, int]:
        """Uid -> watermark, as tasks said last."""
        return self._marks(list(self._heard.copy().values()))

    def _marks(self, told: Sequence[TaskAcknowledged | TaskProgress]) -> dict[str, int]:
        marks = {}
        for vertex in {key for event in told for key in event.marks}:
            mark = combined([Mark(*event.marks[vertex]) for event in told if vertex in event.marks]).time
            # The end of input is left out: whoever restores finds it again, or has new input.
            marks[self.plan.vertices[vertex].uid] = MIN_WATERMARK if mark == MAX_WATERMARK else mark
        return marks

    def _partition_marks(self, told: list[TaskAcknowledged]) -> dict[str, bytes]:
        marks = {}
        for vertex in {key for event in told for key in event.partitions}:
            named = [mark for event in told for mark in event.partitions.get(vertex, ())]
            if (stored := pack_named(named)) is not None:
                marks[self.plan.vertices[vertex].uid] = stored
        return marks

    def abort(self, checkpoint_id: int) -> None:
        """Tell tasks and slots that a snapshot was given up."""
        self._tell_all(AbortBarrier(checkpoint_id))
        super().abort(checkpoint_id)

    # The end

    def end(self, how: JobEnd) -> None:
        """The job is over: tasks end first, then as in epochs."""
        if how is JobEnd.FINISHED and self.finished():
            # What no checkpoint covers though the input has ended: the last one failed, or there are none.
            self._give(self._outputs.rest())
        self.engine.end_tasks()
        super().end(how)
