"""The last statistics of every slot: what is shown while a slot is too busy to answer."""

from __future__ import annotations

import threading
import time
from typing import Any

__all__ = ["SlotStatistics"]


class SlotStatistics:
    """Remembers what each slot said last. Thread-safe."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._lock = threading.Lock()
        self._known: dict[int, tuple[float, dict[str, Any]]] = {}

    def update(self, answers: dict[int, Any], slots: list[int]) -> list[dict[str, Any]]:
        """Take the answers of those that answered; the statistics of all of `slots` that ever did.

        Each has its age in `age_ms`, 0 for a fresh one. What is not a dictionary is no answer.
        """
        now = time.monotonic()
        with self._lock:
            for slot, answer in answers.items():
                if isinstance(answer, dict):
                    self._known[slot] = (now, answer)
            known = [self._known[slot] for slot in slots if slot in self._known]
        return [{**stats, "age_ms": round((now - at) * 1000)} for at, stats in known]

    def clear(self) -> None:
        """The slots are those of another attempt now."""
        with self._lock:
            self._known.clear()
