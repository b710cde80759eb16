"""Answers requests: one thread per authenticated connection, one request at a time on each."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tidemark.rpc.acceptor import DEFAULT_LIMITS, Acceptor, Limits
from tidemark.wire import Connection

__all__ = ["Respond", "Server"]

_log = logging.getLogger(__name__)

Respond: TypeAlias = Callable[[Connection, Any, bytearray], None]
"""Given a connection and the header and body of a request: sends exactly one frame as the answer."""


class Server:
    """Serves from construction to `close`."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        token: bytes,
        respond: Respond,
        *,
        name: str,
        tls: ssl.SSLContext | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Take over the listening sockets.

        Args:
            listeners: As made by `tidemark.wire.listen`; closed by `close`.
            token: What clients have to know.
            respond: Called for every request, in the thread of its connection. A connection whose answer cannot be
                sent, or for which this raises, is dropped.
            name: What the log and the threads are called.
            tls: Server side of TLS for TCP connections, if they are to be encrypted.
            limits: What strangers and frames may cost.
        """
        self._respond = respond
        self._name = name
        self._closed = False
        self._busy = 0
        self._idle = threading.Condition()
        self._connections: set[Connection] = set()
        self._acceptor = Acceptor(listeners, token, self._serve, name=name, tls=tls, limits=limits)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self, grace_s: float = 0.0) -> None:
        """Stop listening, let requests under way answer for `grace_s` seconds, drop every connection. Idempotent."""
        self._acceptor.close()
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0, grace_s)
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    def _serve(self, connection: Connection) -> None:
        with self._idle:
            closed = self._closed
            self._connections.add(connection)
        try:
            while not closed:
                header, body = connection.receive()
                closed = self._answer(connection, header, body)
        except OSError:
            # The client is gone, or we are.
            pass
        except Exception:
            _log.exception("%s dropped a connection", self._name)
        finally:
            with self._idle:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, connection: Connection, header: Any, body: bytearray) -> bool:
        """Respond; True if no more requests are taken."""
        with self._idle:
            self._busy += 1
        try:
            self._respond(connection, header, body)
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()
        return self._closed
