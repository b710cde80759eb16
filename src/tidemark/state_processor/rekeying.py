"""One operator's keyed state rewritten: for another number of key groups, or under other keys.

Rows go to buckets (local files of one new key-group range each) in one pass over the old tables; then each
bucket is sorted by itself and written. Memory is bounded by one bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.checkpoint.metadata import OperatorState, SubtaskState, TableHandle
from tidemark.errors import ConfigError
from tidemark.scratch import ScratchDirectory
from tidemark.state.canonical import MAX_BATCH_ROWS, StateSerializers
from tidemark.state.key_hashing import key_group_column
from tidemark.state.operator_state import RAW_KEYED_STATE
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import dump_serializer_snapshot
from tidemark.state.snapshot import OperatorStatePart, Redistribution, StateMeta
from tidemark.state_processor.canonical_copy import StreamedTable, write_rows
from tidemark.state_processor.input_splits import rows_of, split_groups
from tidemark.state_processor.open_snapshot import OpenSnapshot, metas_of
from tidemark.state_processor.tables import canonical_schema, canonical_tables
from tidemark.state_processor.target import NewSavepoint

__all__ = ["KeyChange", "RekeyedOperator", "state_size"]

_BUCKET_ROWS = 250_000
_FORMER = "$former"
"""Column of the old key's bytes in buckets of changed keys; only there to find keys that would merge."""

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Old keys, new keys, and the way from one to the other."""

    old: TypeSerializer[Any]
    new: TypeSerializer[Any]
    function: Callable[[Any], Any]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with new keys and, as its last column, the bytes of the old ones."""
        keys = self.old.from_arrow(batch.column("key"))
        former = pa.array([self.old.key_bytes(key) for key in keys], pa.binary())
        changed = self.new.to_arrow([self.function(key) for key in keys])
        columns = [*batch.columns, former]
        names = [*batch.schema.names, _FORMER]
        columns[names.index("key")] = changed
        return pa.RecordBatch.from_arrays(columns, names=names)

    def check(self, uid: str, name: str, rows: pa.Table) -> None:
        """Refuse a bucket in which one new key stands for several old ones.

        Raises:
            ConfigError: Two keys would become one; the message names it.
        """
        key_bytes = self.new.key_bytes
        origin: dict[bytes, bytes] = {}
        for key, former in zip(
            self.new.from_arrow(rows.column("key")), rows.column(_FORMER).to_pylist(), strict=True
        ):
            if origin.setdefault(key_bytes(key), former) != former:
                raise ConfigError(
                    f"Several keys of state '{name}' of operator '{uid}' would become {key!r}. The new key "
                    "must tell apart what the old one told apart."
                )


