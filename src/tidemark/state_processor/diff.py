"""What differs between two snapshots, key by key.

States are compared in their stored form, so no user code is needed, and none is run: no class a snapshot names is
imported (`only_data`). Values without a declared type are
pickles, and equal ones may have different bytes: those of plain data are opened (`plain_pickles`), objects of
classes are not, nor pickles inside of other values; equal ones may be reported as changed. Times of
last access do not count. Files that are byte for byte the same are not even read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tidemark.checkpoint.metadata import OperatorState
from tidemark.errors import StateMigrationException
from tidemark.state.allowed_classes import only_data
from tidemark.state.canonical import StateSerializers
from tidemark.state.serializers.pickled import PickleSerializer
from tidemark.state.snapshot import StateMeta
from tidemark.state_processor.open_snapshot import OpenSnapshot, metas_of
from tidemark.state_processor.operator_rows import operator_batch
from tidemark.state_processor.plain_pickles import StoredPickle, plain_or_bytes
from tidemark.state_processor.tables import canonical_tables

__all__ = ["StateDiff", "diff"]

_SPLITS = 16


@dataclass(slots=True)
class StateDiff:
    """How one state of one operator differs between snapshot A and snapshot B."""

    uid: str
    state: str
    kind: str
    """Kind of keyed state, `timer`, or the redistribution mode of operator state."""
    added: int = 0
    """Keys (operator lists: elements) only B has."""
    removed: int = 0
    """Keys only A has."""
    changed: int = 0
    """Keys both have, with other content."""
    samples: dict[str, list[Any]] = field(default_factory=lambda: {"added": [], "removed": [], "changed": []})

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed)

    def _count(self, what: str, key: Any, limit: int) -> None:
        setattr(self, what, getattr(self, what) + 1)
        if len(self.samples[what]) < limit:
            self.samples[what].append(key)


def diff(path_a: str, path_b: str, samples: int = 5) -> list[StateDiff]:
    """Compare every state of two snapshots; one entry per state, equal ones included.

    Args:
        path_a: The older snapshot.
        path_b: The newer one.
        samples: Keys to show per kind of difference.

    Raises:
        SavepointNotFoundError: One of them is none.
    """
    with only_data():
        a, b = OpenSnapshot.open(path_a), OpenSnapshot.open(path_b)
        uids = dict.fromkeys(op.uid for snapshot in (a, b) for op in snapshot.metadata.operators)
        return [entry for uid in uids for entry in _diff_operator(a, b, uid, samples)]


def _diff_operator(a: OpenSnapshot, b: OpenSnapshot, uid: str, samples: int) -> Iterator[StateDiff]:
    old, new = a.metadata.operator(uid), b.metadata.operator(uid)
    sides = [(snapshot, op) for snapshot, op in ((a, old), (b, new)) if op is not None]
    metas: dict[str, StateMeta] = {}
    names: dict[str, None] = {}
    for _snapshot, operator in sides:
        metas |= {meta.name: meta for meta in metas_of(operator)}
        names |= {part.name: None for subtask in operator.subtasks for part in subtask.operator}
    for name in metas:
        yield _diff_keyed(a, b, uid, metas[name], samples)
    for name in names:
        yield _diff_elements(a, b, uid, name, samples)


def _diff_keyed(a: OpenSnapshot, b: OpenSnapshot, uid: str, meta: StateMeta, samples: int) -> StateDiff:
    result = StateDiff(uid, meta.name, meta.kind.value)
    old, new = a.metadata.operator(uid), b.metadata.operator(uid)
    if _fingerprint(old, meta) == _fingerprint(new, meta) is not None:
        return result
    show = _shown_key(meta)
    for content_a, content_b in _pairs(a, old, b, new, meta):
        for token, rows in content_a.items():
            other = content_b.pop(token, None)
            if other is None:
                result._count("removed", show(rows[0]), samples)
            elif not _equal(rows[1], other[1]):
                result._count("changed", show(rows[0]), samples)
        for _token, (key, _rows) in content_b.items():
            result._count("added", show(key), samples)
    return result


def _fingerprint(operator: OperatorState | None, meta: StateMeta) -> list[Any] | None:
    """Checksums of all files of a state; None if it is (partly) in native files."""
    if operator is None or any(subtask.native is not None for subtask in operator.subtasks):
        return None
    tables = [table for subtask in operator.subtasks for table in subtask.tables]
    return [table.row_groups for table in tables if table.meta.name == meta.name and table.rows]


Content = dict[Any, tuple[Any, list[Any]]]
"""Comparable key -> the key itself and its rows."""


def _pairs(
    a: OpenSnapshot, old: OperatorState | None, b: OpenSnapshot, new: OperatorState | None, meta: StateMeta
) -> Iterator[tuple[Content, Content]]:
    """Content of both sides, range by range where both have the same key groups."""
    groups = {op.max_parallelism for op in (old, new) if op is not None}
    if len(groups) > 1:
        yield _content(a, old, None, meta), _content(b, new, None, meta)
        return
    sizes = [(s, op) for s, op in ((a, old), (b, new)) if op is not None and op.is_keyed]
    if not sizes:
        return
    count = max(len(snapshot.splits(operator, _SPLITS)) for snapshot, operator in sizes)
    for split in sizes[0][0].splits(sizes[0][1], count):
        yield _content(a, old, split.key_groups, meta), _content(b, new, split.key_groups, meta)


def _content(
    snapshot: OpenSnapshot, operator: OperatorState | None, groups: tuple[int, int] | None, meta: StateMeta
) -> Content:
    if operator is None or not operator.is_keyed:
        return {}
    split = snapshot.split(operator, groups or (0, operator.max_parallelism - 1)).only(meta.kind, meta.name)
    content: Content = {}
    with canonical_tables(split, snapshot.storage, lambda m: m.name == meta.name) as tables:
        for stored, batches in tables:
            pickled = _pickled_columns(stored)
            for batch in batches:
                names = [n for n in batch.schema.names if n not in ("key_group", "key", "last_access")]
                cells = {name: batch.column(name).to_pylist() for name in names}
                cells |= {name: _comparable(cells[name]) for name in pickled.intersection(names)}
                rows = zip(*cells.values(), strict=True)
                for key, row in zip(batch.column("key").to_pylist(), rows, strict=True):
                    token = key if isinstance(key, (str, int, bytes, float)) else repr(key)
                    content.setdefault(token, (key, []))[1].append(row)
    return content


def _equal(left: list[Any], right: list[Any]) -> bool:
    """Whether a key has the same rows on both sides, in any order."""
    if left == right:
        return True
    if len(left) != len(right):
        return False
    rest = list(right)
    for row in left:
        if row not in rest:
            return False
        rest.remove(row)
    return True


def _shown_key(meta: StateMeta) -> Callable[[Any], Any]:
    """How a stored key is shown: pickled ones of plain data as what they are."""
    return plain_or_bytes if "key" in _pickled_columns(meta) else lambda key: key


def _pickled_columns(meta: StateMeta) -> set[str]:
    """Columns of a state's table whose type nobody declared."""
    try:
        serializers = StateSerializers.of(meta)
    except StateMigrationException:
        # Its classes are not here; then stored forms are as different as their bytes.
        return set()
    columns = {"key": serializers.key, "value": serializers.value, "map_key": serializers.map_key}
    return {name for name, serializer in columns.items() if isinstance(serializer, PickleSerializer)}


