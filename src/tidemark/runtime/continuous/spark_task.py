"""The endless function Spark runs in every task of a continuous job: one loop, one selector, and a heart beside it.

It waits for whatever comes first: an answer of a slot, a word of the driver, something to read, or the time at which
something is due. It ends when the driver says so, when its control link breaks, or when the
driver has been silent for the lease.
"""

from __future__ import annotations

import gc
import pickle
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.clock import SystemClock
from tidemark.plan.vertex import Vertex
from tidemark.protocol.failure import FailureInfo
from tidemark.protocol.tasks import TaskAlive, TaskDirective, TaskEvent, TaskFailed
from tidemark.runtime.continuous.channel_exchange import ChannelLink
from tidemark.runtime.continuous.task import ContinuousTask
from tidemark.runtime.launch import client_tls, shipped_files
from tidemark.runtime.pipeline import TaskSink
from tidemark.runtime.sinks.factory import make_part
from tidemark.runtime.slot_manager import SlotAddress
from tidemark.runtime.spark_task import SlotLinks, TaskClosure, plan_of
from tidemark.slot.allocator import keep_batches
from tidemark.wire import PATIENCE_S, Connection, SharedConnection, WireClosed, connect

__all__ = ["TaskMessage", "endless_function"]

_BEATS = 6
"""Signs of life in the time that a task may be silent."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """What the tasks of one attempt have to know."""

    directive: TaskDirective
    slots: list[SlotAddress]
    driver: str
    """Where the control link goes."""
    lease_s: float
    """How long the driver may be silent, and the task."""


class SocketLink:
    """A channel over a connection to a slot."""

    def __init__(self, connection: Connection, close: Callable[[Connection], None]) -> None:
        self._connection = connection
        self._close = close
        self.fileno = connection.fileno
        self.send = connection.send

    def poll(self) -> tuple[Any, Any] | None:
        """The answer, if its first bytes are there."""
        return self._connection.receive() if self._connection.readable() else None

    def close(self) -> None:
        """Let go of the connection."""
        self._close(self._connection)


def endless_function(closure: TaskClosure, message: TaskMessage) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The `mapInArrow` function of a continuous job; the number of the row it gets is that of the task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        gc.freeze()
        keep_batches()
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if not again:
                    # A task that Spark starts a second time would read what the first one has read: the attempt
                    # is over anyway, and the driver knows it by the broken link.
                    with chdir(shipped_files()) if closure.shipped_files else nullcontext():
                        _Loop(closure, message, number).run()
        yield from ()

    return run


class _Loop:
    """One task and its waiting."""

    def __init__(self, closure: TaskClosure, message: TaskMessage, number: int) -> None:
        self._closure = closure
        self._message = message
        self._number = number
        self._heard = time.monotonic()
        self._over = threading.Event()

    def run(self) -> None:
        """Run until the driver ends the task, or is gone."""
        try:
            tls = client_tls(self._closure.tls) if self._message.driver.startswith("tcp:") else None
            connection = connect(self._message.driver, self._closure.token, PATIENCE_S, tls)
        except WireClosed:
            return
        self._control = SharedConnection(connection)
        try:
            self._control.send([self._number, self._message.directive.attempt])
            threading.Thread(target=self._beat, name="task-heart", daemon=True).start()
            self._guarded()
        except WireClosed:
            # The driver is gone, or has given this attempt up.
            pass
        finally:
            self._over.set()
            self._control.close()

    def _beat(self) -> None:
        """Say that the process runs, also while user code keeps the loop from saying anything."""
        with suppress(WireClosed):
            while not self._over.wait(self._message.lease_s / _BEATS):
                self._tell(TaskAlive(self._number))

    def _guarded(self) -> None:
        links = SlotLinks(self._message.slots, self._closure)
        task: ContinuousTask | None = None
        try:
            task = self._start(links)
            self._loop(task)
        except WireClosed:
            raise
        except Exception as exc:
            self._tell(TaskFailed(self._number, FailureInfo.of(exc)))
        finally:
            if task is not None:
                task.close()
            links.drop()

    def _start(self, links: SlotLinks) -> ContinuousTask:
        plan = plan_of(self._closure)
        directive = self._message.directive

        def open_link(slot: int) -> ChannelLink:
            return SocketLink(links.take(slot), links.discard)

        def make_sink(vertex: Vertex, partition: int, part: int) -> TaskSink:
            return make_part(plan, directive, vertex, partition, part)

        return ContinuousTask(plan, directive, self._number, open_link, make_sink, self._tell, SystemClock())

    def _tell(self, event: TaskEvent) -> None:
        self._control.send([], pickle.dumps(event, 5))

    def _loop(self, task: ContinuousTask) -> None:
        lease = self._message.lease_s
        while not task.ended:
            self._obey(task)
            # Only here: a step may take longer than the lease, and the driver has spoken meanwhile.
            if time.monotonic() - self._heard > lease:
                raise WireClosed(f"no word from the driver for {lease:.0f} s")
            if not task.ended and not task.step():
                self._wait(task)

    def _obey(self, task: ContinuousTask) -> None:
        while self._control.readable():
            _header, body = self._control.receive()
            self._heard = time.monotonic()
            task.obey(pickle.loads(body))

    def _wait(self, task: ContinuousTask) -> None:
        poller = select.poll()
        poller.register(self._control.fileno(), select.POLLIN)
        for link in task.waiting():
            poller.register(link.fileno(), select.POLLIN)
        for fd in task.wake_fds():
            poller.register(fd, select.POLLIN)
        poller.poll(min(task.patience(), self._message.lease_s) * 1000)
