"""Waiting for a consumer beside sockets: the client has no descriptor that says when a message has come.

A task that has nothing to read waits for slots, its driver and its sources at once. So somebody else waits for the
consumer: a thread takes the next message, and only that one, and makes a pipe readable. As long as there is much to
read nobody asks for it, and messages are taken without a detour.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["Watch"]

_SLICE_S = 0.1
"""How long the thread is in the client at a time: whoever stops it waits for the end of that."""


class Watch:
    """Waits for the next message of one consumer. All calls come from the thread that uses the consumer.

    Attributes:
        pending: Whether the next message is waited for. Nobody else may take one meanwhile: it could be overtaken.
    """

    def __init__(self, poll: Callable[[float], Any | None]) -> None:
        """Nothing is begun before `begin`; `poll` takes the next message, waiting for it that many seconds."""
        self._poll = poll
        self.pending = False
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)

    def begin(self) -> int:
        """Wait for the next message; a descriptor that is readable when it has come."""
        if not self.pending:
            self.pending = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidemark-kafka-watch", daemon=True)
                self._thread.start()
            self._asked.put(True)
        return self._readable

    def ring(self) -> int:
        """The same descriptor, readable now: there is something already."""
        with suppress(BlockingIOError):
            os.write(self._writable, b"\0")
        return self._readable

    def take(self, timeout_s: float) -> list[Any]:
        """The message that was waited for, once it has come; waits up to `timeout_s` for it.

        Raises:
            Exception: What the client raised.
        """
        with suppress(BlockingIOError):
            os.read(self._readable, 4096)
        if not self.pending:
            return []
        try:
            found = self._found.get(timeout=timeout_s) if timeout_s > 0 else self._found.get_nowait()
        except queue.Empty:
            return []
        self.pending = False
        if isinstance(found, Exception):
            raise found
        return [] if found is None else [found]

    def stop(self) -> list[Any]:
        """Wait no longer; the message, if it has come meanwhile."""
        if not self.pending:
            return []
        self._stopping.set()
        found = self.take(threading.TIMEOUT_MAX)
        self._stopping.clear()
        return found

    def close(self) -> None:
        """End the thread; what has come is of no use any more."""
        with suppress(Exception):
            self.stop()
        self._asked.put(False)
        if self._thread is not None:
            self._thread.join()
        os.close(self._readable)
        os.close(self._writable)

    def _run(self) -> None:
        while self._asked.get():
            found: Any = None
            try:
                while found is None and not self._stopping.is_set():
                    found = self._poll(_SLICE_S)
            except Exception as exc:
                found = exc
            self._found.put(found)
            self.ring()
