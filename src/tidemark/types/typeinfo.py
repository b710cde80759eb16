"""Type declarations: what users write to say which values flow through a stream or lie in a state.

A `TypeInformation` is plain, hashable data. How values of a type become bytes or Arrow columns is
decided one layer up, by `tidemark.state.serializers.registry.serializer_for`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError
from tidemark.types.inference import FieldDeclaration, declared_fields, qualified_name

if TYPE_CHECKING:
    from tidemark.types.avro import AvroSchema
    from tidemark.types.numpy_types import NumpyArrayTypeInfo

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DataclassTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SerializedTypeInfo",
    "SerializerMarker",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "to_type_info",
]


class TypeInformation:
    """The declared type of a value. Two declarations are equal if they describe the same type."""

    def _identity(self) -> tuple[Any, ...]:
        """What makes this declaration equal to another of the same class."""
        return ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypeInformation):
            return NotImplemented
        return type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._identity()))

    def __str__(self) -> str:
        return repr(self)


class SerializerMarker:
    """Marks the instances that may stand where a type is expected (see `TypeSerializer`)."""


class BasicType(Enum):
    """The indivisible types, by the name they print as."""

    STRING = "String"
    BOOLEAN = "Boolean"
    BYTE = "Byte"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"
    SQL_DATE = "SqlDate"
    SQL_TIME = "SqlTime"
    SQL_TIMESTAMP = "SqlTimestamp"


PRIMITIVES = frozenset(
    {
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.CHAR,
    }
)
"""The basic types that have no null."""


class BasicTypeInfo(TypeInformation):
    """One of the indivisible types."""

    def __init__(self, basic_type: BasicType) -> None:
        self.basic_type = basic_type

    def _identity(self) -> tuple[Any, ...]:
        return (self.basic_type.name,)

    def __repr__(self) -> str:
        return self.basic_type.value


# PyFlink's factories: BasicTypeInfo.STRING_TYPE_INFO() and so on, the same as Types.STRING().
for _basic in BasicType:
    setattr(BasicTypeInfo, f"{_basic.name}_TYPE_INFO", staticmethod(partial(BasicTypeInfo, _basic)))


class PickledBytesTypeInfo(TypeInformation):
    """Anything picklable; what is assumed where no type is given."""

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class _ArrayTypeInfo(TypeInformation):
    """Several values of one element type."""

    def __init__(self, element_type: Any) -> None:
        self.element_type = to_type_info(element_type)
        self._check_element()

    def _check_element(self) -> None:
        """Refuse element types this kind of array cannot hold."""

    def _identity(self) -> tuple[Any, ...]:
        return (self.element_type,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.element_type!r}>"


class PrimitiveArrayTypeInfo(_ArrayTypeInfo):
    """A list of numbers, booleans or characters without None; `bytes` if the element type is BYTE."""

    def _check_element(self) -> None:
        element = self.element_type
        if not (isinstance(element, BasicTypeInfo) and element.basic_type in PRIMITIVES):
            raise TypeError(f"PRIMITIVE_ARRAY holds only primitive types, not {element!r}; use LIST.")


class BasicArrayTypeInfo(_ArrayTypeInfo):
    """A list of a basic type whose elements may be None."""

    def _check_element(self) -> None:
        if not isinstance(self.element_type, BasicTypeInfo):
            raise TypeError(f"BASIC_ARRAY holds only basic types, not {self.element_type!r}; use LIST.")


class ObjectArrayTypeInfo(_ArrayTypeInfo):
    """A list of any type whose elements may be None."""


class ListTypeInfo(_ArrayTypeInfo):
    """A list of any type whose elements may be None."""

    @property
    def elem_type(self) -> TypeInformation:
        """The element type, under PyFlink's name."""
        return self.element_type


class MapTypeInfo(TypeInformation):
    """A dictionary; its values may be None."""

    def __init__(self, key_type_info: Any, value_type_info: Any) -> None:
        self.key_type = to_type_info(key_type_info)
        self.value_type = to_type_info(value_type_info)

    def _identity(self) -> tuple[Any, ...]:
        return (self.key_type, self.value_type)

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type!r}, {self.value_type!r}>"


