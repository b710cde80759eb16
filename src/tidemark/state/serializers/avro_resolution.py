"""Avro's schema resolution rules: can data of one schema be read as another?

Works on the parsed form of fastavro, in which every name is complete with its namespace. Stricter than Avro
in one point: a record keeps its name, even where an alias would allow another.
"""

from __future__ import annotations

from typing import Any

__all__ = ["can_read", "same_shape"]

_PROMOTIONS: dict[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_UNSTORED = frozenset({"doc", "aliases", "default", "order", "__fastavro_parsed__", "__named_schemas__"})


def same_shape(first: Any, second: Any) -> bool:
    """Whether two schemas differ in documentation, aliases and defaults at most."""
    return bool(_shape(first) == _shape(second))


def _shape(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_shape(branch) for branch in schema]
    if isinstance(schema, dict):
        shape = {key: _shape(value) for key, value in schema.items() if key not in _UNSTORED}
        return shape["type"] if shape.keys() == {"type"} else shape
    return schema


def can_read(writer: Any, reader: Any) -> bool:
    """Whether everything written with `writer` can be read with `reader`."""
    return _Resolver(writer, reader).matches(writer, reader)


class _Resolver:
    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer_names: dict[str, Any] = {}
        self._reader_names: dict[str, Any] = {}
        _collect(writer, self._writer_names)
        _collect(reader, self._reader_names)
        self._assumed: set[tuple[str, str]] = set()

    def matches(self, writer: Any, reader: Any) -> bool:
        writer = _definition(writer, self._writer_names)
        reader = _definition(reader, self._reader_names)
        if isinstance(writer, list):
            return all([self.matches(branch, reader) for branch in writer])
        if isinstance(reader, list):
            return any([self.matches(writer, branch) for branch in reader])
        kind, other = _kind(writer), _kind(reader)
        if kind != other:
            return other in _PROMOTIONS.get(kind, ())
        if kind in ("record", "error"):
            return self._records_match(writer, reader)
        if kind == "enum":
            missing = set(writer["symbols"]) - set(reader["symbols"])
            return _same_name(writer, reader) and (not missing or "default" in reader)
        if kind == "fixed":
            return _same_name(writer, reader) and bool(writer["size"] == reader["size"])
        if kind == "array":
            return self.matches(writer["items"], reader["items"])
        if kind == "map":
            return self.matches(writer["values"], reader["values"])
        return True

    def _records_match(self, writer: Any, reader: Any) -> bool:
        if writer["name"] != reader["name"]:
            return False
        pair = (writer["name"], reader["name"])
        if pair in self._assumed:
            # A record inside itself: it matches if the rest does.
            return True
        self._assumed.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            if source is None:
                if "default" not in field:
                    return False
            elif not self.matches(source["type"], field["type"]):
                return False
        return True


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _same_name(writer: Any, reader: Any) -> bool:
    return writer["name"] == reader["name"] or writer["name"] in reader.get("aliases", ())


def _definition(schema: Any, names: dict[str, Any]) -> Any:
    """Follow references to named types, and `{"type": {...}}` wrappers."""
    while True:
        if isinstance(schema, str) and schema in names:
            schema = names[schema]
        elif isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            schema = schema["type"]
        else:
            return schema


def _collect(schema: Any, names: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, names)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "error", "enum", "fixed"):
            names[schema["name"]] = schema
        for field in schema.get("fields", ()):
            _collect(field["type"], names)
        for inner in ("items", "values", "type"):
            if isinstance(schema.get(inner), (dict, list)):
                _collect(schema[inner], names)
