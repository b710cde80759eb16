"""Stored values on the move: between bytes and Arrow columns, without the classes they are made of.

A backend of bytes restores typed columns before it knows what the new job makes of the state, and writes
state nobody asked for into the next snapshot as it came. Neither may depend on the user's classes, which
may have changed or gone. A carrying serializer has the bytes and columns of the one that wrote the state;
its values are plain: a tuple for a dataclass, bytes for whatever a user's serializer wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidemark.errors import SerializationError
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer
from tidemark.state.serializers.compatibility import (
    CompositeTypeSerializerSnapshot,
    TypeSerializerSnapshot,
)
from tidemark.state.serializers.dataclass import DataclassSerializerSnapshot
from tidemark.state.serializers.record import RecordCodec, null_positions, struct_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["carrying_serializer"]


def carrying_serializer(snapshot: TypeSerializerSnapshot[Any]) -> TypeSerializer[Any]:
    """Return a serializer that carries the values behind `snapshot` from one stored form to the other.

    Raises:
        StateMigrationException: A user's serializer inside cannot be rebuilt.
    """
    if isinstance(snapshot, DataclassSerializerSnapshot):
        return _RecordCarrier(
            {name: carrying_serializer(field) for name, field in snapshot.field_snapshots().items()}
        )
    if isinstance(snapshot, CompositeTypeSerializerSnapshot) and _is_ours(snapshot):
        nested = [carrying_serializer(inner) for inner in snapshot.nested_snapshots()]
        return snapshot.create_outer_serializer_with_nested_serializers(nested)
    serializer = snapshot.restore_serializer()
    return _BytesCarrier(serializer.fixed_width) if _is_opaque(serializer) else serializer


def _is_ours(snapshot: TypeSerializerSnapshot[Any]) -> bool:
    return type(snapshot).__module__.startswith("tidemark.")


def _is_opaque(serializer: TypeSerializer[Any]) -> bool:
    """Whether its column holds the very bytes, and its key bytes are no others."""
    cls, base = type(serializer), TypeSerializer
    same = cls.to_arrow is base.to_arrow and cls._from_array is base._from_array
    return same and cls.arrow_type is base.arrow_type and cls.key_bytes is base.key_bytes


class _BytesCarrier(BinarySerializer[Any]):
    """Bytes as they are; None only where the container has one."""

    def __init__(self, fixed_width: int | None) -> None:
        self.fixed_width = fixed_width

    def to_bytes(self, value: Any) -> bytes:
        """Return the value, which is bytes."""
        return value  # type: ignore[no-any-return]

    def from_bytes(self, data: bytes) -> Any:
        """Return the bytes."""
        return data


class _RecordCarrier(BinarySerializer[Any]):
    """A dataclass as the tuple of its fields. The layout is that of `dataclass.py`."""

    nullable = True

    def __init__(self, fields: dict[str, TypeSerializer[Any]]) -> None:
        self._fields = fields
        self._serializers = list(fields.values())
        self._codec = RecordCodec(self._serializers, nullable=True)
        self._key_codec = RecordCodec(self._serializers, nullable=True, canonical=True)

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded record."""
        return b"\x00" if value is None else b"\x01" + self._codec.encode(value)

    def key_bytes(self, value: Any) -> bytes:
        """Return the canonical form."""
        return b"\x00" if value is None else b"\x01" + self._key_codec.encode(value)

    def from_bytes(self, data: bytes) -> Any:
        """Return the fields as a tuple, or None."""
        if data[:1] == b"\x01":
            return tuple(self._codec.decode(data, 1))
        if data == b"\x00":
            return None
        raise SerializationError(f"These bytes are no record: {data[:64]!r}")

    def arrow_type(self) -> pa.DataType:
        """Return a struct with a child per field."""
        import pyarrow as pa

        children = [(name, serializer.arrow_type()) for name, serializer in self._fields.items()]
        return pa.struct(children or [("$empty", pa.int8())])

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column; None becomes null."""
        import pyarrow as pa

        nulls = null_positions(values)
        columns = [
            [None if value is None else value[at] for value in values] for at in range(len(self._serializers))
        ]
        extra = None if self._fields else pa.nulls(len(values), pa.int8())
        return struct_column(self._serializers, columns, list(self.arrow_type()), nulls, True, extra)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column; None becomes null."""
        return self.to_arrow(values)

    def _from_array(self, array: pa.Array) -> list[Any]:
        columns = [serializer.from_arrow(array.field(at)) for at, serializer in enumerate(self._serializers)]
        records: list[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        if not array.null_count:
            return records
        valid = array.is_valid().to_pylist()
        return [record if ok else None for record, ok in zip(records, valid, strict=True)]
