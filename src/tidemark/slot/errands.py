"""Questions to a slot that is busy: answered between two chunks of records, never inside one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Errands"]


class Errands:
    """Questions that wait for whoever holds the slot's lock."""

    def __init__(self, lock: threading.RLock) -> None:
        """Questions are answered under `lock`."""
        self._lock = lock
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def ask(self, question: Callable[[], Any]) -> Any:
        """The answer of `question`; from any thread.

        Whoever holds the lock runs waiting questions; if nobody does, the caller runs them itself.
        """
        answer: Future[Any] = Future()
        self._waiting.append((question, answer))
        while not answer.done():
            if self._lock.acquire(timeout=0.002):
                try:
                    self.run()
                finally:
                    self._lock.release()
        return answer.result()

    def run(self) -> None:
        """Answer everything that waits; the caller holds the lock."""
        while self._waiting:
            question, answer = self._waiting.popleft()
            try:
                answer.set_result(question())
            except BaseException as exc:
                answer.set_exception(exc)
