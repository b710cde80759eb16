"""Tables of state whose expiry somebody wants to hear of: no expired unit leaves them unnoticed.

A handle over such a table never meets an expired unit: whatever touches one takes it out and notes it, overwriting
and clearing included. The operator tells the noted ones when the batch is over, so user code runs neither inside of
an access nor while another key is current.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from tidemark.backends.table import ABSENT, Address, ListTable, MapTable, Table, ValueTable
from tidemark.state.descriptors import StateKind
from tidemark.state.expired_state import ExpiredUnit
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import NamespaceKind

if TYPE_CHECKING:
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import AccessContext

__all__ = ["ReportedTable", "reported"]


def reported(
    spec: StateSpec, context: AccessContext, table: Table, expired: list[ExpiredUnit]
) -> ReportedTable:
    """`table` behind one that notes in `expired` what expires."""
    return _KINDS.get(spec.kind, _ReportedValues)(spec, context, table, expired)


class ReportedTable(ABC):
    """What the three kinds share."""

    _table: Any

    def __init__(
        self, spec: StateSpec, context: AccessContext, table: Table, expired: list[ExpiredUnit]
    ) -> None:
        """Watch over `table`."""
        assert spec.expiry is not None
        assert spec.ttl is not None
        callback = spec.ttl.on_expiry
        assert callback is not None
        self._callback = callback
        self._name = spec.name
        self._expiry = spec.expiry
        self._context = context
        self._table = table
        self._expired = expired
        self._with_namespace = spec.namespace is not NamespaceKind.VOID
        self._to_map_key = None if spec.map_key is None else KeyTokens(spec.map_key).to_key

    @abstractmethod
    def settle(self, at: Address, /) -> None:
        """Take out what is expired at an address."""

    def note(self, at: Any, unit: tuple[Any, int], map_token: Any = ABSENT) -> None:
        """Remember an expired unit for its report."""
        value, stamp = unit
        map_key = None
        if map_token is not ABSENT:
            map_key = map_token if self._to_map_key is None else self._to_map_key(map_token)
        expiry = self._expiry
        self._expired.append(
            ExpiredUnit(
                self._callback,
                self._name,
                at[0] if self._with_namespace else at,
                value,
                stamp,
                stamp + expiry.ttl,
                map_key,
                expiry.event_time,
            )
        )

    def _is_dead(self, stamp: int) -> bool:
        return self._expiry.is_expired(stamp, self._context.now)


class _ReportedValues(ReportedTable):
    """Value, reducing, aggregating and folding state."""

    _table: ValueTable

    def get(self, at: Address, /) -> Any:
        """The unit, or `ABSENT`."""
        unit = self._table.get(at)
        if unit is ABSENT or not self._is_dead(unit[1]):
            return unit
        self._table.remove(at)
        self.note(at, unit)
        return ABSENT

    def settle(self, at: Address, /) -> None:
        """Take out what is expired."""
        self.get(at)

    def put(self, at: Address, unit: Any, /) -> None:
        """Store a unit."""
        self.get(at)
        self._table.put(at, unit)

    def remove(self, at: Address, /) -> None:
        """Drop the unit."""
        if self.get(at) is not ABSENT:
            self._table.remove(at)


class _ReportedLists(ReportedTable):
    """List state."""

    _table: ListTable

    def get(self, at: Address, /) -> list[Any]:
        """The living units in order."""
        units = self._table.get(at)
        living = [unit for unit in units if not self._is_dead(unit[1])]
        if len(living) == len(units):
            return units
        dead = [unit for unit in units if self._is_dead(unit[1])]
        self._table.replace(at, living)
        for unit in dead:
            self.note(at, unit)
        return living

    def settle(self, at: Address, /) -> None:
        """Take out what is expired."""
        self.get(at)

    def append(self, at: Address, units: list[Any], /) -> None:
        """Add units at the end."""
        self._table.append(at, units)

    def replace(self, at: Address, units: list[Any], /) -> None:
        """Store exactly these units."""
        self.get(at)
        self._table.replace(at, units)

    def remove(self, at: Address, /) -> None:
        """Drop the list."""
        self.get(at)
        self._table.remove(at)


class _ReportedMaps(ReportedTable):
    """Map state."""

    _table: MapTable

    def get(self, at: Address, map_key: Hashable, /) -> Any:
        """The unit, or `ABSENT`."""
        unit = self._table.get(at, map_key)
        if unit is ABSENT or not self._is_dead(unit[1]):
            return unit
        self._table.remove(at, map_key)
        self.note(at, unit, map_key)
        return ABSENT

    def put(self, at: Address, map_key: Hashable, unit: Any, /) -> None:
        """Store one entry."""
        self.get(at, map_key)
        self._table.put(at, map_key, unit)

    def remove(self, at: Address, map_key: Hashable, /) -> None:
        """Drop one entry."""
        if self.get(at, map_key) is not ABSENT:
            self._table.remove(at, map_key)

    def items(self, at: Address, /) -> Iterable[tuple[Hashable, Any]]:
        """The living entries."""
        self.settle(at)
        return self._table.items(at)

    def settle(self, at: Address, /) -> None:
        """Take out expired entries."""
        for map_key, unit in list(self._table.items(at)):
            if self._is_dead(unit[1]):
                self._table.remove(at, map_key)
                self.note(at, unit, map_key)

    def is_empty(self, at: Address, /) -> bool:
        """Whether no entry lives."""
        self.settle(at)
        return self._table.is_empty(at)

    def clear(self, at: Address, /) -> None:
        """Drop all entries."""
        self.settle(at)
        self._table.clear(at)


_KINDS: dict[StateKind, type[ReportedTable]] = {
    StateKind.LIST: _ReportedLists,
    StateKind.MAP: _ReportedMaps,
}
