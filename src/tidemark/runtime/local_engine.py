"""Runs epochs in this process: the same pipelines and hosts as on Spark, without sockets and without a JVM."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Vertex
from tidemark.processes import process_figures
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.events import SlotEvent, SlotReady
from tidemark.protocol.failure import FailureInfo
from tidemark.protocol.frames import CutRequest, EraseRequest
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.artifacts import LocalArtifacts
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.engine import EpochResult, EpochWork
from tidemark.runtime.pipeline import Pipeline, TaskSink
from tidemark.runtime.questions import Questions
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.factory import make_task_sink
from tidemark.runtime.slot_statistics import SlotStatistics
from tidemark.runtime.snapshot_threads import SnapshotPool, SnapshotThreads
from tidemark.runtime.task import run_split
from tidemark.runtime.worker import Abandoned, Worker
from tidemark.scratch import ScratchDirectory
from tidemark.slot.host import SlotHost
from tidemark.subtask.snapshots import acknowledgement

__all__ = ["FencedSink", "LocalEngine"]

_log = logging.getLogger(__name__)


class _DirectLink:
    """A link that calls the host; the answer waits until it is received."""

    def __init__(self, host: SlotHost) -> None:
        self._host = host
        self._answer: tuple[Any, Any] | None = None

    def send(self, header: Any, body: Any = b"") -> None:
        """Process the frame at once."""
        self._answer = self._host.handle(header, body)

    def receive(self) -> tuple[Any, Any]:
        """The answer to the frame sent before."""
        assert self._answer is not None
        answer, self._answer = self._answer, None
        return answer


class FencedSink:
    """A task's sink that takes nothing from a thread that was left behind."""

    def __init__(self, sink: TaskSink, left: threading.Event) -> None:
        self._sink = sink
        self._left = left
        self.rows = sink.rows

    def write(self, records: Records) -> None:
        """Take some records."""
        self._check()
        self._sink.write(records)

    def close(self, report: TaskReport) -> None:
        """Finish."""
        self._check()
        self._sink.close(report)

    def _check(self) -> None:
        if self._left.is_set():
            raise Abandoned


