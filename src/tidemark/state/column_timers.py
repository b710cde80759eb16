"""Timers of windows, for many keys at once: a window and its time once, its keys as columns.

Whoever registers knows that a key has no such timer yet; nothing is deleted before it is due. A cut takes hold of the
columns, which never change, so that it costs as much as there are windows. In snapshots these are the timers of
`tidemark.state.timers`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.state.canonical import batch_borders, by_key_group
from tidemark.state.descriptors import StateKind
from tidemark.state.grouping import run_heads
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers.compatibility import dump_serializer_snapshot
from tidemark.state.serializers.resolution import resolve_key_compatibility
from tidemark.state.snapshot import StateMeta, StateTable, state_schema
from tidemark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ColumnTimers", "DueWindow", "TimerColumns", "by_key", "frozen_timers", "read_timers"]

DueWindow = tuple[int, int, int, pa.Array]
"""Time, start and end of a window, and tokens of the keys whose window it is."""

_Numbers = np.ndarray[Any, Any]
TimerColumns = tuple[_Numbers, _Numbers, _Numbers, pa.Array]
"""Times, starts and ends of windows, and tokens of the keys whose windows they are, row by row."""


def by_key(due: Sequence[DueWindow]) -> TimerColumns:
    """Times, starts and ends of the windows of each key, and the tokens of the keys; there is a window."""
    lengths = [len(tokens) for _, _, _, tokens in due]
    times, starts, ends = [
        np.repeat(np.array([window[part] for window in due], np.int64), lengths) for part in range(3)
    ]
    return times, starts, ends, pa.concat_arrays([tokens for _, _, _, tokens in due])


class _WindowQueue:
    """The timers of one domain: time -> window -> columns of tokens."""

    def __init__(self) -> None:
        self._due: dict[int, dict[tuple[int, int], list[pa.Array]]] = {}
        self._times: list[int] = []

    def add(self, time: int, window: tuple[int, int], tokens: pa.Array) -> None:
        windows = self._due.get(time)
        if windows is None:
            windows = self._due[time] = {}
            heapq.heappush(self._times, time)
        columns = windows.setdefault(window, [])
        columns.append(tokens)
        # Columns of about one size become one, so that there are never many.
        while len(columns) > 1 and len(columns[-2]) <= 2 * len(columns[-1]):
            columns[-2:] = [pa.concat_arrays(columns[-2:])]

    def pop(self, limit: int) -> list[DueWindow]:
        """Take out what is due up to `limit`, in the order of time."""
        found: list[DueWindow] = []
        while self._times and self._times[0] <= limit:
            time = heapq.heappop(self._times)
            for (start, end), columns in self._due.pop(time).items():
                found.append((time, start, end, pa.concat_arrays(columns)))
        return found

    def first(self) -> int | None:
        return self._times[0] if self._times else None

    def freeze(self) -> list[DueWindow]:
        """All of them; the columns of one window may come apart."""
        return [
            (time, start, end, tokens)
            for time, windows in self._due.items()
            for (start, end), columns in windows.items()
            for tokens in columns
        ]

    def erase(self, token: Any, read: Callable[[pa.Array], list[Any]]) -> int:
        """Delete all timers of a key; `read` gives the tokens of a column."""
        erased = 0
        for windows in self._due.values():
            for columns in windows.values():
                for at, tokens in enumerate(columns):
                    others = [each != token for each in read(tokens)]
                    columns[at] = tokens.filter(pa.array(others, pa.bool_()))
                    erased += len(tokens) - len(columns[at])
        return erased


class ColumnTimers:
    """Event-time and processing-time timers of the windows of one operator subtask."""

    def __init__(self, key_serializer: TypeSerializer[Any], max_parallelism: int) -> None:
        """Start without timers; there are `max_parallelism` key groups."""
        self._key = key_serializer
        self._tokens = KeyTokens(key_serializer)
        self._max_parallelism = max_parallelism
        self._queues = {EVENT_TIMERS: _WindowQueue(), PROCESSING_TIMERS: _WindowQueue()}

    def register(self, domain: str, delay: int, starts: _Numbers, ends: _Numbers, tokens: pa.Array) -> None:
        """Let windows of keys be due so long behind their last moment.

        Args:
            domain: `EVENT_TIMERS` or `PROCESSING_TIMERS`.
            delay: In milliseconds.
            starts: Of the windows.
            ends: Of the windows.
            tokens: Their keys; none has such a timer.
        """
        queue, order = self._queues[domain], np.lexsort((ends, starts))
        starts, ends, tokens = starts[order], ends[order], tokens.take(pa.array(order))
        for first, last in _runs(starts, ends):
            window = (int(starts[first]), int(ends[first]))
            queue.add(window[1] - 1 + delay, window, tokens[first:last])

    def pop(self, domain: str, limit: int) -> list[DueWindow]:
        """Take out what is due up to `limit`, in the order of time."""
        return self._queues[domain].pop(limit)

    def first_time(self, domain: str) -> int | None:
        """When something is due next."""
        return self._queues[domain].first()

    def erase(self, token: Any) -> dict[str, int]:
        """Delete all timers of a key; how many there were of each domain that had any."""
        erased = {name: queue.erase(token, self._tokens.from_arrow) for name, queue in self._queues.items()}
        return {name: count for name, count in erased.items() if count}

    def cut(self) -> list[StateTable]:
        """Freeze all timers; the tables may be read from another thread."""
        due = {name: queue.freeze() for name, queue in self._queues.items()}
        return frozen_timers(
            self._key,
            self._max_parallelism,
            {name: partial(by_key, windows) for name, windows in due.items() if windows},
        )

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Take over timers of one domain (rows of this subtask's key groups only).

        Raises:
            StateMigrationException: The type of the keys has changed.
        """
        queue = self._queues[EVENT_TIMERS if meta.name == EVENT_TIMERS else PROCESSING_TIMERS]
        for times, starts, ends, keys in read_timers(meta, batches, self._key):
            order = np.lexsort((ends, starts, times))
            times, starts, ends, keys = times[order], starts[order], ends[order], keys.take(pa.array(order))
            for first, last in _runs(times, starts, ends):
                queue.add(int(times[first]), (int(starts[first]), int(ends[first])), keys[first:last])


