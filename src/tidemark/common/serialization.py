"""Encoders, schemas and bulk writers."""

from __future__ import annotations

from tidemark.formats.files import (
    BulkWriter,
    BulkWriterFactory,
)
from tidemark.formats.schemas import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]
