"""Incremental clean-up of expired state: a lazy, endless walk over one state, a few entries at a time.

The walk goes over a list of addresses taken when a round begins, so the state may change freely under
it; addresses that have gone meanwhile are skipped, new ones are met in the next round. Taking the list
costs as much as a round's worth of accesses saves, and nothing at all if the state is never touched.

A round also finds the oldest stamp that survives it. Stamps only grow, so nothing can expire before that one
does, and until then (`due`) a step has nothing to look for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tidemark.backends.heap.tables import HeapListTable, HeapMapTable, HeapTable
from tidemark.backends.table import ABSENT, Address
from tidemark.state.backend import AccessContext
from tidemark.state.expiry import Expiry

__all__ = ["IncrementalCleanup"]


class IncrementalCleanup:
    """Removes expired units of one state, `size` entries per step (map state: map entries).

    Attributes:
        due: No unit can be expired before this time.
    """

    __slots__ = (
        "_addresses",
        "_context",
        "_expiry",
        "_map_at",
        "_map_keys",
        "_note",
        "_oldest",
        "_size",
        "_table",
        "due",
    )

    def __init__(
        self,
        table: HeapTable,
        context: AccessContext,
        expiry: Expiry,
        size: int,
        note: Callable[..., None] | None = None,
    ) -> None:
        """Prepare a walk over `table`; `note(at, unit[, map key])` hears of every unit that is removed."""
        self._note = note
        self._table = table
        self._context = context
        self._expiry = expiry
        self._size = size
        self._addresses: list[Address] = []
        self._map_at: Address = None
        self._map_keys: list[Hashable] = []
        self._oldest = 0
        self.due = 0

    def step(self) -> None:
        """Look at the next entries; a round that ends begins anew with the next step."""
        now = self._context.now
        if self.all_alive(now):
            return
        if not self.is_amid_round:
            self._addresses = [at for at, _ in self._table.store.items()]
            self._oldest = now
        dead_before = self._expiry.dead_before(now)
        if isinstance(self._table, HeapMapTable):
            self._step_map(self._table, dead_before)
        else:
            addresses = self._addresses
            for _ in range(min(self._size, len(addresses))):
                self._look_at(addresses.pop(), dead_before)
        if not self.is_amid_round:
            self.due = self._oldest + self._expiry.ttl

    def sweep(self, entries: int) -> None:
        """Look at about so many entries, unless nothing can be expired or the round ends."""
        for _ in range(0, entries, self._size):
            self.step()
            if not self.is_amid_round:
                return

    def begin(self) -> None:
        """Begin a round with the next step, whatever was left of the last one and whatever can be expired."""
        self._addresses, self._map_keys = [], []
        self.due = 0

    @property
    def is_amid_round(self) -> bool:
        """Whether the round has not come to its end."""
        return bool(self._addresses or self._map_keys)

    def all_alive(self, now: int) -> bool:
        """Whether nothing can be expired at that time."""
        if now >= self.due:
            return False
        # A clock that was set back stamps units that expire sooner than all others.
        self.due = min(self.due, now + self._expiry.ttl)
        return True

    def _look_at(self, at: Address, dead_before: int) -> None:
        table = self._table
        unit: Any = table.store.get(at)
        if unit is None:
            return
        if not isinstance(table, HeapListTable):
            if self._is_dead(unit[1], dead_before):
                table.store.remove(at)
                if self._note is not None:
                    self._note(at, unit)
            return
        if any([self._is_dead(element[1], dead_before) for element in unit]):
            # Through `get`, which takes elements out of a pending snapshot before they move to other places.
            elements = table.get(at)
            table.replace(at, [element for element in elements if element[1] > dead_before])
            if self._note is not None:
                for element in elements:
                    if element[1] <= dead_before:
                        self._note(at, element)

    def _is_dead(self, stamp: int, dead_before: int) -> bool:
        if stamp <= dead_before:  # not `Living.alive`, for every access
            return True
        if stamp < self._oldest:
            self._oldest = stamp
        return False

    def _step_map(self, table: HeapMapTable, dead_before: int) -> None:
        left = self._size
        while left:
            if not self._map_keys:
                if not self._addresses:
                    return
                self._map_at = self._addresses.pop()
                self._map_keys = list(table.store.get(self._map_at) or ())
                continue
            map_key = self._map_keys.pop()
            left -= 1
            unit = (table.store.get(self._map_at) or {}).get(map_key, ABSENT)
            if unit is not ABSENT and self._is_dead(unit[1], dead_before):
                table.remove(self._map_at, map_key)
                if self._note is not None:
                    self._note(self._map_at, unit, map_key)
