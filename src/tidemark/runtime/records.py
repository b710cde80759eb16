"""Records on their way through a task: a column, a list of Python objects, or both, made when needed."""

from __future__ import annotations

from itertools import compress
from typing import Any

import pyarrow as pa

from tidemark.protocol.batch import Batch, ColumnBatch
from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ANY_SUBTASK", "Records"]

ANY_SUBTASK = -1
"""Subtask of records that were dealt out to the subtasks of a fused operator, which are one in a task."""


class Records:
    """Some records of one stream with the subtask they come from."""

    __slots__ = ("_column", "_serializer", "_stamps", "_values", "subtask")

    def __init__(
        self,
        values: list[Any] | None,
        timestamps: list[int | None] | pa.Array | None = None,
        subtask: int = 0,
        column: pa.Array | None = None,
        serializer: TypeSerializer[Any] | None = None,
    ) -> None:
        self._values = values
        self._column = column
        self._serializer = serializer
        self._stamps = timestamps
        self.subtask = subtask

    @property
    def column(self) -> pa.Array | None:
        """The values as an Arrow array of the stream's type, if they came that way."""
        return self._column

    @property
    def timestamps(self) -> list[int | None] | None:
        """The timestamps as Python objects; None: no record has one."""
        if isinstance(self._stamps, pa.Array):
            self._stamps = self._stamps.to_pylist()
        return self._stamps

    @property
    def stamp_column(self) -> pa.Array | None:
        """The timestamps as an Arrow array; None: no record has one."""
        stamps = self._stamps
        return pa.array(stamps, pa.int64()) if isinstance(stamps, list) else stamps

    def columns(self, serializer: TypeSerializer[Any]) -> ColumnBatch:
        """The records as columns of the type of `serializer`, which is that of the stream."""
        column = serializer.to_arrow(self.values) if self._column is None else self._column
        return ColumnBatch(column, serializer, self.stamp_column)

    @property
    def values(self) -> list[Any]:
        """The values as Python objects."""
        if self._values is None:
            assert self._serializer is not None
            self._values = self._serializer.from_arrow(self._column)
        return self._values

    def sent_on(self, timestamps: list[int | None] | pa.Array | None, subtask: int) -> Records:
        """The same values with other timestamps, as another subtask's."""
        return Records(self._values, timestamps, subtask, self._column, self._serializer)

    def as_objects(self) -> Records:
        """The same without a column, for whoever expects a column of another type."""
        return self if self._column is None else Records(self.values, self.timestamps, self.subtask)

    def where(self, keep: list[bool], subtask: int) -> Records:
        """Those at which `keep` is true, as another subtask's."""
        if all(keep):
            return self.sent_on(self._stamps, subtask)
        return Records(
            None if self._values is None else list(compress(self._values, keep)),
            None if self.timestamps is None else list(compress(self.timestamps, keep)),
            subtask,
            None if self._column is None else self._column.filter(pa.array(keep)),
            self._serializer,
        )

    def batch(self) -> Batch:
        """The records as operators want them."""
        return Batch(self.values, self.timestamps)

    def __len__(self) -> int:
        if self._values is not None:
            return len(self._values)
        assert self._column is not None
        return len(self._column)
