"""What is stored with state about its serializer, and how a restored one meets the new one.

A serializer snapshot is written as

    format:u8 = 1 | class name:utf | version:i32 | length:i32 | bytes

and read back by importing the snapshot class and calling it without arguments. No pickle is involved, but for the
snapshots of old (`config_snapshot`).
The decision itself (`resolve_schema_compatibility`) is made by the old, restored snapshot, with the new
serializer as the argument. Deciding also *binds*: afterwards `restore_serializer` yields values of the
new shape, as far as the type can evolve at all.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar, final

from tidemark.errors import StateMigrationException
from tidemark.state.allowed_classes import check_allowed
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.inference import qualified_name

__all__ = [
    "CompositeTypeSerializerSnapshot",
    "GenericSerializerSnapshot",
    "SimpleTypeSerializerSnapshot",
    "TypeSerializerSchemaCompatibility",
    "TypeSerializerSnapshot",
    "dump_serializer_snapshot",
    "dump_snapshot",
    "find_class",
    "load_serializer_snapshot",
    "snapshot_of",
]

T = TypeVar("T")

_FORMAT = 1


class _Kind(Enum):
    AS_IS = "as is"
    AFTER_MIGRATION = "after migration"
    RECONFIGURED = "with reconfigured serializer"
    INCOMPATIBLE = "incompatible"


class TypeSerializerSchemaCompatibility:
    """The answer to: can the new serializer take over what the old one wrote?"""

    def __init__(self, kind: _Kind, reconfigured: TypeSerializer[Any] | None = None) -> None:
        self._kind = kind
        self._reconfigured = reconfigured

    @staticmethod
    def compatible_as_is() -> TypeSerializerSchemaCompatibility:
        """Same schema: the new serializer reads the old bytes."""
        return TypeSerializerSchemaCompatibility(_Kind.AS_IS)

    @staticmethod
    def compatible_after_migration() -> TypeSerializerSchemaCompatibility:
        """Different schema: the old serializer reads, the new one writes."""
        return TypeSerializerSchemaCompatibility(_Kind.AFTER_MIGRATION)

    @staticmethod
    def compatible_with_reconfigured_serializer(
        serializer: TypeSerializer[Any],
    ) -> TypeSerializerSchemaCompatibility:
        """Same schema for `serializer`, which takes the place of the new serializer."""
        return TypeSerializerSchemaCompatibility(_Kind.RECONFIGURED, serializer)

    @staticmethod
    def incompatible() -> TypeSerializerSchemaCompatibility:
        """The state cannot be used: access to it fails."""
        return TypeSerializerSchemaCompatibility(_Kind.INCOMPATIBLE)

    def is_compatible_as_is(self) -> bool:
        """Whether the new serializer is used as it is."""
        return self._kind is _Kind.AS_IS

    def is_compatible_after_migration(self) -> bool:
        """Whether all stored values have to be rewritten."""
        return self._kind is _Kind.AFTER_MIGRATION

    def is_compatible_with_reconfigured_serializer(self) -> bool:
        """Whether another serializer takes the place of the new one."""
        return self._kind is _Kind.RECONFIGURED

    def is_incompatible(self) -> bool:
        """Whether the state cannot be used."""
        return self._kind is _Kind.INCOMPATIBLE

    def get_reconfigured_serializer(self) -> TypeSerializer[Any]:
        """Return the serializer to use instead of the new one.

        Raises:
            ValueError: The answer is another one.
        """
        if self._reconfigured is None:
            raise ValueError(f"There is no reconfigured serializer: the answer is '{self._kind.value}'.")
        return self._reconfigured

    def __repr__(self) -> str:
        return f"TypeSerializerSchemaCompatibility({self._kind.value})"


class TypeSerializerSnapshot(ABC, Generic[T]):
    """The configuration of a serializer at the time state was written.

    Subclasses live at module level and can be made without arguments.
    """

    @abstractmethod
    def get_current_version(self) -> int:
        """Return the version of the format `write_snapshot` writes."""

    @abstractmethod
    def write_snapshot(self, out: DataOutputView) -> None:
        """Write what is needed to rebuild the serializer."""

    @abstractmethod
    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read what `write_snapshot` wrote when its version was `read_version`."""

    @abstractmethod
    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[T]
    ) -> TypeSerializerSchemaCompatibility:
        """Decide whether `new_serializer` can take over what the serializer of this snapshot wrote."""

    @abstractmethod
    def restore_serializer(self) -> TypeSerializer[T]:
        """Return a serializer that reads the old bytes."""

    def _taken_from(self, serializer: TypeSerializer[T]) -> None:
        """Told before it is written whose snapshot this is; only old kinds of snapshots need to know."""

    def __repr__(self) -> str:
        return type(self).__qualname__


