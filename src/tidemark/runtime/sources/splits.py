"""Task side of our own bounded sources: a split says what to read, a reader turns it into records.

A split is plain data made by the driver for one partition and one epoch. Reading is a pure function of
the split, so a replay after a failure reads the same records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemark.api.specs import CollectionSourceSpec, FileSourceSpec
from tidemark.runtime.records import Records
from tidemark.runtime.sources.files import open_binary
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import TypeInformation

__all__ = ["FileSplit", "IndexSplit", "RangeSplit", "SlotSplit", "read_split"]

READ_BATCH = 8192


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
class SlotSplit:
    """What the source function in this slot has buffered."""

    slot: int


def read_split(
    spec: Any, split: Any, type_info: TypeInformation | None, subtask: int
) -> Iterator[tuple[Records, Any]]:
    """Records of a split in batches, each with the position after it."""
    if isinstance(split, IndexSplit):
        yield from _read_collection(spec, split, type_info, subtask)
    elif isinstance(split, RangeSplit):
        for first in range(split.first, split.last + 1, READ_BATCH):
            last = min(split.last, first + READ_BATCH - 1)
            yield Records(list(range(first, last + 1)), None, subtask), last + 1
    else:
        yield from _read_file(spec, split, subtask)


def _read_collection(
    spec: CollectionSourceSpec, split: IndexSplit, type_info: TypeInformation | None, subtask: int
) -> Iterator[tuple[Records, Any]]:
    elements, timestamps = spec.elements, spec.timestamps
    normalize = None if type_info is None else serializer_for(type_info).normalizer()
    for first in range(split.first, split.last, READ_BATCH):
        last = min(split.last, first + READ_BATCH)
        values = list(elements[first:last])
        if normalize is not None:
            values = list(map(normalize, values))
        stamps = None if timestamps is None else list(timestamps[first:last])
        yield Records(values, stamps, subtask), last


def _read_file(spec: FileSourceSpec, split: FileSplit, subtask: int) -> Iterator[tuple[Records, Any]]:
    with open_binary(split.path) as stream:
        for values, position in spec.format.read(stream, split.offset, split.limit):
            yield Records(values, None, subtask), (split.path, position)
