"""A checkpoint or savepoint opened for reading, and how it is split into pieces that tasks can read alone.

A piece is a `Share`: one key-group range of one operator with the handles of every file that may hold rows
of it. Shares are plain data and travel to Spark tasks; nothing but the storage is needed to read one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidemark.checkpoint.layout import SnapshotLocation, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState, read_metadata
from tidemark.checkpoint.rescale import SubtaskRestore, restore_range
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ConfigError, UnknownStateError
from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.snapshot import OperatorStatePart, StateMeta

__all__ = ["OpenSnapshot", "Share", "metas_of", "parse_ranges", "rows_of", "split_groups"]

_ROWS_PER_PART = 200_000
_NATIVE_BYTES_PER_PART = 256 << 20


@dataclass(frozen=True, slots=True)
class Share:
    """One key-group range of one operator."""

    restore: SubtaskRestore
    max_parallelism: int

    @property
    def key_groups(self) -> tuple[int, int]:
        """First and last key group, both included."""
        assert self.restore.key_groups is not None
        return self.restore.key_groups

    def only(self, kind: StateKind, name: str) -> Share:
        """The same range with nothing but the files of one state."""
        tables = tuple(
            table
            for table in self.restore.tables
            if table.meta.name == name and (table.meta.kind is StateKind.TIMER) == (kind is StateKind.TIMER)
        )
        natives = () if kind is StateKind.TIMER else self.restore.natives
        return replace(self, restore=replace(self.restore, tables=tables, natives=natives))


class OpenSnapshot:
    """The metadata of a snapshot, with lookups that say what is there when something is not."""

    def __init__(self, storage: Storage, directory: str, metadata: CheckpointMetadata) -> None:
        self.storage = storage
        self.location: SnapshotLocation = savepoint_location(directory)
        self.metadata = metadata

    @classmethod
    def open(cls, path: str, storage: Storage | None = None) -> OpenSnapshot:
        """Open whatever names a snapshot: its directory, its `_metadata`, a retained `chk-<n>`.

        Raises:
            SavepointNotFoundError: Nothing complete is there.
            MetadataError: The metadata cannot be understood.
        """
        storage = storage or FileSystemStorage()
        directory = resolve_snapshot_path(storage, path)
        return cls(storage, directory, read_metadata(storage, directory))

    @property
    def path(self) -> str:
        """Directory of the snapshot."""
        return self.location.directory

    def operator(self, uid: str) -> OperatorState:
        """State of one operator.

        Raises:
            UnknownStateError: There is none with that uid.
        """
        found = self.metadata.operator(uid)
        if found is None:
            known = ", ".join(repr(operator.uid) for operator in self.metadata.operators) or "none"
            raise UnknownStateError(
                f"The snapshot at {self.path} has no operator with uid '{uid}'. It has: {known}.",
                operator_uid=uid,
            )
        return found

    def keyed_operator(self, uid: str) -> OperatorState:
        """State of one operator that has keys.

        Raises:
            UnknownStateError: There is none with that uid, or it is not keyed.
        """
        operator = self.operator(uid)
        if not operator.is_keyed:
            raise UnknownStateError(
                f"Operator '{uid}' of the snapshot at {self.path} has no keyed state.", operator_uid=uid
            )
        return operator

    def metas(self, uid: str) -> list[StateMeta]:
        """Keyed states and timers of an operator, each once, by name."""
        return metas_of(self.operator(uid))

    def meta(self, uid: str, name: str) -> StateMeta:
        """One keyed state, or the timers of one domain.

        Raises:
            UnknownStateError: The operator has no such keyed state.
        """
        for meta in self.metas(uid):
            if meta.name == name:
                return meta
        raise self.no_state(uid, name)

    def parts(self, uid: str, name: str) -> list[tuple[int, OperatorStatePart]]:
        """One operator state of every subtask that holds it, with the subtask's index."""
        return [
            (subtask.index, part)
            for subtask in _in_order(self.operator(uid))
            for part in subtask.operator
            if part.name == name
        ]

    def no_state(self, uid: str, name: str) -> UnknownStateError:
        """The error that says which states an operator has."""
        operator = self.operator(uid)
        names = [meta.name for meta in metas_of(operator)]
        names += [part.name for subtask in operator.subtasks for part in subtask.operator]
        known = ", ".join(repr(known) for known in dict.fromkeys(names)) or "none"
        return UnknownStateError(
            f"Operator '{uid}' of the snapshot at {self.path} has no state '{name}'. It has: {known}.",
            state_name=name,
            operator_uid=uid,
        )

    def share(self, operator: OperatorState, groups: tuple[int, int]) -> Share:
        """What is needed to read one key-group range of an operator."""
        restore = restore_range(operator, self.metadata, self.location, groups)
        return Share(restore, operator.max_parallelism)

    def shares(
        self, operator: OperatorState, at_least: int = 1, within: Sequence[tuple[int, int]] | None = None
    ) -> list[Share]:
        """Split an operator into shares that are small enough for one task each.

        Args:
            operator: A keyed operator.
            at_least: Number of shares wanted, as far as there are key groups.
            within: Key-group ranges to read, in order; None reads all.
        """
        wanted = within if within is not None else [(0, operator.max_parallelism - 1)]
        groups = sum(last - first + 1 for first, last in wanted)
        if not groups:
            return []
        count = min(max(at_least, _parts_by_size(operator)), groups)
        return [self.share(operator, piece) for piece in _pieces(wanted, groups, count)]


