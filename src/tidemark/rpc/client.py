"""The asking end of one connection: any number of requests under way, and the events of the other end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

from tidemark.rpc.codecs import Codec
from tidemark.rpc.messages import EVENT, REQUEST, read_answer
from tidemark.wire import Connection, SharedConnection, WireClosed

__all__ = ["Client"]


class Client:
    """Sends requests, routes answers and events. Thread-safe."""

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        *,
        name: str,
        on_event: Callable[[Any], None] = lambda _: None,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start listening.

        Args:
            connection: Authenticated; closed by `close`.
            codec: That of the other end.
            name: What the listening thread is called.
            on_event: Called with every event, in the listening thread.
            on_lost: Called once, with the reason, when the peer is gone or `close` was called.
        """
        self._connection = SharedConnection(connection)
        self._codec = codec
        self._on_event = on_event
        self._on_lost = on_lost
        self._numbers = count()
        self._waiting: dict[int, Future[Any]] = {}
        self._lost: str | None = None
        threading.Thread(target=self._listen, name=name, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the peer is still there."""
        return self._lost is None

    def request(self, name: str, payload: Any = None) -> Future[Any]:
        """Send a request; the future gets the answer, or the exception the peer raised.

        It fails with `WireClosed` if the peer goes before it answers. Requests are sent in the order of the calls.
        """
        body = self._codec.encode(payload)
        future: Future[Any] = Future()
        number = next(self._numbers)
        self._waiting[number] = future
        try:
            if self._lost is not None:
                raise WireClosed(self._lost)
            self._connection.send([REQUEST, number, name], body)
        except WireClosed as exc:
            self._went(str(exc))
        return future

    def close(self, why: str = "the connection was closed on this side") -> None:
        """Drop the connection; the peer counts as lost at once."""
        self._connection.close()
        self._went(why)

    def _listen(self) -> None:
        try:
            while True:
                header, body = self._connection.receive()
                if header[0] == EVENT:
                    self._on_event(self._codec.decode(body))
                else:
                    self._settle(header, body)
        except OSError as exc:
            self._went(str(exc))
        except Exception as exc:
            # Whoever waits must not wait for an answer that was there and could not be read.
            self._connection.close()
            self._went(f"it sent what cannot be read ({type(exc).__name__}: {exc})")

    def _settle(self, header: Any, body: bytearray) -> None:
        number, result, error = read_answer(header, body, self._codec)
        future = self._waiting.pop(number, None)
        if future is None:
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _went(self, why: str) -> None:
        first = self._lost is None
        self._lost = why
        while self._waiting:
            _number, future = self._waiting.popitem()
            if not future.done():
                future.set_exception(WireClosed(why))
        if first:
            self._on_lost(why)