class LocalEngine:
    """Engine of the local executor: slots are objects, and all user code runs in the worker's thread."""

    def __init__(
        self,
        clock: Clock,
        storage: Storage,
        pool: SnapshotPool | None = None,
        cancellation: Cancellation | None = None,
        files: LocalArtifacts | None = None,
        worker: Worker | None = None,
    ) -> None:
        """Create an engine without slots.

        Args:
            clock: Time of all operators.
            storage: Where slots write snapshots.
            pool: What writes them; two threads otherwise.
            cancellation: Patience with user code that does not return.
            files: What user code needs; taken away when the engine stops.
            worker: What user code and storages are called with; a thread otherwise.
        """
        self._files = files
        self._clock = clock
        self._storage = storage
        self._cancellation = cancellation or Cancellation()
        self._scratch = ScratchDirectory("tidemark-local-")
        self.hosts: list[SlotHost] = []
        """The slots of the attempt."""
        self._statistics = SlotStatistics()
        self._figures = SlotStatistics()
        self._questions = Questions()
        self._events: queue.SimpleQueue[SlotEvent] = queue.SimpleQueue()
        self._pool: SnapshotPool = pool or SnapshotThreads()
        self._plan: JobPlan | None = None
        self._interrupted = threading.Event()
        self._left = threading.Event()
        """Set when the thread of this attempt has been left behind; every attempt has its own."""
        self.worker = worker or Worker("local-slots")
        self.on_event: Callable[[], None] = lambda: None

    def start(self, plan: JobPlan, attempt: int) -> None:
        """Have as many empty hosts as the plan has slots."""
        self.settle()
        self._plan = plan
        self._statistics.clear()
        self._figures.clear()
        self._interrupted.clear()
        self._left = threading.Event()
        root = Path(self._scratch.name)
        self.hosts = [
            SlotHost(self._clock, self._storage, root / f"slot-{attempt}-{index}")
            for index in range(plan.slots)
        ]
        for index, host in enumerate(self.hosts):
            host.on_ready = self._ready(index)

    def _ready(self, slot: int) -> Any:
        def ready() -> None:
            self._events.put(SlotReady(slot))
            self.on_event()

        return ready

    def settle(self) -> None:
        """Close the operators of the attempt, or leave the thread behind that does not return from them."""
        self._interrupted.set()
        self._await_end(self.worker.post(_each, [host.reset for host in self.hosts]))

    def _await_end(self, closing: Future[Any]) -> None:
        def complain(seconds: float) -> None:
            _log.warning(
                "User code or a storage has not returned for %.0f s. %s", seconds, self.worker.stack()
            )

        if self._cancellation.settled([closing], self.worker.while_waiting, complain):
            return
        _log.warning(
            "User code or a storage did not return within %.0f s (task.cancellation.timeout); its thread is left "
            "behind. %s",
            self._cancellation.timeout_s,
            self.worker.stack(),
        )
        self._left.set()
        for host in self.hosts:
            host.abandon()
        self._pool.abandon()
        self._questions.abandon()
        self.worker.abandon()
        self.hosts = []

    def deploy(self, deployments: list[Deployment]) -> None:
        """Deploy to every host."""
        pairs = zip(self.hosts, deployments, strict=True)
        self.worker.call(_each, [partial(host.deploy, deployment) for host, deployment in pairs])

    def run_epoch(self, work: EpochWork) -> EpochResult:
        """Run one pipeline per split, one after the other; the last one closes the epoch."""
        return self.worker.call(self._run_epoch, work, list(self.hosts), self._left)

    def _run_epoch(self, work: EpochWork, hosts: list[SlotHost], left: threading.Event) -> EpochResult:
        assert self._plan is not None
        make = make_task_sink(self._plan, work.directive)

        def fenced(vertex: Vertex, partition: int) -> TaskSink:
            return FencedSink(make(vertex, partition), left)

        result = EpochResult()
        tasks: list[Any] = list(work.inputs) or [None]
        for at, task in enumerate(tasks):
            pipeline = Pipeline(
                self._plan,
                work.directive,
                -1 if task is None else task.source,
                0 if task is None else task.partition,
                lambda slot: _DirectLink(hosts[slot]),
                lambda _slot, _link: None,
                fenced,
                self._clock,
            )
            try:
                if task is not None:
                    for tag, payload in run_split(pipeline, task):
                        result.rows.setdefault(tag, []).append(payload)
                pipeline.finish(closer=at == len(tasks) - 1)
            except Exception as exc:
                pipeline.report.failure = FailureInfo.of(exc)
            for tag, payload in pipeline.rows():
                result.rows.setdefault(tag, []).append(payload)
            result.reports.append(pipeline.report)
            if pipeline.report.failure is not None or self._interrupted.is_set():
                break
        return result

    def cut(self, request: CutRequest) -> list[tuple[int, BaseException | int]]:
        """Cut every host, then write in the background (or at once)."""
        return self.worker.call(self._cut, request)

    def _cut(self, request: CutRequest) -> list[tuple[int, BaseException | int]]:
        outcomes: list[tuple[int, BaseException | int]] = []
        for slot, host in enumerate(self.hosts):
            try:
                outcomes.append((slot, host.cut(request)))
            except Exception as exc:
                outcomes.append((slot, exc))
        if any(isinstance(outcome, BaseException) for _slot, outcome in outcomes):
            return outcomes
        for slot, host in enumerate(self.hosts):
            self._write_soon(slot, host, request)
        return outcomes

    def _write_soon(self, slot: int, host: SlotHost, request: CutRequest) -> None:
        if request.synchronous:
            self._write(slot, host, request)
        else:
            self._pool.submit(self._write, slot, host, request)

    def _write(self, slot: int, host: SlotHost, request: CutRequest) -> None:
        barriers = host.barrier_times(request.checkpoint_id)
        self._events.put(acknowledgement(slot, request, host.write, barriers))
        self.on_event()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every host."""
        self.worker.call(_each, [partial(host.notify_complete, checkpoint_id) for host in self.hosts])

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Tell every host."""

        def tell() -> None:
            for host in self.hosts:
                try:
                    host.notify_aborted(checkpoint_id)
                except Exception:
                    _log.warning("notify_checkpoint_aborted(%s) failed", checkpoint_id, exc_info=True)

        self.worker.post(tell)

    def finish(self) -> None:
        """Close the operators of every host."""
        self.worker.call(_each, [host.finish for host in self.hosts])

    def source_status(self) -> dict[int, dict[int, dict[str, Any]]]:
        """Statuses of all source functions."""
        statuses: dict[int, dict[int, dict[str, Any]]] = {}
        for slot, host in enumerate(self.hosts):
            for vertex, status in host.source_status().items():
                statuses.setdefault(vertex, {})[slot] = status
        return statuses

    def blocked_ms(self) -> int:
        """The longest wait for user code in a host."""
        return max((host.blocked_ms() for host in self.hosts), default=0)

    def stats(self, timeout: float) -> list[dict[str, Any]]:
        """Statistics of every host; what it said last of one that is busy."""
        answers = self._questions.ask_all(list(self.hosts), SlotHost.stats, timeout)
        return self._statistics.update(answers, list(answers))

    def figures(self, timeout: float) -> list[dict[str, Any]]:
        """Figures of every host; what it said last of one that is busy."""
        process = process_figures()

        def ask(host: SlotHost, patience: float) -> dict[str, Any]:
            return {**host.figures(patience), **process}

        answers = self._questions.ask_all(list(self.hosts), ask, timeout)
        return self._figures.update(answers, list(answers))

    def erase(self, request: EraseRequest, timeout: float) -> list[dict[str, dict[str, int]]]:
        """Forget a key in every host, which takes no longer than the record that is under way."""
        return [host.erase(request) for host in list(self.hosts)]

    def slot_log(self, slot: int, timeout: float) -> str | None:
        """Slots log with the driver."""
        return None

    def slot_pids(self) -> dict[int, int]:
        """Every slot lives in this process."""
        return dict.fromkeys(range(len(self.hosts)), os.getpid())

    def lost(self) -> str | None:
        """Nothing here can be lost without this process."""
        return None

    def events(self) -> list[SlotEvent]:
        """What hosts said since the last call."""
        events = []
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def interrupt(self) -> None:
        """End the running epoch after its current task."""
        self._interrupted.set()

    def stop(self) -> None:
        """Close every host and remove the scratch directory."""
        self._await_end(self.worker.post(_each, [*[host.close for host in self.hosts], self._pool.shutdown]))
        self.worker.close()
        self._questions.close()
        self.hosts = []
        self._scratch.cleanup()
        if self._files is not None:
            self._files.remove()


def _each(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