def metas_of(operator: OperatorState) -> list[StateMeta]:
    """Keyed states and timers of an operator, each once."""
    metas: dict[tuple[bool, str], StateMeta] = {}
    for subtask in operator.subtasks:
        found = [table.meta for table in subtask.tables]
        found += subtask.native.metas if subtask.native is not None else ()
        for meta in found:
            metas.setdefault((meta.kind is StateKind.TIMER, meta.name), meta)
    return [metas[key] for key in sorted(metas)]


def rows_of(operator: OperatorState) -> int:
    """Rows of all canonical tables of an operator."""
    return sum(table.rows for subtask in operator.subtasks for table in subtask.tables)


def split_groups(max_parallelism: int, count: int) -> list[tuple[int, int]]:
    """`count` ranges (fewer if there are fewer key groups) as subtasks of that parallelism own them."""
    count = min(count, max_parallelism)
    return [
        compute_key_group_range_for_operator_index(max_parallelism, count, index) for index in range(count)
    ]


def parse_ranges(text: str, max_parallelism: int) -> list[tuple[int, int]]:
    """Key groups written as `3`, `0-15` or `0-15,20`.

    Raises:
        ConfigError: The text is no such list, or names key groups that do not exist.
    """
    ranges = []
    try:
        for part in text.split(","):
            low, _, high = part.strip().partition("-")
            ranges.append((int(low), int(high or low)))
    except ValueError as exc:
        raise ConfigError(f"key_groups '{text}' is no list of key groups such as '0-15,20'.") from exc
    for first, last in ranges:
        if not 0 <= first <= last < max_parallelism:
            raise ConfigError(
                f"key_groups '{text}' leaves the key groups 0 to {max_parallelism - 1} of the operator."
            )
    return sorted(ranges)


def _pieces(wanted: Iterable[tuple[int, int]], groups: int, count: int) -> list[tuple[int, int]]:
    """Cut ranges into at least `count` contiguous pieces of about the same number of key groups."""
    size = -(-groups // count)
    return [
        (start, min(start + size - 1, last))
        for first, last in wanted
        for start in range(first, last + 1, size)
    ]


def _parts_by_size(operator: OperatorState) -> int:
    native = sum(subtask.native.size for subtask in operator.subtasks if subtask.native is not None)
    return max(rows_of(operator) // _ROWS_PER_PART, native // _NATIVE_BYTES_PER_PART) + 1


def _in_order(operator: OperatorState) -> list[SubtaskState]:
    return sorted(operator.subtasks, key=lambda subtask: subtask.index)
