"""Asks servers: authenticated connections by address, each used by one request at a time and then again."""

from __future__ import annotations

import ssl
import threading
from typing import Any

from tidemark import wire
from tidemark.errors import TidemarkError
from tidemark.rpc.codecs import Codec
from tidemark.rpc.messages import REQUEST, read_answer

__all__ = ["Call", "Connections", "Pool", "Unreachable"]

_CONNECT_S = 10.0
_IDLE_PER_ADDRESS = 64


class Unreachable(wire.WireClosed):
    """Nobody listens at the address, or whoever does refuses us or cannot prove to know the token."""


class Connections:
    """Connections by address, kept while nobody uses them. Thread-safe."""

    def __init__(
        self,
        token: bytes,
        tls: ssl.SSLContext | None = None,
        connect_s: float = _CONNECT_S,
        max_body: int = wire.MAX_BODY,
    ) -> None:
        """Connect to nobody yet.

        Args:
            token: What is proved to everyone we connect to, and asked of them.
            tls: Client side of TLS, if the servers want it.
            connect_s: Seconds a new connection may take, handshake included, where `take` is given no timeout.
            max_body: Bytes of the largest body of a frame, in either direction.
        """
        self._max_body = max_body
        self._token = token
        self._tls = tls
        self._connect_s = connect_s
        self._lock = threading.Lock()
        self._idle: dict[str, list[wire.Connection]] = {}
        self._busy: set[wire.Connection] = set()
        self._closed = False

    def take(self, address: str, timeout: float | None = None) -> wire.Connection:
        """A connection that nobody else uses, until `give_back` or `discard`.

        Raises:
            Unreachable: There is none to be had within `timeout` seconds. Behind a flood it takes as long as the
                server needs to work off its backlog.
        """
        with self._lock:
            idle = self._idle.get(address)
            if idle and not self._closed:
                connection = idle.pop()
                self._busy.add(connection)
                return connection
        patience = self._connect_s if timeout is None else timeout
        try:
            connection = wire.connect(address, self._token, patience, self._tls, self._max_body)
        except (OSError, TidemarkError) as exc:
            raise Unreachable(str(exc)) from exc
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise Unreachable(f"The connections to {address} were closed.")

    def give_back(self, connection: wire.Connection) -> None:
        """Keep a connection on which nothing is under way."""
        with self._lock:
            self._busy.discard(connection)
            idle = self._idle.setdefault(connection.address, [])
            if not self._closed and len(idle) < _IDLE_PER_ADDRESS:
                idle.append(connection)
                return
        connection.close()

    def discard(self, connection: wire.Connection) -> None:
        """Close a connection in unknown condition."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def forget(self, address: str) -> None:
        """Close the idle connections to an address."""
        with self._lock:
            connections = self._idle.pop(address, [])
        for connection in connections:
            connection.close()

    def close(self) -> None:
        """Close everything; requests under way fail with `WireClosed`. Idempotent."""
        with self._lock:
            self._closed = True
            connections = [*self._busy, *(c for idle in self._idle.values() for c in idle)]
            self._idle.clear()
        for connection in connections:
            connection.close()


class Pool(Connections):
    """Sends requests to any number of servers of one protocol."""

    def __init__(
        self,
        token: bytes,
        codec: Codec,
        tls: ssl.SSLContext | None = None,
        max_body: int = wire.MAX_BODY,
    ) -> None:
        """Connect to nobody yet; `codec` and `max_body` are those of the servers."""
        super().__init__(token, tls, max_body=max_body)
        self.codec = codec

    def call(self, address: str, name: str, payload: Any, timeout: float) -> Call:
        """Send a request.

        Raises:
            Unreachable: There is no connection to be had.
            WireClosed: The peer went away; other idle connections to it are dropped too.
            FrameTooLargeError: The request is too large; nothing was sent.
        """
        connection = self.take(address, timeout)
        try:
            connection.set_timeout(timeout)
            connection.send([REQUEST, 0, name], self.codec.encode(payload))
        except wire.FrameTooLargeError:
            self.give_back(connection)
            raise
        except OSError as exc:
            self.discard(connection)
            self.forget(address)
            raise wire.WireClosed(str(exc)) from exc
        return Call(self, connection)


class Call:
    """One request on its way: sent by the pool, answered by `result`."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool, connection: wire.Connection) -> None:
        self._pool = pool
        self._connection = connection

    def result(self) -> Any:
        """Wait for the answer; call it once.

        Raises:
            WireClosed: The peer is gone, or does not speak our protocol.
            TimeoutError: No answer came in time.
            BaseException: What the peer answered with, as the codec restores it.
        """
        try:
            _number, result, error = read_answer(*self._connection.receive(), self._pool.codec)
        except OSError:
            self.abandon()
            raise
        except Exception as exc:
            self.abandon()
            raise wire.WireClosed(f"{self._connection.address} sent no answer of ours: {exc}") from exc
        self._pool.give_back(self._connection)
        if error is not None:
            raise error
        return result

    def abandon(self) -> None:
        """Do not wait for the answer."""
        self._pool.discard(self._connection)
