"""JSON rows."""

from __future__ import annotations

from tidemark.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
