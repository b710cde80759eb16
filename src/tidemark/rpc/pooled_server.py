"""Answers requests with a fixed number of threads, however many connections there are.

At most `network` threads receive, each from connections of its own, and at most `query` answer. A thread that has
received a request leaves receiving to another one and answers itself: a request that were handed on would wait once
more for a busy interpreter. While all answering is taken, requests that were received wait, then no more are received.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.rpc.acceptor import DEFAULT_LIMITS, Acceptor, Limits
from tidemark.rpc.frame_reader import FrameReader
from tidemark.rpc.server import Respond
from tidemark.wire import Connection, WireClosed

__all__ = ["DEFAULT_THREADS", "PooledServer", "ServerThreads"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerThreads:
    """How many threads a server has."""

    network: int = 1
    """That receive requests."""
    query: int = 1
    """That answer them."""


DEFAULT_THREADS = ServerThreads()


class PooledServer:
    """Serves from construction to `close`; one request at a time on each connection."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        token: bytes,
        respond: Respond,
        *,
        name: str,
        threads: ServerThreads,
        tls: ssl.SSLContext | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Take over the listening sockets.

        Args:
            listeners: As made by `tidemark.wire.listen`; closed by `close`.
            token: What clients have to know.
            respond: Called for every request. A connection whose answer cannot be sent, or for which this raises, is
                dropped.
            name: What the log and the threads are called.
            threads: How many there are.
            tls: Server side of TLS for TCP connections, if they are to be encrypted.
            limits: What strangers and frames may cost.
        """
        self._respond = respond
        self._name = name
        self._closed = threading.Event()
        self._answering = threading.BoundedSemaphore(threads.query)
        self._receivers = [_Receiver() for _ in range(threads.network)]
        self._idle: queue.SimpleQueue[_Receiver] = queue.SimpleQueue()
        for receiver in self._receivers:
            self._idle.put(receiver)
        self._next = itertools.cycle(self._receivers)
        for _ in range(threads.network + threads.query):
            threading.Thread(target=self._run, name=name, daemon=True).start()
        self._acceptor = Acceptor(listeners, token, self._welcome, name=name, tls=tls, limits=limits)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """Stop listening and drop every connection. Idempotent; does not wait for requests under way."""
        self._acceptor.close()
        self._closed.set()
        for receiver in self._receivers:
            receiver.close()

    def _welcome(self, connection: Connection) -> None:
        next(self._next).watch(FrameReader(connection))

    def _run(self) -> None:
        while not self._closed.is_set():
            receiver = self._idle.get()
            try:
                reader = receiver.next_request()
            finally:
                # Also at the end: the next thread finds the receiver closed, and passes it on.
                self._idle.put(receiver)
            if reader is not None:
                with self._answering:
                    self._answer(reader, receiver)

    def _answer(self, reader: FrameReader, receiver: _Receiver) -> None:
        try:
            self._respond(reader.connection, *reader.take())
        except OSError:
            # The client is gone, or we are.
            receiver.drop(reader)
        except Exception:
            _log.exception("%s dropped a connection", self._name)
            receiver.drop(reader)
        else:
            receiver.watch(reader)


class _Receiver:
    """Some of the connections: one thread at a time waits for the next request on any of them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._closed = False
        self._newcomers: deque[FrameReader] = deque()
        self._ready: deque[FrameReader] = deque()
        self._all: set[FrameReader] = set()
        """Whoever is connected, also while a request of his is answered."""

    def watch(self, reader: FrameReader) -> None:
        """Wait for the next request of this connection, too."""
        with self._lock:
            if not self._closed:
                self._all.add(reader)
                self._newcomers.append(reader)
                self._wake()
                return
        reader.close()

    def drop(self, reader: FrameReader) -> None:
        """Close this connection, which is not watched."""
        with self._lock:
            self._all.discard(reader)
        reader.close()

    def close(self) -> None:
        """Drop every connection; whoever waits is woken."""
        with self._lock:
            self._closed = True
            self._wake()
            for reader in self._all:
                reader.close()

    def next_request(self) -> FrameReader | None:
        """A connection that has received a request; it is not watched until `watch`. None at the end."""
        while not self._closed:
            try:
                self._look()
            except (OSError, ValueError, KeyError):
                # Sockets that `close` has closed meanwhile cannot be looked at.
                if not self._closed:
                    raise
            if self._ready:
                return self._ready.popleft()
        with self._lock:
            # Here nobody waits on them any more.
            self._selector.close()
            self._woken.close()
            self._waker.close()
        return None

    def _look(self) -> None:
        while self._newcomers:
            # What TLS has read ahead no selector tells of, so everybody is looked at once.
            self._advance(self._newcomers.popleft())
        if self._ready:
            return
        for key, _events in self._selector.select():
            if key.data is not None:
                self._advance(key.data)
            else:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)

    def _advance(self, reader: FrameReader) -> None:
        key = self._selector.get_map().get(reader.socket) if reader.socket.fileno() >= 0 else None
        try:
            event = reader.advance()
        except WireClosed:
            event = -1
        if event > 0:
            if key is None:
                self._selector.register(reader.socket, event, reader)
            elif key.events != event:
                self._selector.modify(reader.socket, event, reader)
            return
        if key is not None:
            self._selector.unregister(reader.socket)
        if event == 0:
            self._ready.append(reader)
            return
        self.drop(reader)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"!")
