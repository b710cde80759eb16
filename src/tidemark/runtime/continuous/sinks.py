"""Sinks in a task that lasts: what a file sink writes is closed at every barrier and begun anew behind it."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.pipeline import TaskSink
from tidemark.runtime.records import Records

__all__ = ["RollingSink"]


class RollingSink:
    """The task side of one sink, over as many parts as there are barriers.

    Every part is a `TaskSink` of its own, made when the first record comes: a task that writes nothing between
    two barriers leaves nothing behind.
    """

    def __init__(self, vertex: Vertex, partition: int, make: Callable[[Vertex, int, int], TaskSink]) -> None:
        """Write the records of task `partition`; `make` gets the number of the part as its last argument."""
        self._vertex = vertex
        self._partition = partition
        self._make = make
        self._parts = 0
        self._open: TaskSink | None = None

    def write(self, records: Records) -> None:
        """Take some records."""
        if self._open is None:
            self._open = self._make(self._vertex, self._partition, self._parts)
            self._parts += 1
        self._open.write(records)

    def rows(self) -> list[tuple[str, bytes]]:
        """Rows for the driver collected since the last call."""
        return [] if self._open is None else self._open.rows()

    def close(self, report: TaskReport) -> None:
        """A barrier: finish the part, which may add to the report."""
        part, self._open = self._open, None
        if part is not None:
            part.close(report)
