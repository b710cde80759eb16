"""Rows as JSON objects."""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.json_schema import type_of_json_schema
from tidemark.formats.schemas import DeserializationSchema, SerializationSchema
from tidemark.formats.values import (
    base64_bytes,
    base64_text,
    format_value,
    is_byte_array,
    parse_value,
    unsupported,
)
from tidemark.types.row import row_of
from tidemark.types.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

_ARRAYS = (ListTypeInfo, PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo)
_INTEGERS = {BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT}
_TEXTS = {
    BasicType.CHAR,
    BasicType.SQL_DATE,
    BasicType.SQL_TIME,
    BasicType.SQL_TIMESTAMP,
    BasicType.INSTANT,
}
_Convert = Callable[[Any], Any]


class JsonRowDeserializationSchema(DeserializationSchema):
    """JSON objects as rows: properties are matched with fields by name, unknown ones are left out."""

    def __init__(
        self, type_info: RowTypeInfo, *, fail_on_missing_field: bool, ignore_parse_errors: bool
    ) -> None:
        self._type = type_info
        self._fail_on_missing_field = fail_on_missing_field
        self._ignore_parse_errors = ignore_parse_errors

    @staticmethod
    def builder() -> Builder:
        """Start a schema."""
        return JsonRowDeserializationSchema.Builder()

    def get_produced_type(self) -> TypeInformation:
        """The row type."""
        return self._type

    @functools.cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        # Numbers with a fraction arrive exactly; what is to be a double is made one by its field.
        return msgspec.json.Decoder(float_hook=decimal.Decimal).decode

    @functools.cached_property
    def _convert(self) -> _Convert:
        return _reader(self._type, fail_on_missing=self._fail_on_missing_field)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_decode", "_convert")}

    def deserialize(self, message: bytes) -> Any:
        """The row behind a JSON object; None for `null`, and for a bad one if errors are ignored."""
        try:
            node = self._decode(message)
            return None if node is None else self._convert(node)
        except (msgspec.DecodeError, ValueError, TypeError, ArithmeticError, RecursionError) as exc:
            if self._ignore_parse_errors:
                return None
            raise SerializationError(
                f"A message is no JSON of {self._type!r}: {exc}. It begins with {bytes(message[:100])!r}. To "
                "leave such messages out, build the schema with ignore_parse_errors()."
            ) from exc

    class Builder:
        """Collects the settings; every method returns the builder."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Read rows of this type; its field names are the names of properties."""
            self._type = row_type(type_info, "type_info")
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Read rows of the type that a JSON schema describes.

            Raises:
                ConfigError: The text is no JSON schema of an object, or uses what no type stands for.
            """
            self._type = row_type(type_of_json_schema(json_schema), "json_schema")
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Refuse objects without one of the properties, whose field would else be None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Leave out messages that are no such objects instead of failing."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The finished schema.

            Raises:
                ConfigError: No type, or both switches, which contradict each other.
            """
            if self._type is None:
                raise ConfigError("A JSON schema needs type_info() or json_schema().")
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise ConfigError("fail_on_missing_field() and ignore_parse_errors() exclude each other.")
            _reader(self._type, fail_on_missing=False)
            return JsonRowDeserializationSchema(
                self._type,
                fail_on_missing_field=self._fail_on_missing_field,
                ignore_parse_errors=self._ignore_parse_errors,
            )


class JsonRowSerializationSchema(SerializationSchema):
    """Rows as JSON objects, a property per field."""

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type = type_info

    @staticmethod
    def builder() -> Builder:
        """Start a schema."""
        return JsonRowSerializationSchema.Builder()

    @functools.cached_property
    def _encode(self) -> Callable[[Any], bytes]:
        return msgspec.json.Encoder(decimal_format="number").encode

    @functools.cached_property
    def _convert(self) -> _Convert:
        return _writer(self._type)

    def __getstate__(self) -> dict[str, Any]:
        return {"_type": self._type}

    def serialize(self, element: Any) -> bytes:
        """The JSON object of a row."""
        try:
            return self._encode(self._convert(element))
        except (TypeError, ValueError, AttributeError, LookupError, msgspec.MsgspecError) as exc:
            raise SerializationError(f"{element!r} does not fit {self._type!r}: {exc}.") from exc

    class Builder:
        """Collects the settings; every method returns the builder."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Write rows of this type; its field names become the names of properties."""
            self._type = row_type(type_info, "type_info")
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The finished schema.

            Raises:
                ConfigError: No type.
            """
            if self._type is None:
                raise ConfigError("A JSON schema needs with_type_info().")
            _writer(self._type)
            return JsonRowSerializationSchema(self._type)


def row_type(type_info: Any, name: str) -> RowTypeInfo:
    """`type_info`, if it is a row type.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(type_info, RowTypeInfo):
        raise TypeError(f"{name} must describe rows (Types.ROW_NAMED), not {type_info!r}.")
    return type_info


# From JSON


