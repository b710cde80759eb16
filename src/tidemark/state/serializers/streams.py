"""Binary streams with a few typed reads and writes, as serializers and their snapshots use them.

Numbers are big-endian: int is 4 bytes, long 8, double 8 (IEEE 754), boolean 1. Text and byte strings
carry their length in front as an int.
"""

from __future__ import annotations

import io
import struct
from typing import Any, BinaryIO

from tidemark.errors import SerializationError

__all__ = ["DataInputView", "DataOutputView"]

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


class DataOutputView:
    """A binary stream to write to: any file-like object, or a buffer of its own if none is given."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream: Any = io.BytesIO() if stream is None else stream
        self.write = self._stream.write

    def write_int(self, value: int) -> None:
        """Write a signed 32-bit integer.

        Raises:
            SerializationError: The value does not fit.
        """
        self.write(_packed(_INT, value))

    def write_long(self, value: int) -> None:
        """Write a signed 64-bit integer.

        Raises:
            SerializationError: The value does not fit.
        """
        self.write(_packed(_LONG, value))

    def write_double(self, value: float) -> None:
        """Write a double-precision number."""
        self.write(_packed(_DOUBLE, value))

    def write_boolean(self, value: bool) -> None:
        """Write one byte, 1 for true and 0 for false."""
        self.write(b"\x01" if value else b"\x00")

    def write_utf(self, value: str) -> None:
        """Write a text with its length."""
        self.write_bytes(value.encode("utf-8", "surrogatepass"))

    def write_bytes(self, value: bytes) -> None:
        """Write a byte string with its length."""
        self.write_int(len(value))
        self.write(value)

    def getvalue(self) -> bytes:
        """Return everything written so far; only for a view that has its own buffer or wraps one."""
        return bytes(self._stream.getvalue())

    def flush(self) -> None:
        """Flush the stream underneath."""
        self._stream.flush()


class DataInputView:
    """A binary stream to read from: any file-like object, or a byte string."""

    def __init__(self, source: BinaryIO | bytes | bytearray | memoryview) -> None:
        self._stream: BinaryIO = (
            io.BytesIO(source) if isinstance(source, (bytes, bytearray, memoryview)) else source
        )
        self.read = self._stream.read
        self.readline = self._stream.readline

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer and return how many bytes went in."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_fully(self, length: int) -> bytes:
        """Return exactly `length` bytes.

        Raises:
            SerializationError: The stream ends before.
        """
        data = self.read(length)
        if len(data) != length:
            raise SerializationError(f"The stream ended: {length} bytes were expected, {len(data)} are left.")
        return data

    def read_int(self) -> int:
        """Return the next signed 32-bit integer."""
        return int(_INT.unpack(self.read_fully(4))[0])

    def read_long(self) -> int:
        """Return the next signed 64-bit integer."""
        return int(_LONG.unpack(self.read_fully(8))[0])

    def read_double(self) -> float:
        """Return the next double-precision number."""
        return float(_DOUBLE.unpack(self.read_fully(8))[0])

    def read_boolean(self) -> bool:
        """Return what `write_boolean` wrote.

        Raises:
            SerializationError: The next byte is neither 0 nor 1.
        """
        byte = self.read_fully(1)
        if byte not in (b"\x00", b"\x01"):
            raise SerializationError(f"A boolean is byte 00 or 01, got {byte!r}.")
        return byte == b"\x01"

    def read_utf(self) -> str:
        """Return the next text.

        Raises:
            SerializationError: The bytes are no UTF-8.
        """
        data = self.read_bytes()
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as exc:
            raise SerializationError(f"These bytes are no text: {data[:64]!r}") from exc

    def read_bytes(self) -> bytes:
        """Return the next byte string."""
        return self.read_fully(self.read_int())


def _packed(codec: struct.Struct, value: Any) -> bytes:
    try:
        return codec.pack(value)
    except struct.error as exc:
        raise SerializationError(f"{value!r} does not fit in {codec.size} bytes: {exc}") from exc
