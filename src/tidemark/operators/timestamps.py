"""Assigning timestamps, and telling the host how far event time has come.

The operator emits no watermark itself: watermarks travel between epochs, so the host asks for the newest
timestamp when an epoch ends. Nothing here is state; after a restart it starts again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.api.field_key import FieldKey
from tidemark.operators.base import Output
from tidemark.operators.emission import open_timestamps
from tidemark.operators.function_operator import FunctionOperator, emit_batch
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.api.watermarks import WatermarkStrategy
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["TimestampsOperator"]


class TimestampsOperator(FunctionOperator):
    """Gives every record the timestamp its strategy reads from it."""

    passes_values = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        """Follow `strategy`."""
        super().__init__()
        self._strategy = strategy
        self._newest: int | None = None

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Emit the records with their timestamps."""
        if not batch.values:
            return
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

    def reads_columns(self, record_type: TypeInformation | None) -> bool:
        """Whether `stamp` can do with records of a type, unless a timestamp is missing."""
        return self._strategy.assigner is None or self._place_in(record_type) is not None

    def stamp(
        self, column: pa.Array, stamps: pa.Array | None, record_type: TypeInformation | None
    ) -> tuple[bool, pa.Array | None]:
        """Timestamps of records that are a column of `record_type` and have `stamps` so far.

        Returns:
            Whether that could be done without looking at single records; the timestamps, None: there are none.
        """
        if self._strategy.assigner is not None:
            at = self._place_in(record_type)
            if at is None or column.field(at).null_count:
                return False, None
            stamps = column.field(at).cast(pa.int64())
        if stamps is not None and stamps.null_count < len(stamps):
            self._observe([pc.max(stamps).as_py()])
        return True, stamps

    def _place_in(self, record_type: TypeInformation | None) -> int | None:
        """Where records of a type have their timestamp, if that is a field of theirs."""
        selector = getattr(self._strategy.assigner, "__self__", None)
        return selector.position_in(record_type, Types.LONG()) if isinstance(selector, FieldKey) else None

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
