"""The row type that a JSON schema describes, by the rules that Flink's JSON format has."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.errors import ConfigError
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["type_of_json_schema"]

_DEPTH = 64
_FORMATS = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}


def type_of_json_schema(text: str) -> TypeInformation:
    """The type behind a JSON schema.

    Objects are rows, arrays of one kind lists, arrays of several tuples; `number` is BIG_DEC, `integer`
    BIG_INT, strings with the format `date`, `time` or `date-time` are that, those in base64 bytes.

    Raises:
        ConfigError: It is no JSON schema, or uses what no type stands for.
    """
    try:
        root = msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError) as exc:
        raise ConfigError(f"This is no JSON schema: {exc}.") from exc
    return _type_of("<root>", root, root, 0)


def _type_of(name: str, node: Any, root: Any, depth: int) -> TypeInformation:
    if not isinstance(node, dict) or depth > _DEPTH:
        raise ConfigError(f"The JSON schema of {name} is no object, or contains itself: {node!r}.")
    if "$ref" in node:
        return _type_of(name, _resolved(node["$ref"], root), root, depth + 1)
    if "oneOf" in node:
        return _type_of(
            name, _only([one for one in node["oneOf"] if one != {"type": "null"}], name), root, depth + 1
        )
    kind = node.get("type")
    if isinstance(kind, list):
        kind = _only([one for one in kind if one != "null"], name)
    match kind:
        case "object":
            return _object_type(node, root, depth)
        case "array":
            return _array_type(name, node, root, depth)
        case "string":
            return _string_type(node)
        case "boolean":
            return Types.BOOLEAN()
        case "number":
            return Types.BIG_DEC()
        case "integer":
            return Types.BIG_INT()
    raise ConfigError(f"The JSON schema of {name} has the type {kind!r}, for which there is no type of ours.")


def _object_type(node: dict[str, Any], root: Any, depth: int) -> TypeInformation:
    properties = node.get("properties", {})
    types = [_type_of(key, value, root, depth + 1) for key, value in properties.items()]
    return Types.ROW_NAMED(list(properties), types)


def _array_type(name: str, node: dict[str, Any], root: Any, depth: int) -> TypeInformation:
    items = node.get("items")
    if isinstance(items, list):
        if node.get("additionalItems"):
            raise ConfigError(
                f"The array {name} may have any number of other items; no row type stands for it."
            )
        return Types.TUPLE([_type_of(f"{name}[{at}]", one, root, depth + 1) for at, one in enumerate(items)])
    return Types.OBJECT_ARRAY(_type_of(f"{name}[]", items, root, depth + 1))


def _string_type(node: dict[str, Any]) -> TypeInformation:
    if node.get("contentEncoding") == "base64":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    return _FORMATS.get(str(node.get("format")), Types.STRING)()


def _only(choices: list[Any], name: str) -> Any:
    if len(choices) != 1:
        raise ConfigError(f"The JSON schema of {name} allows several types; only one and null are possible.")
    return choices[0]


def _resolved(reference: str, root: Any) -> Any:
    node = root
    steps = str(reference).removeprefix("#").strip("/").split("/")
    if not str(reference).startswith("#"):
        raise ConfigError(
            f"The JSON schema refers to {reference!r}; only references inside it (#/…) are possible."
        )
    for step in steps:
        node = node.get(step) if isinstance(node, dict) and step else None
    if node is None:
        raise ConfigError(f"The JSON schema refers to {reference!r}, which it does not contain.")
    return node
