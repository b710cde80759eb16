"""`NullableSerializer`: adds None to a type that has none.

Encoding, version 1: `00` for None, `01` followed by the inner encoding for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.errors import SerializationError
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import CompositeTypeSerializerSnapshot, TypeSerializerSnapshot
from tidemark.state.serializers.record import none_or

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NullableSerializer", "NullableSerializerSnapshot"]

T = TypeVar("T")


class NullableSerializer(TypeSerializer["T | None"]):
    """Wraps a serializer so that None can be written as well."""

    nullable = True

    def __init__(self, inner: TypeSerializer[T]) -> None:
        self.inner = inner
        self.immutable = inner.immutable
        self.identity_key = inner.identity_key

    def serialize(self, element: T | None, stream: Any) -> None:
        """Write the flag, then the element if there is one."""
        if element is None:
            stream.write(b"\x00")
        else:
            stream.write(b"\x01")
            self.inner.serialize(element, stream)

    def deserialize(self, stream: Any) -> T | None:
        """Read the flag, then the element if there is one.

        Raises:
            SerializationError: The next byte is no flag.
        """
        if not _is_set(stream.read(1)):
            return None
        value = self.inner.deserialize(stream)
        if value is None:
            raise SerializationError(f"A {self!r} value is None and not marked so.")
        return value

    def to_bytes(self, value: T | None) -> bytes:
        """Return flag and encoded value."""
        return b"\x00" if value is None else b"\x01" + self.inner.to_bytes(value)

    def key_bytes(self, value: T | None) -> bytes:
        """Return flag and canonical form."""
        return b"\x00" if value is None else b"\x01" + self.inner.key_bytes(value)

    def from_bytes(self, data: bytes) -> T | None:
        """Return the value or None."""
        if data == b"\x00":
            return None
        value = self.inner.from_bytes(data[1:]) if _is_set(data[:1]) else None
        if value is None:
            raise SerializationError(f"These bytes are no {self!r}: {data[:64]!r}")
        return value

    def normalizer(self) -> Callable[[Any], Any] | None:
        """Return the inner normaliser, extended to None."""
        inner = self.inner.normalizer()
        return None if inner is None else none_or(inner)

    def arrow_type(self) -> pa.DataType:
        """Return the inner type: Arrow columns have nulls of their own."""
        return self.inner.arrow_type()

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return the inner column; None becomes null."""
        return self.inner.to_arrow_nullable(values)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return the inner column; None becomes null."""
        return self.inner.to_arrow_nullable(values)

    def _from_array(self, array: pa.Array) -> list[Any]:
        return self.inner.from_arrow(array)

    def snapshot_configuration(self) -> TypeSerializerSnapshot[T | None]:
        """Return a snapshot that nests the inner one."""
        return NullableSerializerSnapshot(self)

    def __repr__(self) -> str:
        return f"Nullable({self.inner!r})"


class NullableSerializerSnapshot(CompositeTypeSerializerSnapshot[Any]):
    """The snapshot of the wrapped serializer."""

    def __init__(self, serializer: NullableSerializer[Any] | None = None) -> None:
        super().__init__(serializer if serializer is not None else NullableSerializer)

    def get_current_outer_snapshot_version(self) -> int:
        """Return the version of the settings, of which there are none."""
        return 1

    def get_nested_serializers(
        self, outer_serializer: NullableSerializer[Any]
    ) -> Sequence[TypeSerializer[Any]]:
        """Return the wrapped serializer."""
        return [outer_serializer.inner]

    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> NullableSerializer[Any]:
        """Return a nullable serializer around it."""
        return NullableSerializer(nested_serializers[0])


def _is_set(flag: bytes) -> bool:
    if flag == b"\x01":
        return True
    if flag == b"\x00":
        return False
    raise SerializationError(f"A nullable value starts with byte 00 or 01, got {flag!r}.")
