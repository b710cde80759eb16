"""Records on their way through a task: a column, a list of Python objects, or both, made when needed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemark.operators.base import Batch
from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ANY_SUBTASK", "Records"]

ANY_SUBTASK = -1
"""Subtask of records that were dealt out to the subtasks of a fused operator, which are one in a task."""


class Records:
    """Some records of one stream with the subtask they come from."""

    __slots__ = ("_column", "_serializer", "_values", "subtask", "timestamps")

    def __init__(
        self,
        values: list[Any] | None,
        timestamps: list[int | None] | None = None,
        subtask: int = 0,
        column: pa.Array | None = None,
        serializer: TypeSerializer[Any] | None = None,
    ) -> None:
        self._values = values
        self._column = column
        self._serializer = serializer
        self.timestamps = timestamps
        self.subtask = subtask

    @property
    def column(self) -> pa.Array | None:
        """The values as an Arrow array of the stream's type, if they came that way."""
        return self._column

    @property
    def values(self) -> list[Any]:
        """The values as Python objects."""
        if self._values is None:
            assert self._serializer is not None
            self._values = self._serializer.from_arrow(self._column)
        return self._values

    def batch(self) -> Batch:
        """The records as operators want them."""
        return Batch(self.values, self.timestamps)

    def __len__(self) -> int:
        if self._values is not None:
            return len(self._values)
        assert self._column is not None
        return len(self._column)
