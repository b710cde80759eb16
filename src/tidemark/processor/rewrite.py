"""Whole-savepoint rewrites without Spark: forget a key everywhere, or change the number of key groups.

Both stream: memory is bounded by one file's row groups, or by one bucket of rows, whatever the size of the
state. What need not change is copied.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState, TableHandle
from tidemark.errors import ConfigError, SerializationError
from tidemark.processor.canonical_copy import StreamedTable, canonical_subtask, write_rows
from tidemark.processor.columns import key_group_column
from tidemark.processor.opened import OpenSnapshot, metas_of, rows_of, split_groups
from tidemark.processor.tables import canonical_schema, canonical_tables, key_serializer_of, serializers_of
from tidemark.processor.target import NewSavepoint
from tidemark.state.canonical import MAX_BATCH_ROWS
from tidemark.state.key_groups import MAX_KEY_GROUPS, assign_to_key_group
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import OperatorStatePart, Redistribution, StateMeta

__all__ = ["ErasedKey", "erase_key", "parse_key", "rekey"]

_BUCKET_ROWS = 250_000

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ErasedKey:
    """What `erase_key` did."""

    path: str
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    """Operator uid and state -> rows that were left out; states without any are not named."""

    @property
    def total(self) -> int:
        """Rows left out over all states."""
        return sum(self.rows.values())


def erase_key(
    path: str, key: Any, target: str, uids: Collection[str] = (), *, parse: bool = False
) -> ErasedKey:
    """Write a new savepoint without one key: in no keyed state, in no timer.

    The key may still be inside values, operator state, older snapshots and outside systems.

    Args:
        path: The snapshot to read; it is not changed.
        key: The key, as the job sees it.
        target: Directory of the new savepoint; must not exist.
        uids: Operators to forget it in; empty: all keyed operators whose keys have a type it fits.
        parse: `key` is text that is read as the operators' key types (see `parse_key`).

    Raises:
        UnknownStateError: No such operator, or it is not keyed.
        ConfigError: The target exists, or the key fits no operator's key type.
    """
    snapshot = OpenSnapshot.open(path)
    operators = [snapshot.keyed_operator(uid) for uid in uids]
    operators = operators or [op for op in snapshot.metadata.operators if op.is_keyed and metas_of(op)]
    wanted = _encoded(operators, key, parse, explicit=bool(uids))
    erased: dict[tuple[str, str], int] = {}
    with NewSavepoint(target, snapshot.storage) as new:
        result = []
        for operator in snapshot.metadata.operators:
            if operator.uid in wanted:
                eraser = _Eraser(operator, *wanted[operator.uid], erased)
                result.append(eraser.run(snapshot, new))
            else:
                result.append(new.carry(snapshot, operator))
        directory = new.commit(replace(snapshot.metadata, operators=tuple(result)))
    return ErasedKey(directory, erased)


def _encoded(
    operators: list[OperatorState], key: Any, parse: bool, *, explicit: bool
) -> dict[str, tuple[bytes, TypeSerializer[Any]]]:
    """Uid -> the key's bytes and the serializer of the keys, for the operators whose keys it fits."""
    found = {}
    problems = []
    for operator in operators:
        serializer = key_serializer_of(metas_of(operator))
        try:
            value = parse_key(key, serializer) if parse else key
            found[operator.uid] = (serializer.key_bytes(value), serializer)
        except (SerializationError, ConfigError, TypeError, ValueError) as exc:
            problems.append(f"operator '{operator.uid}': {exc}")
    if problems and (explicit or not found):
        raise ConfigError(f"The key {key!r} does not fit: {'; '.join(problems)}")
    if not found:
        raise ConfigError("The snapshot has no keyed operator with state, so there is nothing to erase.")
    return found