class RekeyedOperator:
    """Rewrites one operator.

    Subtasks keep their number as far as that is possible, so that operator state, which belongs to subtasks,
    stays as it is.
    """

    def __init__(
        self,
        snapshot: OpenSnapshot,
        operator: OperatorState,
        max_parallelism: int,
        new: NewSavepoint,
        change: KeyChange | None = None,
    ) -> None:
        """Prepare the buckets.

        Args:
            snapshot: Where the operator is.
            operator: A keyed operator.
            max_parallelism: Number of key groups it gets.
            new: The savepoint to write.
            change: What becomes of the keys, if they do not stay.
        """
        self._snapshot = snapshot
        self._operator = operator
        self._groups = max_parallelism
        self._new = new
        self._change = change
        self._owned = split_groups(max_parallelism, operator.parallelism)
        pieces = rows_of(operator) // (_BUCKET_ROWS * len(self._owned)) + 1
        self._buckets = [
            (first + low, first + high)
            for first, last in self._owned
            for low, high in split_groups(last - first + 1, pieces)
        ]

    def run(self) -> OperatorState:
        """Write everything.

        Raises:
            ConfigError: Two keys would become one, or the operator has raw keyed state.
        """
        self._refuse_raw()
        tables: list[list[TableHandle]] = [[] for _ in self._owned]
        for meta in metas_of(self._operator):
            for index, handle in self._rewrite(meta):
                tables[index].append(handle)
        old = sorted(self._operator.subtasks, key=lambda subtask: subtask.index)
        parts = _gathered([list(subtask.operator) for subtask in old], len(self._owned))
        subtasks = []
        for index, groups in enumerate(self._owned):
            subtask = SubtaskState(index, groups, operator=tuple(parts[index]))
            size = state_size(subtask, tuple(tables[index]))
            subtasks.append(replace(subtask, tables=tuple(tables[index]), state_size=size))
        return replace(
            self._operator,
            parallelism=len(self._owned),
            max_parallelism=self._groups,
            subtasks=tuple(subtasks),
        )

    def _refuse_raw(self) -> None:
        for subtask in self._operator.subtasks:
            if any(part.name == RAW_KEYED_STATE and part.elements for part in subtask.operator):
                raise ConfigError(
                    f"Operator '{self._operator.uid}' has raw keyed state, of which nobody but the operator knows to "
                    "which keys it belongs. Start the job with the old keys and key groups, and write it anew."
                )

    def _rewrite(self, old_meta: StateMeta) -> Iterator[tuple[int, TableHandle]]:
        """Handles of one state, with the subtask each belongs to."""
        change = self._change
        schema = canonical_schema(self._snapshot, self._operator.uid, old_meta)
        meta, serializer = old_meta, change.new if change is not None else StateSerializers.key_of(old_meta)
        if change is not None:
            meta = replace(meta, key=dump_serializer_snapshot(serializer))
            at = schema.get_field_index("key")
            schema = schema.set(at, pa.field("key", serializer.arrow_type()))
        starts = np.array([first for first, _ in self._buckets])
        # The types of a state are kept even if no row is left to bring them.
        yield 0, TableHandle(meta)
        with ScratchDirectory("tidemark-rekey-") as folder:
            stored = schema if change is None else schema.append(pa.field(_FORMER, pa.binary()))
            files = _Buckets(Path(folder), stored)
            for batch in self._old_rows(old_meta):
                rows = batch if change is None else change.apply(batch)
                groups = key_group_column(rows.column("key"), serializer, self._groups)
                files.add(rows, groups, np.searchsorted(starts, groups, side="right") - 1)
            for number, bucket in files.sorted_buckets():
                if change is not None:
                    change.check(self._operator.uid, meta.name, bucket)
                batches = bucket.select(schema.names).to_batches(max_chunksize=MAX_BATCH_ROWS)
                first, _last = self._buckets[number]
                owner = next(i for i, (low, high) in enumerate(self._owned) if low <= first <= high)
                table = StreamedTable(meta, schema, iter(batches))
                yield owner, write_rows(self._new, self._operator.uid, number, table)

    def _old_rows(self, meta: StateMeta) -> Iterator[pa.RecordBatch]:
        for split in self._snapshot.splits(self._operator, self._operator.parallelism):
            only = split.only(meta.kind, meta.name)
            with canonical_tables(only, self._snapshot.storage, lambda m: m.name == meta.name) as tables:
                for _meta, batches in tables:
                    yield from batches


def state_size(subtask: SubtaskState, more: tuple[TableHandle, ...]) -> int:
    """Bytes of state of a subtask that gets more tables."""
    size = sum(table.state_size for table in (*subtask.tables, *more))
    return size + sum(len(element) for part in subtask.operator for element in part.elements)


def _gathered(parts: list[list[OperatorStatePart]], count: int) -> list[list[OperatorStatePart]]:
    """Operator state of `count` subtasks: the last one takes over the elements of those there is no place for."""
    kept = parts[:count] + [[] for _ in range(count - len(parts))]
    last = {part.name: part for part in kept[-1]}
    for part in [part for extra in parts[count:] for part in extra]:
        mine = last.get(part.name)
        if mine is None:
            last[part.name] = part
        elif part.mode is not Redistribution.BROADCAST:
            last[part.name] = replace(mine, elements=mine.elements + part.elements)
    return [*kept[:-1], list(last.values())]


class _Buckets:
    """Rows on local disk, one file per new key-group range."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._writers: dict[int, Any] = {}

    def add(self, batch: pa.RecordBatch, groups: Numbers, buckets: Numbers) -> None:
        """Append every row, with its new key group, to its bucket."""
        columns = [pa.array(groups, pa.uint16()), *batch.columns[1:]]
        rekeyed = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for bucket in np.unique(buckets).tolist():
            writer = self._writers.get(bucket)
            if writer is None:
                path = self._folder / str(bucket)
                writer = self._writers[bucket] = pa.ipc.new_stream(path.as_posix(), self._schema)
            writer.write_batch(rekeyed.filter(pa.array(buckets == bucket)))

    def sorted_buckets(self) -> Iterator[tuple[int, pa.Table]]:
        """Each bucket's rows sorted by key group; one bucket in memory at a time."""
        for writer in self._writers.values():
            writer.close()
        for bucket in sorted(self._writers):
            path = self._folder / str(bucket)
            with pa.ipc.open_stream(path.as_posix()) as reader:
                table = reader.read_all()
            path.unlink()
            groups = table.column("key_group").to_numpy()
            yield bucket, table.take(pa.array(np.argsort(groups, kind="stable"))).combine_chunks()
