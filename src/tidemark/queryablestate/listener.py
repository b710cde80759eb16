"""A small threaded server of authenticated frames: what the slot's server and the driver's proxy share."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tidemark import wire
from tidemark.errors import ConfigError
from tidemark.queryablestate.ports import check_port
from tidemark.queryablestate.protocol import Request, Response, Status, decode_request
from tidemark.queryablestate.stats import QueryStatistics
from tidemark.rpc import Server

__all__ = ["Refused", "RequestServer"]

_log = logging.getLogger(__name__)


class Refused(Exception):
    """Ends a request with this response instead of an answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.message)
        self.response = response


class RequestServer(ABC):
    """Listens from construction to `close`; one thread per connection, one request at a time on each.

    Attributes:
        port: Where it listens.
        statistics: Figures of the requests; off unless asked for.
    """

    title: str
    """What the log calls it."""
    option: str
    """Configuration key of its ports."""

    def __init__(
        self,
        ports: Sequence[int],
        token: bytes,
        bind: str = "127.0.0.1",
        *,
        query_threads: int = 0,
        statistics: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Listen on the first free port.

        Args:
            ports: Ports to try in this order; 0 takes any.
            token: What clients have to know.
            bind: Interface to listen on.
            query_threads: Requests answered at the same time; 0 means as many as there are connections.
            statistics: Whether to count requests from the start.
            tls: Server side of TLS, if the connection is to be encrypted.

        Raises:
            ConfigError: None of the ports is free.
        """
        self._turn = threading.BoundedSemaphore(query_threads) if query_threads else None
        self.statistics = QueryStatistics(enabled=statistics)
        listener, self.address = self._listen(ports, bind)
        self.port = int(self.address.rpartition(":")[2])
        _log.info("Started the %s @ %s:%d", self.title, bind, self.port)
        self._server = Server([listener], token, self._handle, name=self.title, tls=tls)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._server.closed

    def close(self) -> None:
        """Stop listening and drop every connection. Idempotent; does not wait for requests under way."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def _answer(self, connection: wire.Connection, request: Request, body: bytes | bytearray) -> int:
        """Send exactly one frame as the answer and return how many keys were looked up.

        Raises:
            Refused: Nothing was sent; this response is to be.
        """

    def _listen(self, ports: Sequence[int], bind: str) -> tuple[socket.socket, str]:
        reason: OSError | None = None
        for port in ports:
            try:
                return wire.listen(f"tcp:{bind}:{check_port(port)}")
            except OSError as exc:
                reason = exc
        raise ConfigError(
            f"No free port for the {self.title} on {bind} among {_shorten(ports)} ({reason}). "
            f"Give a wider range with {self.option}."
        )

    def _handle(self, connection: wire.Connection, header: Any, body: bytearray) -> None:
        try:
            request = decode_request(header)
        except msgspec.ValidationError as exc:
            connection.send(Response(Status.FAILED, message=f"Not a request: {exc}"))
            return
        if self._turn is None:
            self._respond(connection, request, body)
            return
        with self._turn:
            self._respond(connection, request, body)

    def _respond(self, connection: wire.Connection, request: Request, body: bytearray) -> None:
        started = time.perf_counter()
        try:
            keys = self._answer(connection, request, body)
        except wire.WireClosed:
            raise
        except Exception as exc:
            if isinstance(exc, Refused):
                response = exc.response
            else:
                _log.debug("%s failed on a request for '%s'", self.title, request.name, exc_info=True)
                response = Response(Status.FAILED, message=f"{type(exc).__name__}: {exc}")
            self.statistics.record(time.perf_counter() - started, 0, failed=True)
            connection.send(response)
        else:
            self.statistics.record(time.perf_counter() - started, keys)


def _shorten(ports: Sequence[int]) -> str:
    if len(ports) <= 4:
        return ", ".join(map(str, ports)) or "no port"
    return f"{ports[0]}, {ports[1]}, ... {ports[-1]}"
