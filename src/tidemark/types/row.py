"""`Row`: a value with positional and, optionally, named fields, and the kind of change it stands for.

Rows are made on the hot path (`row_of`), so they hold three slots and share the tuple of field names.
The fields of an unnamed row can still be reached as `f0`, `f1`, ...; the row stays unnamed in
comparisons and in print until it has passed a type: rows of `Types.ROW([...])` are named like that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import repeat
from typing import Any

__all__ = ["Row", "RowKind", "row_of", "rows_of"]


class RowKind(Enum):
    """What a row says about the table it belongs to."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return _KIND_TEXT[self.value]


_KIND_TEXT = ("+I", "-U", "+U", "-D")
_INSERT = RowKind.INSERT


class Row:
    """A record whose fields are read by index, by name or as attributes.

    `Row(1, "x")` is unnamed, `Row(a=1, b="x")` is named. An unnamed row of names also works as a
    factory: `Person = Row("name", "age")`, then `Person("Ann", 3)`.

    Named rows are equal if they have the same set of names, the same value under each name and the same
    kind; unnamed rows if their values agree by position. A named row never equals an unnamed one.
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _values: Sequence[Any]
    _fields: tuple[str, ...] | None
    _row_kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("A Row takes either positional or named values, not both.")
        self._row_kind = _INSERT
        if kwargs:
            self._fields = tuple(kwargs)
            self._values = list(kwargs.values())
        else:
            self._fields = None
            self._values = list(args)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Return a row like `Row(*args, **kwargs)` of another kind than `RowKind.INSERT`."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields of a named row as a dictionary.

        Args:
            recursive: Turn rows nested in fields, lists, tuples and dictionaries into dictionaries too.

        Raises:
            TypeError: The row has no field names.
        """
        if self._fields is None:
            raise TypeError("A Row without field names cannot become a dict; call set_field_names() first.")
        values = [_plain(value) for value in self._values] if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def get_row_kind(self) -> RowKind:
        """Return the kind of change this row stands for."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Replace the kind of change this row stands for."""
        if not isinstance(row_kind, RowKind):
            raise TypeError(f"A row kind must be a RowKind, got {row_kind!r}.")
        self._row_kind = row_kind

    def get_field_names(self) -> list[str] | None:
        """Return the field names, or None for an unnamed row."""
        return None if self._fields is None else list(self._fields)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values of these fields in their order; all values, if the row has no names.

        Raises:
            KeyError: There is no field of such a name.
        """
        if self._fields is None:
            return list(self._values)
        if unknown := [name for name in names if name not in self._fields]:
            raise KeyError(f"This row has no fields {unknown}: {self!r}")
        return [self._values[self._fields.index(name)] for name in names]

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Name the fields by position.

        Raises:
            ValueError: There are not as many names as fields, or a name is used twice.
        """
        names = tuple(field_names)
        if len(names) != len(self._values) or len(set(names)) != len(names):
            raise ValueError(f"{len(self._values)} fields need as many different names, got {list(names)}.")
        self._fields = names

    def _index(self, name: str) -> int:
        """Position of a field name, -1 when there is none."""
        fields = self._fields
        if fields is not None:
            return fields.index(name) if name in fields else -1
        # Decimal digits only: str.isdigit() alone would let "f²" through to int().
        digits = name[1:]
        if name[:1] == "f" and digits.isdecimal() and digits.isascii() and int(digits) < len(self._values):
            return int(digits)
        return -1

    def __getitem__(self, item: Any) -> Any:
        # Positions are what the hot path uses; a name is not an index, which costs nothing to find out.
        try:
            return self._values[item]
        except TypeError:
            if not isinstance(item, str):
                raise
        at = self._index(item)
        if at < 0:
            raise KeyError(item)
        return self._values[at]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, str):
            at = self._index(key)
            if at < 0:
                raise KeyError(key)
            key = at
        values = self._values if isinstance(self._values, list) else list(self._values)
        values[key] = value
        self._values = values

    def __getattr__(self, item: str) -> Any:
        # Only reached when the slot itself is missing or the name is a field.
        if item.startswith("_"):
            raise AttributeError(item)
        at = self._index(item)
        if at < 0:
            raise AttributeError(f"This row has no field {item!r}: {self!r}")
        return self._values[at]

    def __call__(self, *args: Any) -> Row:
        """Return a row of `args`, named by the values of this row."""
        if len(args) != len(self._values):
            raise ValueError(f"{self!r} makes rows of {len(self._values)} fields, got {len(args)} values.")
        return row_of(args, tuple(self._values), self._row_kind)

    def __contains__(self, item: Any) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        if self._row_kind is not other._row_kind or len(self._values) != len(other._values):
            return False
        if self._fields is None or other._fields is None:
            return self._fields is other._fields and tuple(self._values) == tuple(other._values)
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        if self._fields is None:
            return hash((tuple(self._values), self._row_kind.value))
        return hash((frozenset(self.as_dict().items()), self._row_kind.value))

    def __reduce__(self) -> tuple[Any, ...]:
        return row_of, (tuple(self._values), self._fields, self._row_kind)

    def __repr__(self) -> str:
        if self._fields is None:
            return "<Row(" + ", ".join([repr(value) for value in self._values]) + ")>"
        pairs = zip(self._fields, self._values, strict=False)
        return "Row(" + ", ".join([f"{name}={value!r}" for name, value in pairs]) + ")"


_new_row = object.__new__


def row_of(values: Sequence[Any], field_names: tuple[str, ...] | None = None, kind: RowKind = _INSERT) -> Row:
    """Make a row around `values` without copying or checking anything.

    `values` must be a tuple or a list that nobody else changes.
    """
    row = _new_row(Row)
    row._values = values
    row._fields = field_names
    row._row_kind = kind
    return row


def rows_of(
    values: Iterable[Sequence[Any]], count: int, field_names: tuple[str, ...] | None = None
) -> list[Row]:
    """`row_of` for the `count` items of `values`, without a call of Python code for each."""
    rows = list(map(_new_row, repeat(Row, count)))
    insert = _INSERT
    for row, fields in zip(rows, values, strict=True):
        row._values = fields
        row._fields = field_names
        row._row_kind = insert
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if type(value) is tuple:
        return tuple([_plain(item) for item in value])
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
