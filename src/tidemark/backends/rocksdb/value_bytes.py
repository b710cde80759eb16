"""Between columns and the bytes of values: numbers and tuples of numbers without an object per field.

The bytes are those the serializers write one by one (`[last_access:i64be] | bytes`, see `keys`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidemark.backends.rocksdb.columns import bytes_from_arrow, bytes_to_arrow
from tidemark.backends.rocksdb.keys import STAMP_WIDTH
from tidemark.state.serializers.tuples import TupleSerializer

if TYPE_CHECKING:
    from tidemark.state.column_types import ColumnType, Part

__all__ = ["ValueBytes", "slices"]


class ValueBytes:
    """Encodes and decodes the values of one state, many at a time."""

    def __init__(self, kind: ColumnType, ttl: bool) -> None:
        """Values lie in the parts of `kind`; with time-to-live each has a stamp in front."""
        self._kind = kind
        self._ttl = ttl
        serializer = kind.serializer
        self._record: np.dtype[Any] | None = None
        plain = all([dtype.kind != "O" for dtype in kind.dtypes])
        if (
            serializer.fixed_width is not None
            and plain
            and (len(kind.dtypes) == 1 or isinstance(serializer, TupleSerializer))
        ):
            fields = [("stamp", ">i8")] if ttl else []
            fields += [(f"f{i}", _big_endian(dtype)) for i, dtype in enumerate(kind.dtypes)]
            self._record = np.dtype(fields)
            assert self._record.itemsize == serializer.fixed_width + (STAMP_WIDTH if ttl else 0)

    def encode(self, parts: list[Part], stamps: Part | None) -> list[bytes]:
        """The bytes of each value."""
        if self._record is not None:
            rows = np.empty(len(parts[0]), self._record)
            for i, part in enumerate(parts):
                rows[f"f{i}"] = part
            if stamps is not None:
                rows["stamp"] = stamps
            return slices(rows.tobytes(), self._record.itemsize)
        raws = bytes_from_arrow(self._kind.serializer, self._kind.join(parts))
        if stamps is None:
            return raws
        heads = slices(stamps.astype(">i8").tobytes(), STAMP_WIDTH)
        return [head + raw for head, raw in zip(heads, raws, strict=True)]

    def decode(self, raws: list[bytes]) -> tuple[list[Part], Part | None]:
        """Parts and stamps of encoded values."""
        if self._record is not None:
            rows = np.frombuffer(b"".join(raws), self._record)
            parts = [rows[f"f{i}"].astype(dtype) for i, dtype in enumerate(self._kind.dtypes)]
            return parts, rows["stamp"].astype(np.int64) if self._ttl else None
        stamps = None
        if self._ttl:
            stamps = np.frombuffer(b"".join([raw[:STAMP_WIDTH] for raw in raws]), ">i8").astype(np.int64)
            raws = [raw[STAMP_WIDTH:] for raw in raws]
        return self._kind.split(bytes_to_arrow(self._kind.serializer, raws)), stamps


def slices(data: bytes, width: int) -> list[bytes]:
    """Consecutive pieces of `width` bytes."""
    return [data[at : at + width] for at in range(0, len(data), width)]


def _big_endian(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder(">").str if dtype.kind != "b" else "u1"
