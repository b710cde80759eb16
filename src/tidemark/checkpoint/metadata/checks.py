"""What decoded metadata must fulfil before anything is done with it, whichever version it was written in.

The checksum of a `_metadata` file says that it is as its author left it, not that its author meant well. Every
name that will be joined to a directory, and every number that will size or index something, is checked here,
once, so that no reader of handles has to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from tidemark.checkpoint.metadata.model import (
    CheckpointMetadata,
    FileHandle,
    OperatorState,
    SubtaskState,
    TableHandle,
)
from tidemark.safe_names import inner_path, plain_name
from tidemark.state.key_groups import MAX_KEY_GROUPS

__all__ = ["check"]

_LONG = range(-(1 << 63), 1 << 63)
_SIZE = range(1 << 63)
_COUNTER = range(1 << 62)
"""Of what a job goes on counting: what it writes next must be readable, too."""
_ID = re.compile(r"[0-9A-Za-z_-]{0,64}")


def check(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """`metadata`, if all that is in it makes sense.

    Raises:
        ValueError: The message names the entry and what is wrong with it.
    """
    _number("checkpoint id", metadata.checkpoint_id, _COUNTER)
    for what in ("job_id", "lineage"):
        if _ID.fullmatch(getattr(metadata, what)) is None:
            raise ValueError(f"{what} is {getattr(metadata, what)[:80]!r}, which is no id of a job")
    _number("timestamp", metadata.timestamp, _LONG)
    for uid, watermark in metadata.watermarks.items():
        _number(f"watermark of {uid!r}", watermark, _LONG)
    epoch = metadata.properties.get("epoch", "0")
    if not (epoch.isascii() and epoch.isdigit() and len(epoch) < 18):
        raise ValueError(f"property 'epoch': {epoch[:40]!r} is no number of an epoch")
    _distinct("operator", (operator.uid for operator in metadata.operators))
    for operator in metadata.operators:
        with _within(f"operator {operator.uid[:200]!r}"):
            _check_operator(operator)
    return metadata


def _check_operator(operator: OperatorState) -> None:
    _number("parallelism", operator.parallelism, range(MAX_KEY_GROUPS + 1))
    least = 1 if operator.is_keyed else 0
    _number("maximum parallelism", operator.max_parallelism, range(least, MAX_KEY_GROUPS + 1))
    _distinct("subtask", (str(subtask.index) for subtask in operator.subtasks))
    for subtask in operator.subtasks:
        with _within(f"subtask {subtask.index}"):
            _check_subtask(subtask, operator.max_parallelism)
    # Where two claim a key group, its state would be there twice.
    ranges = sorted(subtask.key_groups for subtask in operator.subtasks if subtask.key_groups is not None)
    for (_, last), (first, _) in pairwise(ranges):
        if first <= last:
            raise ValueError(f"two subtasks own key group {first}")


def _check_subtask(subtask: SubtaskState, max_parallelism: int) -> None:
    _number("index", subtask.index, range(MAX_KEY_GROUPS))
    for what in ("state_size", "written_size", "sync_ms", "async_ms"):
        _number(what, getattr(subtask, what), _SIZE)
    groups = range(0)
    if subtask.key_groups is not None:
        first, last = subtask.key_groups
        _number("first key group", first, range(max_parallelism))
        _number("last key group", last, range(first, max_parallelism))
        groups = range(first, last + 1)
    for table in subtask.tables:
        with _within(f"state {table.meta.name[:200]!r}"):
            _check_table(table, groups)
    if subtask.native is not None:
        _distinct("native file", (file.name for file in subtask.native.files))
        for file in subtask.native.files:
            with _within(f"native file {file.name[:200]!r}"):
                _check_file(file)


def _check_table(table: TableHandle, groups: range) -> None:
    for what in ("rows", "state_size", "file_size"):
        _number(what, getattr(table, what), _SIZE)
    if table.path is not None:
        inner_path(table.path)
    elif table.inline is not None:
        _number("size of the content", len(table.inline), range(table.file_size, table.file_size + 1))
    elif table.row_groups or table.rows:
        raise ValueError("it has rows, but neither a file nor content")
    left = table.file_size
    lowest = groups.start
    for group in table.row_groups:
        _number("first key group of a row group", group.first, range(lowest, groups.stop))
        _number("last key group of a row group", group.last, range(group.first, groups.stop))
        _number("rows of a row group", group.rows, range(1, table.rows + 1))
        _number("length of a row group", group.length, range(left + 1))
        left -= group.length
        lowest = group.last
    if table.rows != sum(group.rows for group in table.row_groups):
        raise ValueError(f"it has {table.rows} rows, but not as many in its row groups")


def _check_file(file: FileHandle) -> None:
    plain_name(file.name)
    _number("size", file.size, _SIZE)
    if file.path is not None:
        plain_name(file.path) if file.shared else inner_path(file.path)
    elif file.inline is not None:
        _number("size of the content", len(file.inline), range(file.size, file.size + 1))
    else:
        raise ValueError("it has neither a file nor content")


def _number(what: str, value: int, allowed: range) -> None:
    if value not in allowed:
        raise ValueError(f"{what} is {value}, which is not in [{allowed.start}, {allowed.stop})")


def _distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name[:200]!r} is there twice")
        seen.add(name)


@contextmanager
def _within(entry: str) -> Iterator[None]:
    """Put the entry before the message of whatever is wrong in it."""
    try:
        yield
    except ValueError as exc:
        raise ValueError(f"{entry}: {exc}") from exc
