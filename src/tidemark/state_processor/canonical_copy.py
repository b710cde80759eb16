"""A subtask's state written anew as canonical tables, with its rows filtered or mapped on the way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from tidemark.checkpoint.format.write import write_table
from tidemark.checkpoint.layout import table_path
from tidemark.checkpoint.metadata import OperatorState, SubtaskState, TableHandle
from tidemark.state.snapshot import StateMeta
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.state_processor.tables import canonical_schema, canonical_tables
from tidemark.state_processor.target import NewSavepoint

__all__ = ["StreamedTable", "canonical_subtask", "write_rows"]


class StreamedTable:
    """Canonical rows that come as a stream, sorted by key group."""

    def __init__(self, meta: StateMeta, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.meta = meta
        self.schema = schema
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, once."""
        return self._batches


def write_rows(target: NewSavepoint, uid: str, part: int, table: StreamedTable) -> TableHandle:
    """Write a table into the new savepoint."""
    # A file that is carried over may have this part number: a subtask can have several files of a state.
    path = table_path(uid, table.meta, part).removesuffix(".parquet") + f"-{uuid.uuid4().hex[:8]}.parquet"
    return write_table(table, target.storage, target.directory, path)


def canonical_subtask(
    snapshot: OpenSnapshot,
    operator: OperatorState,
    subtask: SubtaskState,
    target: NewSavepoint,
    wanted: Callable[[StateMeta], bool] = lambda meta: True,
    each: Callable[[StateMeta, pa.RecordBatch], pa.RecordBatch] = lambda meta, batch: batch,
) -> SubtaskState:
    """Write the keyed state and timers of one subtask as canonical tables.

    Args:
        snapshot: Where the subtask is.
        operator: Its operator.
        subtask: What to write; native or not.
        target: Where to write.
        wanted: States to write; the others stay as tables without rows, so that their types are known.
        each: Applied to every batch; must keep the order of key groups.
    """
    assert subtask.key_groups is not None
    alone = replace(operator, subtasks=(subtask,))
    split = snapshot.split(alone, subtask.key_groups)
    handles = []
    with canonical_tables(split, snapshot.storage) as tables:
        for meta, batches in tables:
            if not wanted(meta):
                handles.append(TableHandle(meta))
                continue
            schema = canonical_schema(snapshot, operator.uid, meta)
            rows = StreamedTable(meta, schema, _mapped(meta, batches, each))
            handles.append(write_rows(target, operator.uid, subtask.index, rows))
    size = sum(handle.state_size for handle in handles)
    size += sum(len(element) for part in subtask.operator for element in part.elements)
    return replace(subtask, tables=tuple(handles), native=None, state_size=size)


def _mapped(
    meta: StateMeta,
    batches: Iterator[pa.RecordBatch],
    each: Callable[[StateMeta, pa.RecordBatch], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield each(meta, batch)
