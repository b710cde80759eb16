"""Timers of one operator subtask: per key, per namespace, per time domain, each time at most once.

A queue keeps, by time, what is due then (`time -> entries`) and a heap of the times. An entry is
`(token, namespace)`. Most times hold a single entry, which is kept as it is; several are kept in a
dictionary. Deleting leaves the time in the heap; the heap is rebuilt when most of it is stale. The
entries lie in a `LayeredDict`, so that a cut costs nothing however many timers there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tidemark.errors import UnsupportedOperationException
from tidemark.state.backend import MIN_TIME, NO_KEY, KeyContext, KeyToken
from tidemark.state.canonical import RowEncoder, Rows, StateSerializers, read_rows
from tidemark.state.descriptors import StateKind
from tidemark.state.layers import FrozenView, LayeredDict
from tidemark.state.namespace import VOID, Namespace, NamespaceKind
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import dump_serializer_snapshot
from tidemark.state.serializers.resolution import resolve_key_compatibility
from tidemark.state.snapshot import StateMeta, StateTable, state_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EVENT_TIMERS", "PROCESSING_TIMERS", "DueTimer", "InternalTimers", "TimerTable"]

EVENT_TIMERS = "_timers/event"
PROCESSING_TIMERS = "_timers/processing"

DueTimer = tuple[int, KeyToken, Namespace]
Entry = tuple[KeyToken, Namespace]


class _TimerQueue:
    """The timers of one domain."""

    __slots__ = ("_due", "_times")

    def __init__(self) -> None:
        self._due = LayeredDict()
        self._times: list[int] = []

    def add(self, time: int, entry: Entry) -> None:
        """Add a timer, unless it is there."""
        due = self._due
        held = due.live.get(time)
        if held is None and due.frozen:
            held = due.find_frozen(time)
        if held is None:
            due.live[time] = entry
            heapq.heappush(self._times, time)
        elif type(held) is dict:
            if entry not in held:
                due.get_own(time, dict)[entry] = None
        elif held != entry:
            due.live[time] = {held: None, entry: None}

    def discard(self, time: int, entry: Entry) -> None:
        """Delete a timer, if it is there."""
        due = self._due
        held = due.get(time)
        if held is None:
            return
        if type(held) is dict:
            if entry not in held:
                return
            if len(held) > 1:
                del due.get_own(time, dict)[entry]
                return
        elif held != entry:
            return
        due.remove(time)
        self._drop_stale()

    def _drop_stale(self) -> None:
        times = self._times
        while times and self._due.get(times[0]) is None:
            heapq.heappop(times)
        # Live times are counted exactly only without a cut pending; with one, the rebuild can wait.
        if not self._due.frozen and len(times) > 64 and len(times) > 2 * len(self._due.live):
            self._times = list(self._due.live)
            heapq.heapify(self._times)

    def of_key(self, token: KeyToken) -> list[tuple[int, Entry]]:
        """All timers of a key; looks at every timer."""
        return [
            (time, entry)
            for time, held in list(self._due.items())
            for entry in (list(held) if type(held) is dict else [held])
            if entry[0] == token
        ]

    def __contains__(self, timer: tuple[int, Entry]) -> bool:
        held = self._due.get(timer[0])
        return timer[1] in held if type(held) is dict else held == timer[1]

    def pop(self, limit: int) -> DueTimer | None:
        """Take out a timer with the smallest time, if that is at most `limit`."""
        times, due = self._times, self._due
        while times and times[0] <= limit:
            time = times[0]
            held = due.get(time)
            if type(held) is not dict:
                heapq.heappop(times)
                if held is None:
                    continue
                due.remove(time)
                return (time, *held)
            if len(held) > 1:
                return (time, *due.get_own(time, dict).popitem()[0])
            heapq.heappop(times)
            due.remove(time)
            return (time, *next(iter(held)))
        return None

    def pop_all(self, limit: int) -> list[DueTimer]:
        """Take out all timers up to `limit`, in time order."""
        found: list[DueTimer] = []
        while (timer := self.pop(limit)) is not None:
            found.append(timer)
        return found

    def first_time(self) -> int | None:
        """The smallest time of any timer."""
        self._drop_stale()
        return self._times[0] if self._times else None

    def __len__(self) -> int:
        return sum(len(held) if type(held) is dict else 1 for _, held in self._due.items())

    def freeze(self) -> FrozenView:
        """Fix the content for a snapshot."""
        return self._due.freeze()

    def fold(self) -> None:
        """Forget released snapshots."""
        if self._due.has_views:
            self._due.fold()


class TimerTable:
    """Timers of one domain at a cut, as a canonical table."""

    def __init__(
        self, meta: StateMeta, key: TypeSerializer[Any], view: FrozenView, max_parallelism: int
    ) -> None:
        """Remember what to write."""
        self.meta = meta
        self.schema = state_schema(meta, key, None)
        self._serializers = StateSerializers(key)
        self._view = view
        self._max_parallelism = max_parallelism

    def batches(self) -> Iterator[pa.RecordBatch]:
        """One row per timer, sorted by key group; afterwards the frozen timers are not needed any more."""
        encoder = RowEncoder(self.meta, self.schema, self._serializers, self._max_parallelism)
        batches = encoder.batches(self._pieces)
        self._view.release()
        return batches

    def _pieces(self, size: int) -> Iterator[Rows]:
        for piece in self._view.pieces(size):
            entries: list[Entry] = []
            times: list[int] = []
            for time, held in zip(*piece, strict=True):
                if type(held) is dict:
                    entries += held
                    times += [time] * len(held)
                else:
                    entries.append(held)
                    times.append(time)
            namespaces = [entry[1] for entry in entries] if self.meta.namespace.columns else None
            yield Rows([entry[0] for entry in entries], times, namespaces)


class InternalTimers:
    """Event-time and processing-time timers of one operator subtask.

    Registering and deleting concern the current key of the context.

    Attributes:
        watermark: Highest watermark `advance_event` was called with.
    """

    def __init__(
        self,
        context: KeyContext,
        max_parallelism: int,
        key_serializer: TypeSerializer[Any],
        namespace: NamespaceKind = NamespaceKind.VOID,
    ) -> None:
        """Start without timers.

        Args:
            context: Supplies the current key.
            max_parallelism: Number of key groups, for snapshots.
            key_serializer: Serializer of the keys.
            namespace: What timers carry besides their key: nothing, or a window.
        """
        self.watermark = MIN_TIME
        self._context = context
        self._max_parallelism = max_parallelism
        self._key = key_serializer
        self._namespace = namespace
        self._event = _TimerQueue()
        self._processing = _TimerQueue()
        self._late: dict[tuple[int, Entry], None] | None = None
        """While event timers fire: timers registered behind the watermark, for the next advance."""

    def register_event_timer(self, time: int, namespace: Namespace = VOID) -> None:
        """Let the current key be called when the watermark reaches `time`.

        At or behind the current watermark, that is at the next advance.

        Raises:
            UnsupportedOperationException: No key is current.
        """
        entry = self._entry(namespace)
        if self._late is not None and time <= self.watermark and (time, entry) not in self._event:
            self._late[time, entry] = None
        else:
            self._event.add(time, entry)

    def delete_event_timer(self, time: int, namespace: Namespace = VOID) -> None:
        """Delete that timer of the current key, if it is registered."""
        entry = self._entry(namespace)
        if self._late is not None:
            self._late.pop((time, entry), None)
        self._event.discard(time, entry)

    def register_processing_timer(self, time: int, namespace: Namespace = VOID) -> None:
        """Let the current key be called when the clock reaches `time`.

        Raises:
            UnsupportedOperationException: No key is current.
        """
        self._processing.add(time, self._entry(namespace))

    def delete_processing_timer(self, time: int, namespace: Namespace = VOID) -> None:
        """Delete that timer of the current key, if it is registered."""
        self._processing.discard(time, self._entry(namespace))

    def _entry(self, namespace: Namespace) -> Entry:
        token = self._context.token
        if token is NO_KEY:
            raise UnsupportedOperationException(
                "Timers need a current key: use them on a keyed stream, while an element or a timer is being "
                "processed."
            )
        return token, namespace

    def advance_event(self, watermark: int) -> Iterator[DueTimer]:
        """Move the watermark and hand out what is due, in time order; a watermark never goes back.

        The caller makes each key current and runs its callback before it asks for the next timer. Timers
        may be registered and deleted meanwhile; those registered behind the watermark wait for the next
        advance.
        """
        self._event.fold()
        if watermark <= self.watermark:
            return iter(())
        self.watermark = watermark
        return self._fire_event(watermark)

    def _fire_event(self, watermark: int) -> Iterator[DueTimer]:
        self._late = {}
        try:
            while (timer := self._event.pop(watermark)) is not None:
                yield timer
        finally:
            late, self._late = self._late, None
            for time, entry in late:
                self._event.add(time, entry)

    def advance_event_together(self, watermark: int) -> Iterator[list[DueTimer]]:
        """Like `advance_event`, but hands out all that is due at once.

        What the callback registers for a time behind the last one handed out comes in a list of its own, up to the
        watermark; what it registers for an earlier one waits for the next advance.
        """
        self._event.fold()
        self._late = {}
        try:
            while due := self._event.pop_all(watermark):
                self.watermark = due[-1][0]
                yield due
        finally:
            self.watermark = watermark
            late, self._late = self._late, None
            for time, entry in late:
                self._event.add(time, entry)

    def pop_processing(self, now: int) -> list[DueTimer] | None:
        """Take out all that is due at `now`, in time order; None if nothing is."""
        self._processing.fold()
        return self._processing.pop_all(now) or None

    def advance_processing(self, now: int) -> Iterator[DueTimer]:
        """Hand out what is due at `now`, in time order, including what is registered meanwhile."""
        self._processing.fold()
        while (timer := self._processing.pop(now)) is not None:
            yield timer

    def has_due_event(self, watermark: int) -> bool:
        """Whether an advance to `watermark` would hand out anything."""
        first = self._event.first_time()
        return watermark > self.watermark and first is not None and first <= watermark

    def next_processing_time(self) -> int | None:
        """Time of the next processing-time timer, or None."""
        return self._processing.first_time()

    def erase(self, token: KeyToken) -> dict[str, int]:
        """Delete all timers of a key; how many there were of each domain that had any."""
        erased = {}
        for name, queue in ((EVENT_TIMERS, self._event), (PROCESSING_TIMERS, self._processing)):
            found = queue.of_key(token)
            for time, entry in found:
                queue.discard(time, entry)
            if found:
                erased[name] = len(found)
        return erased

    def drop_processing(self) -> None:
        """Forget all processing-time timers (end of input)."""
        self._processing = _TimerQueue()

    def cut(self) -> list[StateTable]:
        """Freeze all timers, at no cost; the tables may be read from another thread."""
        key = dump_serializer_snapshot(self._key)
        tables: list[StateTable] = []
        for name, queue in ((EVENT_TIMERS, self._event), (PROCESSING_TIMERS, self._processing)):
            queue.fold()
            meta = StateMeta(name, StateKind.TIMER, key, b"", None, self._namespace)
            tables.append(TimerTable(meta, self._key, queue.freeze(), self._max_parallelism))
        return tables

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Take over timers of one domain (rows of this subtask's key groups only).

        Raises:
            StateMigrationException: The type of the keys has changed.
        """
        resolution = resolve_key_compatibility(meta.key, self._key)
        resolution.require_compatible(meta.name, role="key")
        queue = self._event if meta.name == EVENT_TIMERS else self._processing
        serializers = StateSerializers(resolution.reader)
        for batch in batches:
            rows = read_rows(meta, serializers, batch)
            namespaces = rows.namespaces or [VOID] * len(rows.tokens)
            for time, token, namespace in zip(rows.values, rows.tokens, namespaces, strict=True):
                queue.add(time, (token, namespace))
