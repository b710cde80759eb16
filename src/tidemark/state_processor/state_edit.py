"""One state of a savepoint replaced by the rows of a DataFrame, column by column, without user code.

The frame has the columns the data source shows for that state, by name: `key`, the window columns,
`map_key`, `value`, and `last_access` for state with a time-to-live (now, if it is left out). Key groups are
computed anew, so keys may be added and removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.checkpoint.format.write import write_table
from tidemark.checkpoint.layout import SnapshotLocation, table_path
from tidemark.checkpoint.metadata import TableHandle
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.clock import SystemClock
from tidemark.errors import ConfigError, SerializationError
from tidemark.state.canonical import MAX_BATCH_ROWS, StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.key_hashing import key_group_column
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import StateMeta, state_schema
from tidemark.state_processor.columns import conform
from tidemark.state_processor.spark import map_in_arrow
from tidemark.state_processor.spark_bootstrap import (
    HANDLES,
    by_part,
    collect_handles,
    handle_row,
    moved,
    reporting,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EditedState", "write_frame"]


@dataclass(frozen=True, slots=True)
class EditedState:
    """Which state is written, and where; travels to tasks."""

    uid: str
    meta: StateMeta
    max_parallelism: int
    ranges: tuple[tuple[int, int], ...]
    """Key groups of each file, in order, without a gap."""
    location: SnapshotLocation

    def serializers(self) -> StateSerializers:
        """The serializers the state was written with."""
        return StateSerializers.of(self.meta)

    def schema(self) -> pa.Schema:
        """Columns of the canonical table."""
        serializers = self.serializers()
        return state_schema(self.meta, serializers.key, serializers.value, serializers.map_key)

    def required(self) -> list[str]:
        """Columns a frame must have."""
        return [name for name in self.schema().names if name not in ("key_group", "last_access")]

    def groups(self, keys: Any, key: TypeSerializer[Any]) -> np.ndarray[Any, Any]:
        """Key group of every key of a column.

        Raises:
            ConfigError: A key is null.
        """
        column = conform(keys, key.arrow_type())
        if column.null_count and not _takes_none(key):
            raise ConfigError(
                f"{column.null_count} row(s) of state '{self.meta.name}' have no key. Remove them."
            )
        return key_group_column(column, key, self.max_parallelism)

    def parts(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """The file every row belongs to; rows without a key go anywhere, `write` refuses them."""
        key = self.serializers().key
        if batch.column("key").null_count and not _takes_none(key):
            return np.zeros(batch.num_rows, np.int32)
        groups = self.groups(batch.column("key"), key)
        starts = np.array([first for first, _ in self.ranges])
        return (np.searchsorted(starts, groups, side="right") - 1).astype(np.int32)

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> TableHandle:
        """Sort the rows of one file and write it.

        Raises:
            ConfigError: A value is missing or does not fit, or a key comes twice.
        """
        table = self.canonical(pa.Table.from_batches(list(batches)))
        path = table_path(self.uid, self.meta, part)
        rows = _Rows(self.meta, table)
        return write_table(rows, FileSystemStorage(), self.location.directory, path)

    def canonical(self, table: pa.Table) -> pa.Table:
        """The canonical table of rows in shown form, sorted by key group."""
        serializers, schema = self.serializers(), self.schema()
        groups = self.groups(table.column("key"), serializers.key)
        columns: list[pa.Array] = [pa.array(groups, pa.uint16())]
        for field in list(schema)[1:]:
            if field.name in table.column_names:
                columns.append(conform(table.column(field.name), field.type))
            else:
                columns.append(_now(field.type, columns[-1]))
        whole = pa.Table.from_arrays(columns, schema=schema)
        self._check(whole, serializers)
        return whole.take(pa.array(np.argsort(groups, kind="stable"))).combine_chunks()

    def _check(self, table: pa.Table, serializers: StateSerializers) -> None:
        name = self.meta.name
        for column, serializer in (("value", serializers.value), ("map_key", serializers.map_key)):
            if serializer is None or column not in table.column_names:
                continue
            nulls = table.column(column).null_count
            if nulls and (self.meta.kind is StateKind.LIST or not _takes_none(serializer)):
                raise ConfigError(
                    f"{nulls} row(s) of state '{name}' have null in column '{column}'. Remove the rows whose "
                    "state shall be gone."
                )
        if self.meta.kind is not StateKind.TIMER:
            identity = ["key", *self.meta.namespace.columns]
            identity += ["map_key"] if self.meta.kind is StateKind.MAP else []
            if _distinct(table.select(identity)) < table.num_rows:
                raise ConfigError(
                    f"State '{name}' of operator '{self.uid}' would have several rows for one "
                    f"{', '.join(identity)}. Reduce the frame to one row each."
                )


class _Rows:
    """A canonical table that is in memory."""

    def __init__(self, meta: StateMeta, table: pa.Table) -> None:
        self.meta = meta
        self.schema = table.schema
        self._table = table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches(max_chunksize=MAX_BATCH_ROWS)


def write_frame(edited: EditedState, frame: DataFrame) -> list[tuple[int, TableHandle]]:
    """Write the rows of a frame as the new content of a state; a handle for each range that has rows.

    Raises:
        ConfigError: A column is missing.
    """
    missing = [name for name in edited.required() if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"The DataFrame for state '{edited.meta.name}' of operator '{edited.uid}' lacks the column(s) "
            f"{', '.join(missing)}; it has {', '.join(frame.columns)}."
        )
    names = [name for name in edited.schema().names if name in frame.columns and name != "key_group"]

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part, pieces in by_part(batches):
            yield handle_row(part, edited.write(part, (piece.select(names) for piece in pieces)))

    rows = moved(frame.select(*[f"`{name}`" for name in names]), edited.parts, len(edited.ranges))
    return collect_handles(map_in_arrow(rows, reporting(write, edited.uid), HANDLES))


def _takes_none(serializer: TypeSerializer[Any]) -> bool:
    try:
        serializer.to_bytes(None)
    except (SerializationError, TypeError, ValueError, AttributeError):
        return False
    return True


def _now(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Times of last access for rows that bring none: now."""
    now = SystemClock().now()
    if not pa.types.is_list(kind):
        return pa.array([now] * len(values), kind)
    lengths: Sequence[int] = values.value_lengths().to_pylist()
    return pa.array([[now] * length for length in lengths], kind)


def _distinct(table: pa.Table) -> int:
    try:
        return int(table.group_by(table.column_names).aggregate([]).num_rows)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowKeyError):
        # Arrow does not group by nested columns; their text is as good for telling rows apart.
        return len({repr(row) for row in zip(*[c.to_pylist() for c in table.columns], strict=True)})
