"""Questions to a slot that is busy: answered between two chunks of records, never inside one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tidemark.errors import IllegalStateError

__all__ = ["Mailbox"]

_MOMENT_S = 0.05


class Mailbox:
    """Questions (Flink: mails) that wait for whoever holds the slot's lock."""

    def __init__(self, lock: threading.RLock) -> None:
        """Questions are answered under `lock`."""
        self._lock = lock
        self._closed = False
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._looked = time.monotonic()

    def ask(self, question: Callable[[], Any], timeout: float | None = None) -> Any:
        """The answer of `question`; from any thread.

        Whoever holds the lock runs waiting questions; if nobody does, the caller runs them itself.

        Raises:
            TimeoutError: Nobody came to it within `timeout` seconds; it is withdrawn.
            IllegalStateError: Nobody ever will.
        """
        answer: Future[Any] = Future()
        self._waiting.append((question, answer))
        deadline = None if timeout is None else time.monotonic() + timeout
        while not answer.done():
            if self._lock.acquire(timeout=0.002):
                try:
                    self.run()
                finally:
                    self._lock.release()
            elif self._closed and answer.cancel():
                raise IllegalStateError("The slot's operators were left behind with their thread.")
            elif deadline is not None and time.monotonic() > deadline and answer.cancel():
                raise TimeoutError("The slot is busy with user code.")
        return answer.result()

    def close(self) -> None:
        """Whoever holds the lock never gives it back: let nobody wait for it."""
        self._closed = True

    def silent_for(self) -> float:
        """For how many seconds whoever holds the lock has not looked here; 0 if nobody keeps it. From any thread."""
        # Whoever has it for a moment, behind hours in which nobody had it, keeps nobody.
        if self._lock.acquire(timeout=_MOMENT_S):
            self._lock.release()
            return 0.0
        return time.monotonic() - self._looked

    def run(self) -> None:
        """Answer everything that waits; the caller holds the lock."""
        self._looked = time.monotonic()
        while self._waiting:
            question, answer = self._waiting.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(question())
            except BaseException as exc:
                answer.set_exception(exc)
