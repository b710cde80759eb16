"""State handles with time-to-live: what reads and writes do with stamps, over the same tables.

Every stored unit is a pair `(value, last_access_ms)`. What a unit is depends on the kind: the whole value,
one list element, one map entry. When it is expired is the rule of `tidemark.state.expiry`. Time is `context.now`,
which the backend reads once per batch, and an access is stamped with `context.stamp`; nothing here looks at a clock.
Of states whose time is event time, `context` is the `EventTimeContext`.

Plain value state that reading does not renew has shortcuts in `heap/handles.py` and `rocksdb/expiring_rows.py`,
which behave exactly like `TtlValueState`.

A store that cleans up in small steps passes `on_access`. It runs behind each access, never in front of
it, so that a read may still return the expired value it asked for where the visibility allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.backends.handles import (
    Handle,
    TableAggregatingState,
    TableFoldingState,
    TableListState,
    TableMapState,
    TableReducingState,
    TableValueState,
    _FoldedState,
    _MergingFoldedState,
    pairs_of,
)
from tidemark.backends.table import ABSENT, Address, Table
from tidemark.state.expiry import Expiry

if TYPE_CHECKING:
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import AccessContext
    from tidemark.state.namespace import Namespace

__all__ = [
    "TtlAggregatingState",
    "TtlFoldingState",
    "TtlListState",
    "TtlMapState",
    "TtlReducingState",
    "TtlValueState",
]

OnAccess = Callable[[], None]
Unit = tuple[Any, int]


def _nothing() -> None:
    """Stand-in for a store without incremental clean-up."""


class _TtlHandle(Handle):
    """What the handles with time-to-live share. Slots are declared by the leaves: layouts must not clash."""

    __slots__ = ()

    _on_access: OnAccess
    _expiry: Expiry

    def __init__(
        self, spec: StateSpec, context: AccessContext, table: Table, on_access: OnAccess | None = None
    ) -> None:
        """See `Handle`; `on_access` runs after each operation."""
        super().__init__(spec, context, table)
        assert spec.expiry is not None
        self._expiry = spec.expiry  # type: ignore[misc]  # a slot of every leaf
        self._on_access = on_access or _nothing

    def _read(self, at: Address) -> Any:
        """The visible value of a one-unit address, or `ABSENT`; deletes and renews as the rule says."""
        unit = self._table.get(at)
        if unit is ABSENT:
            return ABSENT
        value, stamp = unit
        expiry, now = self._expiry, self._context.now
        if stamp + expiry.ttl <= now:  # `Expiry.is_expired`, for every access
            self._table.remove(at)
            return value if expiry.return_expired else ABSENT
        if expiry.renew_on_read and stamp != (renewed := expiry.renewed(stamp, self._context.stamp)):
            self._table.put(at, (value, renewed))
        return value

    def clear(self) -> None:
        """Remove everything the current key (and window) holds."""
        super().clear()
        self._on_access()


class TtlValueState(_TtlHandle, TableValueState):
    """Value state with time-to-live; the descriptor's default value is ignored."""

    __slots__ = ("_expiry", "_on_access")

    def value(self) -> Any:
        """The value, or None if there is none or it is expired and invisible."""
        value = self._read(self._at())
        self._on_access()
        return None if value is ABSENT else value

    def update(self, value: Any) -> None:
        """Overwrite and stamp; None clears."""
        at = self._at()
        if value is None:
            self._table.remove(at)
        else:
            normalize = self._normalize
            self._table.put(at, (value if normalize is None else normalize(value), self._context.stamp))
        self._on_access()


class _TtlFoldedState(_TtlHandle, _FoldedState):
    """Reducing, aggregating and folding state with time-to-live."""

    __slots__ = ()

    def get(self) -> Any:
        """The combined value, or None if there is none or it is expired and invisible."""
        value = self._read(self._at())
        result = None if value is ABSENT else self._result(value)
        self._on_access()
        return result

    def add(self, value: Any) -> None:
        """Combine one more value and stamp; an expired accumulator only counts if it is visible."""
        at = self._at()
        if value is None:
            self._table.remove(at)
        else:
            held = self._combinable(at)
            changed = self._first(value) if held is ABSENT else self._next(held, value)
            self._table.put(at, (self._stored(changed), self._context.stamp))
        self._on_access()

    def add_all(self, values: Iterable[Any]) -> None:
        """Combine several values, one after the other."""
        for value in values:
            self.add(value)

    def _combinable(self, at: Address) -> Any:
        unit = self._table.get(at)
        if unit is ABSENT:
            return ABSENT
        value, stamp = unit
        expiry = self._expiry
        # `Expiry.is_expired`, for every access.
        expired = stamp + expiry.ttl <= self._context.now
        return ABSENT if expired and not expiry.return_expired else value


