"""Queryable state of the local executor: one server per host of the running attempt, in this process."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence

from tidemark.queryablestate.server import QueryableStateServer
from tidemark.rpc import Limits, ServerThreads
from tidemark.runtime.local_engine import LocalEngine
from tidemark.slot.host import SlotHost

__all__ = ["LocalQueryServers"]

_FEWEST_STRANGERS = 4


class LocalQueryServers:
    """Follows the hosts of a local engine; every attempt has new ones. Thread-safe."""

    def __init__(
        self,
        engine: LocalEngine,
        token: bytes,
        ports: Sequence[int],
        threads: ServerThreads,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Nothing listens before the first call of `addresses`."""
        self._engine = engine
        self._token = token
        self._ports = ports
        self._threads = threads
        self._tls = tls
        self._lock = threading.Lock()
        self._hosts: list[SlotHost] = []
        self._servers: list[QueryableStateServer] = []

    def addresses(self) -> list[str]:
        """Address of the server of each host, in the order of slots.

        Raises:
            ConfigError: No port is free.
        """
        hosts = list(self._engine.hosts)
        with self._lock:
            if hosts != self._hosts:
                self._close()
                # They share the descriptors of one process with the job: all of them together let as many strangers
                # in as one server of a slot with a process of its own.
                strangers = max(_FEWEST_STRANGERS, Limits().handshakes // max(1, len(hosts)))
                for host in hosts:
                    self._servers.append(
                        QueryableStateServer(
                            host,
                            self._ports,
                            self._token,
                            attempt=host.current_attempt,
                            threads=self._threads,
                            tls=self._tls,
                            strangers=strangers,
                        )
                    )
                self._hosts = hosts
            return [server.address for server in self._servers]

    def close(self) -> None:
        """Stop all servers."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._hosts, self._servers = [], []
