"""Keys that are a field of the record: hashed as a column, without a Python call per row."""

from __future__ import annotations

from typing import Any

from tidemark.api.functions import KeySelector

__all__ = ["FieldKey", "field"]


class FieldKey(KeySelector):
    """Selects a field of a row or tuple, by name or position."""

    def __init__(self, name: str | int) -> None:
        self.field = name

    def get_key(self, value: Any) -> Any:
        """The field."""
        return value[self.field]

    def __repr__(self) -> str:
        return f"field({self.field!r})"


def field(name: str | int) -> FieldKey:
    """A key selector for `key_by`: the field `name` of a row, or the item at that position of a tuple.

    Streams that arrive as columns (Spark DataFrames) are split by such a key without touching single rows.
    """
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise TypeError(f"field() needs a name or a position, not {name!r}.")
    return FieldKey(name)
