"""Control frames between driver and slot: requests with answers, and events a slot sends by itself.

Header: `["request", id, name]`, `["reply", id, ok]`, `["event"]`, `["register", {...}]`; the body is a
pickle. Both ends have proved that they know the job's token before the first frame.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

import cloudpickle

from tidemark.protocol.events import SlotEvent
from tidemark.protocol.failure import FailureInfo
from tidemark.wire import Connection, WireClosed

__all__ = ["ControlClient", "serve_requests"]


class ControlClient:
    """The driver's end: sends requests, routes answers and events. Thread-safe."""

    def __init__(
        self, connection: Connection, on_event: Callable[[SlotEvent], None], on_lost: Callable[[str], None]
    ) -> None:
        """Start listening.

        Args:
            connection: Authenticated, the registration already read.
            on_event: Called with every event, in the listening thread.
            on_lost: Called once when the peer is gone.
        """
        self._connection = connection
        self._on_event = on_event
        self._on_lost = on_lost
        self._ids = count()
        self._waiting: dict[int, Future[Any]] = {}
        self._send_lock = threading.Lock()
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._listen, name="slot-control", daemon=True)
        self._thread.start()

    def request(self, name: str, payload: Any = None) -> Future[Any]:
        """Send a request; the future gets the answer, or the exception the slot raised."""
        future: Future[Any] = Future()
        number = next(self._ids)
        self._waiting[number] = future
        if self._lost is not None:
            self._fail_all()
            return future
        try:
            with self._send_lock:
                self._connection.send(["request", number, name], cloudpickle.dumps(payload))
        except WireClosed as exc:
            self._went(str(exc))
        return future

    def close(self) -> None:
        """Drop the connection; the slot ends by itself."""
        self._connection.close()
        self._went("the driver let go of it")

    @property
    def alive(self) -> bool:
        """Whether the peer is still there."""
        return self._lost is None

    def _listen(self) -> None:
        try:
            while True:
                header, body = self._connection.receive()
                payload: Any = pickle.loads(body) if body else None
                if header[0] == "reply":
                    self._answer(header[1], header[2], payload)
                else:
                    self._on_event(payload)
        except (WireClosed, OSError) as exc:
            self._went(str(exc))

    def _answer(self, number: int, ok: bool, payload: Any) -> None:
        future = self._waiting.pop(number, None)
        if future is None:
            return
        if ok:
            future.set_result(payload)
        else:
            future.set_exception(
                payload.exception() if isinstance(payload, FailureInfo) else RuntimeError(payload)
            )

    def _went(self, why: str) -> None:
        first = self._lost is None
        self._lost = why
        self._fail_all()
        if first:
            self._on_lost(why)

    def _fail_all(self) -> None:
        while self._waiting:
            _number, future = self._waiting.popitem()
            if not future.done():
                future.set_exception(WireClosed(self._lost or "the slot is gone"))


def serve_requests(
    connection: Connection,
    send_lock: threading.Lock,
    handlers: dict[str, Callable[[Any], Any]],
    header: Any,
    body: Any,
) -> None:
    """The slot's end: run one request and send its answer."""
    _kind, number, name = header
    try:
        result = handlers[name](pickle.loads(body))
        reply, ok = cloudpickle.dumps(result), True
    except BaseException as exc:
        reply, ok = pickle.dumps(FailureInfo.of(exc)), False
    with send_lock:
        connection.send(["reply", number, ok], reply)
