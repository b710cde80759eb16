"""What a backend asks when it meets restored state: who reads the old values, who writes the new ones?

The answer is a `Resolution`. Its `reader` accepts both stored forms, bytes and Arrow columns, and yields
values that fit the new serializer, so a backend migrates state by reading with `reader` and writing with
`serializer`, whatever the reason for the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemark.errors import StateMigrationException
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import (
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
    load_serializer_snapshot,
)
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Migration", "Resolution", "naming_state", "resolve_compatibility", "resolve_key_compatibility"]


DeclaredMigration = tuple[TypeSerializer[Any], Callable[[Any], Any]]
"""Who reads the stored values, and the user's function from them to new ones."""


_REMEDIES = {
    "state": "Declare a migration on the descriptor, go back to the old type, or give the operator a new uid.",
    "key": "Keys do not migrate on restore: go back to the old type, rewrite the savepoint with "
    "tidemark.state_processor.migrate_keys, or give the operator a new uid.",
    "map key": "Map keys do not migrate: go back to the old type, or give the state another name and fill it "
    "from the old one.",
}


class Migration(NamedTuple):
    """A declared way from values of an old type to values of the new one."""

    from_type_info: TypeInformation
    function: Callable[[Any], Any]


class Resolution(TypeSerializerSchemaCompatibility):
    """A compatibility answer together with the serializers that follow from it.

    Attributes:
        serializer: Writes and reads from now on: the new one, or the reconfigured one.
        reader: Reads what is stored. The same as `serializer` unless the answer is *after migration*.
        declared: The two parts of `reader` if a declared migration is to be applied.
    """

    def __init__(
        self,
        answer: TypeSerializerSchemaCompatibility,
        serializer: TypeSerializer[Any],
        reader: TypeSerializer[Any],
        old: str,
        declared: DeclaredMigration | None = None,
    ) -> None:
        super().__init__(answer._kind, answer._reconfigured)
        self.serializer = serializer
        self.reader = reader
        self.declared = declared
        self._old = old

    def require_compatible(
        self, state_name: str | None = None, operator_uid: str | None = None, role: str = "state"
    ) -> None:
        """Do nothing unless the answer is *incompatible*.

        Args:
            state_name: Name of the state, for the message.
            operator_uid: The operator it belongs to.
            role: What was resolved: "state", "map key" or "key".

        Raises:
            StateMigrationException: The stored values cannot be used with the new serializer.
        """
        if self.is_incompatible():
            subject = f"The {role} of state {state_name!r}" if role != "state" else f"State {state_name!r}"
            if state_name is None:
                subject = f"The {role}"
            raise StateMigrationException(
                f"{subject} was written as {self._old} but is read as {self.serializer!r}. {_REMEDIES[role]}",
                state_name=state_name,
                operator_uid=operator_uid,
            )


