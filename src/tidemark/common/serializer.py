"""Serializers of the user's, and what is stored about them."""

from __future__ import annotations

from tidemark.state.serializers import (
    CompositeTypeSerializerSnapshot,
    DataInputView,
    DataOutputView,
    NullableSerializer,
    SimpleTypeSerializerSnapshot,
    TypeSerializer,
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
)

__all__ = [
    "CompositeTypeSerializerSnapshot",
    "DataInputView",
    "DataOutputView",
    "NullableSerializer",
    "SimpleTypeSerializerSnapshot",
    "TypeSerializer",
    "TypeSerializerSchemaCompatibility",
    "TypeSerializerSnapshot",
]
