"""The queryable-state server of one slot: answers reads from the state that the slot holds right now.

A request names the attempt it is meant for. The comparison with the attempt that runs here and the read
happen in the same moment between two chunks of records, so a slot never answers for an attempt that was
reset meanwhile. Large requests are read in several such moments, so that none holds up the stream for long.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from tidemark.queryablestate.endpoint import QueryEndpoint
from tidemark.queryablestate.protocol import (
    Entry,
    Operation,
    Published,
    Refused,
    Request,
    Status,
    encode,
)
from tidemark.queryablestate.registry import PublishedState, QueryableHost, StateRegistry
from tidemark.rpc import DEFAULT_THREADS, Incoming, Limits, ServerThreads
from tidemark.state.backend import KeyToken

__all__ = ["QueryableStateServer"]

_KEYS_AT_ONCE = 512
"""Keys read between two chunks of records."""
_SMALL = 1 << 15
"""A frame of this size always fits into the empty send buffer of a socket."""


class QueryableStateServer(QueryEndpoint):
    """Serves the queryable states of one slot."""

    title = "Queryable State Server"
    option = "queryable-state.server.ports"

    def __init__(
        self,
        host: QueryableHost,
        ports: Sequence[int],
        token: bytes,
        bind: str = "127.0.0.1",
        attempt: Callable[[], int] = lambda: 0,
        *,
        threads: ServerThreads = DEFAULT_THREADS,
        tls: ssl.SSLContext | None = None,
        strangers: int = Limits().handshakes,
    ) -> None:
        """Listen on the first free port.

        Args:
            host: The slot.
            ports: Ports to try in this order; 0 takes any.
            token: The job's token.
            bind: Interface to listen on.
            attempt: The attempt the host runs now, -1 while it runs none; called inside `host.ask`.
            threads: How many receive requests, how many answer them.
            tls: Server side of TLS.
            strangers: How many connections may be proving themselves at the same time.

        Raises:
            ConfigError: None of the ports is free.
        """
        self._host = host
        self._attempt = attempt
        self._registry = StateRegistry(host)
        super().__init__(ports, token, bind, threads=threads, tls=tls, strangers=strangers)

    def _answer(self, operation: Operation, request: Request, query: Incoming) -> int:
        if operation is Operation.LOOKUP:
            self._look_up(request, query)
            return len(request.keys)
        if operation is Operation.SCAN:
            found = self._scan(request)
            query.reply(found)
            return len(found)
        if operation is Operation.KEYS:
            keys = self._keys(request)
            query.reply(keys)
            return len(keys)
        query.reply(self._host.ask(lambda: self._all_published(request)))
        return 0

    def _look_up(self, request: Request, query: Incoming) -> None:
        if len(request.keys) > _KEYS_AT_ONCE:
            query.reply(self._in_parts(request, request.keys))
            return

        def read() -> msgspec.Raw | None:
            answer = msgspec.Raw(encode(self._entries(request, request.keys)))
            if len(memoryview(answer)) > _SMALL:
                return answer
            # From here the answer leaves at once; our own thread would first wait for its turn to run.
            query.reply(answer)
            return None

        unsent = self._host.ask(read)
        if unsent is not None:
            query.reply(unsent)

    def _scan(self, request: Request) -> list[tuple[bytes, Entry]]:
        keys: list[bytes] = self._host.ask(lambda: self._published(request).keys(max(request.limit, 0)))
        entries = self._in_parts(request, keys)
        return [(key, entry) for key, entry in zip(keys, entries, strict=True) if entry is not None]

    def _keys(self, request: Request) -> list[bytes]:
        def read() -> tuple[PublishedState, list[KeyToken]]:
            published = self._published(request)
            return published, published.all_keys()

        # The job waits while its keys are listed, not while they are hashed.
        found: tuple[PublishedState, list[KeyToken]] = self._host.ask(read)
        published, tokens = found
        return published.bytes_in(tokens, request.groups)

    def _in_parts(self, request: Request, keys: list[bytes]) -> list[Entry | None]:
        entries: list[Entry | None] = []
        for at in range(0, len(keys), _KEYS_AT_ONCE):
            part = keys[at : at + _KEYS_AT_ONCE]
            entries += self._host.ask(partial(self._entries, request, part))
        return entries

    def _entries(self, request: Request, keys: list[bytes]) -> list[Entry | None]:
        return self._published(request).look_up(keys)

    def _all_published(self, request: Request) -> list[Published]:
        self._check_attempt(request)
        return self._registry.published()

    def _published(self, request: Request) -> PublishedState:
        self._check_attempt(request)
        state = self._registry.find(request.name)
        if state is None:
            raise Refused(Status.NOT_SERVED, f"No state is published as '{request.name}'.")
        if request.signature != state.signature:
            raise Refused(Status.MISMATCH, signature=state.signature)
        return state

    def _check_attempt(self, request: Request) -> None:
        running = self._attempt()
        if request.attempt != running:
            raise Refused(Status.RETRY, f"The slot runs attempt {running}, not {request.attempt}.")
