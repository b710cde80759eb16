"""Fields of rows and tuples, by name or position, and which types are numbers."""

from __future__ import annotations

from tidemark.types.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types

__all__ = ["INTEGERS", "NUMBERS", "field_names", "field_place"]

INTEGERS = [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()]
"""From the narrowest to the widest."""
NUMBERS = [*INTEGERS, Types.FLOAT(), Types.DOUBLE()]


def field_names(record: TypeInformation | None) -> list[str]:
    """Names of the fields of a row; those of a tuple are `f0`, `f1`, ...; other types have none."""
    if isinstance(record, RowTypeInfo):
        return list(record.get_field_names())
    if isinstance(record, TupleTypeInfo):
        return [f"f{at}" for at in range(len(record.get_field_types()))]
    return []


def field_place(record: TypeInformation | None, field: str | int) -> int | None:
    """Where a field is, given its name or its position, which may count from the end; None if there is none."""
    names = field_names(record)
    if isinstance(field, str):
        return names.index(field) if field in names else None
    return field % len(names) if -len(names) <= field < len(names) else None
