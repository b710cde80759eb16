"""Serializers of numbers, booleans, text and raw bytes.

Encodings, version 1 (integers big-endian, two's complement)::

    BOOLEAN  u8, 0 or 1          FLOAT   IEEE 754 single, 4 bytes
    BYTE     i8                  DOUBLE  IEEE 754 double, 8 bytes
    SHORT    i16                 STRING  UTF-8; None is the single byte FF, which UTF-8 never uses
    INT      i32                 CHAR    UTF-8 of one code point
    LONG     i64                 BIG_INT fewest bytes that hold the value, at least one; None is empty
    BYTES    as they are         BIG_DEC ASCII of str(Decimal); None is empty

Text may hold lone surrogates; they are encoded as UTF-8 would encode the code point.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, ClassVar

from tidemark.errors import SerializationError
from tidemark.state.serializers.leaf import LeafSerializer, misfit

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BigDecSerializer",
    "BigIntSerializer",
    "BooleanSerializer",
    "ByteSerializer",
    "BytesSerializer",
    "CharSerializer",
    "DoubleSerializer",
    "FloatSerializer",
    "IntSerializer",
    "LongSerializer",
    "ShortSerializer",
    "StringSerializer",
]

_NULL_TEXT = b"\xff"


class _IntegerSerializer(LeafSerializer[int]):
    """Integers of a fixed number of bits."""

    bits: ClassVar[int]
    codec: ClassVar[struct.Struct]
    exact = frozenset({int})

    def coerce(self, value: Any) -> int:
        """Accept whatever has an index (bool, numpy integers) and is in range."""
        needs = f"an integer of {self.bits} bits"
        try:
            number = operator.index(value)
        except TypeError:
            raise misfit(self.type_name, value, needs) from None
        if not -(1 << self.bits - 1) <= number < 1 << self.bits - 1:
            raise misfit(self.type_name, value, needs)
        return int(number)

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a range check."""
        low, high, coerce = -(1 << self.bits - 1), (1 << self.bits - 1) - 1, self.coerce

        def normalize(value: Any) -> int:
            if type(value) is int and low <= value <= high:
                return value
            return coerce(value)

        return normalize

    def to_bytes(self, value: int) -> bytes:
        """Return the big-endian form."""
        try:
            return self.codec.pack(value)
        except struct.error:
            return self.codec.pack(self.coerce(value))

    def from_bytes(self, data: bytes) -> int:
        """Return the integer."""
        try:
            number: int = self.codec.unpack(data)[0]
        except struct.error as exc:
            raise SerializationError(f"These bytes are no {self.type_name}: {data!r}") from exc
        return number

    def arrow_type(self) -> pa.DataType:
        """Return the signed integer type of that width."""
        import pyarrow as pa

        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[self.bits]


class ByteSerializer(_IntegerSerializer):
    """BYTE."""

    type_name = "BYTE"
    passes = "type({0}) is int and -0x80 <= {0} <= 0x7F"
    bits = 8
    fixed_width = 1
    struct_code = "b"
    codec = struct.Struct(">b")


class ShortSerializer(_IntegerSerializer):
    """SHORT."""

    type_name = "SHORT"
    passes = "type({0}) is int and -0x8000 <= {0} <= 0x7FFF"
    bits = 16
    fixed_width = 2
    struct_code = "h"
    codec = struct.Struct(">h")


class IntSerializer(_IntegerSerializer):
    """INT."""

    type_name = "INT"
    passes = "type({0}) is int and -0x80000000 <= {0} <= 0x7FFFFFFF"
    bits = 32
    fixed_width = 4
    struct_code = "i"
    codec = struct.Struct(">i")


_LONG = struct.Struct(">q")


class LongSerializer(_IntegerSerializer):
    """LONG; its hot methods avoid every lookup that the class does not need."""

    type_name = "LONG"
    # Numbers of one digit (of the interpreter's 30 bits) are compared in place.
    passes = (
        "type({0}) is int and ({0} < 0x3FFFFFFF and {0} > -0x3FFFFFFF "
        "or -0x8000000000000000 <= {0} <= 0x7FFFFFFFFFFFFFFF)"
    )
    bits = 64
    fixed_width = 8
    struct_code = "q"
    codec = _LONG

    def to_bytes(self, value: int, _pack: Callable[..., bytes] = _LONG.pack) -> bytes:
        """Return the big-endian form."""
        try:
            return _pack(value)
        except struct.error:
            return _pack(self.coerce(value))

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a range check."""
        coerce = self.coerce

        def normalize(value: Any) -> int:
            if type(value) is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
                return value
            return coerce(value)

        return normalize

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        try:
            return pa.array(np.fromiter(values, np.int64, len(values)))
        except TypeError:
            # None is among them.
            return super()._build(values)


class BooleanSerializer(LeafSerializer[bool]):
    """BOOLEAN."""

    type_name = "BOOLEAN"
    passes = "type({0}) is bool"
    fixed_width = 1
    exact = frozenset({bool})

    def coerce(self, value: Any) -> bool:
        """Accept numpy's boolean."""
        if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        raise misfit("BOOLEAN", value, "True or False")

    def to_bytes(self, value: bool) -> bytes:
        """Return one byte."""
        if value is True:
            return b"\x01"
        if value is False:
            return b"\x00"
        return b"\x01" if self.coerce(value) else b"\x00"

    def from_bytes(self, data: bytes) -> bool:
        """Return the boolean."""
        if data == b"\x01":
            return True
        if data == b"\x00":
            return False
        raise SerializationError(f"These bytes are no BOOLEAN: {data!r}")

    def arrow_type(self) -> pa.DataType:
        """Return the boolean type."""
        import pyarrow as pa

        return pa.bool_()


