"""Functions that see many records at once, as Arrow columns. Beyond Flink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tidemark.api.functions.base import Function

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tidemark.api.output_tag import OutputTag
    from tidemark.api.time_domain import TimeDomain
    from tidemark.state.column_keys import Keys, KeySet

__all__ = ["BatchContext", "BatchProcessFunction"]


class BatchContext(ABC):
    """What a batch function gets besides its rows; good during the call it is passed to."""

    @property
    @abstractmethod
    def timestamps(self) -> np.ndarray[Any, Any] | None:
        """Timestamp of each row (of a row without one the smallest number there is); None if no row has one.

        In `on_timers` the times of the timers.
        """

    @abstractmethod
    def current_watermark(self) -> int:
        """How far event time has come."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Now, in milliseconds."""

    @abstractmethod
    def time_domain(self) -> TimeDomain | None:
        """Which clock fired the timers; None outside of `on_timers`."""

    @abstractmethod
    def emit(self, batch: Any, timestamps: Any = None) -> None:
        """Emit rows with timestamps of their own, in front of those that are returned.

        Args:
            batch: What a batch function may return.
            timestamps: One per row; None: the rows have none.
        """

    @abstractmethod
    def output(self, tag: OutputTag, batch: Any, timestamps: Any = None) -> None:
        """Emit rows to a side output, which needs a declared type; otherwise as `emit`."""

    @abstractmethod
    def register_event_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        """Let each key be called when the watermark reaches its timestamp.

        Args:
            keys: `keys`, or a part of it.
            timestamps: One per key, or one for all of them.
        """

    @abstractmethod
    def register_processing_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        """Let each key be called when the clock reaches its timestamp; otherwise as for event time."""

    @abstractmethod
    def delete_event_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        """Forget the timers of these keys with exactly these times."""

    @abstractmethod
    def delete_processing_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        """Forget the timers of these keys with exactly these times."""


class BatchProcessFunction(Function):
    """Rows and timers of many keys of a keyed stream, a batch at a time; see `KeyedStream.process_batch`.

    What a call returns are rows of the declared output type: a record batch, a table, a dict from column names to
    arrays, or None. As many rows as came in have their timestamps, each that of the row in its place; otherwise rows
    have none, see `BatchContext.emit`.
    """

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, keys: Keys, ctx: BatchContext) -> Any:
        """Called for every batch.

        How the records of a stream are cut into batches is not defined and may differ from run to run; what a function
        computes must not depend on it.

        Args:
            batch: The rows: a column per field, or one column `value`.
            keys: Their keys.
            ctx: Time, timers, other outputs.
        """

    def on_timers(self, keys: Keys, timestamps: np.ndarray[Any, Any], ctx: BatchContext) -> Any:
        """Called once for all timers that are due, in the order of their times.

        A key with several of them has several rows: `keys.codes` says which key each timer belongs to.

        Args:
            keys: Their keys.
            timestamps: The time of each.
            ctx: As for `process_batch`.
        """
        return None
