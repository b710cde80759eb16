"""The Avro serializer: dictionaries that follow a schema, which may change by Avro's own rules.

Encoding, version 1: `00` for None, else `01` and Avro's binary encoding without any header. In Arrow a
binary column of the same bytes. State is read with the schema it was written with, resolved to the new one.
Avro itself has several forms of one value (lists in blocks, branches of unions, padded numbers); all are read.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tidemark.errors import SerializationError
from tidemark.state.serializers.avro_resolution import can_read, same_shape
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer
from tidemark.state.serializers.compatibility import (
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
)
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.avro import AvroSchema

__all__ = ["AvroSerializer", "AvroSerializerSnapshot"]


class AvroSerializer(BinarySerializer[Any]):
    """Values of an Avro schema, None included."""

    nullable = True

    def __init__(self, schema: AvroSchema, reader_schema: AvroSchema | None = None) -> None:
        """Prepare reading and writing.

        Args:
            schema: The schema the bytes have.
            reader_schema: The schema values are turned into when they are read; by default the same.
        """
        self.schema = schema
        self.reader_schema = reader_schema

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded value.

        Raises:
            SerializationError: The value does not follow the schema.
        """
        if value is None:
            return b"\x00"
        import fastavro

        buffer = io.BytesIO(b"\x01")
        buffer.seek(1)
        try:
            fastavro.schemaless_writer(buffer, self.schema.parsed, value)
        except Exception as exc:
            raise SerializationError(
                f"A value does not follow its Avro schema: {type(exc).__name__}: {exc}. Value: {value!r:.200}"
            ) from exc
        return buffer.getvalue()

    def from_bytes(self, data: bytes) -> Any:
        """Return the value, in the reader's schema if there is one.

        Raises:
            SerializationError: The bytes do not decode.
        """
        if data == b"\x00":
            return None
        import fastavro

        reader = None if self.reader_schema is None else self.reader_schema.parsed
        buffer = io.BytesIO(data)
        try:
            if buffer.read(1) != b"\x01":
                raise ValueError("no flag byte")
            value = fastavro.schemaless_reader(buffer, self.schema.parsed, reader)
            if buffer.tell() != len(data):
                raise ValueError(f"{len(data) - buffer.tell()} bytes are left over")
            return value
        except Exception as exc:
            raise SerializationError(
                f"These bytes do not follow their Avro schema: {type(exc).__name__}: {exc}"
            ) from exc

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a round trip: only Avro itself knows its defaults and coercions."""
        return lambda value: self.from_bytes(self.to_bytes(value))

    def snapshot_configuration(self) -> TypeSerializerSnapshot[Any]:
        """Return a snapshot that holds the schema."""
        return AvroSerializerSnapshot(self)

    def __repr__(self) -> str:
        return f"AVRO({self.schema})"


class AvroSerializerSnapshot(TypeSerializerSnapshot[Any]):
    """The schema at the time state was written, as JSON text."""

    def __init__(self, serializer: AvroSerializer | None = None) -> None:
        self._schema: AvroSchema | None = None if serializer is None else serializer.schema
        self._reader_schema: AvroSchema | None = None

    def get_current_version(self) -> int:
        """Return the version of this format."""
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        """Write the schema."""
        out.write_utf(str(self._known_schema()))

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the schema."""
        self._schema = AvroSchema.parse_string(in_.read_utf())

    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[Any]
    ) -> TypeSerializerSchemaCompatibility:
        """Apply Avro's rules with the new schema as the reader's; later reads then yield its shape."""
        if not isinstance(new_serializer, AvroSerializer):
            return TypeSerializerSchemaCompatibility.incompatible()
        old, new = self._known_schema(), new_serializer.schema
        if same_shape(old.parsed, new.parsed):
            return TypeSerializerSchemaCompatibility.compatible_as_is()
        if not can_read(old.parsed, new.parsed):
            return TypeSerializerSchemaCompatibility.incompatible()
        self._reader_schema = new
        return TypeSerializerSchemaCompatibility.compatible_after_migration()

    def restore_serializer(self) -> AvroSerializer:
        """Return a serializer that reads the old bytes."""
        return AvroSerializer(self._known_schema(), self._reader_schema)

    def _known_schema(self) -> AvroSchema:
        if self._schema is None:
            raise SerializationError("An Avro snapshot was used before it was read.")
        return self._schema

    def __repr__(self) -> str:
        return f"AVRO({self._schema})"
