"""Task side of our own bounded sources: a split says what to read, a reader turns it into records.

A split is plain data made by the driver for one partition and one epoch. Reading is a pure function of
the split, so a replay after a failure reads the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.api.specs import CollectionSourceSpec, FileSourceSpec
from tidemark.runtime.records import Records
from tidemark.runtime.sources.file_records import file_records
from tidemark.runtime.sources.files import open_binary
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = [
    "READ_BATCH",
    "READ_COLUMNS",
    "FileSplit",
    "IndexSplit",
    "RangeSplit",
    "SlotSplit",
    "TextSplit",
    "normalizer_of",
    "number_records",
    "number_serializer",
    "read_split",
]

READ_BATCH = 8192
"""Records read at a time."""
READ_COLUMNS = 1 << 17
"""The same where nobody needs objects: what a batch of columns costs once is spread over more rows."""


@dataclass(frozen=True, slots=True)
class IndexSplit:
    """Elements `first` to `last` (excluded) of a collection."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """Numbers from `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FileSplit:
    """Up to `limit` units (of its format) of one file, cut after a whole element, from unit `offset`."""

    path: str
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class TextSplit:
    """Text that the driver has read."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotSplit:
    """What the source function in this slot has buffered."""

    slot: int

    @property
    def number(self) -> int:
        """Partition number of the task that takes it."""
        return self.slot


def read_split(
    spec: Any, split: Any, type_info: TypeInformation | None, subtask: int, *, by_column: bool = False
) -> Iterator[tuple[Records, Any]]:
    """Records of a split in batches, each with the position after it; as columns if asked for and possible."""
    if isinstance(split, IndexSplit):
        yield from _read_collection(spec, split, type_info, subtask)
    elif isinstance(split, RangeSplit):
        serializer = number_serializer(type_info, by_column)
        size = READ_BATCH if serializer is None else READ_COLUMNS
        for first in range(split.first, split.last + 1, size):
            behind = min(split.last + 1, first + size)
            yield number_records(first, behind, serializer, subtask), behind
    elif isinstance(split, TextSplit):
        yield Records(list(split.texts), None, subtask), None
    else:
        yield from _read_file(spec, split, type_info, subtask, by_column)


def normalizer_of(type_info: TypeInformation | None) -> Callable[[Any], Any] | None:
    """What makes values those of a declared type; None if they are so as they are."""
    return None if type_info is None else serializer_for(type_info).normalizer()


def number_serializer(type_info: TypeInformation | None, by_column: bool) -> TypeSerializer[Any] | None:
    """The type of a column of consecutive numbers; None: they are to be objects."""
    return serializer_for(type_info) if by_column and type_info == Types.LONG() else None


def number_records(first: int, behind: int, serializer: TypeSerializer[Any] | None, subtask: int) -> Records:
    """The numbers from `first` to `behind` (excluded)."""
    if serializer is None:
        return Records(list(range(first, behind)), None, subtask)
    return Records(None, None, subtask, pa.array(np.arange(first, behind, dtype=np.int64)), serializer)


def _read_collection(
    spec: CollectionSourceSpec, split: IndexSplit, type_info: TypeInformation | None, subtask: int
) -> Iterator[tuple[Records, Any]]:
    elements, timestamps = spec.elements, spec.timestamps
    normalize = normalizer_of(type_info)
    for first in range(split.first, split.last, READ_BATCH):
        last = min(split.last, first + READ_BATCH)
        values = list(elements[first:last])
        if normalize is not None:
            values = list(map(normalize, values))
        stamps = None if timestamps is None else list(timestamps[first:last])
        yield Records(values, stamps, subtask), last


def _read_file(
    spec: FileSourceSpec, split: FileSplit, type_info: TypeInformation | None, subtask: int, by_column: bool
) -> Iterator[tuple[Records, Any]]:
    read = file_records(spec.format, type_info, subtask, by_column=by_column)
    with open_binary(split.path) as stream:
        for records, position in read(stream, split.offset, split.limit):
            yield records, (split.path, position)
