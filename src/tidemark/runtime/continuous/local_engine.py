"""Runs the tasks of a continuous job in this process: the same tasks, gates and hosts as on Spark, in one thread.

Tasks take steps one after the other; which one is next is up to a `Chooser`, so that a seed stands for a schedule.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tidemark.checkpoint.messages import SlotDeclined
from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.errors import CheckpointError
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Vertex
from tidemark.protocol.channels import ChannelHeader
from tidemark.protocol.failure import FailureInfo
from tidemark.protocol.frames import CutRequest
from tidemark.protocol.tasks import EndTask, TaskCommand, TaskDirective, TaskEvent, TaskFailed
from tidemark.runtime.artifacts import LocalArtifacts
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.continuous.channel_exchange import ChannelLink
from tidemark.runtime.continuous.task import ContinuousTask
from tidemark.runtime.local_engine import FencedSink, LocalEngine
from tidemark.runtime.pipeline import TaskSink
from tidemark.runtime.sinks.factory import make_part
from tidemark.runtime.snapshot_threads import SnapshotPool
from tidemark.runtime.worker import Worker
from tidemark.slot.host import SlotHost

__all__ = ["Chooser", "ContinuousLocalEngine", "in_turns"]

Chooser = Callable[[Sequence[int]], int]
"""Picks the next task to step among those that may."""


def in_turns() -> Chooser:
    """A chooser that lets every task step in turn."""
    last = -1

    def choose(tasks: Sequence[int]) -> int:
        nonlocal last
        last = next((task for task in tasks if task > last), tasks[0])
        return last

    return choose


class _DirectLink:
    """A link that offers its frame to the host again and again until its gate lets it in."""

    def __init__(self, host: SlotHost) -> None:
        self._host = host
        self._frame: tuple[ChannelHeader, Any] | None = None

    def send(self, header: Any, body: Any = b"") -> None:
        """Keep the frame until the answer is asked for."""
        self._frame = (header, body)

    def poll(self) -> tuple[Any, Any] | None:
        """The answer, if the gate lets the frame in."""
        if self._frame is None:
            return None
        answer = self._host.offer(*self._frame)
        if answer is not None:
            self._frame = None
        return answer

    def fileno(self) -> int:
        """Nobody waits for a direct call."""
        return -1

    def close(self) -> None:
        """Nothing to let go of."""


class ContinuousLocalEngine(LocalEngine):
    """Engine of the local executor for continuous jobs.

    Attributes:
        steps: How many steps tasks take before the job's thread is asked for; it serves requests and looks for due
            checkpoints in between.
    """

    def __init__(
        self,
        clock: Clock,
        storage: Storage,
        tasks: int,
        pool: SnapshotPool | None = None,
        cancellation: Cancellation | None = None,
        files: LocalArtifacts | None = None,
        choose: Chooser | None = None,
        worker: Worker | None = None,
    ) -> None:
        """Create an engine without slots; see `LocalEngine`.

        Args:
            clock: Time of all operators.
            storage: Where slots write snapshots.
            tasks: How many tasks an attempt has.
            pool: What writes snapshots.
            cancellation: Patience with user code that does not return.
            files: What user code needs; taken away when the engine stops.
            choose: Which task steps next; in turns otherwise.
            worker: What user code and storages are called with.
        """
        super().__init__(clock, storage, pool, cancellation, files, worker)
        self.tasks = tasks
        self.steps = 32
        self._choose = choose or in_turns()
        self._running: dict[int, ContinuousTask] = {}
        self._told: deque[TaskEvent] = deque()
        self.moved = False

    def start(self, plan: JobPlan, attempt: int) -> None:
        """Have as many empty hosts as the plan has slots; each says by itself when barriers have cut it."""
        super().start(plan, attempt)
        self._running = {}
        self._told = deque()
        for slot, host in enumerate(self.hosts):
            host.on_cut = self._on_cut(slot, host)
            host.on_declined = self._on_declined(slot)

    def _on_cut(self, slot: int, host: SlotHost) -> Callable[[CutRequest], None]:
        return lambda request: self._write_soon(slot, host, request)

    def _on_declined(self, slot: int) -> Callable[[CutRequest, CheckpointError], None]:
        def decline(request: CutRequest, why: CheckpointError) -> None:
            self._events.put(SlotDeclined(request.checkpoint_id, slot, why.reason, str(why)))

        return decline

    def start_tasks(self, directive: TaskDirective) -> None:
        """Make the tasks; they step when their events are asked for."""
        self.worker.call(self._start_tasks, directive, list(self.hosts), self._left)

    def _start_tasks(self, directive: TaskDirective, hosts: list[SlotHost], left: threading.Event) -> None:
        plan = self._plan
        assert plan is not None

        def make_sink(vertex: Vertex, partition: int, part: int) -> TaskSink:
            return FencedSink(make_part(plan, directive, vertex, partition, part), left)

        for number in range(directive.tasks):
            try:
                self._running[number] = ContinuousTask(
                    plan,
                    directive,
                    number,
                    lambda slot: self.link(hosts[slot]),
                    make_sink,
                    self._told.append,
                    self._clock,
                )
            except Exception as exc:
                self._told.append(TaskFailed(number, FailureInfo.of(exc)))

    def link(self, host: SlotHost) -> ChannelLink:
        """A link of a task to a host; tests break them."""
        return _DirectLink(host)

    def tell(self, task: int, command: TaskCommand) -> None:
        """The task obeys between two of its steps; does not wait, a task may hang in user code."""
        self.worker.post(self._obey, task, command)

    def _obey(self, number: int, command: TaskCommand) -> None:
        task = self._running.get(number)
        if task is not None:
            self._guarded(task, lambda: task.obey(command))

    def task_events(self) -> list[TaskEvent]:
        """Let tasks step for a while, or until none can move; then what they said."""
        self.worker.call(self._steps)
        told = list(self._told)
        self._told.clear()
        return told

    def _steps(self) -> None:
        self.moved = False
        ready = set(self._running)
        learnt = -1
        for _ in range(self.steps):
            if self._interrupted.is_set():
                return
            if not ready:
                # Nobody can move; perhaps somebody does not know yet how far event time has come.
                so_far = sum(task.progress for task in self._running.values())
                if so_far == learnt:
                    return
                learnt = so_far
                for task in list(self._running.values()):
                    self._guarded(task, task.refresh)
                ready = set(self._running)
                continue
            task = self._running[self._choose(sorted(ready))]
            if self._guarded(task, task.step):
                self.moved = True
                ready = set(self._running)
            else:
                ready.discard(task.number)
            ready &= self._running.keys()

    def _guarded(self, task: ContinuousTask, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as exc:
            del self._running[task.number]
            self._told.append(TaskFailed(task.number, FailureInfo.of(exc)))
            return True

    def end_tasks(self) -> None:
        """Close every task."""
        for number in list(self._running):
            self.tell(number, EndTask())
        tasks, self._running = list(self._running.values()), {}
        for task in tasks:
            self.worker.call(task.close)