class _TtlMergingState(_TtlFoldedState, _MergingFoldedState):
    """Merging of windows with time-to-live: what is expired and invisible does not take part."""

    __slots__ = ()

    def merge_namespaces(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        """Move what the current key holds in `sources` into `target`; a combination is stamped now."""
        addresses = self._addresses([target, *sources])
        merged: Any = ABSENT
        stamp = self._context.stamp
        for at in addresses:
            unit = self._table.get(at)
            value = self._combinable(at)
            if unit is not ABSENT:
                self._table.remove(at)
            if value is ABSENT:
                continue
            merged, stamp = (
                (value, unit[1]) if merged is ABSENT else (self._merge(merged, value), self._context.stamp)
            )
        if merged is not ABSENT:
            self._table.put(addresses[0], (self._stored(merged), stamp))
        self._on_access()


class TtlReducingState(_TtlMergingState, TableReducingState):
    """Reducing state with time-to-live."""

    __slots__ = ("_expiry", "_on_access")


class TtlAggregatingState(_TtlMergingState, TableAggregatingState):
    """Aggregating state with time-to-live."""

    __slots__ = ("_expiry", "_on_access")


class TtlFoldingState(_TtlFoldedState, TableFoldingState):
    """Folding state with time-to-live."""

    __slots__ = ("_expiry", "_on_access")


class TtlListState(_TtlHandle, TableListState):
    """List state with time-to-live: each element expires by itself."""

    __slots__ = ("_expiry", "_on_access")

    def get(self) -> list[Any]:
        """The visible elements; expired ones are gone from the store afterwards."""
        at = self._at()
        units = self._table.get(at)
        result = self._visible(at, units) if units else []
        self._on_access()
        return result

    def _visible(self, at: Address, units: list[Unit]) -> list[Any]:
        expiry, now = self._expiry, self._context.now
        dead_before = now - expiry.ttl
        live = [unit for unit in units if unit[1] > dead_before]  # `Living.units`, for every access
        accessed = self._context.stamp
        renew = expiry.renew_on_read and any(unit[1] != accessed for unit in live)
        if renew:
            self._table.replace(at, [(value, expiry.renewed(stamp, accessed)) for value, stamp in live])
        elif len(live) != len(units):
            self._table.replace(at, live)
        return [value for value, _ in (units if expiry.return_expired else live)]

    def add(self, value: Any) -> None:
        """Append one element, stamped now."""
        self._table.append(self._at(), [(self._one(value), self._context.stamp)])
        self._on_access()

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all elements, stamped now."""
        units = self._stamped(values)
        if units:
            self._table.append(self._at(), units)
        self._on_access()

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list; all its elements are stamped now."""
        self._table.replace(self._at(), self._stamped(values))
        self._on_access()

    def _stamped(self, values: Iterable[Any]) -> list[Unit]:
        stamp = self._context.stamp
        return [(value, stamp) for value in self._many(values)]


class TtlMapState(_TtlHandle, TableMapState):
    """Map state with time-to-live: each entry expires by itself."""

    __slots__ = ("_expiry", "_on_access")

    def _visible(self, key: Any) -> Any:
        at, token = self._at(), self._token(key)
        unit = self._table.get(at, token)
        if unit is ABSENT:
            return ABSENT
        value, stamp = unit
        expiry, now = self._expiry, self._context.now
        if stamp + expiry.ttl <= now:  # `Expiry.is_expired`, for every access
            self._table.remove(at, token)
            return value if expiry.return_expired else ABSENT
        if expiry.renew_on_read and stamp != (renewed := expiry.renewed(stamp, self._context.stamp)):
            self._table.put(at, token, (value, renewed))
        return value

    def get(self, key: Any) -> Any:
        """The visible value, or None."""
        value = self._visible(key)
        self._on_access()
        return None if value is ABSENT else value

    def contains(self, key: Any) -> bool:
        """Whether a visible entry is there; counts as a read."""
        found = self._visible(key) is not ABSENT
        self._on_access()
        return found

    def put(self, key: Any, value: Any) -> None:
        """Set one entry, stamped now."""
        normalize = self._normalize
        unit = (value if normalize is None else normalize(value), self._context.stamp)
        self._changes += 1
        self._table.put(self._at(), self._token(key), unit)
        self._on_access()

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Set many entries, stamped now."""
        normalize, stamp, token = self._normalize, self._context.stamp, self._token
        entries = [
            (token(key), (value if normalize is None else normalize(value), stamp))
            for key, value in pairs_of(dict_value, self._name)
        ]
        self._changes += 1
        at = self._at()
        for map_key, unit in entries:
            self._table.put(at, map_key, unit)
        self._on_access()

    def remove(self, key: Any) -> None:
        """Drop one entry."""
        TableMapState.remove(self, key)
        self._on_access()

    def clear(self) -> None:
        """Drop all entries."""
        TableMapState.clear(self)
        self._on_access()

    def is_empty(self) -> bool:
        """Whether no entry is visible; drops the invisible ones it meets."""
        at, expiry, now = self._at(), self._expiry, self._context.now
        expired = []
        empty = True
        for token, (_, stamp) in self._table.items(at):
            if expiry.return_expired or not expiry.is_expired(stamp, now):
                empty = False
                break
            expired.append(token)
        for token in expired:
            self._table.remove(at, token)
        self._on_access()
        return empty

    def _entries(self) -> Iterator[tuple[Any, Any]]:
        """The visible entries, all read (deleted, renewed) when an iteration begins."""
        at, expiry, now, key_of = self._at(), self._expiry, self._context.now, self._key_of
        accessed = self._context.stamp
        entries = []
        for token, (value, stamp) in list(self._table.items(at)):
            expired = stamp + expiry.ttl <= now  # `Expiry.is_expired`, for every entry
            if expired:
                self._table.remove(at, token)
            elif expiry.renew_on_read and stamp != (renewed := expiry.renewed(stamp, accessed)):
                self._table.put(at, token, (value, renewed))
            if not expired or expiry.return_expired:
                entries.append((token if key_of is None else key_of(token), value))
        self._on_access()
        return iter(entries)
