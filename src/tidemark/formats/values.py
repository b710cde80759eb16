"""Single values as text: what JSON strings and CSV cells hold of dates, times and numbers."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
from collections.abc import Callable
from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.time import Instant
from tidemark.types.typeinfo import BasicType, PrimitiveArrayTypeInfo, TypeInformation, Types

__all__ = ["base64_bytes", "base64_text", "format_value", "is_byte_array", "parse_value", "unsupported"]

_EPOCH = datetime.datetime(1970, 1, 1)


def is_byte_array(type_info: TypeInformation) -> bool:
    """Whether a type is `bytes`."""
    return isinstance(type_info, PrimitiveArrayTypeInfo) and type_info.element_type == Types.BYTE()


def base64_bytes(text: str) -> bytes:
    """The bytes behind base64.

    Raises:
        ValueError: It is none.
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError(f"no base64: {exc}") from exc


def base64_text(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(bytes(data)).decode("ascii")


def parse_value(basic: BasicType) -> Callable[[str], Any]:
    """What makes a value of a basic type from text; it raises `ValueError` or `ArithmeticError`."""
    return _PARSE[basic]


def format_value(basic: BasicType) -> Callable[[Any], str]:
    """What makes text from a value of a basic type."""
    return _FORMAT.get(basic, str)


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"neither true nor false: {text!r}")
    return lowered == "true"


def _char(text: str) -> str:
    if len(text) != 1:
        raise ValueError(f"not one character: {text!r}")
    return text


def _moment(text: str) -> datetime.datetime:
    """A time stamp, `T` or a space in the middle; one with a time zone becomes UTC."""
    moment = datetime.datetime.fromisoformat(text.strip())
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment


def _time(text: str) -> datetime.time:
    return datetime.time.fromisoformat(text.strip()).replace(tzinfo=None)


def _instant(text: str) -> Instant:
    since = _moment(text) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def _instant_text(value: Instant) -> str:
    return (
        _moment_text(_EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000))
        + "Z"
    )


def _moment_text(value: datetime.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat("T", "microseconds")
    # Milliseconds where they say all.
    return text[:-3] if text.endswith("000") else text


_PARSE: dict[BasicType, Callable[[str], Any]] = {
    BasicType.STRING: str,
    BasicType.CHAR: _char,
    BasicType.BOOLEAN: _boolean,
    **dict.fromkeys((BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT), int),
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.BIG_DEC: decimal.Decimal,
    BasicType.SQL_DATE: lambda text: datetime.date.fromisoformat(text.strip()),
    BasicType.SQL_TIME: _time,
    BasicType.SQL_TIMESTAMP: _moment,
    BasicType.INSTANT: _instant,
}

_FORMAT: dict[BasicType, Callable[[Any], str]] = {
    BasicType.BOOLEAN: lambda value: "true" if value else "false",
    BasicType.SQL_DATE: lambda value: value.isoformat(),
    BasicType.SQL_TIME: lambda value: value.isoformat(),
    BasicType.SQL_TIMESTAMP: _moment_text,
    BasicType.INSTANT: _instant_text,
}


def unsupported(what: str, type_info: TypeInformation) -> ConfigError:
    """The error for a type that a format cannot hold."""
    return ConfigError(
        f"{what} cannot hold {type_info!r}. Use basic types, rows, lists, maps and byte arrays."
    )
