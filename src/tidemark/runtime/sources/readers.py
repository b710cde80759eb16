"""The task side of sources that are read by readers: each reads one split, batch by batch.

A reader gives records of the type its source declares, and says where it stands behind them. In continuous execution
it lives as long as the attempt; in epochs (`shares`) as long as one task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tidemark.api.specs import (
    CollectionSourceSpec,
    FileSourceSpec,
    SequenceSourceSpec,
    SocketSourceSpec,
    SplitSourceSpec,
)
from tidemark.api.split_source import SplitReader
from tidemark.operators.record_batches import BatchShape, stamp_column
from tidemark.plan.vertex import Vertex
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.runtime.records import Records
from tidemark.runtime.sources.enumeration import AssignedSplit, BringsReaders
from tidemark.runtime.sources.file_records import file_records
from tidemark.runtime.sources.files import open_binary
from tidemark.runtime.sources.plain_data import plain
from tidemark.runtime.sources.socket_lines import SocketLines
from tidemark.runtime.sources.split_sources import split_source_of
from tidemark.runtime.sources.splits import FileSplit, normalizer_of, number_records, number_serializer
from tidemark.types.typeinfo import Types

__all__ = ["Aside", "Reader", "open_reader"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Aside:
    """What a reader came upon beside records: elements for side outputs, by tag, and what is to be counted."""

    sides: Mapping[str, Records]
    counts: Mapping[str, int]


class Reader(ABC):
    """Reads one split. Calls come from one thread."""

    @abstractmethod
    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """What comes next; waits for it up to `timeout_s`.

        Returns:
            Records, empty if there are none yet; None if the split has ended.
        """

    @abstractmethod
    def position(self) -> Any:
        """Where the split goes on behind the last record read; plain data, as `AssignedSplit.position`."""

    def watermark(self) -> int | None:
        """How far event time is behind what was read, if the split itself says so; None: it never does."""
        return None

    def aside(self) -> Aside | None:
        """What the last `read` came upon beside its records, if anything; to be asked for once, behind it."""
        return None

    def wake_fd(self) -> int | None:
        """What becomes readable when there is something to read; None: ask.

        To be asked for before each wait, and waited for only after `read` has given nothing.
        """
        return None

    def close(self) -> None:
        """Release everything. Idempotent."""


def open_reader(vertex: Vertex, assigned: AssignedSplit, subtask: int, *, by_column: bool = False) -> Reader:
    """A reader of a split that an enumerator of this source handed out; its records are that subtask's.

    Args:
        vertex: The source.
        assigned: The split.
        subtask: Of the source.
        by_column: Whether nobody needs the records as objects, so that they may come as columns.

    Raises:
        OperatorFailed: It could not be opened; names the source. Everything the reader raises does so too.
    """
    return _NamedReader(vertex, _call(vertex, _open, vertex, assigned, subtask, by_column))


def _open(vertex: Vertex, assigned: AssignedSplit, subtask: int, by_column: bool) -> Reader:
    match vertex.spec:
        case BringsReaders():
            reader: Reader = vertex.spec.open_reader(vertex, assigned, subtask)
            return reader
        case CollectionSourceSpec():
            return _CollectionReader(vertex, assigned, subtask)
        case SequenceSourceSpec():
            return _SequenceReader(vertex, assigned, subtask, by_column)
        case FileSourceSpec():
            return _FileReader(vertex, assigned, subtask, by_column)
        case SocketSourceSpec():
            return _SocketReader(vertex.spec, subtask)
        case SplitSourceSpec():
            return _UserReader(vertex, assigned, subtask)
    raise AssertionError(f"source '{vertex.name}' has no readers")


def _call(vertex: Vertex, function: Callable[..., T], *args: Any) -> T:
    """The result of a call; what goes wrong in it names the source."""
    try:
        return function(*args)
    except OperatorFailed:
        raise
    except Exception as exc:
        raise OperatorFailed(FailureInfo.of(exc, vertex.name, vertex.uid)) from exc


class _NamedReader(Reader):
    """A reader whose errors name its source."""

    def __init__(self, vertex: Vertex, reader: Reader) -> None:
        self._vertex = vertex
        self._reader = reader
        self._closed = False

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        return _call(self._vertex, self._reader.read, max_records, timeout_s)

    def position(self) -> Any:
        return _call(self._vertex, self._reader.position)

    def watermark(self) -> int | None:
        return _call(self._vertex, self._reader.watermark)

    def aside(self) -> Aside | None:
        return _call(self._vertex, self._reader.aside)

    def wake_fd(self) -> int | None:
        return _call(self._vertex, self._reader.wake_fd)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _call(self._vertex, self._reader.close)


class _CollectionReader(Reader):
    """Elements of a list."""

    def __init__(self, vertex: Vertex, assigned: AssignedSplit, subtask: int) -> None:
        self._spec: CollectionSourceSpec = vertex.spec
        self._normalize = normalizer_of(vertex.output_type)
        self._next: int = assigned.position or 0
        self._last: int = assigned.split.last
        self._subtask = subtask

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """The next slice."""
        if self._next >= self._last:
            return None
        first, self._next = self._next, min(self._last, self._next + max_records)
        values = list(self._spec.elements[first : self._next])
        if self._normalize is not None:
            values = list(map(self._normalize, values))
        stamps = self._spec.timestamps
        return Records(values, None if stamps is None else list(stamps[first : self._next]), self._subtask)

    def position(self) -> Any:
        """Index of the next element."""
        return self._next


class _SequenceReader(Reader):
    """Numbers of a range."""

    def __init__(self, vertex: Vertex, assigned: AssignedSplit, subtask: int, by_column: bool) -> None:
        self._serializer = number_serializer(vertex.output_type, by_column)
        self._next: int = assigned.split.first if assigned.position is None else assigned.position
        self._last: int = assigned.split.last
        self._subtask = subtask

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """The next numbers."""
        if self._next > self._last:
            return None
        first, self._next = self._next, min(self._last + 1, self._next + max_records)
        return number_records(first, self._next, self._serializer, self._subtask)

    def position(self) -> Any:
        """The next number."""
        return self._next


class _FileReader(Reader):
    """Elements of one file after the other, of each up to the first element behind its piece."""

    def __init__(self, vertex: Vertex, assigned: AssignedSplit, subtask: int, by_column: bool) -> None:
        self._read = file_records(vertex.spec.format, vertex.output_type, subtask, by_column=by_column)
        self._pieces: tuple[FileSplit, ...] = assigned.split
        self._offsets: list[int] = list(assigned.position or ())
        """Of the files that have been begun, in the units of the format."""
        self._stream: Any = None
        self._batches: Iterator[tuple[Records, int]] = iter(())
        if self._offsets:
            self._open(self._offsets[-1])

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """The next batch, as large as the format makes them."""
        while True:
            for records, offset in self._batches:
                self._offsets[-1] = offset
                if len(records):
                    return records
            self.close()
            if len(self._offsets) == len(self._pieces):
                return None
            self._offsets.append(self._pieces[len(self._offsets)].offset)
            self._open(self._offsets[-1])

    def _open(self, offset: int) -> None:
        piece = self._pieces[len(self._offsets) - 1]
        self._stream = open_binary(piece.path)
        self._batches = self._read(self._stream, offset, piece.offset + piece.limit - offset)

    def position(self) -> Any:
        """Offsets in the files that have been begun."""
        return list(self._offsets)

    def close(self) -> None:
        """Close the file that is open."""
        stream, self._stream = self._stream, None
        self._batches = iter(())
        if stream is not None:
            stream.close()


class _SocketReader(Reader):
    """Text from a socket, over a connection of its own."""

    def __init__(self, spec: SocketSourceSpec, subtask: int) -> None:
        self._lines = SocketLines(spec)
        self._subtask = subtask

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """What has arrived."""
        texts = self._lines.read(max_records, timeout_s)
        return None if texts is None else Records(texts, None, self._subtask)

    def position(self) -> Any:
        """A socket has none."""
        return None

    def wake_fd(self) -> int | None:
        """The socket."""
        return self._lines.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()


class _UserReader(Reader):
    """A user's `SplitReader`; what it gives is checked, and made what the source declares."""

    def __init__(self, vertex: Vertex, assigned: AssignedSplit, subtask: int) -> None:
        self._type = vertex.output_type
        self._normalize = normalizer_of(self._type)
        self._side_types = vertex.side_types
        self._shape: BatchShape | None = None
        self._id = assigned.id
        self._subtask = subtask
        reader = split_source_of(vertex.spec).open(assigned.split, assigned.position)
        if not isinstance(reader, SplitReader):
            raise TypeError(f"open() of split '{self._id}' gave {reader!r} instead of a SplitReader.")
        self._reader = reader

    def read(self, max_records: int, timeout_s: float) -> Records | None:
        """What the user's reader gives, with its timestamps."""
        given = self._reader.read(max_records, round(timeout_s * 1000))
        if given is None:
            return None
        if isinstance(given, (pa.RecordBatch, pa.Table)):
            return self._columns(given)
        values = list(given)
        if not values:
            return Records([], None, self._subtask)
        if self._normalize is not None:
            values = list(map(self._normalize, values))
        stamps = self._reader.timestamps()
        if stamps is None:
            return Records(values, None, self._subtask)
        self._check(stamps, len(values))
        return Records(values, list(stamps), self._subtask)

    def _columns(self, given: pa.RecordBatch | pa.Table) -> Records:
        """The same of rows that came as columns."""
        if self._type is None or self._type == Types.PICKLED_BYTE_ARRAY():
            raise TypeError(
                f"The reader of split '{self._id}' gave columns, whose source must have a declared type: let "
                "get_produced_type() of the source say it, or from_source(..., type_info=...)."
            )
        if self._shape is None:
            self._shape = BatchShape(self._type)
        if not given.num_rows:
            return Records([], None, self._subtask)
        stamps = self._reader.timestamps()
        if stamps is not None:
            self._check(stamps, given.num_rows)
        made = self._shape.columns(given, stamp_column(stamps))
        return Records(None, made.timestamps, self._subtask, made.values, made.serializer)

    def _check(self, stamps: Any, count: int) -> None:
        if len(stamps) != count:
            raise ValueError(
                f"timestamps() of split '{self._id}' gave {len(stamps)} for {count} records; it must give one "
                "for each (None for a record without)."
            )

    def position(self) -> Any:
        """What the user's reader says, as it will come out of a snapshot."""
        return plain(self._reader.position(), f"The position of split '{self._id}'")

    def aside(self) -> Aside | None:
        """Elements for side outputs that somebody reads, of the types they are read as, and counters."""
        outputs, counts = self._reader.side_outputs(), self._reader.counts()
        if not outputs and not counts:
            return None
        sides = {}
        for tag, values in outputs.items():
            if values and tag in self._side_types:
                normalize = normalizer_of(self._side_types[tag])
                elements = list(values) if normalize is None else list(map(normalize, values))
                sides[tag] = Records(elements, None, self._subtask)
        return Aside(sides, counts)

    def wake_fd(self) -> int | None:
        """The user's."""
        return self._reader.wake_fd()

    def close(self) -> None:
        """Close the user's reader."""
        self._reader.close()
