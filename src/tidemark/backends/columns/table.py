"""Value state by column: numpy arrays, a row per key, frozen in constant time.

All tables of a backend share its `KeyIndex`; row i of every table belongs to key i. A cut takes hold of the arrays as
they are; whoever writes first while it is pending goes on with copies of them, so that a barrier costs nothing and
a cut that is written before the next batch costs nothing at all.

What changed since a cut is known once somebody has asked for it (`track`): each row then remembers behind which cut it
was last written to or dropped.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemark.backends.table import ABSENT
from tidemark.errors import IllegalStateError
from tidemark.state.column_types import column_type_of

if TYPE_CHECKING:
    from tidemark.backends.columns.key_index import KeyIndex, Rows
    from tidemark.state.column_keys import KeySet
    from tidemark.state.column_types import ColumnType, Part
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ColumnTable", "ColumnView"]


class ColumnView:
    """The arrays of a table at a cut. Reading is safe from any thread until `release`.

    A view that nobody refers to any more counts as released.
    """

    __slots__ = ("__weakref__", "_arrays", "index", "released")

    def __init__(
        self,
        index: KeyIndex,
        parts: list[Part],
        present: Part,
        stamps: Part | None,
        behind: Part | None = None,
    ) -> None:
        """Take hold of the arrays; `behind` tells of each row behind which cut it was last changed."""
        self.index = index
        self._arrays: Any = (index.keys, index.count, parts, present, stamps, behind)
        self.released = False

    def rows(self, dead_before: int | None, since: int | None = None) -> tuple[Part, list[Part], Part | None]:
        """Keys, parts and stamps of rows that hold a value.

        Args:
            dead_before: Without those stamped up to that time.
            since: Only those that were changed behind that cut.

        Raises:
            IllegalStateError: The view was released.
        """
        keys, count, parts, present, stamps, behind = self._readable()
        # A key that came after the last write has no row in the columns yet.
        chosen = np.flatnonzero(present[:count])
        if since is not None:
            chosen = chosen[behind[chosen] >= since]
        if stamps is not None:
            if dead_before is not None:
                chosen = chosen[stamps[chosen] > dead_before]
            stamps = stamps[chosen]
        return keys[chosen], [part[chosen] for part in parts], stamps

    def removed(self, since: int) -> Part:
        """Keys whose values were dropped behind that cut.

        Raises:
            IllegalStateError: The view was released.
        """
        keys, count, _, present, _, behind = self._readable()
        gone: Part = keys[np.flatnonzero(~present[:count] & (behind[:count] >= since))]
        return gone

    def _readable(self) -> Any:
        if self._arrays is None:
            raise IllegalStateError("This cut was released; its content may be gone.")
        return self._arrays

    def release(self) -> None:
        """Say that nobody reads this view any more."""
        self.released = True
        self._arrays = None


class ColumnTable:
    """The values of one state.

    Attributes:
        kind: How values lie in arrays.
        present: Which rows hold a value.
        stamps: When each was last accessed, with time-to-live.
    """

    def __init__(self, index: KeyIndex, serializer: TypeSerializer[Any], ttl: bool) -> None:
        """Start empty."""
        self.index = index
        self.kind: ColumnType = column_type_of(serializer)
        self.present: Part = np.zeros(0, np.bool_)
        self.stamps: Part | None = np.zeros(0, np.int64) if ttl else None
        self.parts: list[Part] = [_blank(0, dtype) for dtype in self.kind.dtypes]
        self._views: list[weakref.ref[ColumnView]] = []
        self._behind: Part | None = None
        self._cut = self._newest = 0

    def track(self, number: int) -> None:
        """A cut of this number is made: what is written from now on was changed behind it."""
        if self._behind is None:
            self._behind = np.zeros(len(self.present), np.int32)
        self._cut = number

    @property
    def changed_behind(self) -> int:
        """Number of the newest cut behind which something changed; what was there before the first one counts as 0."""
        return self._newest

    def changed_rows(self, since: int) -> Part:
        """Rows that were changed behind that cut."""
        return np.flatnonzero(self._behind >= since) if self._behind is not None else np.zeros(0, np.int64)

    def fetch(self, keys: KeySet) -> None:
        """Have the values of these keys at hand; called before they are accessed."""

    def held(self, rows: Rows) -> Part:
        """Which of the rows hold a value."""
        self._fit()
        return self.present[rows]

    def gather(self, rows: Rows) -> list[Part]:
        """The parts of rows; what is in rows without a value is anything."""
        self._fit()
        return [part[rows] for part in self.parts]

    def scatter(self, rows: Rows, parts: list[Part], now: int) -> None:
        """Store values."""
        self._own()
        for part, values in zip(self.parts, parts, strict=True):
            part[rows] = values
        self.present[rows] = True
        if self.stamps is not None:
            self.stamps[rows] = now
        self._note(rows)

    def _note(self, rows: Any) -> None:
        if self._behind is not None:
            self._behind[rows] = self._newest = self._cut

    def restore(self, rows: Rows, parts: list[Part], stamps: Part | None) -> None:
        """Take over values with stamps of their own, from a snapshot or a store."""
        ColumnTable.scatter(self, rows, parts, 0)
        if self.stamps is not None:
            self.stamps[rows] = stamps

    def unit(self, row: int) -> Any:
        """What a row holds, as an object, with its stamp if there is one; `ABSENT` if it holds nothing."""
        if not 0 <= row < len(self.present) or not self.present[row]:
            return ABSENT
        column = self.kind.join([part[row : row + 1] for part in self.parts])
        [value] = self.kind.serializer.from_arrow(column)
        return value if self.stamps is None else (value, int(self.stamps[row]))

    def stamp(self, rows: Rows, now: int) -> None:
        """Say that rows were accessed."""
        self._own()
        assert self.stamps is not None
        self.stamps[rows] = now
        self._note(rows)

    def drop(self, rows: Any) -> None:
        """Remove the values of rows."""
        self._own()
        self.present[rows] = False
        self._note(rows)
        for part in self.parts:
            if part.dtype.kind == "O":
                part[rows] = None

    def drop_expired(self, start: int, end: int, dead_before: int) -> None:
        """Remove what is expired among some rows."""
        assert self.stamps is not None
        part = slice(start, min(end, len(self.present)))
        dead = self.present[part] & (self.stamps[part] <= dead_before)
        if dead.any():
            self.drop(start + np.flatnonzero(dead))

    def keep(self, rows: Rows) -> None:
        """Keep these rows only, in this order; the index does the same."""
        self._fit()
        self.present = self._kept(self.present, rows)
        self.parts = [self._kept(part, rows) for part in self.parts]
        if self.stamps is not None:
            self.stamps = self._kept(self.stamps, rows)
        if self._behind is not None:
            self._behind = self._kept(self._behind, rows)
        self._views = []

    def _kept(self, array: Part, rows: Rows) -> Part:
        kept = _blank(len(array), array.dtype)
        kept[: len(rows)] = array[rows]
        return kept

    def num_entries(self) -> int:
        """Rows that hold a value, expired ones included."""
        return int(np.count_nonzero(self.present[: self.index.count]))

    def freeze(self) -> ColumnView:
        """Cut: fix the content for a reader, in constant time."""
        view = ColumnView(self.index, self.parts, self.present, self.stamps, self._behind)
        self._views.append(weakref.ref(view))
        return view

    def _fit(self) -> None:
        """Have as many rows as the index has room for."""
        capacity = self.index.capacity
        if len(self.present) < capacity:
            self.parts = [_grown(part, capacity) for part in self.parts]
            self.present = _grown(self.present, capacity)
            if self.stamps is not None:
                self.stamps = _grown(self.stamps, capacity)
            if self._behind is not None:
                self._behind = _grown(self._behind, capacity)
            self._views = []

    def _own(self) -> None:
        """Have arrays that no cut looks at."""
        self._fit()
        if self._views:
            if any([(view := ref()) is not None and not view.released for ref in self._views]):
                self.parts = [part.copy() for part in self.parts]
                self.present = self.present.copy()
                if self.stamps is not None:
                    self.stamps = self.stamps.copy()
                if self._behind is not None:
                    self._behind = self._behind.copy()
            self._views = []


def _grown(array: Part, capacity: int) -> Part:
    grown = _blank(capacity, array.dtype)
    grown[: len(array)] = array
    return grown


def _blank(length: int, dtype: np.dtype[Any]) -> Part:
    # An empty array of objects is one of None, zeros would be numbers.
    return np.empty(length, dtype) if dtype.kind == "O" else np.zeros(length, dtype)
