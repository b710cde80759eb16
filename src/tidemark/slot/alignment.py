"""How long operators wait at barriers."""

from __future__ import annotations

import time

__all__ = ["AlignmentTimes"]


class AlignmentTimes:
    """Of the checkpoints in the making, over the operators of one slot."""

    def __init__(self) -> None:
        """No barrier has come."""
        self._began: dict[int, dict[int, float]] = {}
        """Checkpoint -> operator -> when its first barrier came."""
        self._longest: dict[int, float] = {}

    def begin(self, vertex: int, checkpoint_id: int) -> None:
        """A barrier has come to an operator; the first one counts."""
        self._began.setdefault(checkpoint_id, {}).setdefault(vertex, time.perf_counter())

    def end(self, vertex: int, checkpoint_id: int) -> None:
        """The last one has; one that was the first, too, waited for nothing."""
        began = self._began.get(checkpoint_id, {}).pop(vertex, None)
        if began is not None:
            took = time.perf_counter() - began
            self._longest[checkpoint_id] = max(took, self._longest.get(checkpoint_id, 0.0))

    def take(self, checkpoint_id: int) -> int:
        """The longest wait in milliseconds; the checkpoint is forgotten."""
        self._began.pop(checkpoint_id, None)
        return round(self._longest.pop(checkpoint_id, 0.0) * 1000)
