"""What the indivisible built-in types have in common: exact Python types, Arrow columns, a shared snapshot.

The Arrow path looks at the set of Python types in a column first. If all are the expected ones the
column is built in one call; otherwise every value goes through the normaliser, which coerces it or
raises the error a user should see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tidemark.errors import SerializationError, StateMigrationException
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer
from tidemark.state.serializers.compatibility import (
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
)
from tidemark.state.serializers.streams import DataInputView, DataOutputView

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LeafSerializer", "LeafSerializerSnapshot", "misfit"]

T = TypeVar("T")
_NONE = type(None)


def misfit(type_name: str, value: Any, needs: str) -> SerializationError:
    """Return the error for a value that does not fit its declared type."""
    shown = repr(value)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    return SerializationError(
        f"A value of declared type {type_name} must be {needs}, got {shown} ({type(value).__name__})."
    )


class LeafSerializer(BinarySerializer[T]):
    """A serializer of an indivisible type. Instances of one class are interchangeable."""

    type_name: ClassVar[str]
    """Name of the type, stored with state."""
    exact: ClassVar[frozenset[type]]
    """Python types whose instances Arrow converts without coercion."""
    struct_code: ClassVar[str | None] = None
    """Format character of `struct` that writes the same bytes, where one does."""
    passes: ClassVar[str | None] = None
    """Expression of `{0}` that holds only for values which the normaliser gives back as they are: compiled functions
    ask it in place instead of calling the normaliser."""

    by_name: ClassVar[dict[str, type[LeafSerializer[Any]]]] = {}
    immutable = True
    identity_key = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "type_name" in cls.__dict__:
            LeafSerializer.by_name[cls.type_name] = cls

    def coerce(self, value: Any) -> Any:
        """Return `value` in its exact Python type; not called for None where None is legal.

        Raises:
            SerializationError: The value does not fit.
        """
        raise misfit(self.type_name, value, "of another type")

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that lets values of the exact type pass and coerces the others."""
        exact, coerce, nullable = self.exact, self.coerce, self.nullable

        def normalize(value: Any) -> Any:
            if type(value) in exact or (value is None and nullable):
                return value
            return coerce(value)

        return normalize

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a typed column."""
        return self._column(values, self.nullable)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a typed column; None becomes null."""
        return self._column(values, True)

    def _column(self, values: Sequence[Any], none_allowed: bool) -> pa.Array:
        kinds = set(map(type, values))
        if none_allowed:
            kinds.discard(_NONE)
        if not kinds <= self.exact:
            values = self._normalized(values, none_allowed)
        try:
            return self._build(values)
        except (ValueError, TypeError, OverflowError):
            # pyarrow's own errors are ValueErrors and TypeErrors; the normaliser knows the better message.
            return self._build(self._normalized(values, none_allowed))

    def _normalized(self, values: Sequence[Any], none_allowed: bool) -> list[Any]:
        normalize = self.normalizer()
        if none_allowed:
            return [None if value is None else normalize(value) for value in values]
        return [normalize(value) for value in values]

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, self.arrow_type())

    def _from_array(self, array: pa.Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        return values

    def snapshot_configuration(self) -> TypeSerializerSnapshot[T]:
        """Return a snapshot that holds the name of the type."""
        return LeafSerializerSnapshot(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return self.type_name


class LeafSerializerSnapshot(TypeSerializerSnapshot[Any]):
    """The name of an indivisible type; only the same type is compatible."""

    def __init__(self, serializer: LeafSerializer[Any] | None = None) -> None:
        self._type_name = "" if serializer is None else serializer.type_name

    def get_current_version(self) -> int:
        """Return the version of this format: the type name as text."""
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        """Write the type name."""
        out.write_utf(self._type_name)

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the type name."""
        self._type_name = in_.read_utf()

    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[Any]
    ) -> TypeSerializerSchemaCompatibility:
        """Accept the same type only."""
        if isinstance(new_serializer, LeafSerializer) and new_serializer.type_name == self._type_name:
            return TypeSerializerSchemaCompatibility.compatible_as_is()
        return TypeSerializerSchemaCompatibility.incompatible()

    def restore_serializer(self) -> TypeSerializer[Any]:
        """Return the serializer of the type.

        Raises:
            StateMigrationException: The state was written by a release that knows more types.
        """
        cls = LeafSerializer.by_name.get(self._type_name)
        if cls is None:
            raise StateMigrationException(f"Type {self._type_name} is unknown to this release of tidemark.")
        return cls()

    def __repr__(self) -> str:
        return self._type_name
