"""Avro records."""

from __future__ import annotations

from tidemark.types.avro import (
    AvroSchema,
    GenericRecordAvroTypeInfo,
)

__all__ = [
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]
