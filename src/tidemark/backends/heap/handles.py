"""The handles worth a shortcut: value state without namespace, straight on the dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.backends.handles import TableValueState
from tidemark.backends.table import ABSENT
from tidemark.state.layers import LayeredDict

if TYPE_CHECKING:
    from tidemark.backends.heap.cleanup import IncrementalCleanup
    from tidemark.backends.heap.tables import HeapValueTable
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import KeyContext

__all__ = ["HeapLongState", "HeapTtlLongState", "HeapTtlValueState", "HeapValueState"]

_NOTHING = LayeredDict()
"""A store that stays empty."""


class HeapValueState(TableValueState):
    """Value state. None is never stored, so a plain dictionary `get` answers at once in most cases."""

    __slots__ = ("_store",)

    _table: HeapValueTable

    def __init__(self, spec: StateSpec, context: KeyContext, table: HeapValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._store = table.store

    def value(self) -> Any:
        """The stored value, else a copy of the default."""
        value = self._store.live.get(self._context.token)
        return self._miss() if value is None else value

    def _miss(self) -> Any:
        # While a cut is pending, what was written before it lies in frozen layers.
        if self._store.frozen:
            value = self._table.thaw(self._context.token)
            if value is not ABSENT:
                return value
        return self._default()

    def update(self, value: Any) -> None:
        """Overwrite; None clears."""
        if value is None:
            self._store.remove(self._context.token)
            return
        normalize = self._normalize
        self._store.live[self._context.token] = value if normalize is None else normalize(value)


class HeapLongState(HeapValueState):
    """Value state of LONG, the counter of every job.

    A number of one digit (of the interpreter's 30 bits) is in range without a call; such numbers are
    compared in place.
    """

    __slots__ = ()

    def update(self, value: Any) -> None:
        """Overwrite; None clears."""
        # `type() is` leaves subclasses, bool among them, to the normalizer.
        if type(value) is int and value < 0x3FFFFFFF and value > -0x3FFFFFFF:
            self._store.live[self._context.token] = value
        else:
            HeapValueState.update(self, value)


class HeapTtlValueState(TableValueState):
    """Value state with time-to-live that reading does not renew; the rules are those of `backends.ttl`.

    In a batch in which nothing can be expired (the clean-up knows) a read looks at no stamp and no access has a
    step of the clean-up behind it. A read does not ask whether the batch is such a one: `start_batch` lets it look
    into a store that stays empty if not, and it takes the long way from there.
    """

    __slots__ = ("_cleanup", "_now", "_return_expired", "_steps", "_store", "_ttl", "_unchecked")

    def __init__(
        self, spec: StateSpec, context: KeyContext, table: HeapValueTable, cleanup: IncrementalCleanup | None
    ) -> None:
        """See `Handle`; `cleanup` makes a step behind each access."""
        super().__init__(spec, context, table)
        expiry = spec.expiry
        assert expiry is not None
        self._store = table.store
        self._ttl, self._return_expired = expiry.ttl, expiry.return_expired
        self._cleanup = cleanup
        # The clean-up while it has something to look for, else None: the one question an access has to ask.
        self._steps = cleanup
        self._unchecked = _NOTHING
        self._now = context.now

    def start_batch(self, now: int) -> None:
        """The time is `now` for all accesses up to the next call."""
        self._now = now
        # Holds for the whole batch: its time stands still, and what it writes is stamped with that time.
        all_alive = self._cleanup is not None and self._cleanup.all_alive(now)
        self._unchecked = self._store if all_alive else _NOTHING
        self._steps = None if all_alive else self._cleanup

    def value(self) -> Any:
        """The value, or None if there is none or it is expired and invisible."""
        # `live` is looked up anew each time: a cut between two batches puts another dictionary there.
        unit = self._unchecked.live.get(self._context.token)
        return self._read() if unit is None else unit[0]

    def _read(self) -> Any:
        token = self._context.token
        unit = self._table.get(token)
        value = None
        if unit is not ABSENT:
            value, stamp = unit
            if stamp + self._ttl <= self._now:  # `Expiry.is_expired`, for every access
                self._store.remove(token)
                if not self._return_expired:
                    value = None
        # Behind the read, never in front of it: the step might remove what `return_expired` lets through once.
        if self._steps is not None:
            self._steps.step()
        return value

    def update(self, value: Any) -> None:
        """Overwrite and stamp; None clears."""
        if value is None:
            self._store.remove(self._context.token)
        else:
            normalize = self._normalize
            value = value if normalize is None else normalize(value)
            self._store.live[self._context.token] = (value, self._now)
        if self._steps is not None:
            self._steps.step()

    def clear(self) -> None:
        """Remove the value."""
        self.update(None)


class HeapTtlLongState(HeapTtlValueState):
    """Value state of LONG with time-to-live; see `HeapLongState`."""

    __slots__ = ("_short",)

    def __init__(
        self, spec: StateSpec, context: KeyContext, table: HeapValueTable, cleanup: IncrementalCleanup | None
    ) -> None:
        """See `HeapTtlValueState`."""
        super().__init__(spec, context, table, cleanup)
        self._short: Any = None

    def start_batch(self, now: int) -> None:
        """See `HeapTtlValueState`; only where no step follows is there a type with a short way to `update`."""
        super().start_batch(now)
        self._short = int if self._steps is None else None

    def update(self, value: Any) -> None:
        """Overwrite and stamp; None clears."""
        if type(value) is self._short and value < 0x3FFFFFFF and value > -0x3FFFFFFF:
            self._store.live[self._context.token] = (value, self._now)
        else:
            HeapTtlValueState.update(self, value)