class _RealSerializer(LeafSerializer[float]):
    """Floating point of either precision. Not an identity key: 0.0 == -0.0 and NaN != NaN."""

    codec: ClassVar[struct.Struct]
    exact = frozenset({float})
    identity_key = False

    def coerce(self, value: Any) -> float:
        """Accept integers and whatever has a float value of its own (numpy), but no text."""
        if isinstance(value, (int, float)) or hasattr(value, "dtype"):
            try:
                return float(value)
            except (OverflowError, TypeError, ValueError):
                pass
        raise misfit(self.type_name, value, "a floating-point number")

    def to_bytes(self, value: float) -> bytes:
        """Return the IEEE 754 form."""
        try:
            return self.codec.pack(value)
        except (struct.error, OverflowError):
            return self._packed(self.coerce(value))

    def _packed(self, value: float) -> bytes:
        try:
            return self.codec.pack(value)
        except OverflowError:
            raise misfit(self.type_name, value, "a number within single precision") from None

    def from_bytes(self, data: bytes) -> float:
        """Return the number."""
        try:
            number: float = self.codec.unpack(data)[0]
        except struct.error as exc:
            raise SerializationError(f"These bytes are no {self.type_name}: {data!r}") from exc
        return number


class DoubleSerializer(_RealSerializer):
    """DOUBLE."""

    type_name = "DOUBLE"
    passes = "type({0}) is float"
    fixed_width = 8
    struct_code = "d"
    codec = struct.Struct(">d")

    def arrow_type(self) -> pa.DataType:
        """Return the double type."""
        import pyarrow as pa

        return pa.float64()


class FloatSerializer(_RealSerializer):
    """FLOAT: single precision, so a value read back may differ from the one written."""

    type_name = "FLOAT"
    fixed_width = 4
    struct_code = "f"
    codec = struct.Struct(">f")

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that rounds to single precision."""
        pack, unpack, slow = self.codec.pack, self.codec.unpack, self._rounded

        def normalize(value: Any) -> float:
            if type(value) is float:
                try:
                    number: float = unpack(pack(value))[0]
                except OverflowError:
                    return slow(value)
                return number
            return slow(value)

        return normalize

    def _rounded(self, value: Any) -> float:
        number: float = self.codec.unpack(self._packed(self.coerce(value)))[0]
        return number

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        column = pa.array(values, pa.float32())
        # Arrow turns numbers beyond single precision into infinity; the normaliser refuses them.
        if np.isinf(column.to_numpy(zero_copy_only=False)).any():
            return pa.array(self._normalized(values, True), pa.float32())
        return column

    def arrow_type(self) -> pa.DataType:
        """Return the single-precision type."""
        import pyarrow as pa

        return pa.float32()


class StringSerializer(LeafSerializer["str | None"]):
    """STRING."""

    type_name = "STRING"
    passes = "(type({0}) is str or {0} is None)"
    exact = frozenset({str})
    nullable = True

    def coerce(self, value: Any) -> str:
        """Accept subclasses of `str`."""
        if isinstance(value, str):
            return str.__str__(value)
        raise misfit("STRING", value, "a str or None")

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a type check."""
        coerce = self.coerce

        def normalize(value: Any) -> str | None:
            return value if type(value) is str or value is None else coerce(value)

        return normalize

    def to_bytes(self, value: str | None) -> bytes:
        """Return the UTF-8 form."""
        if type(value) is str:
            try:
                return value.encode()
            except UnicodeEncodeError:
                return value.encode("utf-8", "surrogatepass")
        return _NULL_TEXT if value is None else self.coerce(value).encode("utf-8", "surrogatepass")

    def from_bytes(self, data: bytes) -> str | None:
        """Return the text."""
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            return None if data == _NULL_TEXT else _decode(data, self.type_name)

    def arrow_type(self) -> pa.DataType:
        """Return the UTF-8 type."""
        import pyarrow as pa

        return pa.utf8()

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        try:
            return pa.array(values, pa.utf8())
        except UnicodeEncodeError:
            raw = [None if value is None else value.encode("utf-8", "surrogatepass") for value in values]
            return pa.array(raw, pa.binary()).view(pa.utf8())

    def _from_array(self, array: pa.Array) -> list[Any]:
        import pyarrow as pa

        try:
            values: list[Any] = array.to_pylist()
        except UnicodeDecodeError:
            raw = array.view(pa.binary()).to_pylist()
            values = [None if data is None else _decode(data, self.type_name) for data in raw]
        return values


