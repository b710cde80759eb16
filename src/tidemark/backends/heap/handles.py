"""The handles worth a shortcut: value state without namespace, straight on the dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.backends.handles import TableValueState
from tidemark.backends.table import ABSENT
from tidemark.backends.ttl import TtlRule

if TYPE_CHECKING:
    from tidemark.backends.heap.cleanup import IncrementalCleanup
    from tidemark.backends.heap.tables import HeapValueTable
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import KeyContext

__all__ = ["HeapLongState", "HeapTtlLongState", "HeapTtlValueState", "HeapValueState"]


class HeapValueState(TableValueState):
    """Value state. None is never stored, so a plain dictionary `get` answers at once in most cases."""

    __slots__ = ("_store",)

    def __init__(self, spec: StateSpec, context: KeyContext, table: HeapValueTable) -> None:
        """See `Handle`."""
        super().__init__(spec, context, table)
        self._store = table.store

    def value(self) -> Any:
        """The stored value, else a copy of the default."""
        value = self._store.live.get(self._context.token)
        return self._miss() if value is None else value

    def _miss(self) -> Any:
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
        if type(value) is int and value < 0x3FFFFFFF and value > -0x3FFFFFFF:
            self._store.live[self._context.token] = value
        else:
            HeapValueState.update(self, value)


class HeapTtlValueState(TableValueState):
    """Value state with time-to-live that reading does not renew; the rules are those of `backends.ttl`.

    In a batch in which nothing can be expired (`calm`, which the clean-up knows) a read looks at no stamp.
    """

    __slots__ = ("_cleanup", "_return_expired", "_store", "_ttl", "calm")

    def __init__(
        self, spec: StateSpec, context: KeyContext, table: HeapValueTable, cleanup: IncrementalCleanup | None
    ) -> None:
        """See `Handle`; `cleanup` makes a step behind each access."""
        super().__init__(spec, context, table)
        assert spec.ttl is not None
        rule = TtlRule(spec.ttl)
        self._store = table.store
        self._ttl, self._return_expired = rule.ttl, rule.return_expired
        self._cleanup = cleanup
        self.calm = False

    def start_batch(self, now: int) -> None:
        """The time is `now` for all accesses up to the next call."""
        self.calm = self._cleanup is not None and self._cleanup.is_calm(now)

    def value(self) -> Any:
        """The value, or None if there is none or it is expired and invisible."""
        if self.calm:
            unit = self._store.live.get(self._context.token)
            if unit is not None:
                return unit[0]
        return self._read()

    def _read(self) -> Any:
        token = self._context.token
        unit = self._table.get(token)
        value = None
        if unit is not ABSENT:
            value, stamp = unit
            if stamp + self._ttl <= self._context.now:
                self._store.remove(token)
                if not self._return_expired:
                    value = None
        if not self.calm and self._cleanup is not None:
            self._cleanup.step()
        return value

    def update(self, value: Any) -> None:
        """Overwrite and stamp; None clears."""
        context = self._context
        if value is None:
            self._store.remove(context.token)
        else:
            normalize = self._normalize
            self._store.live[context.token] = (
                value if normalize is None else normalize(value),
                context.now,
            )
        if not self.calm and self._cleanup is not None:
            self._cleanup.step()

    def clear(self) -> None:
        """Remove the value."""
        self.update(None)


class HeapTtlLongState(HeapTtlValueState):
    """Value state of LONG with time-to-live; see `HeapLongState`."""

    __slots__ = ()

    def update(self, value: Any) -> None:
        """Overwrite and stamp; None clears."""
        if self.calm and type(value) is int and value < 0x3FFFFFFF and value > -0x3FFFFFFF:
            context = self._context
            self._store.live[context.token] = (value, context.now)
        else:
            HeapTtlValueState.update(self, value)
