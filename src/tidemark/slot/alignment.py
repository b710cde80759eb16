"""When barriers come to the operators of a slot, and how long the operators wait there."""

from __future__ import annotations

import time

from tidemark.checkpoint.messages import BarrierTimes

__all__ = ["Alignment"]


class Alignment:
    """Of the checkpoints in the making, over the operators of one slot."""

    def __init__(self) -> None:
        """No barrier has come."""
        self._began: dict[int, dict[str, tuple[int, float]]] = {}
        """Checkpoint -> operator -> how late its first barrier came in ms, and when."""
        self._ended: dict[int, dict[str, BarrierTimes]] = {}

    def begin(self, uid: str, checkpoint_id: int, delay_ms: int) -> None:
        """A barrier has come to an operator, `delay_ms` after the checkpoint was triggered; the first one counts."""
        came = (max(0, delay_ms), time.perf_counter())
        self._began.setdefault(checkpoint_id, {}).setdefault(uid, came)

    def end(self, uid: str, checkpoint_id: int) -> None:
        """The last one has."""
        delay_ms, since = self._began[checkpoint_id].pop(uid)
        took = round((time.perf_counter() - since) * 1000)
        self._ended.setdefault(checkpoint_id, {})[uid] = BarrierTimes(delay_ms, took)

    def take(self, checkpoint_id: int) -> dict[str, BarrierTimes]:
        """The times of every operator that is through; the checkpoint is forgotten."""
        self._began.pop(checkpoint_id, None)
        return self._ended.pop(checkpoint_id, {})
