"""Where queries come in: what the slot's server and the driver's proxy share, a port, turns and figures."""

from __future__ import annotations

import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from tidemark import wire
from tidemark.ports import check_port
from tidemark.queryablestate.protocol import MAX_QUERY, QUERIES, Operation, Request, decode_request
from tidemark.queryablestate.stats import QueryStatistics
from tidemark.rpc import DEFAULT_THREADS, Incoming, Limits, PooledServer, ServerThreads

__all__ = ["QueryEndpoint"]

_log = logging.getLogger(__name__)


class QueryEndpoint(ABC):
    """Listens from construction to `close`; a fixed number of threads, one request at a time per connection.

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
        threads: ServerThreads = DEFAULT_THREADS,
        tls: ssl.SSLContext | None = None,
        strangers: int = Limits().handshakes,
    ) -> None:
        """Listen on the first free port.

        Args:
            ports: Ports to try in this order; 0 takes any.
            token: What clients have to know.
            bind: Interface to listen on.
            threads: How many receive requests, how many answer them.
            tls: Server side of TLS, if the connection is to be encrypted.
            strangers: How many connections may be proving themselves at the same time.

        Raises:
            ConfigError: None of the ports is free.
        """
        self.statistics = QueryStatistics()
        tried = ",".join(str(check_port(port)) for port in ports)
        listener, self.address = wire.listen(f"tcp:{bind}:{tried}", option=self.option)
        self.port = int(self.address.rpartition(":")[2])
        _log.info("Started the %s @ %s:%d", self.title, bind, self.port)
        limits = Limits(body=MAX_QUERY, handshakes=strangers)
        self._server = PooledServer(
            [listener], token, self._respond, name=self.title, threads=threads, tls=tls, limits=limits
        )

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
    def _answer(self, operation: Operation, request: Request, query: Incoming) -> int:
        """Reply to `query` and return how many keys were looked up.

        Raises:
            Refused: There is no reply; the refusal is to be sent.
        """

    def _respond(self, connection: wire.Connection, header: Any, body: bytearray) -> None:
        query = Incoming(connection, header, body, QUERIES)
        started = time.perf_counter()
        try:
            keys = self._answer(Operation(query.name), decode_request(query.payload()), query)
        except wire.WireClosed:
            raise
        except Exception as exc:
            _log.debug("%s has no answer to '%s'", self.title, query.name, exc_info=True)
            self.statistics.record(time.perf_counter() - started, 0, failed=True)
            query.fail(exc)
        else:
            self.statistics.record(time.perf_counter() - started, keys)