def parse_key(text: str, serializer: TypeSerializer[Any]) -> Any:
    """A key typed on a command line: plain text, a number, or JSON (or a Python literal) for anything else.

    Raises:
        ConfigError: The text is no key of that type.
    """
    kind = serializer.arrow_type()
    try:
        if pa.types.is_string(kind):
            return text
        if pa.types.is_integer(kind):
            return int(text)
        if pa.types.is_floating(kind):
            return float(text)
        if pa.types.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
        if pa.types.is_struct(kind) or pa.types.is_list(kind):
            value = json.loads(text)
            return tuple(value) if isinstance(value, list) else value
    except (ValueError, KeyError) as exc:
        raise ConfigError(f"'{text}' cannot be read as a key of type {kind}: {exc}") from exc
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        # Keys without a declared type are often plain strings.
        return text


class _Eraser:
    """Takes one key out of one operator."""

    def __init__(
        self,
        operator: OperatorState,
        key: bytes,
        serializer: TypeSerializer[Any],
        counts: dict[tuple[str, str], int],
    ) -> None:
        self._operator = operator
        self._key = key
        self._serializer = serializer
        self._group = assign_to_key_group(key, operator.max_parallelism)
        self._counts = counts

    def run(self, snapshot: OpenSnapshot, new: NewSavepoint) -> OperatorState:
        subtasks = [self._subtask(snapshot, new, subtask) for subtask in self._operator.subtasks]
        return replace(self._operator, subtasks=tuple(subtasks))

    def _subtask(self, snapshot: OpenSnapshot, new: NewSavepoint, subtask: SubtaskState) -> SubtaskState:
        groups, operator = subtask.key_groups, self._operator
        if groups is None or not groups[0] <= self._group <= groups[1]:
            return new.carry_subtask(snapshot, operator.uid, subtask)
        if subtask.native is not None:
            return canonical_subtask(snapshot, operator, subtask, new, each=self._without)
        mine = [table for table in subtask.tables if table.overlaps(self._group, self._group)]
        touched = canonical_subtask(
            snapshot, operator, replace(subtask, tables=tuple(mine), operator=()), new, each=self._without
        )
        rest = [table for table in subtask.tables if table not in mine]
        carried = new.carry_subtask(snapshot, operator.uid, replace(subtask, tables=tuple(rest)))
        return replace(carried, tables=(*rest, *touched.tables), state_size=_size(carried, touched.tables))

    def _without(self, meta: StateMeta, batch: pa.RecordBatch) -> pa.RecordBatch:
        groups = batch.column("key_group").to_numpy(zero_copy_only=False)
        start = int(np.searchsorted(groups, self._group, side="left"))
        end = int(np.searchsorted(groups, self._group, side="right"))
        if start == end:
            return batch
        keys = self._serializer.from_arrow(batch.column("key").slice(start, end - start))
        key_bytes, wanted = self._serializer.key_bytes, self._key
        keep = np.ones(batch.num_rows, bool)
        keep[start:end] = [key_bytes(key) != wanted for key in keys]
        gone = int(batch.num_rows - keep.sum())
        if gone:
            place = (self._operator.uid, meta.name)
            self._counts[place] = self._counts.get(place, 0) + gone
        return batch.filter(pa.array(keep))


def _size(subtask: SubtaskState, more: tuple[TableHandle, ...]) -> int:
    size = sum(table.state_size for table in (*subtask.tables, *more))
    return size + sum(len(element) for part in subtask.operator for element in part.elements)


def rekey(path: str, max_parallelism: int, target: str, uids: Collection[str] = ()) -> str:
    """Write a new savepoint whose keyed operators have another number of key groups.

    Args:
        path: The snapshot to read; it is not changed.
        max_parallelism: The new maximum parallelism, larger or smaller.
        target: Directory of the new savepoint; must not exist.
        uids: Operators to change; empty: all keyed ones.

    Returns:
        The directory of the new savepoint.

    Raises:
        UnknownStateError: No such operator, or it is not keyed.
        ConfigError: The number is not between 1 and 32768, or the target exists.
    """
    if not 1 <= max_parallelism <= MAX_KEY_GROUPS:
        raise ConfigError(f"max_parallelism must be between 1 and {MAX_KEY_GROUPS}, not {max_parallelism}.")
    snapshot = OpenSnapshot.open(path)
    chosen = {snapshot.keyed_operator(uid).uid for uid in uids}
    chosen = chosen or {operator.uid for operator in snapshot.metadata.operators if operator.is_keyed}
    with NewSavepoint(target, snapshot.storage) as new:
        operators = []
        for operator in snapshot.metadata.operators:
            if operator.uid in chosen and operator.max_parallelism != max_parallelism:
                operators.append(_Rekeyed(snapshot, operator, max_parallelism, new).run())
            else:
                operators.append(new.carry(snapshot, operator))
        metadata: CheckpointMetadata = replace(snapshot.metadata, operators=tuple(operators))
        return new.commit(metadata)