class _MappedReader(TypeSerializer[Any]):
    """Reads with another serializer and passes every value through a function; cannot write."""

    def __init__(self, inner: TypeSerializer[Any], function: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._function = function

    def serialize(self, element: Any, stream: Any) -> None:
        """Refuse: the old form is only ever read."""
        raise StateMigrationException("Migrated values are written with the new serializer, not the old one.")

    def deserialize(self, stream: Any) -> Any:
        """Read one old element and migrate it."""
        return self._function(self._inner.deserialize(stream))

    def from_bytes(self, data: bytes) -> Any:
        """Return the migrated value."""
        return self._function(self._inner.from_bytes(data))

    def arrow_type(self) -> pa.DataType:
        """Return the type of the stored column."""
        return self._inner.arrow_type()

    def _from_array(self, array: pa.Array) -> list[Any]:
        function = self._function
        return [function(value) for value in self._inner.from_arrow(array)]


@contextmanager
def naming_state(what: str, name: str) -> Iterator[None]:
    """Resolve inside: if the old serializer cannot even be rebuilt, the error names the state."""
    try:
        yield
    except StateMigrationException as exc:
        raise StateMigrationException(f"{what} '{name}' cannot be read: {exc}", state_name=name) from exc


def resolve_compatibility(
    old_snapshot: TypeSerializerSnapshot[Any] | bytes,
    new_serializer: TypeSerializer[Any],
    migrations: Sequence[Migration | tuple[TypeInformation, Callable[[Any], Any]]] = (),
) -> Resolution:
    """Decide how stored values meet the new serializer.

    First comes *as is*; then a migration declared for exactly the stored type, because whoever declared it
    wants it (a renamed field would otherwise count as one removed and one added); then what the snapshot
    decides by itself; last, if that is *incompatible*, a migration whose old type the stored one can evolve
    into.

    Args:
        old_snapshot: The restored snapshot, or its stored form.
        new_serializer: The serializer of the running job.
        migrations: Pairs of an old type and a function from its values to new ones.

    Raises:
        StateMigrationException: The class of the snapshot, or a class it refers to, cannot be imported.
        ValueError: The new serializer nests another number of serializers, and no migration fits.
    """
    snapshot = load_serializer_snapshot(old_snapshot) if isinstance(old_snapshot, bytes) else old_snapshot
    old = repr(snapshot)
    wrong_number: ValueError | None = None
    try:
        answer = snapshot.resolve_schema_compatibility(new_serializer)
    except ValueError as exc:
        answer, wrong_number = TypeSerializerSchemaCompatibility.incompatible(), exc
    if answer.is_compatible_as_is():
        return Resolution(answer, new_serializer, new_serializer, old)
    reader = new_serializer
    if answer.is_compatible_after_migration():
        # Before other types are tried: deciding binds the snapshot to the type it was asked about.
        reader = snapshot.restore_serializer()
    declared = _find_migration(snapshot, migrations, answer)
    if declared is not None:
        answer = TypeSerializerSchemaCompatibility.compatible_after_migration()
        return Resolution(answer, new_serializer, _MappedReader(*declared), old, declared)
    if wrong_number is not None:
        raise wrong_number
    if answer.is_compatible_with_reconfigured_serializer():
        reader = answer.get_reconfigured_serializer()
        return Resolution(answer, reader, reader, old)
    return Resolution(answer, new_serializer, reader, old)


def _find_migration(
    snapshot: TypeSerializerSnapshot[Any],
    migrations: Sequence[Migration | tuple[TypeInformation, Callable[[Any], Any]]],
    answer: TypeSerializerSchemaCompatibility,
) -> DeclaredMigration | None:
    """The declared migration to apply, as who reads the stored values and what makes new ones of them."""
    evolved: list[DeclaredMigration] = []
    for from_type_info, function in migrations:
        former = serializer_for(from_type_info)
        try:
            found = snapshot.resolve_schema_compatibility(former)
        except ValueError:
            # A composite with another number of nested serializers: not the type that was stored.
            continue
        if found.is_compatible_as_is():
            return former, function
        if found.is_compatible_with_reconfigured_serializer():
            return found.get_reconfigured_serializer(), function
        if found.is_compatible_after_migration():
            evolved.append((snapshot.restore_serializer(), function))
    return evolved[0] if evolved and answer.is_incompatible() else None


def resolve_key_compatibility(
    old_snapshot: TypeSerializerSnapshot[Any] | bytes, new_serializer: TypeSerializer[Any]
) -> Resolution:
    """Decide about keys, which never migrate: what would need migration is incompatible.

    A key that changes its bytes changes its key group, so it would have to move to another subtask.
    """
    resolution = resolve_compatibility(old_snapshot, new_serializer)
    if resolution.is_compatible_after_migration():
        refused = TypeSerializerSchemaCompatibility.incompatible()
        return Resolution(refused, new_serializer, new_serializer, resolution._old)
    return resolution
