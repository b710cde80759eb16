"""Avro: rows as messages, and container files of records."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.avro_rows import record_of_row, row_of_record, row_type_of_schema
from tidemark.formats.files import BinaryOutput, BulkFormat, BulkWriter, BulkWriterFactory
from tidemark.formats.schemas import DeserializationSchema, SerializationSchema
from tidemark.types.avro import AvroSchema, GenericRecordAvroTypeInfo
from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "AvroBulkWriters",
    "AvroFileFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
]


def _schema(record_class: str | None, avro_schema_string: str | None) -> AvroSchema:
    if record_class is not None:
        raise ConfigError(
            f"There are no Java classes here, so record_class={record_class!r} has no schema. Give it as "
            "avro_schema_string."
        )
    if not isinstance(avro_schema_string, str):
        raise TypeError(
            f"avro_schema_string must be an Avro schema as JSON text, not {avro_schema_string!r}."
        )
    return AvroSchema.parse_string(avro_schema_string)


class AvroRowDeserializationSchema(DeserializationSchema):
    """Messages of one Avro record each, without a header, as rows."""

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        """Read records that were written with this schema.

        Raises:
            ConfigError: No Avro schema of a record, or a Java class instead of one.
        """
        self._schema = _schema(record_class, avro_schema_string)
        self._type = row_type_of_schema(self._schema)

    def get_produced_type(self) -> TypeInformation:
        """The row type that the schema describes."""
        return self._type

    @functools.cached_property
    def _row(self) -> Callable[[Any], Any]:
        return row_of_record(self._schema)

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "_type": self._type}

    def deserialize(self, message: bytes) -> Any:
        """The row of a record; None for no bytes."""
        import fastavro

        if not message:
            return None
        stream = io.BytesIO(message)
        try:
            record = fastavro.schemaless_reader(stream, self._schema.parsed, self._schema.parsed)
            if stream.tell() != len(message):
                raise ValueError(f"{len(message) - stream.tell()} bytes are left over")
            return self._row(record)
        except Exception as exc:
            # fastavro raises whatever its decoding of foreign bytes runs into.
            raise SerializationError(
                f"A message is no Avro record of {self._schema}: {type(exc).__name__}: {exc}. It begins with "
                f"{bytes(message[:50])!r}."
            ) from exc


class AvroRowSerializationSchema(SerializationSchema):
    """Rows as messages of one Avro record each, without a header."""

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        """Write records of this schema.

        Raises:
            ConfigError: No Avro schema of a record, or a Java class instead of one.
        """
        self._schema = _schema(record_class, avro_schema_string)
        row_type_of_schema(self._schema)

    @functools.cached_property
    def _record(self) -> Callable[[Any], Any]:
        return record_of_row(self._schema)

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema}

    def serialize(self, element: Any) -> bytes:
        """The record of a row, whose fields are taken by position."""
        import fastavro

        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._schema.parsed, self._record(element))
        except Exception as exc:
            raise _bad_record(element, self._schema, exc) from exc
        return out.getvalue()


@dataclass(frozen=True, slots=True)
class AvroFileFormat(BulkFormat):
    """Avro container files as dictionaries; the units are bytes, read by whole blocks."""

    schema: AvroSchema

    def read(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[list[Any], int]]:
        """Records, resolved to the schema by Avro's rules if the file was written with another one."""
        import fastavro

        position = offset
        try:
            blocks = fastavro.block_reader(stream, self.schema.parsed)
            if offset:
                stream.seek(offset)
            for block in blocks:
                # A block says where it begins and how long it is, counted from where reading began.
                position = stream.tell()
                yield list(block), position
                if position - offset >= limit:
                    return
        except (ValueError, EOFError, TypeError, LookupError, fastavro.read.SchemaResolutionError) as exc:
            raise SerializationError(
                f"An Avro file cannot be read with {self.schema} behind byte {position}: {exc}."
            ) from exc
        if position == offset:
            # Nothing but a header: the end of the file is what was reached.
            yield [], stream.seek(0, io.SEEK_END)

    def produced_type(self) -> TypeInformation:
        """Dictionaries of the schema."""
        return GenericRecordAvroTypeInfo(self.schema)


class AvroInputFormat(AvroFileFormat):
    """An Avro container file, for `env.create_input`."""

    __slots__ = ("path",)

    path: str

    def __init__(self, path: str, schema: AvroSchema) -> None:
        """Read the file at `path`, or all files below a directory.

        Raises:
            TypeError: Not an `AvroSchema`.
        """
        super().__init__(checked_schema(schema))
        object.__setattr__(self, "path", path)

    def get_produced_type(self) -> TypeInformation:
        """Dictionaries of the schema."""
        return self.produced_type()


class AvroBulkWriters:
    """Bulk writers of Avro container files."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Write dictionaries, or rows by position, that follow a schema.

        Raises:
            TypeError: Not an `AvroSchema`.
        """
        return _AvroWriterFactory(checked_schema(schema))


@dataclass(frozen=True, slots=True)
class _AvroWriterFactory(BulkWriterFactory):
    schema: AvroSchema

    def create(self, out: BinaryOutput) -> BulkWriter:
        return _AvroWriter(self.schema, out)

    def reader(self) -> AvroFileFormat:
        return AvroFileFormat(self.schema)


class _AvroWriter(BulkWriter):
    def __init__(self, schema: AvroSchema, out: BinaryOutput) -> None:
        from fastavro.write import Writer

        self._schema = schema
        self._writer = Writer(out, schema.parsed, codec="deflate")

    def add_elements(self, elements: Sequence[Any]) -> None:
        for element in elements:
            try:
                self._writer.write(element)
            except Exception as exc:
                raise _bad_record(element, self._schema, exc) from exc

    def finish(self) -> None:
        self._writer.flush()


def checked_schema(schema: Any) -> AvroSchema:
    """`schema`, if it is one.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(schema, AvroSchema):
        raise TypeError(f"Expected an AvroSchema, not {schema!r}.")
    return schema


def _bad_record(element: Any, schema: AvroSchema, problem: Exception) -> SerializationError:
    # fastavro raises whatever its encoding of foreign values runs into.
    return SerializationError(f"{element!r} does not fit {schema}: {type(problem).__name__}: {problem}.")