class CharSerializer(StringSerializer):
    """CHAR: a text of exactly one code point."""

    type_name = "CHAR"
    nullable = False
    exact = frozenset()

    def coerce(self, value: Any) -> str:
        """Accept a text of length one."""
        if isinstance(value, str) and len(value) == 1:
            return str.__str__(value)
        raise misfit("CHAR", value, "a str of one character")

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a length check."""
        coerce = self.coerce

        def normalize(value: Any) -> str:
            return value if type(value) is str and len(value) == 1 else coerce(value)

        return normalize

    def to_bytes(self, value: str | None) -> bytes:
        """Return the UTF-8 form."""
        return self.coerce(value).encode("utf-8", "surrogatepass")

    def from_bytes(self, data: bytes) -> str | None:
        """Return the character."""
        return self.coerce(_decode(data, "CHAR"))


def _decode(data: bytes, type_name: str) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        raise SerializationError(f"These bytes are no {type_name}: {data!r}") from exc


class BytesSerializer(LeafSerializer[bytes]):
    """PRIMITIVE_ARRAY(BYTE): raw bytes."""

    type_name = "BYTES"
    exact = frozenset({bytes})

    def coerce(self, value: Any) -> bytes:
        """Accept byte buffers and lists of integers from -128 to 255."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        try:
            if isinstance(value, (list, tuple)):
                return bytes([item + 256 if -128 <= item < 0 else item for item in value])
        except (TypeError, ValueError):
            pass
        raise misfit("PRIMITIVE_ARRAY(BYTE)", value, "bytes or a list of byte values")

    def to_bytes(self, value: bytes) -> bytes:
        """Return the bytes themselves."""
        return value if type(value) is bytes else self.coerce(value)

    def from_bytes(self, data: bytes) -> bytes:
        """Return the bytes themselves."""
        return data

    def arrow_type(self) -> pa.DataType:
        """Return the binary type."""
        import pyarrow as pa

        return pa.binary()


class BigIntSerializer(LeafSerializer["int | None"]):
    """BIG_INT: integers of any size."""

    type_name = "BIG_INT"
    exact = frozenset({int})
    nullable = True

    def coerce(self, value: Any) -> int:
        """Accept whatever has an index."""
        try:
            return int(operator.index(value))
        except TypeError:
            raise misfit("BIG_INT", value, "an integer or None") from None

    def to_bytes(self, value: int | None) -> bytes:
        """Return the shortest two's complement form."""
        if value is None:
            return b""
        number = value if type(value) is int else self.coerce(value)
        # One more bit than the magnitude needs, for the sign; -128 thus takes two bytes, always.
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    def from_bytes(self, data: bytes) -> int | None:
        """Return the integer."""
        if not data:
            return None
        number = int.from_bytes(data, "big", signed=True)
        if len(data) != number.bit_length() // 8 + 1:
            raise SerializationError(f"These bytes are no BIG_INT: {data!r}")
        return number

    def arrow_type(self) -> pa.DataType:
        """Return binary: no Arrow number is wide enough."""
        import pyarrow as pa

        return pa.binary()

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array([None if value is None else self.to_bytes(value) for value in values], pa.binary())

    def _from_array(self, array: pa.Array) -> list[Any]:
        return [None if data is None else self.from_bytes(data) for data in array.to_pylist()]


class BigDecSerializer(LeafSerializer["Decimal | None"]):
    """BIG_DEC: decimals with their scale; 1.0 and 1.00 are different keys, as in Java."""

    type_name = "BIG_DEC"
    exact = frozenset({Decimal})
    nullable = True
    identity_key = False

    def coerce(self, value: Any) -> Decimal:
        """Accept subclasses of `Decimal` and integers."""
        if isinstance(value, (Decimal, int)):
            return Decimal(value)
        raise misfit("BIG_DEC", value, "a Decimal or None")

    def to_bytes(self, value: Decimal | None) -> bytes:
        """Return the decimal text."""
        if value is None:
            return b""
        return str(value if type(value) is Decimal else self.coerce(value)).encode("ascii")

    def from_bytes(self, data: bytes) -> Decimal | None:
        """Return the decimal."""
        if not data:
            return None
        try:
            return _decimal(data.decode("ascii"))
        except UnicodeDecodeError as exc:
            raise SerializationError(f"These bytes are no BIG_DEC: {data!r}") from exc

    def arrow_type(self) -> pa.DataType:
        """Return text: Arrow decimals have one scale for the whole column."""
        import pyarrow as pa

        return pa.utf8()

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array([None if value is None else str(value) for value in values], pa.utf8())

    def _from_array(self, array: pa.Array) -> list[Any]:
        return [None if text is None else _decimal(text) for text in array.to_pylist()]


def _decimal(text: str) -> Decimal:
    """Return the decimal that `str` writes as `text`; the user's decimal context says which case its E has."""
    try:
        number = Decimal(text)
    except InvalidOperation as exc:
        raise SerializationError(f"This text is no BIG_DEC: {text!r}") from exc
    if str(number).replace("e", "E") != text.replace("e", "E"):
        raise SerializationError(f"This text is no BIG_DEC: {text!r}")
    return number
