"""The open sessions of all keys, as columns: where each begins and ends, where its content lies, when it is due.

What the record form keeps in the state `merging-window-set` and in timers, this keeps at hand: the operator writes the
former through (`state_of`), and timers are made from it for snapshots. A session has one entry in a queue, which is
left alone when the session grows and put off when its time has come; so a record costs no timer.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.backends.columns.key_index import index_for
from tidemark.operators.session_groups import SessionGroups, grouped
from tidemark.state.column_timers import TimerColumns, frozen_timers, read_timers
from tidemark.state.grouping import run_heads

if TYPE_CHECKING:
    from tidemark.state.backend import BackendParameters
    from tidemark.state.snapshot import StateMeta, StateTable

__all__ = ["Adopted", "OpenSessions"]

Numbers = np.ndarray[Any, Any]
Adopted = tuple[Numbers, Numbers, Numbers, Numbers]
"""Session of each group, whether its bounds are others than before, sessions merged away, and the group of each."""

_SESSION = np.dtype(
    [
        ("key", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("state_start", "i8"),
        ("state_end", "i8"),
        ("next", "i8"),
        ("queued", "i8"),
        ("armed", "?"),
        ("open", "?"),
    ]
)
"""`next`: another session of the key; `queued`: the part of time in whose queue it is; `armed`: that it will fire."""
_NONE = -1
_NEVER = np.iinfo(np.int64).max
_FEW_KEYS = 1 << 10
_PARTS_OF_GAP = 16


class OpenSessions:
    """Open sessions of the keys of one subtask."""

    def __init__(self, parameters: BackendParameters, domain: str, gap: int, lateness: int) -> None:
        """Start without sessions; `domain` is that of their timers."""
        self._parameters = parameters
        self._domain = domain
        self._gap = gap
        self._lateness = lateness
        self._index = index_for(parameters.tokens)
        self._looked_at = _FEW_KEYS
        self._first = np.full(self._index.capacity, _NONE, np.int64)
        self._sessions = np.zeros(_FEW_KEYS, _SESSION)
        self._free: list[Numbers] = [np.arange(_FEW_KEYS)]
        self._frozen: weakref.ref[Any] | None = None
        self._width = max(gap // _PARTS_OF_GAP, 1)
        self._queue: dict[int, list[Numbers]] = {}
        self._parts: list[int] = []
        self._restored: list[TimerColumns] = []

    def meet(self, tokens: pa.Array, stamps: Numbers) -> tuple[SessionGroups, Numbers, Numbers]:
        """Which sessions records would make; nothing is changed but that their keys are known.

        Returns:
            Groups, the open sessions of the records' keys, and the keys by their codes.
        """
        self._let_go()
        keys, codes, _ = self._index.rows(tokens)
        self._fit()
        held, held_codes = self._of_keys(keys)
        sessions = self._sessions
        groups = grouped(codes, stamps, self._gap, held_codes, sessions["start"][held], sessions["end"][held])
        return groups, held, keys

    def adopt(self, met: tuple[SessionGroups, Numbers, Numbers], chosen: Numbers, passed: int) -> Adopted:
        """Let groups be sessions; those that go beyond `passed` will fire.

        Args:
            met: What `meet` gave, behind which nothing has changed.
            chosen: Numbers of the groups.
            passed: Time that has passed.
        """
        groups, held, keys = met
        self._own()
        in_group = np.flatnonzero(groups.of_held >= 0)
        taking, of_group = held[in_group], groups.of_held[in_group]
        in_order = np.lexsort((self._sessions["start"][taking], of_group))
        taking, of_group = taking[in_order], of_group[in_order]
        heads = run_heads(of_group) if len(of_group) else np.zeros(0, np.int64)
        session_of = np.full(len(groups.starts), _NONE, np.int64)
        session_of[of_group[heads]] = taking[heads]
        merged = np.ones(len(taking), np.bool_)
        merged[heads] = False
        fresh = chosen[session_of[chosen] == _NONE]
        session_of[fresh] = self._allocated(len(fresh))
        sessions, rows = self._sessions, session_of[chosen]
        starts, ends = groups.starts[chosen], groups.ends[chosen]
        new = session_of[fresh]
        for name, values in (
            ("key", keys[groups.codes[fresh]]),
            ("state_start", groups.starts[fresh]),
            ("state_end", groups.ends[fresh]),
            ("queued", _NEVER),
            ("open", True),
        ):
            sessions[name][new] = values
        changed = (sessions["start"][rows] != starts) | (sessions["end"][rows] != ends)
        changed |= np.isin(chosen, fresh)
        sessions["start"][rows], sessions["end"][rows] = starts, ends
        sessions["armed"][rows[changed]] = (ends > passed + 1)[changed]
        if len(fresh) or merged.any():
            self._close(taking[merged])
            self._link(keys, np.concatenate([held[sessions["open"][held]], new]))
        self._enqueue(rows)
        return rows, changed, taking[merged], of_group[merged]

    def _of_keys(self, keys: Numbers) -> tuple[Numbers, Numbers]:
        """The sessions of keys, and the position of the key of each."""
        found, places = [], []
        at, rows = np.arange(len(keys)), self._first[keys]
        while True:
            some = rows >= 0
            at, rows = at[some], rows[some]
            if not len(rows):
                break
            found.append(rows)
            places.append(at)
            rows = self._sessions["next"][rows]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(found), np.concatenate(places)

    def _link(self, keys: Numbers, rows: Numbers) -> None:
        """Say which sessions keys have."""
        self._first[keys] = _NONE
        if not len(rows):
            return
        rows = rows[np.argsort(self._sessions["key"][rows], kind="stable")]
        key = self._sessions["key"][rows]
        following = np.full(len(rows), _NONE, np.int64)
        following[:-1] = np.where(key[1:] == key[:-1], rows[1:], _NONE)
        self._sessions["next"][rows] = following
        heads = run_heads(key)
        self._first[key[heads]] = rows[heads]

    def _allocated(self, count: int) -> Numbers:
        free = np.concatenate(self._free) if self._free else np.zeros(0, np.int64)
        if len(free) < count:
            known = len(self._sessions)
            grown = np.zeros(2 * (known + count), _SESSION)
            grown[:known] = self._sessions
            self._sessions = grown
            free = np.concatenate([free, np.arange(known, len(grown))])
        self._free = [free[count:]]
        return free[:count]

    def _close(self, rows: Numbers) -> None:
        self._sessions["open"][rows] = False
        self._sessions["queued"][rows] = _NEVER
        self._free.append(rows)

    def remove(self, rows: Numbers) -> Numbers:
        """Forget sessions; their keys, for `state_of`."""
        self._own()
        keys = np.unique(self._sessions["key"][rows])
        around, _ = self._of_keys(keys)
        self._close(rows)
        self._link(keys, around[self._sessions["open"][around]])
        return keys

    def _fit(self) -> None:
        if len(self._first) < self._index.capacity:
            grown = np.full(self._index.capacity, _NONE, np.int64)
            grown[: len(self._first)] = self._first
            self._first = grown

    def _let_go(self) -> None:
        """Give up keys without sessions, if they are many."""
        count = self._index.count
        if count < self._looked_at:
            return
        kept = np.flatnonzero(self._first[:count] >= 0)
        if len(kept) < count * 3 // 4:
            self._own()
            number = np.zeros(count, np.int64)
            number[kept] = np.arange(len(kept))
            is_open = self._sessions["open"]
            self._sessions["key"][is_open] = number[self._sessions["key"][is_open]]
            first = np.full(len(self._first), _NONE, np.int64)
            first[: len(kept)] = self._first[kept]
            self._first = first
            self._index.keep(kept)
        self._looked_at = max(_FEW_KEYS, 2 * self._index.count)

    # What is in sessions

    def tokens(self, rows: Numbers) -> pa.Array:
        """Tokens of the keys of sessions."""
        return self._index.column(self._index.keys[self._sessions["key"][rows]])

    def bounds(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Starts and ends."""
        return self._sessions["start"][rows], self._sessions["end"][rows]

    def places(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Starts and ends of the windows under which their contents lie."""
        return self._sessions["state_start"][rows], self._sessions["state_end"][rows]

    def keys_of(self, rows: Numbers) -> Numbers:
        """Their keys, each once, for `state_of`."""
        return np.unique(self._sessions["key"][rows])

    def state_of(self, keys: Numbers) -> Iterator[tuple[Any, list[list[int]]]]:
        """Tokens of keys and what `merging-window-set` holds for them."""
        rows, at = self._of_keys(keys)
        order = np.argsort(at, kind="stable")
        fields = [self._sessions[name][rows[order]] for name in ("start", "end", "state_start", "state_end")]
        windows = np.stack(fields, axis=1).tolist()
        counts = np.bincount(at, minlength=len(keys))
        last = np.cumsum(counts)
        tokens = self._parameters.tokens.from_arrow(self._index.column(self._index.keys[keys]))
        for token, begin, end in zip(tokens, (last - counts).tolist(), last.tolist(), strict=True):
            yield token, windows[begin:end]

    # When they are due

    def _due(self, rows: Numbers) -> Numbers:
        sessions = self._sessions
        times: Numbers = sessions["end"][rows] - 1 + np.where(sessions["armed"][rows], 0, self._lateness)
        return times

    def _enqueue(self, rows: Numbers) -> None:
        """Have sessions in the queue, in front of when they are due."""
        parts = self._due(rows) // self._width
        sooner = parts < self._sessions["queued"][rows]
        rows, parts = rows[sooner], parts[sooner]
        self._sessions["queued"][rows] = parts
        order = np.argsort(parts, kind="stable")
        rows, parts = rows[order], parts[order]
        heads = run_heads(parts) if len(parts) else np.zeros(0, np.int64)
        for part, some in zip(parts[heads].tolist(), np.split(rows, heads[1:]), strict=False):
            if part not in self._queue:
                self._queue[part] = []
                heapq.heappush(self._parts, part)
            self._queue[part].append(some)

    def _dequeued(self) -> Numbers:
        """The sessions of the first part of the queue, which are in no queue then."""
        part = heapq.heappop(self._parts)
        rows: Numbers = np.unique(np.concatenate(self._queue.pop(part)))
        rows = rows[self._sessions["queued"][rows] == part]
        self._sessions["queued"][rows] = _NEVER
        return rows

    def may_be_due(self, limit: int) -> bool:
        """Whether something might be due; False is certain."""
        return bool(self._parts) and self._parts[0] <= limit // self._width

    def due(self, limit: int) -> Numbers:
        """Take sessions out of the queue that are due up to `limit`, in the order of time."""
        self._own()
        queued = []
        while self.may_be_due(limit):
            queued.append(self._dequeued())
        rows = np.concatenate(queued) if queued else np.zeros(0, np.int64)
        times = self._due(rows)
        self._enqueue(rows[times > limit])
        order = np.argsort(times, kind="stable")
        return np.asarray(rows[order][times[order] <= limit])

    def split(self, rows: Numbers, limit: int) -> tuple[Numbers, Numbers]:
        """Of sessions that are due: those that fire now, which wait for their end no more, and those that are over."""
        sessions = self._sessions
        fires = rows[sessions["armed"][rows]]
        sessions["armed"][fires] = False
        over = sessions["end"][rows] - 1 + self._lateness <= limit
        self._enqueue(rows[~over])
        return fires, rows[over]

    def first_time(self, domain: str) -> int | None:
        """When something is due next."""
        while self._parts and domain == self._domain:
            part = self._parts[0]
            self._own()
            rows = self._dequeued()
            self._enqueue(rows)
            if self._parts and self._parts[0] == part:
                return int(self._due(rows).min())
        return None

    # Snapshots

    def _own(self) -> None:
        """Have columns that no cut looks at."""
        if self._frozen is not None:
            if self._frozen() is not None:
                self._sessions = self._sessions.copy()
            self._frozen = None

    def cut(self) -> list[StateTable]:
        """Freeze the timers of all sessions, in constant time; the tables may be read from another thread."""
        frozen = _Frozen(self._sessions, self._index.keys, self._index.column, self._lateness)
        self._frozen = weakref.ref(frozen)
        parameters = self._parameters
        return frozen_timers(
            parameters.key_serializer, parameters.max_parallelism, {self._domain: frozen.timers}
        )

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Remember timers until the sessions are there.

        Raises:
            StateMigrationException: The type of the keys has changed.
        """
        self._restored += read_timers(meta, batches, self._parameters.key_serializer)

    def restore(self, state: Iterable[tuple[Any, list[list[int]]]]) -> None:
        """Take over what `merging-window-set` holds; sessions without a timer for their end have fired already."""
        pairs = [(token, window) for token, windows in state for window in windows]
        if pairs:
            tokens = self._parameters.tokens.to_arrow([token for token, _ in pairs])
            keys, codes, _ = self._index.rows(tokens)
            self._fit()
            rows = self._allocated(len(pairs))
            sessions, windows = self._sessions, np.array([window for _, window in pairs], np.int64)
            for place, name in enumerate(("start", "end", "state_start", "state_end")):
                sessions[name][rows] = windows[:, place]
            sessions["key"][rows], sessions["queued"][rows] = keys[codes], _NEVER
            sessions["open"][rows] = True
            self._link(keys, rows)
            self._arm(rows)
            self._enqueue(rows)
        self._restored = []

    def _arm(self, rows: Numbers) -> None:
        sessions = self._sessions
        armed = set()
        for times, starts, ends, tokens in self._restored:
            keys, codes, _ = self._index.rows(tokens)
            firing = times == ends - 1
            chosen = keys[codes][firing], starts[firing], ends[firing]
            armed |= set(zip(*[column.tolist() for column in chosen], strict=True))
        self._fit()
        windows = zip(*[sessions[name][rows].tolist() for name in ("key", "start", "end")], strict=True)
        sessions["armed"][rows] = [window in armed for window in windows]

    def erase(self, token: Any) -> dict[str, int]:
        """Forget the sessions of a key; how many timers they stand for."""
        key = self._index.row_of(token)
        rows, _ = self._of_keys(np.array([key] if key >= 0 else [], np.int64))
        timers = int(self._sessions["armed"][rows].sum()) + (len(rows) if self._lateness else 0)
        if len(rows):
            self.remove(rows)
        return {self._domain: timers} if timers else {}


class _Frozen:
    """Columns at a cut."""

    def __init__(self, sessions: Numbers, keys: Numbers, column: Any, lateness: int) -> None:
        self._sessions = sessions
        self._keys = keys
        self._column = column
        self._lateness = lateness

    def timers(self) -> TimerColumns:
        """The timers that the record form would have."""
        held = self._sessions[self._sessions["open"]]
        ends = held["end"] - 1
        parts = [(held[held["armed"]], ends[held["armed"]])]
        if self._lateness:
            parts.append((held, ends + self._lateness))
        rows = np.concatenate([rows for rows, _ in parts])
        return (
            np.concatenate([times for _, times in parts]),
            np.ascontiguousarray(rows["start"]),
            np.ascontiguousarray(rows["end"]),
            self._column(self._keys[rows["key"]]),
        )
