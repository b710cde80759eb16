"""State handles of batch functions: the same states, for all keys of a batch at once.

Value state lies in columns (`table`). The other kinds hold containers or call the user's own functions per value, so
their handles go through the handle of records, key by key, and mean exactly what that means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from tidemark.backends.columns.table import ColumnTable
from tidemark.errors import ConfigError, IllegalStateError, UnsupportedOperationException
from tidemark.state.column_keys import Keys, KeySet
from tidemark.state.descriptors import StateKind
from tidemark.state.primitives import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

if TYPE_CHECKING:
    from tidemark.backends.registration import StateSpec
    from tidemark.state.backend import KeyContext
    from tidemark.state.column_types import Part

__all__ = ["ColumnValueState", "column_handle"]


class _ColumnHandle(State):
    """What handles of batch functions share: keys must be those of the batch that is being processed."""

    by_column = True

    def __init__(self, spec: StateSpec, context: KeyContext) -> None:
        self._spec = spec
        self._context = context

    def _check(self, keys: Any) -> None:
        if not isinstance(keys, KeySet):
            raise UnsupportedOperationException(
                f"State '{self._spec.name}' belongs to a batch function, in which no single key is current. Give the "
                "keys: read(keys), write(keys, values), clear(keys)."
            )
        if keys.batch is not self._context.batch:
            raise IllegalStateError(
                f"State '{self._spec.name}' was asked for keys of another batch. Keys are good for the call they "
                "come with; keep `keys.distinct` if you need them later."
            )

    def _rows(self, keys: Any, *columns: Any) -> Keys:
        """`keys` as those of a whole batch, to which `columns` belong row by row."""
        self._check(keys)
        if not isinstance(keys, Keys):
            raise ConfigError(
                f"State '{self._spec.name}': this takes one value per row, so it needs `keys` itself, not a part of it."
            )
        for column in columns:
            if len(column) != len(keys.codes):
                raise ConfigError(f"{len(column)} values for {len(keys.codes)} rows: one per row is needed.")
        return keys

    def _single(self) -> NoReturn:
        self._check(None)
        raise AssertionError("No key is current in a batch function.")


class HasTable(Protocol):
    """A store of which some values are in columns, not always in the same ones."""

    @property
    def table(self) -> ColumnTable:
        """The current ones."""


class ColumnValueState(_ColumnHandle, ValueState[Any]):
    """Value state in columns."""

    def __init__(self, spec: StateSpec, context: KeyContext, columns: ColumnTable | HasTable) -> None:
        """Bind a handle to its table, or to what has the current one; the latter cleans up by itself."""
        super().__init__(spec, context)
        self._columns = columns
        self._default = getattr(spec.descriptor, "default_value", None)
        self._expiry = spec.expiry
        strategy = None
        if spec.ttl is not None and isinstance(columns, ColumnTable):
            strategy = spec.ttl.get_cleanup_strategies().get_incremental_cleanup_strategy()
        self._cleaned_per_key = 0 if strategy is None else strategy.get_cleanup_size()
        self._cleaned = 0

    @property
    def _table(self) -> ColumnTable:
        columns = self._columns
        return columns if isinstance(columns, ColumnTable) else columns.table

    def read(self, keys: KeySet, default: Any = None, with_mask: bool = False) -> Any:
        """See `ValueState.read`."""
        parts, present = self._held(keys)
        table = self._table
        shown = table.kind.shown(parts, ~present, self._default if default is None else default)
        return (shown, present) if with_mask else shown

    def read_column(self, keys: KeySet) -> tuple[pa.Array, Part]:
        """Like `read` with a mask, but as an Arrow array of the type; what is missing is anything."""
        parts, present = self._held(keys)
        return self._table.kind.join(parts), present

    def _held(self, keys: KeySet) -> tuple[list[Part], Part]:
        self._check(keys)
        table, rows = self._table, keys.places
        table.fetch(keys)
        present, parts = table.held(rows), table.gather(rows)
        return parts, present if self._expiry is None else self._living(rows, present)

    def _living(self, rows: Part, present: Part) -> Part:
        table, expiry, now = self._table, self._expiry, self._context.now
        assert expiry is not None
        assert table.stamps is not None
        expired = present & (table.stamps[rows] <= expiry.dead_before(now))
        if expired.any():
            table.drop(rows[expired])
        if expiry.renew_on_read:
            table.stamp(rows[present & ~expired], now)
        self._clean(len(rows))
        return present if expiry.return_expired else present & ~expired

    def write(self, keys: KeySet, values: Any) -> None:
        """See `ValueState.write`."""
        self._check(keys)
        table, rows = self._table, keys.places
        parts, nulls = table.kind.given(values, len(keys))
        table.fetch(keys)
        if nulls is not None:
            table.drop(rows[nulls])
            rows, parts = rows[~nulls], [part[~nulls] for part in parts]
        table.scatter(rows, parts, self._context.now)
        self._clean(len(rows))

    def clear(self, keys: KeySet | None = None) -> None:
        """Remove the values of these keys."""
        self._check(keys)
        assert keys is not None
        self._table.fetch(keys)
        self._table.drop(keys.places)

    def _clean(self, keys: int) -> None:
        """What incremental clean-up does behind each access of a record, for as many accesses."""
        if self._cleaned_per_key:
            assert self._expiry is not None
            start = self._cleaned if self._cleaned < self._table.index.count else 0
            self._cleaned = start + keys * self._cleaned_per_key
            self._table.drop_expired(start, self._cleaned, self._expiry.dead_before(self._context.now))

    def value(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def update(self, value: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()


class _KeyByKey(_ColumnHandle):
    """A handle over the handle of records."""

    def __init__(self, spec: StateSpec, context: KeyContext, records: Any) -> None:
        super().__init__(spec, context)
        self._records = records

    def _each(self, keys: KeySet) -> Iterator[int]:
        """Make one key after the other current; gives their positions."""
        self._check(keys)
        context = self._context
        outside = context.token
        try:
            for at, context.token in enumerate(keys.tokens):
                yield at
        finally:
            context.token = outside

    def _grouped(self, keys: Keys, column: Any) -> list[Any]:
        """Values of a column as objects, grouped by key."""
        return _objects(self._spec.value, column, keys.order)

    def clear(self, keys: KeySet | None = None) -> None:
        """Remove what these keys hold."""
        self._check(keys)
        assert keys is not None
        for _ in self._each(keys):
            self._records.clear()


class _ColumnListState(_KeyByKey, ListState[Any]):
    """List state."""

    def append(self, keys: Keys, values: Any) -> None:
        """See `ListState.append`."""
        keys = self._rows(keys, values)
        units = self._grouped(keys, values)
        for (start, end), _ in zip(_spans(keys.count()), self._each(keys), strict=True):
            self._records.add_all(units[start:end])

    def read(self, keys: KeySet) -> pa.Array:
        """See `ListState.read`."""
        lists = [list(self._records.get()) for _ in self._each(keys)]
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
        flat = self._spec.value.to_arrow([unit for units in lists for unit in units])
        return pa.ListArray.from_arrays(pa.array(offsets), flat)

    def write(self, keys: KeySet, values: Any) -> None:
        """See `ListState.write`."""
        self._check(keys)
        if len(values) != len(keys):
            raise ConfigError(
                f"{len(values)} lists were written for {len(keys)} keys: one per key is needed."
            )
        lists = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
        for at in self._each(keys):
            self._records.update(lists[at])

    def get(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def add(self, value: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def add_all(self, values: Iterable[Any]) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def update(self, values: Iterable[Any]) -> NoReturn:
        """Not in a batch function."""
        self._single()


class _ColumnMapState(_KeyByKey, MapState[Any, Any]):
    """Map state."""

    def _map_keys(self, keys: Keys, column: Any) -> list[Any]:
        assert self._spec.map_key is not None
        return _objects(self._spec.map_key, column, keys.order)

    def read(self, keys: Keys, map_keys: Any) -> pa.Array:
        """See `MapState.read`."""
        keys = self._rows(keys, map_keys)
        wanted, found = self._map_keys(keys, map_keys), []
        for (start, end), _ in zip(_spans(keys.count()), self._each(keys), strict=True):
            found += [self._records.get(map_key) for map_key in wanted[start:end]]
        back = np.empty(len(found), np.int64)
        back[keys.order] = np.arange(len(found))
        return self._spec.value.to_arrow_nullable([found[at] for at in back.tolist()])

    def write(self, keys: Keys, map_keys: Any, values: Any) -> None:
        """See `MapState.write`."""
        keys = self._rows(keys, map_keys, values)
        pairs = list(zip(self._map_keys(keys, map_keys), self._grouped(keys, values), strict=True))
        for (start, end), _ in zip(_spans(keys.count()), self._each(keys), strict=True):
            self._records.put_all(pairs[start:end])

    def discard(self, keys: Keys, map_keys: Any) -> None:
        """See `MapState.discard`."""
        keys = self._rows(keys, map_keys)
        wanted = self._map_keys(keys, map_keys)
        for (start, end), _ in zip(_spans(keys.count()), self._each(keys), strict=True):
            for map_key in wanted[start:end]:
                self._records.remove(map_key)

    def read_all(self, keys: KeySet) -> tuple[Part, pa.Array, pa.Array]:
        """See `MapState.read_all`."""
        assert self._spec.map_key is not None
        codes: list[int] = []
        map_keys: list[Any] = []
        values: list[Any] = []
        for at in self._each(keys):
            for map_key, value in self._records.items():
                codes.append(at)
                map_keys.append(map_key)
                values.append(value)
        column = self._spec.value.to_arrow_nullable(values)
        return np.array(codes, np.int64), self._spec.map_key.to_arrow(map_keys), column

    def get(self, key: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def contains(self, key: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def items(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def keys(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def values(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def is_empty(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def put(self, key: Any, value: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def put_all(self, dict_value: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def remove(self, key: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()


class _ColumnFoldedState(_KeyByKey):
    """The kinds that combine values with functions of the user."""

    def append(self, keys: Keys, values: Any) -> None:
        """See `AppendingState.append`."""
        keys = self._rows(keys, values)
        units = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
        units = [units[at] for at in keys.order.tolist()]
        for (start, end), _ in zip(_spans(keys.count()), self._each(keys), strict=True):
            add = self._records.add
            for unit in units[start:end]:
                add(unit)

    def read(self, keys: KeySet) -> pa.Array:
        """See `AppendingState.read`."""
        return pa.array([self._records.get() for _ in self._each(keys)])

    def get(self) -> NoReturn:
        """Not in a batch function."""
        self._single()

    def add(self, value: Any) -> NoReturn:
        """Not in a batch function."""
        self._single()


class _ColumnReducingState(_ColumnFoldedState, ReducingState[Any]):
    """Reducing state: what is read has the type of what is added."""

    def append(self, keys: Keys, values: Any) -> None:
        """See `AppendingState.append`."""
        keys = self._rows(keys, values)
        units = self._grouped(keys, values)
        for (start, end), _ in zip(_spans(keys.count()), self._each(keys), strict=True):
            self._records.add_all(units[start:end])

    def read(self, keys: KeySet) -> pa.Array:
        """See `AppendingState.read`."""
        return self._spec.value.to_arrow_nullable([self._records.get() for _ in self._each(keys)])


class _ColumnAggregatingState(_ColumnFoldedState, AggregatingState[Any, Any]):
    """Aggregating state."""


class _ColumnFoldingState(_ColumnFoldedState, FoldingState[Any, Any]):
    """Folding state."""


_BY_KIND: dict[StateKind, Any] = {
    StateKind.LIST: _ColumnListState,
    StateKind.MAP: _ColumnMapState,
    StateKind.REDUCING: _ColumnReducingState,
    StateKind.AGGREGATING: _ColumnAggregatingState,
    StateKind.FOLDING: _ColumnFoldingState,
}


def column_handle(spec: StateSpec, context: KeyContext, records: State) -> State:
    """The handle of a batch function over the handle of records, for every kind but value state."""
    handle: State = _BY_KIND[spec.kind](spec, context, records)
    return handle


def _spans(counts: Part) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(counts)
    return zip((ends - counts).tolist(), ends.tolist(), strict=True)


def _objects(serializer: Any, column: Any, order: Part) -> list[Any]:
    """A column as objects of the serializer's type, in another order."""
    if isinstance(column, np.ndarray):
        column = column.tolist()
    if hasattr(column, "to_pylist"):
        wanted = serializer.arrow_type()
        values = serializer.from_arrow(column if column.type == wanted else column.cast(wanted))
    else:
        values = list(column)
    return [values[at] for at in order.tolist()]
