"""Serializer snapshots as they were before Flink 1.7: `TypeSerializerConfigSnapshot`. Deprecated.

They cannot rebuild a serializer, so its instance is stored beside them. Body of the stored form:

    length:i32 | pickled serializer | what `write` wrote

The pickle is loaded only to read state with the old serializer, and only where the program still has the class the
snapshot names. A serializer leaves them behind in four steps (docs/guides/schema-evolution.md).
"""

from __future__ import annotations

import pickle
import warnings
from abc import abstractmethod
from enum import Enum
from typing import Any, TypeVar, final

from tidemark.errors import ForbiddenClassError, StateMigrationException
from tidemark.state.allowed_classes import loads
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import TypeSerializerSchemaCompatibility, TypeSerializerSnapshot
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.inference import qualified_name

__all__ = ["CompatibilityResult", "TypeSerializerConfigSnapshot"]

T = TypeVar("T")


class CompatibilityResult(Enum):
    """What `TypeSerializer.ensure_compatibility` answers."""

    COMPATIBLE = "compatible"
    REQUIRES_MIGRATION = "requires migration"

    @staticmethod
    def compatible() -> CompatibilityResult:
        """The serializer reads what the old one wrote."""
        return CompatibilityResult.COMPATIBLE

    @staticmethod
    def requires_migration() -> CompatibilityResult:
        """The old serializer, which was stored, has to read the state once."""
        return CompatibilityResult.REQUIRES_MIGRATION

    def is_requires_migration(self) -> bool:
        """Whether the old serializer has to read."""
        return self is CompatibilityResult.REQUIRES_MIGRATION


class TypeSerializerConfigSnapshot(TypeSerializerSnapshot[T]):
    """The configuration of a serializer, stored together with the serializer. Deprecated.

    Subclasses live at module level, can be made without arguments, and write a version, which is all they must do.
    Who decides is the new serializer: its `ensure_compatibility` is given this snapshot.
    """

    # On the class, because subclasses need not call a constructor of ours.
    _serializer: TypeSerializer[T] | None = None
    _pickled = b""
    _read_version: int | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        warnings.warn(
            f"{qualified_name(cls)} is a TypeSerializerConfigSnapshot, which is deprecated; write a "
            "TypeSerializerSnapshot (see the guide on schema evolution).",
            DeprecationWarning,
            stacklevel=2,
        )

    @abstractmethod
    def get_version(self) -> int:
        """Return the version of the format `write` writes."""

    def write(self, out: DataOutputView) -> None:
        """Write the configuration; by default there is none."""

    def read(self, in_: DataInputView) -> None:
        """Read the configuration, written with version `get_read_version()`."""

    @final
    def get_read_version(self) -> int:
        """Return the version that was read, or the current one if nothing was."""
        return self.get_version() if self._read_version is None else self._read_version

    @final
    def get_current_version(self) -> int:
        """Return the version of the format `write` writes."""
        return self.get_version()

    def _taken_from(self, serializer: TypeSerializer[T]) -> None:
        self._serializer = serializer

    @final
    def write_snapshot(self, out: DataOutputView) -> None:
        """Write the serializer, then the configuration.

        Raises:
            ValueError: The serializer cannot be pickled.
        """
        if self._serializer is not None:
            try:
                self._pickled = pickle.dumps(self._serializer, 5)
            except Exception as exc:
                raise ValueError(
                    f"{self._serializer.qualified_name()} has to be stored with its state, because its "
                    f"{type(self).__name__} is a TypeSerializerConfigSnapshot, but cannot be pickled: {exc}"
                ) from exc
        out.write_bytes(self._pickled)
        self.write(out)

    @final
    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the configuration, and the bytes of the serializer without loading it."""
        self._pickled = in_.read_bytes()
        self._read_version = read_version
        self.read(in_)

    @final
    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[T]
    ) -> TypeSerializerSchemaCompatibility:
        """Ask the new serializer.

        Raises:
            StateMigrationException: It has no `ensure_compatibility`.
            TypeError: That answers something else than a `CompatibilityResult`.
        """
        answer = new_serializer.ensure_compatibility(self)
        if not isinstance(answer, CompatibilityResult):
            raise TypeError(
                f"{new_serializer.qualified_name()}.ensure_compatibility must return a CompatibilityResult, "
                f"got {answer!r}."
            )
        if answer.is_requires_migration():
            return TypeSerializerSchemaCompatibility.compatible_after_migration()
        return TypeSerializerSchemaCompatibility.compatible_as_is()

    @final
    def restore_serializer(self) -> TypeSerializer[T]:
        """Return the serializer that was stored.

        Raises:
            StateMigrationException: It cannot be loaded, or is no serializer.
        """
        if self._serializer is None:
            try:
                loaded = loads(self._pickled)
            except ForbiddenClassError:
                raise
            except Exception as exc:
                raise StateMigrationException(
                    f"The serializer stored with {qualified_name(type(self))} cannot be loaded ({exc}). Bring its "
                    "class back until a savepoint was taken with a TypeSerializerSnapshot."
                ) from exc
            if not isinstance(loaded, TypeSerializer):
                raise StateMigrationException(
                    f"What is stored with {qualified_name(type(self))} is no serializer: {loaded!r}."
                )
            self._serializer = loaded
        return self._serializer
