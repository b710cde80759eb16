"""Sinks that get each epoch as a Spark DataFrame: `foreach_batch` and any Spark writer. At-least-once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tidemark.plan.vertex import Vertex
from tidemark.runtime.sinks.driver import ImmediateSink
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

__all__ = ["ForeachBatchSink", "SparkWriterSink", "frame_batch", "frame_schema", "frame_serializer"]


def frame_serializer(vertex: Vertex) -> TypeSerializer[Any]:
    """Serializer that gives the columns of a frame; an untyped stream has one binary column of pickles."""
    kind = vertex.input_types[0]
    return serializer_for(kind if kind is not None else Types.PICKLED_BYTE_ARRAY())


def frame_schema(vertex: Vertex) -> pa.Schema:
    """Columns of the frame a sink gets: the fields of a record, or one column `value`."""
    kind = frame_serializer(vertex).arrow_type()
    if not pa.types.is_struct(kind):
        return pa.schema([("value", kind)])
    return pa.schema([child for child in kind if not child.name.startswith("$")])


def frame_batch(column: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """A column of records as a batch of that schema; the kind of a row and other internals are left out."""
    columns = [column.field(name) for name in schema.names] if pa.types.is_struct(column.type) else [column]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class ForeachBatchSink(ImmediateSink):
    """Calls the user's function with the DataFrame of every epoch that has rows."""

    def take(self, rows: Iterable[bytes], staged: list[Any], epoch: int) -> None:
        """Hand over the frame."""
        for frame in staged:
            self.consume(frame, epoch)

    def consume(self, frame: Any, epoch: int) -> None:
        """Call the user's function."""
        self.vertex.spec.function(frame, epoch)


class SparkWriterSink(ForeachBatchSink):
    """Appends every epoch with a Spark writer."""

    def consume(self, frame: Any, epoch: int) -> None:
        """Write the frame."""
        spec = self.vertex.spec
        writer = frame.write.format(spec.format).mode("append").options(**spec.options)
        if spec.path is None:
            writer.save()
        else:
            writer.save(spec.path)
