"""Between Avro records, which are dictionaries, and rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.avro import AvroSchema
from tidemark.types.row import row_of
from tidemark.types.typeinfo import RowTypeInfo, TypeInformation, Types

__all__ = ["record_of_row", "row_of_record", "row_type_of_schema"]

_Convert = Callable[[Any], Any]
_PRIMITIVES: dict[str, Callable[[], TypeInformation]] = {
    "string": Types.STRING,
    "boolean": Types.BOOLEAN,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "bytes": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "fixed": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "enum": Types.STRING,
}
_LOGICAL: dict[str, Callable[[], TypeInformation]] = {
    "date": Types.SQL_DATE,
    "time-millis": Types.SQL_TIME,
    "time-micros": Types.SQL_TIME,
    "timestamp-millis": Types.SQL_TIMESTAMP,
    "timestamp-micros": Types.SQL_TIMESTAMP,
    "local-timestamp-millis": Types.SQL_TIMESTAMP,
    "local-timestamp-micros": Types.SQL_TIMESTAMP,
    "decimal": Types.BIG_DEC,
}
_INSTANTS = ("timestamp-millis", "timestamp-micros")
"""In records these have a time zone; in rows, which cannot hold one, they are in UTC."""


def row_type_of_schema(schema: AvroSchema) -> RowTypeInfo:
    """The row type that an Avro record describes.

    Raises:
        ConfigError: The schema is no record's.
    """
    names: dict[str, Any] = {}
    node = schema.document
    if not isinstance(node, dict) or node.get("type") != "record":
        raise ConfigError(f"Rows need the Avro schema of a record, not {schema}.")
    found = _Types(names).of(node)
    assert isinstance(found, RowTypeInfo)
    return found


def row_of_record(schema: AvroSchema) -> _Convert:
    """What makes a row of a record's dictionary; records inside become rows, too."""
    convert: _Convert = _Converters(to_rows=True).of(schema.document)
    return convert


def record_of_row(schema: AvroSchema) -> _Convert:
    """What makes a dictionary of a row; fields are taken by position, from dictionaries by name."""
    convert: _Convert = _Converters(to_rows=False).of(schema.document)
    return convert


def _branch(union: list[Any]) -> Any:
    """The one branch of a union beside null; None if there are several."""
    branches = [one for one in union if one != "null"]
    return branches[0] if len(branches) == 1 else None


class _Types:
    """Types of schemas; named ones are known from where they were first seen."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def of(self, node: Any) -> TypeInformation:
        if isinstance(node, list):
            only = _branch(node)
            return Types.PICKLED_BYTE_ARRAY() if only is None else self.of(only)
        if isinstance(node, str):
            return _PRIMITIVES[node]() if node in _PRIMITIVES else self._named(node)
        if isinstance(node.get("type"), dict | list):
            return self.of(node["type"])
        kind, logical = node["type"], node.get("logicalType")
        if logical in _LOGICAL:
            return _LOGICAL[logical]()
        if kind == "array":
            return Types.LIST(self.of(node["items"]))
        if kind == "map":
            return Types.MAP(Types.STRING(), self.of(node["values"]))
        if kind == "record":
            fields = node["fields"]
            found: TypeInformation = Types.ROW_NAMED(
                [one["name"] for one in fields], [self.of(one["type"]) for one in fields]
            )
        else:
            found = self.of(kind)
        self._remember(node, found)
        return found

    def _remember(self, node: dict[str, Any], found: Any) -> None:
        if "name" in node:
            self._names[str(node["name"]).rpartition(".")[2]] = found

    def _named(self, name: str) -> Any:
        short = name.rpartition(".")[2]
        if short not in self._names:
            raise ConfigError(f"The Avro type {name!r} is unknown, or contains itself; rows cannot.")
        return self._names[short]


class _Converters(_Types):
    """The same walk, which gives functions instead of types."""

    def __init__(self, *, to_rows: bool) -> None:
        super().__init__({})
        self._to_rows = to_rows

    def of(self, node: Any) -> Any:
        if isinstance(node, list):
            only = _branch(node)
            return _same if only is None else self.of(only)
        if isinstance(node, str):
            return _same if node in _PRIMITIVES else self._named(node)
        if isinstance(node.get("type"), dict | list):
            return self.of(node["type"])
        if node.get("logicalType") in _INSTANTS:
            return _without_zone if self._to_rows else _in_utc
        match node["type"]:
            case "array":
                return _each(self.of(node["items"]))
            case "map":
                return _each_value(self.of(node["values"]))
            case "record":
                names = tuple([one["name"] for one in node["fields"]])
                fields = [self.of(one["type"]) for one in node["fields"]]
                found = _to_row(names, fields) if self._to_rows else _to_record(names, fields)
                self._remember(node, found)
                return found
        self._remember(node, _same)
        return _same


def _same(value: Any) -> Any:
    return value


def _without_zone(value: Any) -> Any:
    return None if value is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _in_utc(value: Any) -> Any:
    return None if value is None else value.replace(tzinfo=value.tzinfo or datetime.UTC)


def _each(convert: _Convert) -> _Convert:
    if convert is _same:
        return _same
    return lambda value: None if value is None else [convert(item) for item in value]


def _each_value(convert: _Convert) -> _Convert:
    if convert is _same:
        return _same
    return lambda value: None if value is None else {key: convert(item) for key, item in value.items()}


def _to_row(names: tuple[str, ...], fields: list[_Convert]) -> _Convert:
    pairs = list(zip(names, fields, strict=True))
    return lambda record: (
        None if record is None else row_of([convert(record[name]) for name, convert in pairs], names)
    )


def _to_record(names: tuple[str, ...], fields: list[_Convert]) -> _Convert:
    def convert(row: Any) -> Any:
        if row is None:
            return None
        values = [row[name] for name in names] if isinstance(row, dict) else row
        items = zip(names, fields, values, strict=True)
        return {name: change(value) for name, change, value in items}

    return convert
