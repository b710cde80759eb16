"""How values become bytes and Arrow columns, and how stored values meet a changed type."""

from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import (
    CompositeTypeSerializerSnapshot,
    SimpleTypeSerializerSnapshot,
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
    dump_serializer_snapshot,
    load_serializer_snapshot,
)
from tidemark.state.serializers.config_snapshot import CompatibilityResult, TypeSerializerConfigSnapshot
from tidemark.state.serializers.nullable import NullableSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.resolution import (
    Migration,
    Resolution,
    resolve_compatibility,
    resolve_key_compatibility,
)
from tidemark.state.serializers.streams import DataInputView, DataOutputView

__all__ = [
    "CompatibilityResult",
    "CompositeTypeSerializerSnapshot",
    "DataInputView",
    "DataOutputView",
    "Migration",
    "NullableSerializer",
    "Resolution",
    "SimpleTypeSerializerSnapshot",
    "TypeSerializer",
    "TypeSerializerConfigSnapshot",
    "TypeSerializerSchemaCompatibility",
    "TypeSerializerSnapshot",
    "dump_serializer_snapshot",
    "load_serializer_snapshot",
    "resolve_compatibility",
    "resolve_key_compatibility",
    "serializer_for",
]
