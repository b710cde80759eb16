"""Questions to slots of this process, which may run user code (gauges): whoever asks never waits longer than told.

They are put in a thread of their own, one after the other. While one does not return, others are not even put, so that
neither threads nor questions pile up behind it however often somebody looks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tidemark.runtime.worker import Worker
from tidemark.slot.host import SlotHost

__all__ = ["Questions"]


class Questions:
    """Asks hosts from any thread."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._worker = Worker("local-questions")
        self._turn = threading.Lock()
        """Taken by whoever asks, given back when the question has returned."""

    def ask_all(
        self, hosts: list[SlotHost], question: Callable[[SlotHost, float], dict[str, Any]], timeout: float
    ) -> dict[int, Any]:
        """The answer of every host to `question(host, seconds left)`, or a `TimeoutError`."""
        deadline = time.monotonic() + timeout
        late = TimeoutError("The slot is busy with user code.")
        answers: dict[int, Any] = dict.fromkeys(range(len(hosts)), late)
        turn = self._turn
        if not hosts or not turn.acquire(timeout=timeout):
            return answers

        def ask() -> None:
            for slot, host in enumerate(hosts):
                try:
                    answers[slot] = question(host, max(0.0, deadline - time.monotonic()))
                except TimeoutError as exc:
                    answers[slot] = exc

        asked = self._worker.post(ask)
        asked.add_done_callback(lambda _asked: turn.release())
        try:
            asked.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return dict(answers)
        return answers

    def abandon(self) -> None:
        """Leave a question behind that does not return; the next one is put by another thread."""
        self._worker.abandon()
        self._turn = threading.Lock()

    def close(self) -> None:
        """Nobody asks any more; does not wait."""
        self._worker.close()
