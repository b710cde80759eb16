"""Schemas of single messages: what a connector such as Kafka reads and writes, and what a row-format file appends.

A schema is plain data that travels to tasks. Whoever has many messages at hand calls the batch forms, which
formats override where they can do better than one message after the other.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tidemark.errors import ConfigError, SerializationError
from tidemark.types.text import text_of
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
    "known_charset",
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
    """Turns elements into messages."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """The bytes of an element.

        Raises:
            SerializationError: The element does not fit the schema.
        """

    def serialize_batch(self, elements: Sequence[Any]) -> list[bytes]:
        """The bytes of each element, in order."""
        return list(map(self.serialize, elements))


class DeserializationSchema(ABC):
    """Turns messages into elements."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """The element behind a message; None for a message that is to be left out.

        Raises:
            SerializationError: The message does not follow the schema.
        """

    def deserialize_batch(self, messages: Sequence[bytes]) -> list[Any]:
        """The element behind each message, in order; None where one is to be left out."""
        return list(map(self.deserialize, messages))

    def get_produced_type(self) -> TypeInformation | None:
        """Type of the elements; None: pickled."""
        return None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in some charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = known_charset(charset)

    def serialize(self, element: Any) -> bytes:
        """Encode text."""
        return str(element).encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        """Decode text."""
        try:
            return message.decode(self.charset)
        except UnicodeDecodeError as exc:
            raise SerializationError(f"A message is no text in {self.charset}: {exc}.") from exc

    def get_produced_type(self) -> TypeInformation:
        """`Types.STRING()`."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, element: Any) -> bytes:
        """The bytes."""
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """The bytes."""
        return bytes(message)

    def get_produced_type(self) -> TypeInformation:
        """`Types.PRIMITIVE_ARRAY(Types.BYTE())`."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row that holds bytes already: the key, or the value, of a message."""

    def __init__(self, field_index: int) -> None:
        """Take the field at `field_index`, counted from 0.

        Raises:
            ValueError: A negative index (`ConfigError`).
        """
        if isinstance(field_index, bool) or not isinstance(field_index, int) or field_index < 0:
            raise ConfigError(f"Field index must be non-negative, got: {field_index!r}.")
        self.field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """The bytes of the field; none for None, and for None instead of a row."""
        if element is None:
            return b""
        try:
            value = element[self.field_index]
        except (IndexError, TypeError) as exc:
            raise SerializationError(f"There is no field {self.field_index} in {element!r}.") from exc
        if value is None:
            return b""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(
                f"Field {self.field_index} must hold bytes, not {value!r}: make it so in a map() in front of the sink."
            )
        return bytes(value)


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
