"""How elements become bytes outside of the job: encoders of file sinks and schemas of connectors."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.text import text_of
from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
]


class Encoder(ABC):
    """Turns one element into the bytes that a row-format file sink appends."""

    @abstractmethod
    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """The bytes, including whatever separates elements."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> SimpleStringEncoder:
        """One line per element, text as `print` shows it."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """One line per element."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        self.charset = known_charset(charset_name)

    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """The text of the element and a line feed."""
        return (text_of(element, type_info) + "\n").encode(self.charset)


class SerializationSchema(ABC):
    """Turns elements into bytes."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """The bytes of an element."""


class DeserializationSchema(ABC):
    """Turns bytes into elements."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """The element behind the bytes."""


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in some charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = known_charset(charset)

    def serialize(self, element: Any) -> bytes:
        """Encode text."""
        return str(element).encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        """Decode text."""
        return message.decode(self.charset)


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, element: Any) -> bytes:
        """The bytes."""
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """The bytes."""
        return bytes(message)


def known_charset(name: str) -> str:
    """`name`, if Python knows the charset.

    Raises:
        ConfigError: It does not.
    """
    try:
        codecs.lookup(name)
    except LookupError as exc:
        raise ConfigError(f"Unknown charset {name!r}.") from exc
    return name
