"""Whole-savepoint rewrites without Spark: forget a key, change the number of key groups or the keys themselves.

All stream: memory is bounded by one file's row groups, or by one bucket of rows, whatever the size of the
state. What need not change is copied.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState
from tidemark.errors import ConfigError, SerializationError
from tidemark.state.key_groups import MAX_KEY_GROUPS, assign_to_key_group
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.resolution import resolve_key_compatibility
from tidemark.state.snapshot import StateMeta
from tidemark.state_processor.canonical_copy import canonical_subtask
from tidemark.state_processor.open_snapshot import OpenSnapshot, metas_of
from tidemark.state_processor.rekeying import KeyChange, RekeyedOperator, state_size
from tidemark.state_processor.tables import key_serializer_of
from tidemark.state_processor.target import NewSavepoint

__all__ = ["ErasedKey", "erase_key", "migrate_keys", "parse_key", "rekey"]


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
        return replace(
            carried, tables=(*rest, *touched.tables), state_size=state_size(carried, touched.tables)
        )

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
                operators.append(RekeyedOperator(snapshot, operator, max_parallelism, new).run())
            else:
                operators.append(new.carry(snapshot, operator))
        metadata: CheckpointMetadata = replace(snapshot.metadata, operators=tuple(operators))
        return new.commit(metadata)


def migrate_keys(
    path: str,
    uid: str,
    key_type: Any,
    function: Callable[[Any], Any],
    target: str,
    *,
    old_key_type: Any = None,
) -> str:
    """Write a new savepoint in which one operator's keys are of another type.

    Keys never migrate on restore, because their bytes decide which subtask a row belongs to. Here every row
    of the operator, timers included, gets its new key and moves to that key's key group.

    Args:
        path: The snapshot to read; it is not changed.
        uid: The operator.
        key_type: The type `key_by` declares from now on.
        function: From an old key to the new one. Different keys must stay different.
        target: Directory of the new savepoint; must not exist.
        old_key_type: Type to read the old keys as; by default the stored one, whose classes must then be
            importable. A class marked with `written_as` reads what another one wrote.

    Returns:
        The directory of the new savepoint.

    Raises:
        UnknownStateError: No such operator, or it is not keyed.
        StateMigrationException: The stored keys are not of `old_key_type`.
        ConfigError: Two keys would become one, or the target exists.
        SerializationError: The function returned something that is no key of the new type.
    """
    snapshot = OpenSnapshot.open(path)
    changed = snapshot.keyed_operator(uid)
    if old_key_type is None:
        old = key_serializer_of(metas_of(changed))
    else:
        old = serializer_for(old_key_type)
        for meta in metas_of(changed):
            resolve_key_compatibility(meta.key, old).require_compatible(meta.name, uid, role="key")
    change = KeyChange(old, serializer_for(key_type), function)
    with NewSavepoint(target, snapshot.storage) as new:
        operators = [
            RekeyedOperator(snapshot, operator, operator.max_parallelism, new, change).run()
            if operator.uid == uid
            else new.carry(snapshot, operator)
            for operator in snapshot.metadata.operators
        ]
        return new.commit(replace(snapshot.metadata, operators=tuple(operators)))
