"""Records as they travel and are processed: a batch at a time, with the bounds of event time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["MAX_WATERMARK", "MIN_WATERMARK", "SMALL_BATCH", "Batch", "ColumnBatch"]

SMALL_BATCH = 1024
"""Records whose objects fit into a core's own cache; more at once only pays where something is batched."""
MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1


@dataclass(slots=True)
class Batch:
    """Some consecutive records of one channel: parallel lists, one entry per record."""

    values: list[Any]
    timestamps: list[int | None] | None = None
    """None: no record has a timestamp."""
    keys: list[Any] | None = None
    """Key tokens; None on inputs that are not keyed."""

    def __len__(self) -> int:
        return len(self.values)

    def runs(self) -> Iterator[tuple[int | None, Batch]]:
        """The same records as consecutive batches of one timestamp each, with that timestamp."""
        stamps = self.timestamps
        if stamps is None:
            yield None, self
            return
        start = 0
        for end in range(1, len(stamps) + 1):
            if end == len(stamps) or stamps[end] != stamps[start]:
                part = slice(start, end)
                yield (
                    stamps[start],
                    Batch(self.values[part], stamps[part], None if self.keys is None else self.keys[part]),
                )
                start = end

    def parts(self, limit: int) -> Iterator[Batch]:
        """The same records as consecutive batches of at most `limit`."""
        if len(self.values) <= limit:
            yield self
            return
        for at in range(0, len(self.values), limit):
            part = slice(at, at + limit)
            yield Batch(
                self.values[part],
                None if self.timestamps is None else self.timestamps[part],
                None if self.keys is None else self.keys[part],
            )


@dataclass(slots=True)
class ColumnBatch:
    """Some consecutive records of one typed stream, as Arrow columns."""

    values: pa.Array
    """Of the type that `serializer` has in Arrow."""
    serializer: TypeSerializer[Any]
    timestamps: pa.Array | None = None
    """int64, null for records without one; None: no record has a timestamp."""
    keys: pa.Array | None = None
    """Key tokens; None on inputs that are not keyed."""

    def __len__(self) -> int:
        return len(self.values)

    def batch(self) -> Batch:
        """The same records as Python objects, without their keys."""
        stamps = None if self.timestamps is None else self.timestamps.to_pylist()
        return Batch(self.serializer.from_arrow(self.values), stamps)