class RowTypeInfo(TypeInformation):
    """A `Row` whose fields may be None; without names the fields are called f0, f1, ..."""

    def __init__(self, field_types: Sequence[Any], field_names: Sequence[str] | None = None) -> None:
        self._types = tuple([to_type_info(field_type) for field_type in field_types])
        names = [f"f{i}" for i in range(len(self._types))] if field_names is None else list(field_names)
        if len(names) != len(self._types) or len(set(names)) != len(names):
            raise ConfigError(
                f"A row of {len(self._types)} fields needs as many different field names, got {names}."
            )
        if not all(isinstance(name, str) and name for name in names):
            raise ConfigError(f"Field names must be non-empty strings, got {names}.")
        self._names = tuple(names)

    def get_field_names(self) -> list[str]:
        """Return the field names, f0, f1, ... if none were given."""
        return list(self._names)

    def get_field_types(self) -> list[TypeInformation]:
        """Return the field types in order."""
        return list(self._types)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field, -1 when there is none of that name."""
        return self._names.index(field_name) if field_name in self._names else -1

    def _identity(self) -> tuple[Any, ...]:
        return (self._names, self._types)

    def __repr__(self) -> str:
        pairs = zip(self._names, self._types, strict=True)
        return f"RowTypeInfo({', '.join([f'{name}: {type_!r}' for name, type_ in pairs])})"


class TupleTypeInfo(TypeInformation):
    """A tuple of fixed length; each field follows the rules of its own type."""

    def __init__(self, field_types: Sequence[Any]) -> None:
        self._types = tuple([to_type_info(field_type) for field_type in field_types])

    def get_field_types(self) -> list[TypeInformation]:
        """Return the field types in order."""
        return list(self._types)

    def _identity(self) -> tuple[Any, ...]:
        return self._types

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join([repr(type_) for type_ in self._types])})"


class DataclassTypeInfo(TypeInformation):
    """A dataclass whose fields may change from one version of a job to the next (docs/guides/schema-evolution.md)."""

    def __init__(self, cls: type[Any]) -> None:
        if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
            raise TypeError(f"DATACLASS needs a dataclass type, got {cls!r}.")
        if "<locals>" in cls.__qualname__:
            raise TypeError(
                f"Dataclass {qualified_name(cls)} is local to a function and cannot be imported when state "
                "is restored; move it to module level."
            )
        self.cls = cls
        # Resolved here and not where values are written: annotations of a class that reached a slot by
        # value can no longer be evaluated there.
        self.fields: tuple[FieldDeclaration, ...] = declared_fields(cls)

    def _identity(self) -> tuple[Any, ...]:
        return (self.cls,)

    def __repr__(self) -> str:
        return f"DataclassTypeInfo<{qualified_name(self.cls)}>"


class SerializedTypeInfo(TypeInformation):
    """Whatever a serializer written by the user reads and writes."""

    def __init__(self, serializer: Any) -> None:
        if not isinstance(serializer, SerializerMarker):
            raise TypeError(f"SERIALIZED needs a TypeSerializer instance, got {serializer!r}.")
        self.serializer: Any = serializer

    def _identity(self) -> tuple[Any, ...]:
        return (id(self.serializer),)

    def __repr__(self) -> str:
        return f"SerializedTypeInfo<{qualified_name(type(self.serializer))}>"


class Types:
    """The factory of type declarations."""

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of `str`; may be None."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of 8-bit integers."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of `bool`."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of 16-bit integers."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of 32-bit integers."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of 64-bit integers."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of single-precision floats: values are rounded to 24 significant bits."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of double-precision floats, Python's own."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of strings of exactly one character."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of integers of any size; may be None."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of `decimal.Decimal`; may be None."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of `Instant`; may be None."""
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of `datetime.date`; may be None."""
        return BasicTypeInfo(BasicType.SQL_DATE)

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of `datetime.time` without a time zone; may be None."""
        return BasicTypeInfo(BasicType.SQL_TIME)

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of `datetime.datetime` without a time zone; may be None."""
        return BasicTypeInfo(BasicType.SQL_TIMESTAMP)

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of anything picklable."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[Any]) -> RowTypeInfo:
        """Return the type of rows whose fields are called f0, f1, ..."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[Any]) -> RowTypeInfo:
        """Return the type of rows with the given field names."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[Any]) -> TupleTypeInfo:
        """Return the type of tuples; a list or `Row` of that length is accepted and becomes a tuple."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: Any) -> PrimitiveArrayTypeInfo:
        """Return the type of lists of primitives without None, or of `bytes` for BYTE."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: Any) -> BasicArrayTypeInfo:
        """Return the type of lists of a basic type."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: Any) -> ObjectArrayTypeInfo:
        """Return the type of lists of any type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def LIST(element_type_info: Any) -> ListTypeInfo:
        """Return the type of lists of any type."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def MAP(key_type_info: Any, value_type_info: Any) -> MapTypeInfo:
        """Return the type of dictionaries."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def NUMPY_ARRAY(dtype: Any = None, shape: Any = None) -> NumpyArrayTypeInfo:
        """Return the type of `numpy.ndarray`s.

        Args:
            dtype: The element type, whatever `numpy.dtype` accepts; None: any, which is then kept with each array.
            shape: The lengths of the dimensions, or a number for one dimension; None: any.

        Raises:
            TypeError: Arrays of that element type cannot be stored (objects, structures).
        """
        from tidemark.types.numpy_types import NumpyArrayTypeInfo

        return NumpyArrayTypeInfo(dtype, shape)

    @staticmethod
    def DATACLASS(cls: type[Any]) -> DataclassTypeInfo:
        """Return the type of instances of a dataclass; may be None.

        Raises:
            TypeError: `cls` is no dataclass, or is local to a function.
        """
        return DataclassTypeInfo(cls)

    @staticmethod
    def AVRO(schema: AvroSchema | str) -> TypeInformation:
        """Return the type of dictionaries that follow an Avro schema; may be None."""
        from tidemark.types.avro import AvroSchema, GenericRecordAvroTypeInfo

        parsed = AvroSchema.parse_string(schema) if isinstance(schema, str) else schema
        return GenericRecordAvroTypeInfo(parsed)

    @staticmethod
    def SERIALIZED(serializer: Any) -> SerializedTypeInfo:
        """Return the type of whatever a `TypeSerializer` of the user's reads and writes."""
        return SerializedTypeInfo(serializer)