class _Rekeyed:
    """Gives one operator another number of key groups.

    Rows are dealt out to buckets (files of one new key-group range each) in one pass over the old tables;
    then each bucket is sorted by itself and written. Subtasks keep their number as far as that is possible,
    so that operator state, which belongs to subtasks, stays as it is.
    """

    def __init__(
        self, snapshot: OpenSnapshot, operator: OperatorState, max_parallelism: int, new: NewSavepoint
    ) -> None:
        self._snapshot = snapshot
        self._operator = operator
        self._groups = max_parallelism
        self._new = new
        self._owned = split_groups(max_parallelism, operator.parallelism)
        pieces = rows_of(operator) // (_BUCKET_ROWS * len(self._owned)) + 1
        self._buckets = [
            (first + low, first + high)
            for first, last in self._owned
            for low, high in split_groups(last - first + 1, pieces)
        ]

    def run(self) -> OperatorState:
        tables: list[list[TableHandle]] = [[] for _ in self._owned]
        for meta in metas_of(self._operator):
            for index, handle in self._rewrite(meta):
                tables[index].append(handle)
        old = sorted(self._operator.subtasks, key=lambda subtask: subtask.index)
        parts = _gathered([list(subtask.operator) for subtask in old], len(self._owned))
        subtasks = []
        for index, groups in enumerate(self._owned):
            subtask = SubtaskState(index, groups, operator=tuple(parts[index]))
            size = _size(subtask, tuple(tables[index]))
            subtasks.append(replace(subtask, tables=tuple(tables[index]), state_size=size))
        return replace(
            self._operator,
            parallelism=len(self._owned),
            max_parallelism=self._groups,
            subtasks=tuple(subtasks),
        )

    def _rewrite(self, meta: StateMeta) -> Iterator[tuple[int, TableHandle]]:
        """Handles of one state, with the subtask each belongs to."""
        schema = canonical_schema(self._snapshot, self._operator.uid, meta)
        starts = np.array([first for first, _ in self._buckets])
        # The types of a state are kept even if no row is left to bring them.
        yield 0, TableHandle(meta)
        with tempfile.TemporaryDirectory(prefix="tidemark-rekey-") as folder:
            files = _Buckets(Path(folder), schema)
            serializer = serializers_of(meta).key
            for batch in self._old_rows(meta):
                groups = key_group_column(batch.column("key"), serializer, self._groups)
                files.deal(batch, groups, np.searchsorted(starts, groups, side="right") - 1)
            for number, rows in files.sorted_buckets():
                table = StreamedTable(meta, schema, iter(rows.to_batches(max_chunksize=MAX_BATCH_ROWS)))
                first, _last = self._buckets[number]
                owner = next(i for i, (low, high) in enumerate(self._owned) if low <= first <= high)
                yield owner, write_rows(self._new, self._operator.uid, number, table)

    def _old_rows(self, meta: StateMeta) -> Iterator[pa.RecordBatch]:
        for share in self._snapshot.shares(self._operator, self._operator.parallelism):
            only = share.only(meta.kind, meta.name)
            with canonical_tables(only, self._snapshot.storage, lambda m: m.name == meta.name) as tables:
                for _meta, batches in tables:
                    yield from batches


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

    def deal(self, batch: pa.RecordBatch, groups: Numbers, buckets: Numbers) -> None:
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
