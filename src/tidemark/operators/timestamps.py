"""Assigning timestamps, and telling the host how far event time has come (spec 6.1).

The operator emits no watermark itself: watermarks travel between epochs, so the host asks for
`observed_watermark()` when an epoch ends. Nothing here is state; after a restart it starts again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.operators.base import Output
from tidemark.operators.emission import open_timestamps
from tidemark.operators.function_operator import FunctionOperator, emit_batch
from tidemark.protocol.batch import MIN_WATERMARK, Batch

if TYPE_CHECKING:
    from tidemark.api.watermarks import WatermarkStrategy

__all__ = ["TimestampsOperator"]


class TimestampsOperator(FunctionOperator):
    """Gives every record the timestamp its strategy reads from it."""

    passes_values = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        """Follow `strategy`."""
        super().__init__()
        self._strategy = strategy
        self._newest: int | None = None
        self._last_active: int | None = None

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Emit the records with their timestamps."""
        if not batch.values:
            return
        self._last_active = self._environment.clock.now()
        assign = self._strategy.assigner
        if assign is None:
            emit_batch(batch, out)
            self._observe([stamp for stamp in batch.timestamps or () if stamp is not None])
            return
        if batch.timestamps is None:
            assigned = [assign(value, MIN_WATERMARK) for value in batch.values]
        else:
            assigned = [
                assign(value, MIN_WATERMARK if stamp is None else stamp)
                for value, stamp in zip(batch.values, batch.timestamps, strict=True)
            ]
        stamps = open_timestamps(out)
        stamps += assigned
        out.values += batch.values
        self._observe(assigned)

    def _observe(self, stamps: list[int]) -> None:
        if stamps:
            newest = max(stamps)
            if self._newest is None or newest > self._newest:
                self._newest = newest

    @property
    def max_timestamp(self) -> int | None:
        """The newest timestamp seen so far, or None."""
        return self._newest

    def take_max_timestamp(self) -> int | None:
        """The newest timestamp seen since the last call, or None."""
        newest, self._newest = self._newest, None
        return newest

    def observed_watermark(self) -> int:
        """The watermark of what this subtask has seen; the minimum before any, or without watermarks."""
        if self._newest is None:
            return MIN_WATERMARK
        watermark = self._strategy.watermark_after(self._newest)
        return MIN_WATERMARK if watermark is None else watermark

    def is_idle(self, now: int) -> bool:
        """Whether the strategy's idle timeout has passed since the last record."""
        timeout = self._strategy.idle_timeout_ms
        return timeout is not None and (self._last_active is None or now - self._last_active >= timeout)
