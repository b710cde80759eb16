"""Asks servers: authenticated connections by address, each used by one request at a time and then again."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from tidemark import wire
from tidemark.errors import TidemarkError

__all__ = ["Call", "Pool", "Unreachable"]

Answer = TypeVar("Answer")
"""What the header of an answer is decoded to."""

_CONNECT_TIMEOUT_S = 5.0
_IDLE_PER_ADDRESS = 16


class Unreachable(ConnectionError):
    """Nobody listens at the address, or whoever does refuses us or cannot prove to know the token."""


class Call(Generic[Answer]):
    """One request on its way: sent on construction by the pool, answered by `result`."""

    __slots__ = ("_address", "_connection", "_pool", "_timeout")

    def __init__(self, pool: Pool[Answer], address: str, connection: wire.Connection, timeout: float) -> None:
        self._pool = pool
        self._address = address
        self._connection = connection
        self._timeout = timeout

    def result(self) -> tuple[Answer, bytearray]:
        """Wait for the answer; call it once.

        Raises:
            WireClosed: The peer is gone, or does not speak our protocol.
            TimeoutError: No answer came in time.
        """
        try:
            self._connection.set_timeout(self._timeout)
            header, body = self._connection.receive()
            self._connection.set_timeout(None)
            answer = self._pool.decode(header)
        except msgspec.MsgspecError as exc:
            self.abandon()
            raise wire.WireClosed(f"{self._address} sent no answer of ours: {exc}") from exc
        except TimeoutError:
            self.abandon()
            raise
        except OSError as exc:
            self.abandon()
            raise wire.WireClosed(str(exc)) from exc
        self._pool.give_back(self._address, self._connection)
        return answer, body

    def abandon(self) -> None:
        """Do not wait for the answer."""
        self._pool.discard(self._connection)


class Pool(Generic[Answer]):
    """Idle connections by address. Thread-safe."""

    def __init__(
        self, token: bytes, decode: Callable[[Any], Answer], tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect to nobody yet.

        Args:
            token: What is proved to everyone we connect to, and asked of them.
            decode: Makes an answer of a received header; raises `msgspec.ValidationError` if it is none.
            tls: Client side of TLS, if the servers want it.
        """
        self.decode = decode
        self._token = token
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: dict[str, list[wire.Connection]] = {}
        self._busy: set[wire.Connection] = set()
        self._closed = False

    def call(self, address: str, request: Any, body: Any = b"", *, timeout: float) -> Call[Answer]:
        """Send a request; `request` is its header.

        Raises:
            Unreachable: There is no connection to be had.
            WireClosed: The peer went away; other idle connections to it are dropped too.
        """
        connection = self._take(address, timeout)
        try:
            connection.set_timeout(timeout)
            connection.send(request, body)
        except OSError as exc:
            self.discard(connection)
            self.forget(address)
            raise wire.WireClosed(str(exc)) from exc
        return Call(self, address, connection, timeout)

    def give_back(self, address: str, connection: wire.Connection) -> None:
        """Keep a connection whose answer was read whole."""
        with self._lock:
            self._busy.discard(connection)
            idle = self._idle.setdefault(address, [])
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

    def _take(self, address: str, timeout: float) -> wire.Connection:
        with self._lock:
            idle = self._idle.get(address)
            if idle and not self._closed:
                connection = idle.pop()
                self._busy.add(connection)
                return connection
        try:
            connection = wire.connect(address, self._token, min(timeout, _CONNECT_TIMEOUT_S), self._tls)
        except (OSError, TidemarkError) as exc:
            raise Unreachable(str(exc)) from exc
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise Unreachable(f"The connections to {address} were closed.")
