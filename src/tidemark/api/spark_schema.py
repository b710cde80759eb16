"""Declared types of the rows of a Spark `DataFrame`, read from its schema without importing Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark.types.typeinfo import RowTypeInfo, TypeInformation, Types

__all__ = ["type_of_schema"]

_SIMPLE: dict[str, Callable[[], TypeInformation]] = {
    "string": Types.STRING,
    "varchar": Types.STRING,
    "char": Types.STRING,
    "boolean": Types.BOOLEAN,
    "byte": Types.BYTE,
    "short": Types.SHORT,
    "integer": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "decimal": Types.BIG_DEC,
    "date": Types.SQL_DATE,
    "timestamp_ntz": Types.SQL_TIMESTAMP,
    "timestamp": Types.SQL_TIMESTAMP,
}


def type_of_schema(schema: Any) -> RowTypeInfo:
    """The named row type of a `StructType`; what has no counterpart here is pickled."""
    fields = list(schema.fields)
    return Types.ROW_NAMED([field.name for field in fields], [_type_of(field.dataType) for field in fields])


def _type_of(data_type: Any) -> TypeInformation:
    name = data_type.typeName()
    if name in _SIMPLE:
        return _SIMPLE[name]()
    if name == "binary":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if name == "array":
        return Types.LIST(_type_of(data_type.elementType))
    if name == "map":
        return Types.MAP(_type_of(data_type.keyType), _type_of(data_type.valueType))
    if name == "struct":
        return type_of_schema(data_type)
    return Types.PICKLED_BYTE_ARRAY()
