"""How values look when a stream is printed: Java's look for typed values, Python's for untyped ones."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from typing import Any

from tidemark.types.row import Row, RowKind
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
    TupleTypeInfo,
    TypeInformation,
)

__all__ = ["text_of"]

_ARRAYS = (ListTypeInfo, PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo)
_FLOAT = struct.Struct(">f")
_EPOCH = datetime.datetime(1970, 1, 1)


def text_of(value: Any, type_info: TypeInformation | None = None) -> str:
    """Return the line `print` writes for `value` in a stream of type `type_info`.

    Without a type, and for pickled values, dataclasses, Avro records and custom serializers, this is
    `str(value)`.
    """
    if isinstance(type_info, RowTypeInfo) and value is not None:
        kind = value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT
        return f"{kind}[{','.join([str(field) for field in value])}]"
    return _java_text(value, type_info)


def _java_text(value: Any, type_info: TypeInformation | None) -> str:
    if isinstance(type_info, BasicTypeInfo):
        return "null" if value is None else _BASIC.get(type_info.basic_type, str)(value)
    if isinstance(type_info, TupleTypeInfo) and value is not None:
        fields = zip(value, type_info.get_field_types(), strict=False)
        return f"({','.join([_nested(field, field_type) for field, field_type in fields])})"
    if isinstance(type_info, _ARRAYS) and value is not None:
        items = [byte - 256 if byte > 127 else byte for byte in value] if _is_bytes(value) else value
        return f"[{', '.join([_nested(item, type_info.element_type) for item in items])}]"
    if isinstance(type_info, MapTypeInfo) and value is not None:
        pairs = [
            f"{_nested(key, type_info.key_type)}={_nested(item, type_info.value_type)}"
            for key, item in value.items()
        ]
        return f"{{{', '.join(pairs)}}}"
    return str(value)


def _nested(value: Any, type_info: TypeInformation) -> str:
    return "null" if value is None else text_of(value, type_info)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray))


def _boolean_text(value: Any) -> str:
    return "true" if value else "false"


def _double_text(value: Any) -> str:
    return _number_text(float(value), repr(float(value)))


def _float_text(value: Any) -> str:
    number = float(value)
    if math.isnan(number) or math.isinf(number):
        return _number_text(number, "")
    packed = _FLOAT.pack(number)
    # Nine significant digits always identify a single-precision number; usually fewer do.
    for digits in range(1, 10):
        shortest = f"{number:.{digits}g}"
        if _FLOAT.pack(float(shortest)) == packed:
            break
    return _number_text(number, repr(float(shortest)))


def _number_text(number: float, shortest: str) -> str:
    """Write `shortest` (Python's form) as Java does: plain from 1e-3 to 1e7, else with an exponent."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return shortest
    mantissa, _, exponent = shortest.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    power = int(exponent or 0) + len(whole) - 1 - leading
    digits = digits.lstrip("0").rstrip("0") or "0"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _time_text(value: datetime.time) -> str:
    return value.strftime("%H:%M:%S")


def _timestamp_text(value: datetime.datetime) -> str:
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value.replace(microsecond=0, tzinfo=None).isoformat(' ')}.{fraction}"


def _instant_text(value: Instant) -> str:
    try:
        moment = _EPOCH + datetime.timedelta(seconds=value.seconds)
    except OverflowError:
        return str(value)
    fraction = f"{value.nanos:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{moment.isoformat()}{'.' + fraction if fraction else ''}Z"


_BASIC: dict[BasicType, Callable[[Any], str]] = {
    BasicType.BOOLEAN: _boolean_text,
    BasicType.FLOAT: _float_text,
    BasicType.DOUBLE: _double_text,
    BasicType.SQL_TIME: _time_text,
    BasicType.SQL_TIMESTAMP: _timestamp_text,
    BasicType.INSTANT: _instant_text,
}
