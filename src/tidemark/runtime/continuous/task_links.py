"""The driver's side of the control links of long-running tasks: who has connected, what they say, what they are told.

Rows that a Spark task yields reach the driver when the task ends; what a task without end has to say goes over a
connection of its own. A task that is cut off ends itself: it hears nothing for as long as a slot may.
"""

from __future__ import annotations

import logging
import pickle
import queue
import threading
from collections.abc import Callable

from tidemark.protocol.tasks import EndTask, Heartbeat, TaskCommand, TaskEvent, TaskLost
from tidemark.rpc import Acceptor
from tidemark.wire import Connection, SharedConnection, WireClosed, listen

__all__ = ["TaskLinks"]

_log = logging.getLogger(__name__)

_INTRODUCTION_S = 60.0
"""How long a task that has connected may take to say which one it is."""
_EVENTS = 4096
"""Events the driver has not looked at yet; tasks that send more have to wait."""


class TaskLinks:
    """Listens from construction to `close`, over all attempts of a job."""

    def __init__(self, token: bytes, listen_at: str, heartbeat_s: float) -> None:
        """Start listening.

        Args:
            token: What tasks have to know.
            listen_at: In the form of `tidemark.wire`.
            heartbeat_s: How often tasks hear that the driver is there.
        """
        listener, self.address = listen(listen_at)
        self._lock = threading.Lock()
        self._attempt = -1
        self._connected: dict[int, SharedConnection] = {}
        self._early: dict[int, list[TaskCommand]] = {}
        """What tasks that have not connected yet are to be told."""
        self._events: queue.Queue[tuple[int, TaskEvent]] = queue.Queue(_EVENTS)
        self._heartbeat_s = heartbeat_s
        self._closed = threading.Event()
        self.on_event: Callable[[], None] = lambda: None
        """Called, from any thread, when there is something in `events`."""
        self._acceptor = Acceptor([listener], token, self._serve, name="task-links")
        threading.Thread(target=self._beat, name="task-heartbeat", daemon=True).start()

    def begin(self, attempt: int) -> None:
        """Forget the tasks of the attempt before; those of `attempt` may connect."""
        with self._lock:
            self._attempt = attempt
            old, self._connected, self._early = list(self._connected.values()), {}, {}
        for connection in old:
            connection.close()
        self.events()

    def connected(self) -> int:
        """How many tasks of the attempt have connected."""
        return len(self._connected)

    def tell(self, task: int, command: TaskCommand) -> None:
        """Send a command, or keep it until the task has connected; a task that is gone says so in `events`."""
        with self._lock:
            connection = self._connected.get(task)
            if connection is None:
                self._early.setdefault(task, []).append(command)
                return
        try:
            connection.send([], pickle.dumps(command, 5))
        except WireClosed:
            _log.debug("Task %s is gone and was not told %s", task, type(command).__name__)

    def events(self) -> list[TaskEvent]:
        """What tasks of the attempt said since the last call."""
        events: list[TaskEvent] = []
        while True:
            try:
                attempt, event = self._events.get_nowait()
            except queue.Empty:
                return events
            if attempt == self._attempt:
                events.append(event)

    def end(self) -> None:
        """Tell every task of the attempt that it is over, also those that connect later."""
        with self._lock:
            self._attempt = -1
            connections, self._connected = list(self._connected.values()), {}
        for connection in connections:
            try:
                connection.send([], pickle.dumps(EndTask(), 5))
            except WireClosed:
                continue

    def close(self) -> None:
        """Stop listening and let go of every task."""
        self._closed.set()
        self._acceptor.close()
        self.begin(-1)

    def _serve(self, connection: Connection) -> None:
        try:
            connection.set_timeout(_INTRODUCTION_S)
            (task, attempt), _body = connection.receive()
            connection.set_timeout(None)
            shared = SharedConnection(connection)
            if not self._introduce(int(task), int(attempt), shared):
                connection.close()
                return
        except (OSError, TypeError, ValueError) as exc:
            _log.warning("A connection that did not introduce itself as a task was dropped: %s", exc)
            connection.close()
            return
        self._listen(int(task), int(attempt), shared)

    def _introduce(self, task: int, attempt: int, connection: SharedConnection) -> bool:
        """Take a task in, unless its attempt is over or it is there already: then Spark has started it twice."""
        with self._lock:
            if attempt != self._attempt or task in self._connected:
                return False
            for command in self._early.pop(task, []):
                connection.send([], pickle.dumps(command, 5))
            self._connected[task] = connection
            return True

    def _listen(self, task: int, attempt: int, connection: SharedConnection) -> None:
        try:
            while True:
                _header, body = connection.receive()
                self._put(attempt, pickle.loads(body))
        except WireClosed as exc:
            self._put(attempt, TaskLost(task, str(exc)))
        finally:
            connection.close()

    def _put(self, attempt: int, event: TaskEvent) -> None:
        while attempt == self._attempt and not self._closed.is_set():
            try:
                self._events.put((attempt, event), timeout=0.1)
            except queue.Full:
                self.on_event()
                continue
            self.on_event()
            return

    def _beat(self) -> None:
        while not self._closed.wait(self._heartbeat_s):
            for task in list(self._connected):
                self.tell(task, Heartbeat())