class SimpleTypeSerializerSnapshot(TypeSerializerSnapshot[T]):
    """For serializers without configuration: the same class is compatible as is, any other is not."""

    def __init__(self, serializer_supplier: Callable[[], TypeSerializer[T]]) -> None:
        self._supplier = serializer_supplier

    def get_current_version(self) -> int:
        """Return the version of this format; there is nothing in it yet."""
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        """Write nothing: the class of the snapshot says it all."""

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read nothing."""

    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[T]
    ) -> TypeSerializerSchemaCompatibility:
        """Accept a serializer of exactly the supplier's class."""
        same = type(new_serializer) is type(self._supplier())
        return _as_is_if(same)

    def restore_serializer(self) -> TypeSerializer[T]:
        """Return a new serializer from the supplier."""
        return self._supplier()

    def __repr__(self) -> str:
        return repr(self._supplier())


class GenericSerializerSnapshot(TypeSerializerSnapshot[T]):
    """For custom serializers that write no snapshot of their own: bound to their qualified class name."""

    def __init__(self, serializer: TypeSerializer[T] | None = None) -> None:
        self._class_name = "" if serializer is None else serializer.qualified_name()
        self._serializer = serializer

    def get_current_version(self) -> int:
        """Return the version of this format."""
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        """Write the class name."""
        out.write_utf(self._class_name)

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the class name."""
        self._class_name = in_.read_utf()

    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[T]
    ) -> TypeSerializerSchemaCompatibility:
        """Accept a serializer of the same qualified class, and read with it from then on."""
        same = new_serializer.qualified_name() == self._class_name
        if same:
            self._serializer = new_serializer
        return _as_is_if(same)

    def restore_serializer(self) -> TypeSerializer[T]:
        """Return the serializer this was resolved with, else a new one made without arguments.

        Raises:
            StateMigrationException: The class is gone, is no serializer or needs arguments.
        """
        if self._serializer is None:
            try:
                self._serializer = find_class(self._class_name, TypeSerializer)()
            except TypeError as exc:
                raise StateMigrationException(
                    f"Serializer {self._class_name} cannot be made without arguments ({exc}). Give it a "
                    "snapshot_configuration() that stores them."
                ) from exc
        serializer: TypeSerializer[T] = self._serializer
        return serializer

    def __repr__(self) -> str:
        return self._class_name


class CompositeTypeSerializerSnapshot(TypeSerializerSnapshot[T]):
    """For serializers built from other serializers: resolves the nested ones and combines the answers.

    Made from the serializer class for reading and from an instance for writing.
    """

    def __init__(self, serializer: TypeSerializer[T] | type[TypeSerializer[T]]) -> None:
        self._nested: list[TypeSerializerSnapshot[Any]] | None = None
        if isinstance(serializer, type):
            self._serializer_class: type[TypeSerializer[T]] = serializer
            self._serializer: TypeSerializer[T] | None = None
        else:
            self._serializer_class = type(serializer)
            self._serializer = serializer

    @abstractmethod
    def get_current_outer_snapshot_version(self) -> int:
        """Return the version of what `write_outer_snapshot` writes."""

    @abstractmethod
    def get_nested_serializers(self, outer_serializer: Any) -> Sequence[TypeSerializer[Any]]:
        """Return the nested serializers of `outer_serializer`, always in the same order."""

    @abstractmethod
    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> TypeSerializer[T]:
        """Return an outer serializer around `nested_serializers`."""

    def write_outer_snapshot(self, out: DataOutputView) -> None:
        """Write the settings of the outer serializer itself; by default it has none."""

    def read_outer_snapshot(
        self, read_outer_snapshot_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the settings written with version `read_outer_snapshot_version`."""

    def is_outer_snapshot_compatible(self, new_serializer: Any) -> bool:
        """Whether the settings read fit those of `new_serializer`."""
        return True

    @final
    def get_current_version(self) -> int:
        """Return the version of the frame around outer settings and nested snapshots."""
        return 1

    @final
    def write_snapshot(self, out: DataOutputView) -> None:
        """Write the outer settings, then every nested snapshot."""
        outer = DataOutputView()
        self.write_outer_snapshot(outer)
        out.write_int(self.get_current_outer_snapshot_version())
        out.write_bytes(outer.getvalue())
        nested = self.nested_snapshots()
        out.write_int(len(nested))
        for snapshot in nested:
            out.write_bytes(dump_snapshot(snapshot))

    @final
    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read the outer settings and every nested snapshot."""
        outer_version = in_.read_int()
        outer = DataInputView(in_.read_bytes())
        self.read_outer_snapshot(outer_version, outer, user_code_class_loader)
        self._nested = [load_serializer_snapshot(in_.read_bytes()) for _ in range(in_.read_int())]

    @final
    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[T]
    ) -> TypeSerializerSchemaCompatibility:
        """Combine the answers of the outer settings and of all nested snapshots.

        Raises:
            ValueError: The new serializer has another number of nested serializers.
        """
        if type(new_serializer) is not self._serializer_class:
            return TypeSerializerSchemaCompatibility.incompatible()
        if not self.is_outer_snapshot_compatible(new_serializer):
            return TypeSerializerSchemaCompatibility.incompatible()
        old, new = self.nested_snapshots(), list(self.get_nested_serializers(new_serializer))
        if len(old) != len(new):
            raise ValueError(
                f"{qualified_name(self._serializer_class)} was written with {len(old)} nested serializers "
                f"and is restored with {len(new)}."
            )
        answers = [o.resolve_schema_compatibility(n) for o, n in zip(old, new, strict=True)]
        if any(answer.is_incompatible() for answer in answers):
            return TypeSerializerSchemaCompatibility.incompatible()
        if any(answer.is_compatible_after_migration() for answer in answers):
            return TypeSerializerSchemaCompatibility.compatible_after_migration()
        if any(answer.is_compatible_with_reconfigured_serializer() for answer in answers):
            chosen = [
                answer.get_reconfigured_serializer()
                if answer.is_compatible_with_reconfigured_serializer()
                else nested
                for answer, nested in zip(answers, new, strict=True)
            ]
            return TypeSerializerSchemaCompatibility.compatible_with_reconfigured_serializer(
                self.create_outer_serializer_with_nested_serializers(chosen)
            )
        return TypeSerializerSchemaCompatibility.compatible_as_is()

    @final
    def restore_serializer(self) -> TypeSerializer[T]:
        """Return an outer serializer around the restored nested ones."""
        nested = [snapshot.restore_serializer() for snapshot in self.nested_snapshots()]
        return self.create_outer_serializer_with_nested_serializers(nested)

    def __repr__(self) -> str:
        if type(self).__module__.startswith("tidemark."):
            # Our own types are known by another name than that of their serializer.
            with contextlib.suppress(StateMigrationException):
                return repr(self.restore_serializer())
        return f"{self._serializer_class.__name__}{self.nested_snapshots()!r}"

    @final
    def nested_snapshots(self) -> list[TypeSerializerSnapshot[Any]]:
        """Return the snapshots of the nested serializers, in their order."""
        if self._nested is None:
            nested = [] if self._serializer is None else self.get_nested_serializers(self._serializer)
            self._nested = [snapshot_of(serializer) for serializer in nested]
        return self._nested


def _as_is_if(same: bool) -> TypeSerializerSchemaCompatibility:
    if same:
        return TypeSerializerSchemaCompatibility.compatible_as_is()
    return TypeSerializerSchemaCompatibility.incompatible()


def dump_serializer_snapshot(serializer: TypeSerializer[Any]) -> bytes:
    """Return the snapshot of `serializer` in the form that is stored with state.

    Raises:
        ValueError: The snapshot class is nested or local, so that it could not be found on restore.
        TypeError: `snapshot_configuration` returned something else.
    """
    return dump_snapshot(snapshot_of(serializer))


def snapshot_of(serializer: TypeSerializer[Any]) -> TypeSerializerSnapshot[Any]:
    """Return the snapshot of `serializer`.

    Raises:
        TypeError: `snapshot_configuration` returned something else.
    """
    snapshot = serializer.snapshot_configuration()
    if not isinstance(snapshot, TypeSerializerSnapshot):
        raise TypeError(
            f"{serializer.qualified_name()}.snapshot_configuration must return a TypeSerializerSnapshot, "
            f"got {snapshot!r}."
        )
    snapshot._taken_from(serializer)
    return snapshot


def dump_snapshot(snapshot: TypeSerializerSnapshot[Any]) -> bytes:
    """Return a snapshot in the form that is stored with state.

    Raises:
        ValueError: The snapshot class is nested or local.
    """
    cls = type(snapshot)
    if "." in cls.__qualname__:
        raise ValueError(
            f"Serializer snapshot class {qualified_name(cls)} is nested or local and could not be imported "
            "on restore; move it to module level."
        )
    body = DataOutputView()
    snapshot.write_snapshot(body)
    out = DataOutputView()
    out.write(bytes((_FORMAT,)))
    out.write_utf(qualified_name(cls))
    out.write_int(snapshot.get_current_version())
    out.write_bytes(body.getvalue())
    return out.getvalue()


def load_serializer_snapshot(data: bytes) -> TypeSerializerSnapshot[Any]:
    """Return the snapshot `dump_serializer_snapshot` wrote.

    Raises:
        StateMigrationException: The format is newer than this release, the class of the snapshot cannot be
            imported or made without arguments, or the bytes are none of a serializer's snapshot.
    """
    try:
        return _load_serializer_snapshot(data)
    except (StateMigrationException, OSError, MemoryError):
        raise
    except Exception as exc:
        raise StateMigrationException(
            f"The stored description of a serializer cannot be read ({type(exc).__name__}: {exc}); it has been "
            "changed since it was written. Start from another snapshot."
        ) from exc


def _load_serializer_snapshot(data: bytes) -> TypeSerializerSnapshot[Any]:
    view = DataInputView(data)
    written = view.read_fully(1)[0]
    if written != _FORMAT:
        raise StateMigrationException(
            f"Serializer snapshot format {written} is unknown to this release, which reads format {_FORMAT}."
        )
    name, version = view.read_utf(), view.read_int()
    cls = find_class(name, TypeSerializerSnapshot)
    try:
        snapshot: TypeSerializerSnapshot[Any] = cls()
    except TypeError as exc:
        raise StateMigrationException(
            f"Serializer snapshot class {name} cannot be made without arguments: {exc}"
        ) from exc
    snapshot.read_snapshot(version, DataInputView(view.read_bytes()), None)
    return snapshot


def find_class(name: str, base: type = object) -> Any:
    """Return the class called `module.QualName`, which must derive from `base`.

    The name comes out of a snapshot, whose author may not mean well: nothing is made from a class before it is
    known to be of the kind that is expected.

    Raises:
        StateMigrationException: There is no such module, no such class in it, it does not derive from `base`, or
            `state.restore.allowed-classes` does not allow it.
    """
    check_allowed(name)
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:cut])
        try:
            found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        except (ImportError, TypeError, ValueError):
            # The name may be anything: relative, empty between two dots, with a zero in it.
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            if not issubclass(found, base):
                raise StateMigrationException(
                    f"{name}, which the stored state refers to, is no {base.__name__} (any more). Bring that class "
                    "back under this name; do not restore a snapshot of somebody you do not trust."
                )
            return found
    raise StateMigrationException(
        f"Class {name}, which the stored state refers to, cannot be imported. Bring it back under this name, "
        "or drop the state by giving the operator a new uid."
    )
