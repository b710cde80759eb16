"""Serializers of the user's, and what is stored about them."""

from __future__ import annotations

from tidemark.state.serializers import (
    CompatibilityResult,
    CompositeTypeSerializerSnapshot,
    DataInputView,
    DataOutputView,
    NullableSerializer,
    SimpleTypeSerializerSnapshot,
    TypeSerializer,
    TypeSerializerConfigSnapshot,
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
)

__all__ = [
    "CompatibilityResult",
    "CompositeTypeSerializerSnapshot",
    "DataInputView",
    "DataOutputView",
    "NullableSerializer",
    "SimpleTypeSerializerSnapshot",
    "TypeSerializer",
    "TypeSerializerConfigSnapshot",
    "TypeSerializerSchemaCompatibility",
    "TypeSerializerSnapshot",
]
