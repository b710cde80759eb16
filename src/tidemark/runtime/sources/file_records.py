"""The elements of a file as records: as columns where the format has them and somebody wants them, else as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidemark.formats.files import ColumnFormat, FileFormat
from tidemark.operators.record_batches import BatchShape
from tidemark.runtime.records import Records
from tidemark.types.typeinfo import TypeInformation

__all__ = ["ReadFile", "file_records"]

ReadFile = Callable[[Any, int, int], Iterator[tuple[Records, int]]]
"""An open stream, the unit to begin at and how many units -> records, each batch with the unit behind it."""


def file_records(
    file_format: FileFormat, type_info: TypeInformation | None, subtask: int, *, by_column: bool
) -> ReadFile:
    """How files of a format are read for a stream declared with `type_info`."""
    if by_column and isinstance(file_format, ColumnFormat) and file_format.produced_type() == type_info:
        shape = BatchShape(type_info)
        if shape.holds(file_format.schema()):

            def columns(stream: Any, offset: int, limit: int) -> Iterator[tuple[Records, int]]:
                for batch, reached in file_format.read_columns(stream, offset, limit):
                    made = shape.columns(batch, None)
                    yield Records(None, None, subtask, made.values, made.serializer), reached

            return columns

    def objects(stream: Any, offset: int, limit: int) -> Iterator[tuple[Records, int]]:
        for values, reached in file_format.read(stream, offset, limit):
            yield Records(values, None, subtask), reached

    return objects
