"""A task of continuous execution: one loop that reads, pushes, takes answers and obeys the driver.

`ContinuousTask.step` does what can be done now and never waits; whoever drives the task waits for the links in
`waiting`, the control link or the clock, and calls it again. In the local engine a seeded scheduler chooses which task
steps next; on Spark a task has its worker for itself.

A barrier: the task stops reading until nothing that it has read is under way anywhere, notes where its readers
stand, closes what its sinks have written, sends the barrier on all channels at once, tells the driver, and reads on.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark.api.graph import NodeKind
from tidemark.clock import Clock, has_passed
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Placement, Vertex
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.protocol.channels import ChannelAnswer
from tidemark.protocol.reports import TaskReport
from tidemark.protocol.tasks import (
    AbortBarrier,
    AddSplits,
    Drain,
    EndTask,
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
    TaskProgress,
    TaskRows,
    TaskStarted,
)
from tidemark.runtime.continuous.channel_exchange import ChannelExchange, ChannelLink
from tidemark.runtime.continuous.channel_time import ChannelTime
from tidemark.runtime.continuous.latency import LatencyProbe
from tidemark.runtime.continuous.shares import Shares
from tidemark.runtime.continuous.sinks import RollingSink
from tidemark.runtime.pipeline import Flow, TaskSink
from tidemark.runtime.records import Records
from tidemark.runtime.sources.enumerators import AssignedSplit
from tidemark.runtime.sources.readers import Reader, open_reader
from tidemark.runtime.sources.splits import READ_BATCH, READ_COLUMNS
from tidemark.runtime.watermarks import Mark

__all__ = ["ContinuousTask"]

_PULL_MS = 5
"""How long a source function may keep a pull waiting where no buffer timeout says so."""
_PUBLISH_MS = 1000
"""How often files of a job without checkpoints are handed to the driver."""
_PROGRESS_MS = 200
"""How often the driver is told how the task is doing."""
_LOOP_LIMIT_MS = 10_000
"""How long a loop may take to run empty in front of a barrier."""
_QUIET_MS = 200
"""How often event time is looked at where watermarks are switched off."""
_ENDING_MS = 5
"""How often it is looked at when only the end of time is still on its way."""
_NO_MARK = Mark(MIN_WATERMARK)


@dataclass(slots=True)
class _Reading:
    """A split that is being read."""

    source: Vertex
    split: AssignedSplit
    reader: Reader
    limit: int
    """How many records are read at a time."""


@dataclass(slots=True)
class _Barrier:
    """A barrier that waits until nothing is under way in front of it."""

    command: InjectBarrier
    since: int
    """Processing time at which it was asked for."""


class ContinuousTask:
    """One task of one attempt."""

    def __init__(
        self,
        plan: JobPlan,
        directive: TaskDirective,
        number: int,
        connect: Callable[[int], ChannelLink],
        make_sink: Callable[[Vertex, int, int], TaskSink],
        tell: Callable[[TaskEvent], None],
        clock: Clock,
    ) -> None:
        """Open fused operators and connect to every slot.

        Args:
            plan: The whole job.
            directive: What the driver tells every task.
            number: Which one this is.
            connect: Makes a link to a slot, for the use of one vertex.
            make_sink: Makes a part of the task side of a sink; see `RollingSink`.
            tell: Sends something to the driver.
            clock: Processing time.

        Raises:
            SlotLostError: A slot is gone.
        """
        self._plan = plan
        self._directive = directive
        self.number = number
        self._tell = tell
        self._clock = clock
        now = clock.now()
        self.latency = LatencyProbe(time.perf_counter)
        self._time = ChannelTime(plan, directive.watermarks, directive.partition_marks, now)
        self._claims: dict[int, Mark] = {}
        self._exchanges = {
            vertex.id: ChannelExchange(
                self, vertex, number, directive.attempt, self._slots_of(vertex), connect
            )
            for vertex in plan.in_slots()
        }
        self._pulls = [
            (exchange, slot)
            for exchange in self._exchanges.values()
            if exchange.vertex.kind is NodeKind.SOURCE
            for slot in self._slots_of(exchange.vertex)
        ]
        for exchange, slot in self._pulls:
            self._time.pull(exchange.vertex.id, slot)
        for vertex in plan.of_kind(NodeKind.SOURCE):
            if vertex.placement is Placement.SLOT:
                self._time.complete(vertex.id)
        self._sinks: list[RollingSink] = []
        self._flow = Flow(
            plan,
            number,
            directive.attempt,
            TaskReport(-1, number),
            self._exchanges,
            lambda vertex, partition: self._rolling(vertex, partition, make_sink),
            clock,
        )
        self._readings: deque[_Reading] = deque()
        self._read_out: dict[int, dict[str, Any]] = {}
        """Source -> split that has ended since the last barrier -> where."""
        self._newly_ended: dict[int, dict[str, Any]] = {}
        """Of these, the ones the driver was not told of as progress."""
        self._barriers: deque[_Barrier] = deque()
        self._timers: dict[tuple[int, int], int] = {}
        self._settling = False
        """A source said how far time is: that has to arrive everywhere before more is read."""
        self._paused = False
        self._draining = False
        """Every source is to end here, and has not yet."""
        self._learnt = 0
        self._ticked = now
        self._told = self._published = now
        self._reported = 0
        """Records the driver has been told of."""
        self._progress_ms = min([_PROGRESS_MS, *self._time.update_intervals()])
        self._finished = False
        self._read_at = 0
        """When the next records may be read: those of a small batch wait for others to travel with."""
        self._shares = Shares(clock_s=time.perf_counter)
        self.ended = False
        """Whether the driver has ended the task."""
        self._tell(TaskStarted(number))
        self._advance_time()

    def _slots_of(self, vertex: Vertex) -> list[int]:
        """Subtasks of a vertex this task has a channel to: all, but of source functions those it pulls from."""
        slots = range(vertex.parallelism)
        if vertex.kind is not NodeKind.SOURCE:
            return list(slots)
        return [slot for slot in slots if slot % self._directive.tasks == self.number]

    def _rolling(
        self, vertex: Vertex, partition: int, make: Callable[[Vertex, int, int], TaskSink]
    ) -> TaskSink:
        sink = RollingSink(vertex, partition, make)
        self._sinks.append(sink)
        return sink

    # Driving

    def obey(self, command: TaskCommand) -> None:
        """Take a command of the driver; it is carried out with the next steps, in order with others."""
        match command:
            case AddSplits():
                for split in command.splits:
                    self._open(self._plan.vertices[command.source], split)
                self._time.assigned(command.source)
            case NoMoreSplits():
                self._time.complete(command.source)
            case InjectBarrier():
                self._barriers.append(_Barrier(command, self._clock.now()))
            case AbortBarrier():
                self._forget(command.checkpoint_id)
            case Pause():
                self._paused = True
            case Resume():
                self._paused = False
            case Drain():
                self._paused = self._draining = True
            case LimitWatermark():
                self._time.limit(command.group, command.watermark)
            case EndTask():
                self.ended = True

    def step(self) -> bool:
        """Do what can be done now; True if anything was done.

        Raises:
            SlotLostError: A slot is gone.
            OperatorFailed: User code failed, here or in a slot.
        """
        self._shares.begin()
        moved, learnt = False, self._learnt
        for exchange in self._exchanges.values():
            moved |= exchange.poll()
        moved |= self._flow.drain_feedback()
        if self._draining:
            self._end_sources()
        self._pass_time()
        if self._barriers:
            moved |= self._inject()
        elif not self._paused and not self._settling and not self._is_backlogged():
            moved |= self._read()
        self._send_rows()
        self._report()
        self._shares.end(waiting=self._is_backlogged() or bool(self._barriers))
        return moved or self._learnt > learnt

    def waiting(self) -> list[ChannelLink]:
        """Links on which an answer will come."""
        return [link for exchange in self._exchanges.values() for link in exchange.waiting()]

    def wake_fds(self) -> list[int]:
        """Descriptors that become readable when a split has something."""
        fds = [reader.wake_fd() for reader in self._wanted()]
        return [fd for fd in fds if fd is not None]

    def _wanted(self) -> list[Reader]:
        """Readers that would be asked if they had something."""
        if self._is_held_up() or self._gathers():
            return []
        ahead = self._time.is_ahead
        return [each.reader for each in self._readings if not ahead(each.source.id, each.split.id)]

    def _is_held_up(self) -> bool:
        """Whether nothing is read, whatever there is."""
        return self._paused or bool(self._barriers) or self._is_backlogged()

    def patience(self) -> float:
        """Seconds after which `step` may have something to do though nothing has come."""
        now, interval = self._clock.now(), self._interval()
        if self._barriers:
            # Only answers can bring it on; now and then it is looked how long a loop has taken.
            return interval / 1000
        due = [self._ticked + interval, *self._timers.values()]
        if self._gathers() and not self._is_held_up():
            due.append(self._read_at)
        if any([reader.wake_fd() is None for reader in self._wanted()]):
            due.append(now + max(1, self._directive.buffer_timeout_ms))
        # No longer than an interval: a clock that was set back is far from everything that is due.
        return min(max(0, min(due) - now), interval) / 1000

    def close(self) -> None:
        """Close readers, operators and links."""
        for reading in self._readings:
            reading.reader.close()
        self._flow.close()
        for exchange in self._exchanges.values():
            exchange.close()

    # What exchanges need

    def claim(self, vertex: int) -> Mark:
        """How far event time may be said to have come towards a vertex."""
        return self._claims.get(vertex, _NO_MARK)

    def emit(self, vertex_id: int, tag: str | None, records: Records) -> None:
        """Pass on what a slot has answered."""
        read = self._plan.vertices[vertex_id].kind is NodeKind.SOURCE
        if read:
            self._flow.report.records_in += len(records)
            self.latency.begin()
        self._flow.emit(vertex_id, tag, records)
        if read:
            self.latency.pushed()
        for vertex, newest in self._flow.stamped(fused=False):
            self._time.stamped(vertex, None, None, newest)

    def answered(self, vertex: int, slot: int, answer: ChannelAnswer) -> None:
        """An answer has been passed on: its timer and its watermark count from now on."""
        if answer.timer is None:
            self._timers.pop((vertex, slot), None)
        else:
            self._timers[vertex, slot] = answer.timer
        if self._plan.vertices[vertex].kind is not NodeKind.SOURCE:
            self._time.passed(vertex, slot, answer.watermark, answer.idle)
        elif answer.status is not None:
            status = answer.status
            self._time.pulled(vertex, slot, status["watermark"], status["idle"])
            self._settling |= status["barred"]

    # Reading

    def _open(self, source: Vertex, split: AssignedSplit) -> None:
        by_column = self._flow.takes_columns(source.id)
        reader = open_reader(source, split, self.number % source.parallelism, by_column=by_column)
        self._time.open_split(source.id, split.id)
        limit = READ_COLUMNS if by_column else READ_BATCH
        self._readings.append(_Reading(source, split, reader, limit))

    def _is_backlogged(self) -> bool:
        return any(exchange.backlogged for exchange in self._exchanges.values())

    def _is_under_way(self) -> bool:
        return any(exchange.under_way for exchange in self._exchanges.values())

    def _gathers(self) -> bool:
        """Whether what comes now waits, so that what follows travels with it."""
        return 0 < self._read_at - self._clock.now() <= self._directive.buffer_timeout_ms

    def _read(self) -> bool:
        """Read from one split that has something, in turns, and ask source functions for more."""
        timeout = self._directive.buffer_timeout_ms
        for exchange, slot in self._pulls:
            if not self._time.has_ended(exchange.vertex.id):
                exchange.pull(slot, timeout or _PULL_MS)
        if self._gathers():
            return False
        for _ in range(len(self._readings)):
            reading = self._readings.popleft()
            if self._time.is_ahead(reading.source.id, reading.split.id):
                self._readings.append(reading)
                continue
            records = reading.reader.read(reading.limit, 0.0)
            aside = reading.reader.aside()
            if aside is not None:
                self._flow.take_aside(reading.source.id, aside)
            if records is None:
                self._end_of_split(reading)
                return True
            self._readings.append(reading)
            watermark = reading.reader.watermark()
            if watermark is not None and self._time.marked(reading.source.id, reading.split.id, watermark):
                self._settling = True
                return True
            if len(records):
                if timeout and len(records) < READ_BATCH:
                    self._read_at = self._clock.now() + timeout
                self.latency.begin()
                self._flow.push(reading.source.id, records)
                self.latency.pushed()
                for vertex, newest in self._flow.stamped(fused=True):
                    self._time.stamped(vertex, reading.source.id, reading.split.id, newest)
                return True
            if aside is not None:
                return True
        return False

    def _end_of_split(self, reading: _Reading) -> None:
        source, split = reading.source.id, reading.split.id
        position = reading.reader.position()
        for known in (self._read_out, self._newly_ended):
            known.setdefault(source, {})[split] = position
        reading.reader.close()
        self._time.close_split(source, split)

    def _end_sources(self) -> None:
        """Let time end, behind what source functions were asked for before."""
        if not any(exchange.under_way for exchange, _slot in self._pulls):
            self._draining = False
            self._time.end_all()

    # Time

    def refresh(self) -> None:
        """Ask subtasks that other tasks may have moved how far they are.

        Nothing is asked while a barrier waits until nothing is under way: it would wait for that, too, and for ever
        where answers take longer than it is until the next question.
        """
        if self._barriers:
            return
        for vertex, exchange in self._exchanges.items():
            if exchange.vertex.kind is not NodeKind.SOURCE:
                claim = self.claim(vertex)
                for slot in range(exchange.vertex.parallelism):
                    if self._time.may_have_moved(vertex, slot, claim):
                        exchange.touch(slot)

    @property
    def progress(self) -> int:
        """Grows whenever this task learns something about event time."""
        return self._learnt

    def _interval(self) -> int:
        """Milliseconds between two refreshes; short once the input has ended and only time is on its way."""
        interval = self._directive.watermark_interval_ms or _QUIET_MS
        return min(interval, _ENDING_MS) if self._time.has_ended_everywhere() else interval

    def _pass_time(self) -> None:
        """Refresh when it is time, tell slots what is new, and touch those that have a timer due."""
        now = self._clock.now()
        if not self._barriers and has_passed(self._interval(), self._ticked, now):
            self._ticked = now
            if self._directive.watermark_interval_ms:
                self._time.tick(now)
            self.refresh()
        if self._time.changed:
            self._advance_time()
        if self._settling and not self._is_under_way() and not self._time.changed:
            self._settling = False
        # For the same reason as in `refresh` timers fire behind a barrier that waits: some set the next one at once.
        due = [] if self._barriers else [place for place, at in self._timers.items() if at <= now]
        for vertex, slot in due:
            del self._timers[vertex, slot]
            self._exchanges[vertex].touch(slot)

    def _advance_time(self) -> None:
        self._learnt += 1
        before, self._claims = self._claims, self._time.claims()
        for vertex, claim in self._claims.items():
            if claim.time > before.get(vertex, _NO_MARK).time:
                self._flow.advance_watermark(vertex, claim.time)
        for exchange in self._exchanges.values():
            if exchange.vertex.kind is not NodeKind.SOURCE:
                exchange.advance()

    # Barriers

    def _inject(self) -> bool:
        """Send the oldest barrier that waits, once nothing is under way; True if one was sent."""
        barrier = self._barriers[0]
        if self._is_under_way() or self._flow.drain_feedback() or self._time.changed:
            if self._clock.now() - barrier.since > _LOOP_LIMIT_MS and self._plan.feedback:
                self._decline(barrier)
            return False
        self._barriers.popleft()
        request = barrier.command.request
        self._send_rows()
        self._tell(self._acknowledgement(request.checkpoint_id))
        encoded = pickle.dumps(request, 5)
        for exchange in self._exchanges.values():
            exchange.barrier(encoded)
        # With this step the driver is told what was read in front of it.
        self._told = self._clock.now() - self._progress_ms
        return True

    def _acknowledgement(self, checkpoint_id: int) -> TaskAcknowledged:
        positions: dict[int, dict[str, Any]] = {}
        for reading in self._readings:
            positions.setdefault(reading.source.id, {})[reading.split.id] = reading.reader.position()
        ended, self._read_out = self._read_out, {}
        return TaskAcknowledged(
            self.number,
            checkpoint_id,
            positions,
            ended,
            self._close_parts(),
            self._time.marks(),
            self._time.partition_marks(),
            self._reported + self._flow.report.records_in,
        )

    def _close_parts(self) -> dict[int, list[Any]]:
        report = TaskReport(-1, self.number)
        for sink in self._sinks:
            sink.close(report)
        return report.staged

    def _decline(self, barrier: _Barrier) -> None:
        self._barriers.remove(barrier)
        checkpoint_id = barrier.command.request.checkpoint_id
        message = (
            f"The records of a loop have not run out after {_LOOP_LIMIT_MS} ms, so that task {self.number} could "
            "not send its barrier."
        )
        self._tell(TaskDeclined(self.number, checkpoint_id, message))

    def _forget(self, checkpoint_id: int) -> None:
        kept = [b for b in self._barriers if b.command.request.checkpoint_id != checkpoint_id]
        self._barriers = deque(kept)

    # The driver

    def _send_rows(self) -> None:
        rows = list(self._flow.rows())
        if rows:
            self._tell(TaskRows(self.number, rows))

    def _report(self) -> None:
        now = self._clock.now()
        finished = self._time.is_over() and not self._is_under_way() and not self._barriers
        if finished == self._finished and not has_passed(self._progress_ms, self._told, now):
            return
        self._told, self._finished = now, finished
        staged = {}
        if self._directive.publish_at_once and (finished or has_passed(_PUBLISH_MS, self._published, now)):
            self._published = now
            staged = self._close_parts()
        report = self._flow.report
        busy, waiting, idle = self._shares.take()
        lowest = min((claim.time for claim in self._claims.values() if not claim.idle), default=MAX_WATERMARK)
        self._tell(
            TaskProgress(
                self.number,
                report.records_in,
                dict(report.records_out),
                self._flow.metrics(),
                lowest,
                finished,
                busy,
                waiting,
                idle,
                self._newly_ended,
                staged,
                dict(report.side_records),
                self._time.groups(),
                self._time.marks(self._claims),
                self.latency.take(),
            )
        )
        self._reported += report.records_in
        report.records_in = 0
        report.records_out.clear()
        report.side_records.clear()
        self._newly_ended = {}
