"""From type declarations to serializers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tidemark.state.serializers.avro import AvroSerializer
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.builtin import (
    BigDecSerializer,
    BigIntSerializer,
    BooleanSerializer,
    ByteSerializer,
    BytesSerializer,
    CharSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
    StringSerializer,
)
from tidemark.state.serializers.containers import (
    BasicArraySerializer,
    ListSerializer,
    MapSerializer,
    ObjectArraySerializer,
    PrimitiveArraySerializer,
)
from tidemark.state.serializers.dataclass import DataclassSerializer, StoredField
from tidemark.state.serializers.numpy_arrays import NumpyArraySerializer
from tidemark.state.serializers.pickled import PickleSerializer
from tidemark.state.serializers.rows import RowSerializer
from tidemark.state.serializers.temporal import (
    InstantSerializer,
    SqlDateSerializer,
    SqlTimeSerializer,
    SqlTimestampSerializer,
)
from tidemark.state.serializers.tuples import TupleSerializer
from tidemark.types.avro import GenericRecordAvroTypeInfo
from tidemark.types.numpy_types import NumpyArrayTypeInfo
from tidemark.types.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DataclassTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SerializedTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    to_type_info,
)

__all__ = ["serializer_for"]

_BASIC: dict[BasicType, Callable[[], TypeSerializer[Any]]] = {
    BasicType.STRING: StringSerializer,
    BasicType.BOOLEAN: BooleanSerializer,
    BasicType.BYTE: ByteSerializer,
    BasicType.SHORT: ShortSerializer,
    BasicType.INT: IntSerializer,
    BasicType.LONG: LongSerializer,
    BasicType.FLOAT: FloatSerializer,
    BasicType.DOUBLE: DoubleSerializer,
    BasicType.CHAR: CharSerializer,
    BasicType.BIG_INT: BigIntSerializer,
    BasicType.BIG_DEC: BigDecSerializer,
    BasicType.INSTANT: InstantSerializer,
    BasicType.SQL_DATE: SqlDateSerializer,
    BasicType.SQL_TIME: SqlTimeSerializer,
    BasicType.SQL_TIMESTAMP: SqlTimestampSerializer,
}


def serializer_for(type_info: Any) -> TypeSerializer[Any]:
    """Return the serializer of a type; equal types may share one.

    Args:
        type_info: A `TypeInformation` or anything `to_type_info` accepts.

    Raises:
        TypeError: This is no type.
    """
    declared = to_type_info(type_info)
    if isinstance(declared, SerializedTypeInfo):
        # Not cached: it is equal by identity only.
        custom: TypeSerializer[Any] = declared.serializer
        return custom
    return _build(declared)


@lru_cache(maxsize=1024)
def _build(type_info: TypeInformation) -> TypeSerializer[Any]:
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC[type_info.basic_type]()
    if isinstance(type_info, PickledBytesTypeInfo):
        return PickleSerializer()
    if isinstance(type_info, TupleTypeInfo):
        return TupleSerializer([serializer_for(field) for field in type_info.get_field_types()])
    if isinstance(type_info, RowTypeInfo):
        fields = [serializer_for(field) for field in type_info.get_field_types()]
        return RowSerializer(fields, type_info.get_field_names())
    if isinstance(type_info, PrimitiveArrayTypeInfo):
        element = serializer_for(type_info.element_type)
        return BytesSerializer() if isinstance(element, ByteSerializer) else PrimitiveArraySerializer(element)
    if isinstance(type_info, BasicArrayTypeInfo):
        return BasicArraySerializer(serializer_for(type_info.element_type))
    if isinstance(type_info, ObjectArrayTypeInfo):
        return ObjectArraySerializer(serializer_for(type_info.element_type))
    if isinstance(type_info, ListTypeInfo):
        return ListSerializer(serializer_for(type_info.element_type))
    if isinstance(type_info, MapTypeInfo):
        return MapSerializer(serializer_for(type_info.key_type), serializer_for(type_info.value_type))
    if isinstance(type_info, DataclassTypeInfo):
        stored = [StoredField(f.name, f.declared, serializer_for(f.type_info)) for f in type_info.fields]
        return DataclassSerializer(type_info.cls, stored)
    if isinstance(type_info, NumpyArrayTypeInfo):
        return NumpyArraySerializer(type_info.dtype, type_info.shape)
    if isinstance(type_info, GenericRecordAvroTypeInfo):
        return AvroSerializer(type_info.schema)
    raise TypeError(f"There is no serializer for {type_info!r}; wrap one of your own with Types.SERIALIZED.")
