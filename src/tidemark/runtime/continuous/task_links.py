"""The driver's side of the control links of long-running tasks: who has connected, what they say, what they are told.

Rows that a Spark task yields reach the driver when the task ends; what a task without end has to say goes over a
connection of its own. A task that is cut off ends itself: it hears nothing for as long as a slot may. One that says
nothing for as long, because it is frozen, is lost.
"""

from __future__ import annotations

import logging
import pickle
import queue
import ssl
import threading
from collections.abc import Callable

from tidemark.config import Options
from tidemark.protocol.tasks import EndTask, Heartbeat, TaskAlive, TaskCommand, TaskEvent, TaskLost
from tidemark.rpc import Acceptor
from tidemark.wire import Connection, WireClosed, listen

__all__ = ["TaskLinks"]

_log = logging.getLogger(__name__)

_INTRODUCTION_S = 60.0
"""How long a task that has connected may take to say which one it is."""
_EVENTS = 4096
"""Events the driver has not looked at yet; tasks that send more have to wait."""


class TaskLinks:
    """Listens from construction to `close`, over all attempts of a job."""

    def __init__(
        self,
        token: bytes,
        listen_at: str,
        heartbeat_s: float,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Start listening.

        Args:
            token: What tasks have to know.
            listen_at: In the form of `tidemark.wire`.
            heartbeat_s: How often tasks hear that the driver is there.
            timeout_s: How long a task may be silent.
            tls: Server side of TLS, if TCP connections are to be encrypted.
        """
        listener, self.address = listen(listen_at, option=Options.DRIVER_PORTS.key)
        self._lock = threading.Lock()
        self._attempt = -1
        self._connected: dict[int, _Link] = {}
        self._early: dict[int, list[TaskCommand]] = {}
        """What tasks that have not connected yet are to be told."""
        self._events: queue.Queue[tuple[int, TaskEvent]] = queue.Queue(_EVENTS)
        self._heartbeat_s = heartbeat_s
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self.on_event: Callable[[], None] = lambda: None
        """Called, from any thread, when there is something in `events`."""
        self._acceptor = Acceptor([listener], token, self._serve, name="task-links", tls=tls)
        threading.Thread(target=self._beat, name="task-heartbeat", daemon=True).start()

    def begin(self, attempt: int) -> None:
        """Forget the tasks of the attempt before; those of `attempt` may connect."""
        with self._lock:
            self._attempt = attempt
            old, self._connected, self._early = list(self._connected.values()), {}, {}
        for link in old:
            link.close()
        self.events()

    def connected(self) -> int:
        """How many tasks of the attempt have connected."""
        return len(self._connected)

    def tell(self, task: int, command: TaskCommand) -> None:
        """Send a command soon, or when the task has connected; one that is gone says so in `events`. Never waits."""
        with self._lock:
            link = self._connected.get(task)
            if link is None:
                self._early.setdefault(task, []).append(command)
            else:
                link.tell(command)

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
            links, self._connected = list(self._connected.values()), {}
        for link in links:
            link.tell(EndTask())

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
            if (link := self._introduce(int(task), int(attempt), connection)) is None:
                connection.close()
                return
        except (OSError, TypeError, ValueError, ArithmeticError) as exc:
            _log.warning("A connection that did not introduce itself as a task was dropped: %s", exc)
            connection.close()
            return
        try:
            self._listen(int(task), int(attempt), link)
        finally:
            link.close()

    def _introduce(self, task: int, attempt: int, connection: Connection) -> _Link | None:
        """Take a task in, unless its attempt is over or it is there already: then Spark has started it twice."""
        with self._lock:
            if attempt != self._attempt or task in self._connected:
                return None
            link = self._connected[task] = _Link(connection)
            for command in self._early.pop(task, []):
                link.tell(command)
            return link

    def _listen(self, task: int, attempt: int, link: _Link) -> None:
        try:
            while True:
                event = _event_of(task, link.receive())
                if not isinstance(event, TaskAlive):
                    self._put(attempt, event)
        except WireClosed as exc:
            self._put(attempt, TaskLost(task, link.given_up or str(exc)))
        except Exception as exc:
            # Whoever waits must not wait for a word that was there and could not be read.
            self._put(attempt, TaskLost(task, f"it sent what cannot be read ({type(exc).__name__}: {exc})"))

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
            for link in list(self._connected.values()):
                if link.missed() * self._heartbeat_s > self._timeout_s:
                    link.give_up(f"it has not been heard of for {self._timeout_s:.0f} s (heartbeat.timeout)")
                else:
                    link.beat()


def _event_of(task: int, body: bytearray) -> TaskEvent:
    """What a task said.

    Raises:
        Exception: It cannot be read; unpickling raises whatever it likes.
    """
    event = pickle.loads(body)
    if not isinstance(event, TaskEvent) or event.task != task:
        raise ValueError(f"{type(event).__name__} is no event of task {task}")
    return event


class _Link:
    """One task that has connected; what it is told leaves in a thread of its own.

    A task that waits until the driver has taken its rows does not read meanwhile. A driver that waited for it in turn
    to take a command would wait for ever.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listened_to = False
        self._words = 0
        self._counted = 0
        """Words at the last beat."""
        self._missed = 0
        self.given_up: str | None = None
        """Why the driver has let go of it, if it did so by itself."""
        self._commands: queue.SimpleQueue[TaskCommand | None] = queue.SimpleQueue()
        threading.Thread(target=self._send, name="task-commands", daemon=True).start()

    def receive(self) -> bytearray:
        """What the task says next."""
        # Each number has one thread that writes it: this one what was said, the beat what was missed.
        self._words += 1
        self._listened_to = True
        try:
            return self._connection.receive()[1]
        finally:
            self._listened_to = False

    def missed(self) -> int:
        """Count one more beat without a word of the task, and say how many they are; none while nobody listens.

        Beats and no clock: behind a pause of the driver it is the driver that was silent.
        """
        said, self._counted = self._words != self._counted, self._words
        if not self._listened_to:
            self._missed = 0
        else:
            self._missed = 1 if said else self._missed + 1
        return self._missed

    def give_up(self, why: str) -> None:
        """Let go of a task that is silent; whoever listens to it tells of its loss."""
        self.given_up = why
        self._connection.close()

    def tell(self, command: TaskCommand) -> None:
        """Send a command behind those before."""
        self._commands.put(command)

    def beat(self) -> None:
        """Let the task hear something, if it has nothing else to hear."""
        if self._commands.empty():
            self.tell(Heartbeat())

    def close(self) -> None:
        """Let go of the task."""
        self._connection.close()
        self._commands.put(None)

    def _send(self) -> None:
        while (command := self._commands.get()) is not None:
            try:
                self._connection.send([], pickle.dumps(command, 5))
            except WireClosed:
                _log.debug("A task is gone and was not told %s", type(command).__name__)
                return
