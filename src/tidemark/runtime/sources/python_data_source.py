"""Streaming data sources that were written for Spark in Python, read by ourselves instead of through Spark.

A `DataSource` gives a `SimpleDataSourceStreamReader` or a `DataSourceStreamReader`; both know offsets and give the rows
between two of them. Here that is a `SplitSource` with one split, whose position is the range of offsets under way
and the number of its rows that have been read: rows between two offsets must come in the same order each time.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from tidemark.api.spark_schema import type_of_schema
from tidemark.api.split_source import Split, SplitReader, SplitSource
from tidemark.errors import RestoreError
from tidemark.runtime.sources.spark_ddl import struct_of
from tidemark.types.typeinfo import TypeInformation

__all__ = ["PythonDataSource"]

_ASK_AGAIN_S = 0.01

_SPLIT = "stream"


class _Position(msgspec.Struct):
    """Rows are read up to offset `start`, and `skip` rows of the range up to `end`."""

    start: Any
    end: Any = None
    skip: int = 0


class PythonDataSource(SplitSource[Any]):
    """The stream of a `pyspark.sql.datasource.DataSource` object."""

    bounded = False

    def __init__(self, data_source: Any) -> None:
        """Take a data source.

        Raises:
            TypeError: It is none, or has no streaming reader.
            ConfigError: Its schema is text that only Spark can read, and there is no session.
        """
        if isinstance(data_source, type) or not hasattr(data_source, "simpleStreamReader"):
            raise TypeError(
                f"Expected an object of a class derived from pyspark's DataSource, not {data_source!r}. Create it "
                "with its options: MySource({...})."
            )
        self._data_source = data_source
        self._schema = struct_of(data_source.schema())
        self._driver_reader: Any = None

    def get_produced_type(self) -> TypeInformation:
        """Rows of the source's schema."""
        return type_of_schema(self._schema)

    def enumerate(self) -> Sequence[Split]:
        """The one split, which begins where the source says at the first start."""
        return [Split(_SPLIT, {"start": self._in_driver().initialOffset()})]

    def open(self, split: Split, position: Any | None) -> SplitReader[Any]:
        """A reader of its own for the task."""
        stored = split.data if position is None else position
        try:
            at = msgspec.convert(stored, _Position)
        except msgspec.ValidationError as exc:
            raise RestoreError(
                f"The snapshot's position of a Python data source is not one: {exc}. Start from another snapshot."
            ) from exc
        return _RowReader(_offsets(self._stream_reader()), at)

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        """Commit what is certainly not read again."""
        position = positions.get(_SPLIT)
        if position is not None:
            self._in_driver().commit(position["start"])

    def close(self) -> None:
        """Stop the driver's reader."""
        reader, self._driver_reader = self._driver_reader, None
        if reader is not None:
            _stop(reader)

    def _in_driver(self) -> Any:
        if self._driver_reader is None:
            self._driver_reader = self._stream_reader()
        return self._driver_reader

    def _stream_reader(self) -> Any:
        """A new reader; one that plans partitions if the source has it, as in Spark."""
        try:
            return self._data_source.streamReader(self._schema)
        except NotImplementedError:
            return self._data_source.simpleStreamReader(self._schema)


class _Offsets:
    """The stream of a `SimpleDataSourceStreamReader`: ranges of offsets, and the rows in them."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def following(self, start: Any) -> tuple[Iterable[Any], Any]:
        """The rows behind an offset, and the offset behind them; the same one if there are none."""
        rows, end = self.reader.read(start)
        return rows, end

    def between(self, start: Any, end: Any) -> Iterable[Any]:
        """The rows of a range once more."""
        rows: Iterable[Any] = self.reader.readBetweenOffsets(start, end)
        return rows


class _PlannedOffsets(_Offsets):
    """The same of a `DataSourceStreamReader`, its partitions one after the other."""

    def following(self, start: Any) -> tuple[Iterable[Any], Any]:
        """The rows up to the latest offset."""
        reader = self.reader
        # Before Spark 4.2 the method had no parameters.
        if inspect.signature(reader.latestOffset).parameters:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        else:
            end = reader.latestOffset()
        return (() if end == start else self.between(start, end)), end

    def between(self, start: Any, end: Any) -> Iterator[Any]:
        """The rows of all partitions of a range."""
        for partition in self.reader.partitions(start, end):
            for item in self.reader.read(partition):
                if isinstance(item, pa.RecordBatch):
                    yield from zip(*[column.to_pylist() for column in item.columns], strict=True)
                else:
                    yield item


def _offsets(reader: Any) -> _Offsets:
    return _PlannedOffsets(reader) if hasattr(reader, "latestOffset") else _Offsets(reader)


class _RowReader(SplitReader[Any]):
    """Reads one range of offsets after the other."""

    def __init__(self, offsets: _Offsets, at: _Position) -> None:
        self._offsets = offsets
        self._at = at
        self._rows: Iterator[Any] | None = None
        if at.end is not None:
            self._rows = islice(iter(offsets.between(at.start, at.end)), at.skip, None)

    def read(self, max_records: int, timeout_ms: int) -> Sequence[Any]:
        """The next rows of the range under way, or of the next one."""
        until = time.monotonic() + timeout_ms / 1000
        while True:
            rows = self._next(max_records)
            left = until - time.monotonic()
            if rows or left <= 0:
                return rows
            time.sleep(min(left, _ASK_AGAIN_S))

    def _next(self, max_records: int) -> list[Any]:
        taken = self._take(max_records)
        if not taken:
            rows, end = self._offsets.following(self._at.start)
            self._rows, self._at = iter(rows), _Position(self._at.start, end)
            taken = self._take(max_records)
        return taken

    def _take(self, max_records: int) -> list[Any]:
        """Rows of the range under way; behind the last one it is done with."""
        if self._rows is None:
            return []
        taken = list(islice(self._rows, max_records))
        self._at.skip += len(taken)
        if len(taken) < max_records:
            self._rows, self._at = None, _Position(self._at.end)
        return taken

    def position(self) -> Any:
        """The range under way, and how much of it has been read."""
        return {"start": self._at.start, "end": self._at.end, "skip": self._at.skip}

    def close(self) -> None:
        """Stop the task's reader."""
        _stop(self._offsets.reader)


def _stop(reader: Any) -> None:
    """Stop a reader; simple ones have nothing to stop."""
    stop = getattr(reader, "stop", None)
    if stop is not None:
        stop()
