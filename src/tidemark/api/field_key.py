"""Keys that are a field of the record: hashed as a column, without a Python call per row."""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import combinations
from typing import Any

from tidemark.api.functions import KeySelector
from tidemark.types.fields import INTEGERS, field_names, field_place
from tidemark.types.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation

__all__ = ["FieldKey", "field", "key_function", "key_name"]

_WIDENING = set(combinations(INTEGERS, 2))
"""Types of fields and keys that differ, and yet every value of the field is a key."""


class FieldKey(KeySelector):
    """Selects a field of a row or tuple, by name or position."""

    def __init__(self, name: str | int) -> None:
        self.field = name

    def get_key(self, value: Any) -> Any:
        """The field."""
        return value[self.field]

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The field, as a timestamp in milliseconds; see `WatermarkStrategy.with_timestamp_assigner`."""
        stamp: int = value[self.field]
        return stamp

    def position_in(self, record: TypeInformation | None, key: TypeInformation | None) -> int | None:
        """Position of the field in records of a type, if its values are keys of type `key` as they are."""
        # A tuple has no names that `get_key` could ask for.
        if not isinstance(record, RowTypeInfo) and not (
            isinstance(record, TupleTypeInfo) and isinstance(self.field, int)
        ):
            return None
        at = field_place(record, self.field)
        if at is None:
            return None
        kind = record.get_field_types()[at]
        return at if kind == key or (kind, key) in _WIDENING else None

    def __repr__(self) -> str:
        return f"field({self.field!r})"


def key_name(selector: Any, record: TypeInformation | None, taken: Container[str] = ()) -> str:
    """What a column of keys is called: as the field that is the key, else `key`.

    Args:
        selector: Gives the key of a record.
        record: Type of the records.
        taken: Names of other columns; a field of such a name is called `key`, too.
    """
    name: Any = selector.field if isinstance(selector, FieldKey) else "key"
    if isinstance(name, int):
        at = field_place(record, name)
        name = "key" if at is None else field_names(record)[at]
    return "key" if name in taken else name


def key_function(selector: Any) -> Callable[[Any], Any]:
    """A key selector, object or not, as a plain callable."""
    return selector.get_key if isinstance(selector, KeySelector) else selector


def field(name: str | int) -> FieldKey:
    """A key selector for `key_by`: the field `name` of a row, or the item at that position of a tuple.

    Streams of rows and tuples that travel as columns (from Spark DataFrames, from other keyed operators) are split
    by such a key without touching single records, if the field has the type of the key. As a timestamp assigner it
    reads a LONG field of such streams the same way.
    """
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise TypeError(f"field() needs a name or a position, not {name!r}.")
    return FieldKey(name)
