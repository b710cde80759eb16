"""The contract between values and bytes: `TypeSerializer`.

Users implement `serialize` and `deserialize` (and `snapshot_configuration`, to let their state evolve).
Everything else has a working default derived from these two; the built-in serializers override it with
something faster, and read only what they would write: bytes in any other form are damage, and are refused
instead of becoming a value that cannot be written again. No attribute is set in a constructor, because user
classes may not call ours.

A value has three forms, which agree with each other:

* **bytes**, `to_bytes`/`from_bytes`: what RocksDB and custom columns hold. Not self-delimiting; whoever
  embeds it stores the length where `fixed_width` is None. `key_bytes` is the canonical variant: two keys
  are the same key if and only if their key bytes are equal, and `from_bytes` reads it too.
* **Arrow**, `to_arrow`/`from_arrow`: a column of many values, typed where the type is known.
* **normalised object**, `normalizer`: what a write followed by a read would give back. The heap backend
  stores this object and so behaves like one that serialises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidemark.errors import SerializationError, StateMigrationException
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.inference import qualified_name
from tidemark.types.typeinfo import SerializerMarker

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.state.serializers.compatibility import TypeSerializerSnapshot
    from tidemark.state.serializers.config_snapshot import CompatibilityResult, TypeSerializerConfigSnapshot

__all__ = ["BinarySerializer", "TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, SerializerMarker, Generic[T]):
    """Reads and writes values of one type."""

    immutable: bool = False
    """Whether values can be shared without copying them."""
    identity_key: bool = False
    """Whether equality of normalised values coincides with equality of their key bytes, so that the
    value itself can be a dictionary key."""
    fixed_width: int | None = None
    """Number of bytes of every encoded value, or None if it varies."""
    nullable: bool = False
    """Whether None is a value of the type, with bytes of its own. Containers that mark missing values write
    None as such a mark, and refuse to read it in those bytes."""

    @abstractmethod
    def serialize(self, element: T, stream: Any) -> None:
        """Write `element` to a binary stream."""

    @abstractmethod
    def deserialize(self, stream: Any) -> T:
        """Read one element from a binary stream, consuming exactly what `serialize` wrote."""

    def snapshot_configuration(self) -> TypeSerializerSnapshot[T]:
        """Return what has to be stored with the state so that a later job can read it.

        Unless overridden, the state can only be restored by a serializer of the same class, as it is.
        """
        from tidemark.state.serializers.compatibility import GenericSerializerSnapshot

        return GenericSerializerSnapshot(self)

    def ensure_compatibility(self, config_snapshot: TypeSerializerConfigSnapshot[T]) -> CompatibilityResult:
        """Say whether this serializer reads what the one of an old `config_snapshot` wrote. Deprecated.

        Asked only about state that was stored with a `TypeSerializerConfigSnapshot`.

        Raises:
            StateMigrationException: Not overridden.
        """
        raise StateMigrationException(
            f"The state was stored with {qualified_name(type(config_snapshot))}, a TypeSerializerConfigSnapshot. "
            f"{self.qualified_name()} needs ensure_compatibility() to say whether it can take over, until a savepoint "
            "was taken with a TypeSerializerSnapshot."
        )

    def copy(self, element: T) -> T:
        """Return an element that shares nothing changeable with the given one."""
        return element if self.immutable else self.from_bytes(self.to_bytes(element))

    def to_bytes(self, value: T) -> bytes:
        """Return the encoded value.

        Raises:
            SerializationError: The value does not fit the type.
        """
        view = DataOutputView()
        self.serialize(value, view)
        return view.getvalue()

    def from_bytes(self, data: bytes) -> T:
        """Return the value encoded in `data`.

        Raises:
            SerializationError: The bytes do not decode, or some are left over.
        """
        view = DataInputView(data)
        value = self.deserialize(view)
        left = len(view.read())
        if left:
            raise SerializationError(
                f"{self.qualified_name()}.deserialize left {left} of {len(data)} bytes unread; it must "
                "consume exactly what serialize wrote."
            )
        return value

    def key_bytes(self, value: T) -> bytes:
        """Return the canonical encoding: equal for equal keys, in every process."""
        return self.to_bytes(value)

    def normalizer(self) -> Callable[[Any], Any] | None:
        """Return a function from a value to what would be read back after writing it.

        The function raises `SerializationError` for values that cannot be written. None means that values
        are kept as they are.
        """
        return None

    def arrow_type(self) -> pa.DataType:
        """Return the type of the column that holds values of this type."""
        import pyarrow as pa

        return pa.binary()

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a column of values.

        Raises:
            SerializationError: A value does not fit the type.
        """
        import pyarrow as pa

        to_bytes = self.to_bytes
        return pa.array([to_bytes(value) for value in values], pa.binary())

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a column in which every None becomes null, whether or not the type itself has a None."""
        import pyarrow as pa

        to_bytes = self.to_bytes
        return pa.array([None if value is None else to_bytes(value) for value in values], pa.binary())

    def from_arrow(self, array: pa.Array | pa.ChunkedArray) -> list[Any]:
        """Return the values of a column; null reads as None."""
        if hasattr(array, "iterchunks"):
            return list(chain.from_iterable([self._from_array(chunk) for chunk in array.iterchunks()]))
        return self._from_array(array)

    def _from_array(self, array: pa.Array) -> list[Any]:
        from_bytes = self.from_bytes
        return [None if data is None else from_bytes(data) for data in array.to_pylist()]

    def qualified_name(self) -> str:
        """Return `module.QualName` of the serializer's class."""
        return qualified_name(type(self))

    def __repr__(self) -> str:
        return type(self).__name__


class BinarySerializer(TypeSerializer[T]):
    """A serializer that defines `to_bytes` and `from_bytes`; on a stream it puts the length in front."""

    def serialize(self, element: T, stream: Any) -> None:
        """Write the length as a varint, then the encoded element."""
        data = self.to_bytes(element)
        stream.write(length_prefix(len(data)) + data)

    def deserialize(self, stream: Any) -> T:
        """Read one element written by `serialize`.

        Raises:
            SerializationError: The stream ends too early or the bytes do not decode.
        """
        length = shift = 0
        while True:
            byte = stream.read(1)
            if not byte:
                raise SerializationError(f"The stream ended where a {self!r} value was expected.")
            length |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
            shift += 7
        if shift and byte[0] == 0:
            raise _overlong()
        data = stream.read(length)
        if len(data) != length:
            raise SerializationError(f"The stream ended inside a {self!r} value.")
        return self.from_bytes(data)

    @abstractmethod
    def to_bytes(self, value: T) -> bytes:
        """Return the encoded value."""

    @abstractmethod
    def from_bytes(self, data: bytes) -> T:
        """Return the value encoded in `data`."""


_SHORT_LENGTHS = tuple([bytes((length,)) for length in range(128)])


def length_prefix(length: int) -> bytes:
    """Return `length` as a varint: seven bits per byte, lowest first, the high bit set while more follow."""
    if length < 128:
        return _SHORT_LENGTHS[length]
    out = bytearray()
    while length > 127:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint that starts at `at`, and the position behind it.

    Raises:
        IndexError: The data end inside it.
        SerializationError: It takes more bytes than `length_prefix` would have written.
    """
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    length, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 128:
            if byte == 0:
                raise _overlong()
            return length, at
        shift += 7


def _overlong() -> SerializationError:
    return SerializationError("A length is written with more bytes than it needs; the bytes are damaged.")