def _reader(type_info: TypeInformation, *, fail_on_missing: bool) -> _Convert:
    """What makes a value of a type from a JSON node that is not null."""
    if isinstance(type_info, BasicTypeInfo):
        return _basic_reader(type_info.basic_type)
    if is_byte_array(type_info):
        return lambda node: base64_bytes(_expect(node, str))
    nested = functools.partial(_reader, fail_on_missing=fail_on_missing)
    if isinstance(type_info, RowTypeInfo):
        fields = [(name, nested(kind)) for name, kind in _fields(type_info)]
        return functools.partial(_read_row, fields, tuple(type_info.get_field_names()), fail_on_missing)
    if isinstance(type_info, TupleTypeInfo):
        return functools.partial(_read_tuple, [nested(kind) for kind in type_info.get_field_types()])
    if isinstance(type_info, _ARRAYS):
        return functools.partial(_read_list, nested(type_info.element_type))
    if isinstance(type_info, MapTypeInfo):
        keys, values = nested(type_info.key_type), nested(type_info.value_type)
        return lambda node: {
            keys(key): None if value is None else values(value) for key, value in _expect(node, dict).items()
        }
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda node: node
    raise unsupported("JSON", type_info)


def _basic_reader(basic: BasicType) -> _Convert:
    parse = parse_value(basic)
    if basic is BasicType.STRING:
        return _text
    if basic is BasicType.BOOLEAN:
        return lambda node: node if isinstance(node, bool) else parse(_expect(node, str))
    if basic in _TEXTS:
        return lambda node: parse(_expect(node, str))
    if basic in _INTEGERS:
        return _integer
    return lambda node: parse(_number(node))


def _text(node: Any) -> str:
    """Text as it is, anything else as JSON writes it."""
    return node if isinstance(node, str) else msgspec.json.encode(node).decode()


def _integer(node: Any) -> int:
    if type(node) is int:
        return node
    if isinstance(node, decimal.Decimal) and node == node.to_integral_value():
        return int(node)
    return int(_expect(node, str))


def _number(node: Any) -> Any:
    if isinstance(node, bool) or not isinstance(node, int | float | decimal.Decimal | str):
        raise ValueError(f"no number: {node!r}")
    return node


def _expect(node: Any, kind: type) -> Any:
    if not isinstance(node, kind):
        raise ValueError(f"expected {kind.__name__}, found {node!r}")
    return node


def _read_row(
    fields: list[tuple[str, _Convert]], names: tuple[str, ...], fail_on_missing: bool, node: Any
) -> Any:
    _expect(node, dict)
    if fail_on_missing:
        for name in names:
            if name not in node:
                raise ValueError(f"there is no property {name!r}")
    get = node.get
    values = [None if (value := get(name)) is None else convert(value) for name, convert in fields]
    return row_of(values, names)


def _read_tuple(converts: list[_Convert], node: Any) -> tuple[Any, ...]:
    items = zip(converts, _expect(node, list), strict=True)
    return tuple([None if item is None else convert(item) for convert, item in items])


def _read_list(convert: _Convert, node: Any) -> list[Any]:
    return [None if item is None else convert(item) for item in _expect(node, list)]


def _fields(type_info: RowTypeInfo) -> list[tuple[str, TypeInformation]]:
    return list(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))


# To JSON


def _writer(type_info: TypeInformation) -> _Convert:
    """What makes, of a value of a type, something `msgspec` can write."""
    if isinstance(type_info, BasicTypeInfo):
        return _basic_writer(type_info.basic_type)
    if is_byte_array(type_info):
        return _or_none(base64_text)
    if isinstance(type_info, RowTypeInfo):
        names = type_info.get_field_names()
        return _or_none(
            functools.partial(_write_row, names, [_writer(kind) for _, kind in _fields(type_info)])
        )
    if isinstance(type_info, TupleTypeInfo):
        return _or_none(
            functools.partial(_write_items, [_writer(kind) for kind in type_info.get_field_types()])
        )
    if isinstance(type_info, _ARRAYS):
        element = _writer(type_info.element_type)
        return _or_none(lambda value: [element(item) for item in value])
    if isinstance(type_info, MapTypeInfo):
        keys, values = _writer(type_info.key_type), _writer(type_info.value_type)
        return _or_none(lambda value: {keys(key): values(item) for key, item in value.items()})
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda value: value
    raise unsupported("JSON", type_info)


def _basic_writer(basic: BasicType) -> _Convert:
    if basic is BasicType.SQL_TIMESTAMP:
        text = format_value(basic)
        # RFC 3339, in UTC.
        return _or_none(lambda value: text(value) + "Z")
    if basic in _TEXTS:
        return _or_none(format_value(basic))
    if basic is BasicType.STRING:
        return _or_none(str)
    if basic is BasicType.BIG_DEC:
        return _or_none(decimal.Decimal)
    return _plain_number


def _plain_number(value: Any) -> Any:
    if value is not None and not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


def _or_none(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _write_row(names: list[str], converts: list[_Convert], row: Any) -> dict[str, Any]:
    values = [row[name] for name in names] if isinstance(row, dict) else row
    return dict(zip(names, _write_items(converts, values), strict=True))


def _write_items(converts: list[_Convert], values: Any) -> list[Any]:
    return [convert(value) for convert, value in zip(converts, values, strict=True)]
