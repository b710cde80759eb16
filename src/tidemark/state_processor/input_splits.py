"""How the keyed state of an operator is split into pieces that tasks can read alone.

A piece is an `InputSplit`: one key-group range of one operator with the handles of every file that may hold rows
of it. Splits are plain data and travel to Spark tasks; nothing but the storage is needed to read one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark.checkpoint.metadata import OperatorState
from tidemark.checkpoint.rescale import SubtaskRestore
from tidemark.errors import ConfigError
from tidemark.state.descriptors import StateKind
from tidemark.state.key_groups import compute_key_group_range_for_operator_index

__all__ = ["InputSplit", "parse_ranges", "ranges_to_read", "rows_of", "split_groups"]

_ROWS_PER_PART = 200_000
_NATIVE_BYTES_PER_PART = 256 << 20


@dataclass(frozen=True, slots=True)
class InputSplit:
    """One key-group range of one operator."""

    restore: SubtaskRestore
    max_parallelism: int

    @property
    def key_groups(self) -> tuple[int, int]:
        """First and last key group, both included."""
        assert self.restore.key_groups is not None
        return self.restore.key_groups

    def only(self, kind: StateKind, name: str) -> InputSplit:
        """The same range with nothing but the files of one state."""
        tables = tuple(
            table
            for table in self.restore.tables
            if table.meta.name == name and (table.meta.kind is StateKind.TIMER) == (kind is StateKind.TIMER)
        )
        natives = () if kind is StateKind.TIMER else self.restore.natives
        return replace(self, restore=replace(self.restore, tables=tables, natives=natives))


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


def ranges_to_read(
    operator: OperatorState, at_least: int, within: Sequence[tuple[int, int]] | None
) -> list[tuple[int, int]]:
    """Key-group ranges that are small enough for one task each; see `OpenSnapshot.splits`."""
    wanted = within if within is not None else [(0, operator.max_parallelism - 1)]
    groups = sum(last - first + 1 for first, last in wanted)
    if not groups:
        return []
    count = min(max(at_least, _parts_by_size(operator)), groups)
    # Contiguous pieces of about the same number of key groups; more than `count` if the ranges do not fit.
    size = -(-groups // count)
    return [
        (start, min(start + size - 1, last))
        for first, last in wanted
        for start in range(first, last + 1, size)
    ]


def _parts_by_size(operator: OperatorState) -> int:
    native = sum(subtask.native.size for subtask in operator.subtasks if subtask.native is not None)
    return max(rows_of(operator) // _ROWS_PER_PART, native // _NATIVE_BYTES_PER_PART) + 1