def to_type_info(declaration: Any) -> TypeInformation:
    """Return the type a user meant where a type is expected.

    A list of types means `Types.ROW(list)`, a dataclass `Types.DATACLASS(cls)`, a `TypeSerializer`
    instance `Types.SERIALIZED(it)`, `numpy.ndarray` any array, a scalar class of numpy or pandas the type that
    holds its values; a `TypeInformation` is returned as it is.

    Raises:
        TypeError: Anything else.
    """
    if isinstance(declaration, TypeInformation):
        return declaration
    if isinstance(declaration, list):
        return RowTypeInfo(declaration)
    if isinstance(declaration, type) and dataclasses.is_dataclass(declaration):
        return DataclassTypeInfo(declaration)
    if isinstance(declaration, SerializerMarker):
        return SerializedTypeInfo(declaration)
    if isinstance(declaration, type):
        from tidemark.types.numpy_types import type_of_class

        foreign = type_of_class(declaration)
        if foreign is not None:
            return foreign
    raise TypeError(
        f"Expected a type (Types.*), a list of types, a dataclass or a TypeSerializer, got {declaration!r}."
        f"{_hint(declaration)}"
    )


_OF_PYTHON = {str: "STRING", int: "LONG", float: "DOUBLE", bool: "BOOLEAN"}


def _hint(declaration: Any) -> str:
    """What was probably meant."""
    name = _OF_PYTHON.get(declaration) if isinstance(declaration, type) else None
    if name is None and callable(declaration):
        own = getattr(declaration, "__name__", "")
        name = own if getattr(Types, own, None) is declaration else None
    return f" Did you mean Types.{name}()?" if name else ""
