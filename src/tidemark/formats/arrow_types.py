"""Rows and Arrow columns: what column-oriented files hold."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidemark.formats.values import is_byte_array, unsupported
from tidemark.types.row import Row, row_of
from tidemark.types.time import Instant
from tidemark.types.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TypeInformation,
)

__all__ = ["arrow_schema", "rows_of_batch", "table_of_rows"]

_ARRAYS = (ListTypeInfo, PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo)
_BASIC: dict[BasicType, Callable[[], Any]] = {
    BasicType.STRING: pa.string,
    BasicType.CHAR: pa.string,
    BasicType.BOOLEAN: pa.bool_,
    BasicType.BYTE: pa.int8,
    BasicType.SHORT: pa.int16,
    BasicType.INT: pa.int32,
    BasicType.LONG: pa.int64,
    BasicType.FLOAT: pa.float32,
    BasicType.DOUBLE: pa.float64,
    BasicType.BIG_DEC: lambda: pa.decimal128(38, 18),
    BasicType.SQL_DATE: pa.date32,
    BasicType.SQL_TIME: lambda: pa.time64("us"),
    BasicType.SQL_TIMESTAMP: lambda: pa.timestamp("us"),
    BasicType.INSTANT: lambda: pa.timestamp("ns", "UTC"),
}


def arrow_schema(row_type: RowTypeInfo) -> Any:
    """The Arrow schema of a row type's columns; every column may hold null.

    Raises:
        ConfigError: A field has a type that no column stands for.
    """
    pairs = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    return pa.schema([pa.field(name, _arrow_type(kind)) for name, kind in pairs])


def _arrow_type(kind: TypeInformation) -> Any:
    if isinstance(kind, BasicTypeInfo) and kind.basic_type in _BASIC:
        return _BASIC[kind.basic_type]()
    if is_byte_array(kind):
        return pa.binary()
    if isinstance(kind, _ARRAYS):
        return pa.list_(_arrow_type(kind.element_type))
    if isinstance(kind, MapTypeInfo):
        return pa.map_(_arrow_type(kind.key_type), _arrow_type(kind.value_type))
    if isinstance(kind, RowTypeInfo):
        return pa.struct(list(arrow_schema(kind)))
    raise unsupported("A column", kind)


def table_of_rows(rows: Sequence[Any], row_type: RowTypeInfo, schema: Any) -> Any:
    """The rows as an Arrow table.

    Raises:
        ValueError, TypeError, ArrowException: A row has other fields than its type.
    """
    names = row_type.get_field_names()
    values = [[row[name] for name in names] if isinstance(row, dict) else row for row in rows]
    if any(len(row) != len(names) for row in values):
        raise ValueError(f"{len(names)} fields expected: {names}")
    columns = list(zip(*values, strict=True)) or [()] * len(names)
    arrays = [
        pa.array([to_arrow(value) for value in column], field.type)
        for column, field, to_arrow in zip(
            columns, schema, map(_to_arrow, row_type.get_field_types()), strict=True
        )
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _to_arrow(kind: TypeInformation) -> Callable[[Any], Any]:
    """What makes a value of a type one that Arrow takes."""
    if isinstance(kind, RowTypeInfo):
        names = kind.get_field_names()
        fields = [_to_arrow(one) for one in kind.get_field_types()]
        return lambda row: (
            None
            if row is None
            else {name: change(item) for name, change, item in zip(names, fields, row, strict=True)}
        )
    if isinstance(kind, BasicTypeInfo) and kind.basic_type is BasicType.INSTANT:
        return lambda value: None if value is None else value.seconds * 1_000_000_000 + value.nanos
    if isinstance(kind, MapTypeInfo):
        keys, values = _to_arrow(kind.key_type), _to_arrow(kind.value_type)
        return lambda value: (
            None if value is None else [(keys(key), values(item)) for key, item in value.items()]
        )
    if isinstance(kind, _ARRAYS) and not is_byte_array(kind):
        element = _to_arrow(kind.element_type)
        return lambda value: None if value is None else [element(item) for item in value]
    return lambda value: value


def rows_of_batch(batch: Any, row_type: RowTypeInfo, schema: Any) -> list[Row]:
    """The rows of an Arrow batch that has the type's columns, in any order and among others.

    Raises:
        ArrowException: A column has values of another type.
        KeyError: A column is missing.
    """
    names = tuple(row_type.get_field_names())
    columns = []
    for field, kind in zip(schema, row_type.get_field_types(), strict=True):
        column = batch.column(field.name).cast(field.type)
        columns.append(list(map(_from_arrow(kind), _plain(column))))
    return [row_of(list(values), names) for values in zip(*columns, strict=True)]


def _plain(column: Any) -> list[Any]:
    # Nanoseconds do not fit Python's datetime; as numbers they do.
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def _from_arrow(kind: TypeInformation) -> Callable[[Any], Any]:
    """What makes a value of a type of one that Arrow gives."""
    if isinstance(kind, RowTypeInfo):
        names = tuple(kind.get_field_names())
        fields = [_from_arrow(one) for one in kind.get_field_types()]
        return lambda value: (
            None
            if value is None
            else row_of([change(value[name]) for name, change in zip(names, fields, strict=True)], names)
        )
    if isinstance(kind, BasicTypeInfo) and kind.basic_type is BasicType.INSTANT:
        return _instant
    if isinstance(kind, MapTypeInfo):
        keys, values = _from_arrow(kind.key_type), _from_arrow(kind.value_type)
        return lambda value: None if value is None else {keys(key): values(item) for key, item in value}
    if isinstance(kind, _ARRAYS) and not is_byte_array(kind):
        element = _from_arrow(kind.element_type)
        return lambda value: None if value is None else [element(item) for item in value]
    return lambda value: value


def _instant(value: Any) -> Instant | None:
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)
    return Instant(*divmod(value, 1_000_000_000))
