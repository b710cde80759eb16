"""Tables of the heap backend: live objects in a `LayeredDict`, one per state.

While a cut is pending, what lies in frozen layers belongs to the snapshot. A unit that can be changed in
place (its serializer does not call it immutable, and it is no number or text) is therefore copied into the
live layer before it is handed out. Lists and maps are copied shallowly when written to, their units only
when handed out: a unit is still shared with the snapshot as long as the frozen container holds the very
same object at the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from tidemark.backends.table import ABSENT, Address
from tidemark.state.backend import KeyToken
from tidemark.state.key_memory import KeyMemory
from tidemark.state.layers import LayeredDict
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers.base import TypeSerializer

__all__ = ["HeapListTable", "HeapMapTable", "HeapTable", "HeapValueTable", "unit_copier"]

_ATOMIC = frozenset({int, float, str, bytes, bool, type(None), complex})

Copy = Callable[[Any], Any]


def unit_copier(serializer: TypeSerializer[Any], ttl: bool) -> Copy | None:
    """How to copy a stored unit so that the copy shares nothing changeable; None if there is no need."""
    if serializer.immutable:
        return None
    copy = serializer.copy

    def copy_value(value: Any) -> Any:
        return value if type(value) in _ATOMIC else copy(value)

    def copy_pair(unit: Any) -> Any:
        return unit if type(unit[0]) in _ATOMIC else (copy(unit[0]), unit[1])

    return copy_pair if ttl else copy_value


class _LayeredTable:
    """What the three tables share.

    Attributes:
        store: The entries by address.
        copy: See `unit_copier`; replaced when a restored state is registered.
        keys: What snapshots remember of the keys.
    """

    __slots__ = ("copy", "keys", "store")

    def __init__(self, copy: Copy | None) -> None:
        """Start empty."""
        self.store = LayeredDict()
        self.copy = copy
        self.keys = KeyMemory()

    def remove(self, at: Address) -> None:
        """Drop the address, if it is there."""
        self.store.remove(at)

    def erase(self, token: KeyToken, namespace: NamespaceKind) -> int:
        """Drop whatever a key holds; how many entries that were."""
        addresses: list[Any] = [token]
        if namespace.columns:
            addresses = [at for at, _ in self.store.items() if at[0] == token]
        held = [(at, found) for at in addresses if (found := self.store.get(at)) is not None]
        for at, _ in held:
            self.store.remove(at)
        self.keys.forget()
        return sum(self._entries_of(found) for _, found in held)

    def _entries_of(self, held: Any) -> int:
        return 1

    def num_entries(self) -> int:
        """Physical entries, expired ones included."""
        return len(self.store)

    def _shared(self, at: Address) -> Any:
        """The newest frozen container of an address whose live one may share units with it, or None."""
        for layer in self.store.frozen:
            if at in layer.entries:
                return layer.entries[at]
        return None


class HeapValueTable(_LayeredTable):
    """Table of value-like state."""

    __slots__ = ()

    def get(self, at: Address) -> Any:
        """The unit, or `ABSENT`."""
        store = self.store
        unit = store.live.get(at, ABSENT)
        if unit is ABSENT and store.frozen:
            return self.thaw(at)
        return unit

    def thaw(self, at: Address) -> Any:
        """The unit of an address that is not in the live layer, as an object of the caller's own."""
        unit = self.store.find_frozen(at, ABSENT)
        if unit is ABSENT or self.copy is None:
            return unit
        copied = self.copy(unit)
        if copied is not unit:
            self.store.live[at] = copied
        return copied

    def put(self, at: Address, unit: Any) -> None:
        """Store a unit."""
        self.store.live[at] = unit


class HeapListTable(_LayeredTable):
    """Table of list state."""

    __slots__ = ()

    def get(self, at: Address) -> list[Any]:
        """The units in order."""
        store = self.store
        if not store.frozen:
            return store.live.get(at) or []
        if self.copy is None:
            return store.get(at) or []
        return self._thaw(at, self.copy)

    def _thaw(self, at: Address, copy: Copy) -> list[Any]:
        units: list[Any] | None = self.store.get_own(at, list)
        if units is None:
            return []
        shared = self._shared(at)
        if shared is not None:
            for index, (unit, frozen) in enumerate(zip(units, shared, strict=False)):
                if unit is frozen:
                    units[index] = copy(unit)
        return units

    def append(self, at: Address, units: list[Any]) -> None:
        """Add units at the end."""
        held = self.store.get_own(at, list)
        if held is None:
            self.store.live[at] = units
        else:
            held.extend(units)

    def replace(self, at: Address, units: list[Any]) -> None:
        """Store exactly these units."""
        if units:
            self.store.live[at] = units
        else:
            self.store.remove(at)


class HeapMapTable(_LayeredTable):
    """Table of map state: a dictionary per address; an empty one is never kept."""

    __slots__ = ()

    def get(self, at: Address, map_key: Hashable) -> Any:
        """The unit, or `ABSENT`."""
        store = self.store
        if store.frozen:
            return self._get_layered(at, map_key)
        entries = store.live.get(at)
        return ABSENT if entries is None else entries.get(map_key, ABSENT)

    def _get_layered(self, at: Address, map_key: Hashable) -> Any:
        entries = self.store.get(at)
        unit = ABSENT if entries is None else entries.get(map_key, ABSENT)
        if unit is ABSENT or self.copy is None:
            return unit
        shared = self._shared(at)
        if shared is None or shared.get(map_key, ABSENT) is not unit:
            return unit
        copied = self.copy(unit)
        if copied is not unit:
            self.store.get_own(at, dict)[map_key] = copied
        return copied

    def put(self, at: Address, map_key: Hashable, unit: Any) -> None:
        """Store one entry."""
        entries = self.store.get_own(at, dict)
        if entries is None:
            self.store.live[at] = {map_key: unit}
        else:
            entries[map_key] = unit

    def remove(self, at: Address, map_key: Hashable = ABSENT) -> None:
        """Drop one entry, or with no map key all of them."""
        if map_key is ABSENT:
            self.store.remove(at)
            return
        entries = self.store.get(at)
        if entries is None or map_key not in entries:
            return
        if len(entries) == 1:
            self.store.remove(at)
        else:
            del self.store.get_own(at, dict)[map_key]

    def items(self, at: Address) -> Iterable[tuple[Hashable, Any]]:
        """All entries."""
        entries: dict[Hashable, Any] | None = self.store.get(at)
        if entries is None:
            return ()
        if self.copy is not None and self.store.frozen:
            entries = self._thaw(at, self.copy)
        return entries.items()

    def _thaw(self, at: Address, copy: Copy) -> dict[Hashable, Any]:
        entries: dict[Hashable, Any] = self.store.get_own(at, dict)
        shared = self._shared(at) or {}
        for map_key, unit in entries.items():
            if shared.get(map_key, ABSENT) is unit:
                entries[map_key] = copy(unit)
        return entries

    def is_empty(self, at: Address) -> bool:
        """Whether the address has no entry."""
        return self.store.get(at) is None

    def clear(self, at: Address) -> None:
        """Drop all entries of the address."""
        self.store.remove(at)

    def _entries_of(self, held: Any) -> int:
        return len(held)

    def num_entries(self) -> int:
        """One per map entry."""
        return sum(len(entries) for _, entries in self.store.items())


HeapTable = HeapValueTable | HeapListTable | HeapMapTable
