"""Tables: the seam between state handles, which know semantics and TTL, and stores, which know bytes.

A table holds one state. It is addressed by `at`: the key token for states without a namespace, else the
pair `(token, namespace)`. Tables hand out and take live Python objects; whether these are kept as they
are (heap) or pass through serializers (RocksDB) is the store's business. With time-to-live every stored
unit is a pair `(value, last_access_ms)`; the table does not interpret it except when it writes a
snapshot, cleans up, or serialises.

Map keys are tokens too (`tidemark.state.key_tokens`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, Protocol

__all__ = ["ABSENT", "Address", "ListTable", "MapTable", "Table", "ValueTable"]

Address = Hashable


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Answer of a table that holds nothing at an address; never stored."""


class ValueTable(Protocol):
    """Table of value, reducing, aggregating and folding state: one unit per address."""

    def get(self, at: Address, /) -> Any:
        """The unit, or `ABSENT`."""

    def put(self, at: Address, unit: Any, /) -> None:
        """Store a unit."""

    def remove(self, at: Address, /) -> None:
        """Drop the unit, if there is one."""


class ListTable(Protocol):
    """Table of list state: a list of units per address."""

    def get(self, at: Address, /) -> list[Any]:
        """The units in order, as a list the caller may keep but must not change; empty if there is none."""

    def append(self, at: Address, units: list[Any], /) -> None:
        """Add units (at least one) at the end, without reading what is there."""

    def replace(self, at: Address, units: list[Any], /) -> None:
        """Store exactly these units; an empty list removes the address."""

    def remove(self, at: Address, /) -> None:
        """Drop the list, if there is one."""


class MapTable(Protocol):
    """Table of map state: a dictionary from map-key token to unit per address."""

    def get(self, at: Address, map_key: Hashable, /) -> Any:
        """The unit, or `ABSENT`."""

    def put(self, at: Address, map_key: Hashable, unit: Any, /) -> None:
        """Store one entry."""

    def remove(self, at: Address, map_key: Hashable, /) -> None:
        """Drop one entry, if it is there."""

    def items(self, at: Address, /) -> Iterable[tuple[Hashable, Any]]:
        """All entries of the address; changing the map while iterating raises `RuntimeError`."""

    def is_empty(self, at: Address, /) -> bool:
        """Whether the address has no entry."""

    def clear(self, at: Address, /) -> None:
        """Drop all entries of the address."""


Table = ValueTable | ListTable | MapTable
