"""Runs epochs in this process: the same pipelines and hosts as on Spark, without sockets and without a JVM."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tidemark.checkpoint.storage.base import Storage
from tidemark.clock import Clock
from tidemark.runtime.engine import EpochResult, EpochWork
from tidemark.runtime.pipeline import Pipeline
from tidemark.runtime.plan import JobPlan
from tidemark.runtime.sinks.factory import make_task_sink
from tidemark.runtime.task import run_split
from tidemark.scratch import ScratchDirectory
from tidemark.slot.deploy import Deployment
from tidemark.slot.failure import FailureInfo
from tidemark.slot.host import SlotHost
from tidemark.slot.requests import CutRequest
from tidemark.slot.snapshots import SlotEvent, write_snapshot

__all__ = ["LocalEngine"]


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


class SnapshotPool(Protocol):
    """Where snapshots are written beside the stream."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Call `fn(*args)` now or later."""

    def shutdown(self, wait: bool = True) -> None:
        """Finish what was submitted."""


class LocalEngine:
    """Engine of the local executor."""

    def __init__(self, clock: Clock, storage: Storage, pool: SnapshotPool | None = None) -> None:
        """Create an engine without slots.

        Args:
            clock: Time of all operators.
            storage: Where slots write snapshots.
            pool: What writes them; two threads otherwise.
        """
        self._clock = clock
        self._storage = storage
        self._scratch = ScratchDirectory("tidemark-local-")
        self._hosts: list[SlotHost] = []
        self._events: queue.SimpleQueue[SlotEvent] = queue.SimpleQueue()
        self._pool: SnapshotPool = pool or ThreadPoolExecutor(2, thread_name_prefix="snapshot")
        self._plan: JobPlan | None = None
        self._interrupted = threading.Event()
        self.on_event: Callable[[], None] = lambda: None

    @property
    def hosts(self) -> list[SlotHost]:
        """The slots, for tests and queries."""
        return self._hosts

    def start(self, plan: JobPlan, attempt: int) -> None:
        """Have as many empty hosts as the plan has slots."""
        self._plan = plan
        for host in self._hosts:
            host.reset()
        root = Path(self._scratch.name)
        self._hosts = [
            SlotHost(self._clock, self._storage, root / f"slot-{attempt}-{index}")
            for index in range(plan.slots)
        ]
        for index, host in enumerate(self._hosts):
            host.on_ready = self._ready(index)

    def _ready(self, slot: int) -> Any:
        def ready() -> None:
            self._events.put(SlotEvent(slot, "ready"))
            self.on_event()

        return ready

    def deploy(self, deployments: list[Deployment]) -> None:
        """Deploy to every host."""
        for host, deployment in zip(self._hosts, deployments, strict=True):
            host.deploy(deployment)

    def run_epoch(self, work: EpochWork) -> EpochResult:
        """Run one pipeline per split, one after the other; the last one closes the epoch."""
        assert self._plan is not None
        result = EpochResult()
        tasks: list[Any] = list(work.inputs) or [None]
        for at, task in enumerate(tasks):
            pipeline = Pipeline(
                self._plan,
                work.directive,
                -1 if task is None else task.source,
                0 if task is None else task.partition,
                lambda slot: _DirectLink(self._hosts[slot]),
                lambda _slot, _link: None,
                make_task_sink(self._plan, work.directive),
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
        outcomes: list[tuple[int, BaseException | int]] = []
        for slot, host in enumerate(self._hosts):
            try:
                outcomes.append((slot, host.cut(request)))
            except Exception as exc:
                outcomes.append((slot, exc))
        if any(isinstance(outcome, BaseException) for _slot, outcome in outcomes):
            return outcomes
        for slot, host in enumerate(self._hosts):
            if request.synchronous:
                self._write(slot, host, request)
            else:
                self._pool.submit(self._write, slot, host, request)
        return outcomes

    def _write(self, slot: int, host: SlotHost, request: CutRequest) -> None:
        self._events.put(write_snapshot(slot, host, request))
        self.on_event()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every host."""
        for host in self._hosts:
            host.notify_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Tell every host."""
        for host in self._hosts:
            host.notify_aborted(checkpoint_id)

    def finish(self) -> None:
        """Close the operators of every host."""
        for host in self._hosts:
            host.finish()

    def source_status(self) -> dict[int, dict[int, dict[str, Any]]]:
        """Statuses of all source functions."""
        statuses: dict[int, dict[int, dict[str, Any]]] = {}
        for slot, host in enumerate(self._hosts):
            for vertex, status in host.source_status().items():
                statuses.setdefault(vertex, {})[slot] = status
        return statuses

    def cancel_sources(self) -> None:
        """Ask every source function to return."""
        for host in self._hosts:
            host.cancel_sources()

    def stats(self) -> list[dict[str, Any]]:
        """Statistics of every host."""
        return [host.stats() for host in self._hosts]

    def slot_pids(self) -> dict[int, int]:
        """Every slot lives in this process."""
        return dict.fromkeys(range(len(self._hosts)), os.getpid())

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
        for host in self._hosts:
            host.close()
        self._pool.shutdown(wait=True)
        self._hosts = []
        self._scratch.cleanup()