def _comparable(cells: list[Any]) -> list[Any]:
    """Pickles of one column, or of a column of lists."""
    return [
        _comparable(cell) if isinstance(cell, list) else cell if cell is None else StoredPickle(cell)
        for cell in cells
    ]


def _diff_elements(a: OpenSnapshot, b: OpenSnapshot, uid: str, name: str, samples: int) -> StateDiff:
    sides = []
    mode = ""
    for snapshot in (a, b):
        parts = snapshot.parts(uid, name) if snapshot.metadata.operator(uid) is not None else []
        mode = parts[0][1].mode.value if parts else mode
        sides.append(operator_batch(parts).to_pylist() if parts else [])
    result = StateDiff(uid, name, mode)
    if any("map_key" in row for side in sides for row in side):
        old, new = ({repr(row["map_key"]): row for row in side} for side in sides)
        for text in {**old, **new}:
            row = old.get(text) or new[text]
            if text not in new:
                result._count("removed", row["map_key"], samples)
            elif text not in old:
                result._count("added", row["map_key"], samples)
            elif old[text]["value"] != new[text]["value"]:
                result._count("changed", row["map_key"], samples)
        return result
    counts = [Counter(repr(row["value"]) for row in side) for side in sides]
    result.added, result.removed = (counts[1] - counts[0]).total(), (counts[0] - counts[1]).total()
    result.samples["added"] = list(islice((counts[1] - counts[0]).elements(), samples))
    result.samples["removed"] = list(islice((counts[0] - counts[1]).elements(), samples))
    return result