def read_timers(
    meta: StateMeta, batches: Iterable[pa.RecordBatch], key: TypeSerializer[Any]
) -> Iterator[TimerColumns]:
    """Timers of windows out of a snapshot.

    Raises:
        StateMigrationException: The type of the keys has changed.
    """
    resolution = resolve_key_compatibility(meta.key, key)
    resolution.require_compatible(meta.name, role="key")
    tokens = KeyTokens(resolution.reader)
    for batch in batches:
        times, starts, ends = [
            batch.column(name).to_numpy(zero_copy_only=False)
            for name in ("timestamp", "window_start", "window_end")
        ]
        yield times, starts, ends, tokens.of_key_column(batch.column("key"))


def frozen_timers(
    key: TypeSerializer[Any], max_parallelism: int, columns: Mapping[str, Callable[[], TimerColumns]]
) -> list[StateTable]:
    """Timers of windows as tables of a snapshot, one of each domain; `columns` are made when they are written."""
    snapshot = dump_serializer_snapshot(key)
    return [
        _FrozenTimers(
            StateMeta(name, StateKind.TIMER, snapshot, b"", None, NamespaceKind.WINDOW),
            key,
            columns.get(name),
            max_parallelism,
        )
        for name in (EVENT_TIMERS, PROCESSING_TIMERS)
    ]


class _FrozenTimers:
    """Timers of one domain at a cut, as a canonical table."""

    def __init__(
        self,
        meta: StateMeta,
        key: TypeSerializer[Any],
        columns: Callable[[], TimerColumns] | None,
        max_parallelism: int,
    ) -> None:
        self.meta = meta
        self.schema = state_schema(meta, key, None)
        self._key = key
        self._columns = columns
        self._max_parallelism = max_parallelism

    def batches(self) -> Iterator[pa.RecordBatch]:
        """One row per key and window, sorted by key group."""
        if self._columns is None:
            return
        times, starts, ends, tokens = self._columns()
        if not len(times):
            return
        groups, order = by_key_group(tokens, self._key, self._max_parallelism)
        keys = KeyTokens(self._key)
        for first, last in batch_borders(groups):
            rows = order[first:last]
            columns = [
                pa.array(groups[first:last]),
                keys.key_column(tokens.take(pa.array(rows))),
                pa.array(starts[rows]),
                pa.array(ends[rows]),
                pa.array(times[rows]),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _runs(*columns: _Numbers) -> Iterator[tuple[int, int]]:
    """Where rows that are equal in all columns begin and end."""
    return pairwise([*run_heads(*columns).tolist(), len(columns[0])])
