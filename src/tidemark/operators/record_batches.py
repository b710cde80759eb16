"""Between the column of a stream and the record batches that batch functions see and return.

A stream of rows, tuples or dataclasses is a batch with a column per field (of tuples `f0`, `f1`, ...), any other a
batch with one column `value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.errors import SerializationError
from tidemark.protocol.batch import Batch, ColumnBatch
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.tuples import TupleSerializer

if TYPE_CHECKING:
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["BatchShape", "stamp_column"]

_HIDDEN = frozenset({"$kind", "$empty"})
"""Columns that functions need not return: the kind of a row, the nothing in an empty tuple."""


def stamp_column(timestamps: Any) -> pa.Array | None:
    """Timestamps that came as any kind of array, None for there are none, as a column."""
    if timestamps is None:
        return None
    if isinstance(timestamps, pa.ChunkedArray):
        timestamps = timestamps.combine_chunks()
    return pa.array(timestamps).cast(pa.int64())


class BatchShape:
    """The record batches of one typed stream.

    Attributes:
        serializer: The type of the stream.
    """

    def __init__(self, type_info: TypeInformation) -> None:
        """Know the columns of a type."""
        self.serializer = serializer_for(type_info)
        self._type = self.serializer.arrow_type()
        self._plain = not pa.types.is_struct(self._type)
        self._fields = [pa.field("value", self._type)] if self._plain else list(self._type)
        self._by_place = isinstance(self.serializer, TupleSerializer)
        # Of a tuple no field, and of a row every field may be null; what else there is says its serializer.
        self._not_null = self._by_place or (self._plain and not self.serializer.nullable)

    def holds(self, schema: pa.Schema) -> bool:
        """Whether the columns of a schema are those of the stream just as they are, types included."""
        wanted = {field.name: field.type for field in self._fields if field.name not in _HIDDEN}
        return wanted == dict(zip(schema.names, schema.types, strict=True))

    def record_batch(self, column: pa.Array) -> pa.RecordBatch:
        """The batch a function sees."""
        if self._plain:
            return pa.RecordBatch.from_arrays([column], schema=pa.schema(self._fields))
        names = [field.name for field in self._fields]
        columns = column.flatten()
        shown = [
            at for at, name in enumerate(names) if name not in _HIDDEN or columns[at].null_count < len(column)
        ]
        return pa.RecordBatch.from_arrays(
            [columns[at] for at in shown], schema=pa.schema([self._fields[at] for at in shown])
        )

    def columns(self, result: Any, timestamps: pa.Array | None) -> ColumnBatch:
        """What a function returned, as a column of the stream.

        Args:
            result: A record batch, a table, or a mapping from names to arrays.
            timestamps: One per row.

        Raises:
            TypeError: It is nothing of that kind.
            SerializationError: It does not fit the declared type.
        """
        if isinstance(result, Mapping):
            result = pa.table(dict(result))
        if isinstance(result, pa.Table):
            result = result.combine_chunks()
        elif not isinstance(result, pa.RecordBatch):
            raise TypeError(
                "A batch function returns a pyarrow.RecordBatch, a pyarrow.Table, a dict of arrays or None, not "
                f"{type(result).__name__}."
            )
        if timestamps is not None and len(timestamps) != result.num_rows:
            raise SerializationError(f"{len(timestamps)} timestamps came with {result.num_rows} rows.")
        return ColumnBatch(self._column(result), self.serializer, timestamps)

    def batch(self, batch: Batch, tokens: KeyTokens | None) -> ColumnBatch:
        """Records that came as Python objects, as columns."""
        stamps = None if batch.timestamps is None else pa.array(batch.timestamps, pa.int64())
        keys = None if batch.keys is None or tokens is None else tokens.to_arrow(batch.keys)
        return ColumnBatch(self.serializer.to_arrow(batch.values), self.serializer, stamps, keys)

    def _column(self, result: pa.RecordBatch | pa.Table) -> pa.Array:
        found = dict(zip(result.schema.names, result.columns, strict=True))
        wanted = [field for field in self._fields if field.name not in _HIDDEN]
        names = [field.name for field in wanted]
        if len(found) == len(wanted) and (self._by_place or self._plain) and not found.keys() >= set(names):
            found = dict(zip(names, result.columns, strict=True))
        if len(found) != len(result.columns) or not set(names) <= found.keys() <= set(names) | _HIDDEN:
            raise SerializationError(
                f"A batch function returned the columns {', '.join(result.schema.names) or 'none'}; declared are "
                f"{', '.join(names)} ({self.serializer!r}). Return exactly these, or declare another output_type."
            )
        columns = [self._fitted(field, found.get(field.name), result.num_rows) for field in self._fields]
        return columns[0] if self._plain else pa.StructArray.from_arrays(columns, fields=self._fields)

    def _fitted(self, field: pa.Field, column: Any, length: int) -> pa.Array:
        if column is None:
            return pa.nulls(length, field.type)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowInvalid as exc:
                raise SerializationError(
                    f"Column '{field.name}' of a batch function is {column.type} and does not fit {field.type}: {exc}"
                ) from exc
        if column.null_count and self._not_null and field.name not in _HIDDEN:
            raise SerializationError(
                f"Column '{field.name}' of a batch function has nulls, which {self.serializer!r} does not take. Fill "
                "them, or declare a ROW, whose fields may be null."
            )
        return column
