"""Task side of sinks that send rows to the driver: printed lines, collected values, DataFrame rows."""

from __future__ import annotations

import pickle

import pyarrow as pa

from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.records import ANY_SUBTASK, Records
from tidemark.runtime.sinks.dataframes import frame_batch, frame_schema, frame_serializer
from tidemark.types.text import text_of

__all__ = ["CollectTaskSink", "DataFrameTaskSink", "PrintTaskSink", "row_tag", "small_tag"]

SMALL_FRAME = 1 << 18
"""Bytes that a task's share of an epoch's frame may have to come to the driver with the task's report."""


def row_tag(vertex_id: int) -> str:
    """Tag of the rows that belong to a sink."""
    return f"sink:{vertex_id}"


def small_tag(vertex_id: int) -> str:
    """Tag of rows of a sink that wants DataFrames which are few enough to make one from on the driver."""
    return f"small:{vertex_id}"


class _RowSink:
    """Keeps rows until the task takes them."""

    def __init__(self, vertex: Vertex) -> None:
        self._tag = row_tag(vertex.id)
        self._rows: list[tuple[str, bytes]] = []

    def rows(self) -> list[tuple[str, bytes]]:
        """Rows since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def close(self, report: TaskReport) -> None:
        """Nothing is held back."""


class PrintTaskSink(_RowSink):
    """Formats elements in the task; the driver only writes lines."""

    def __init__(self, vertex: Vertex, start: int) -> None:
        super().__init__(vertex)
        self._type = vertex.input_types[0]
        self._parallelism = vertex.parallelism
        self._forward = all(edge.ship.name == "FORWARD" for edge in vertex.inputs)
        self._next = start

    def write(self, records: Records) -> None:
        """Format records; those of a stream with another parallelism are dealt out in turn."""
        kind = self._type
        texts = [text_of(value, kind) for value in records.values]
        dealt = records.subtask == ANY_SUBTASK
        if self._parallelism == 1 or (self._forward and not dealt):
            self._add(records.subtask % self._parallelism, texts)
            return
        for offset in range(min(self._parallelism, len(texts))):
            self._add((self._next + offset) % self._parallelism, texts[offset :: self._parallelism])
        self._next = (self._next + len(texts)) % self._parallelism

    def _add(self, subtask: int, texts: list[str]) -> None:
        self._rows.append((self._tag, pickle.dumps((subtask, texts), 5)))


class CollectTaskSink(_RowSink):
    """Sends records as they are."""

    def write(self, records: Records) -> None:
        """Pickle the values and timestamps of a batch."""
        self._rows.append((self._tag, pickle.dumps((records.values, records.timestamps), 5)))


class DataFrameTaskSink(_RowSink):
    """Sends rows as Arrow, for `foreach_batch` and Spark writers."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._id = vertex.id
        self._serializer = frame_serializer(vertex)
        self._schema = frame_schema(vertex)
        self._held: list[bytes] = []
        self._size = 0

    def write(self, records: Records) -> None:
        """Encode a batch as one Arrow stream; what stays small is held back until the task ends."""
        column = records.column if records.column is not None else self._serializer.to_arrow(records.values)
        batch = frame_batch(column, self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        payload = sink.getvalue().to_pybytes()
        self._held.append(payload)
        self._size += len(payload)
        if self._size > SMALL_FRAME:
            self._release(self._tag)

    def close(self, report: TaskReport) -> None:
        """Say where the rows are."""
        if self._size > SMALL_FRAME:
            report.large_frames.add(self._id)
        self._release(small_tag(self._id))

    def _release(self, tag: str) -> None:
        self._rows += [(tag, payload) for payload in self._held]
        self._held.clear()
