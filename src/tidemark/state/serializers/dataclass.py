"""The dataclass serializer, whose state survives added, removed and reordered fields.

Encoding, version 1: `00` for None, else `01` and the record of `record.py` with a null mask, so any
field may be None. In Arrow a struct with one child per field.

The fields a serializer reads and writes (*stored*) may be those of an older version of the class. Reading
then builds an instance of the class as it is now: fields the class no longer has are dropped, new ones get
their declared default, else Java's default of the declared type. Neither `__init__` nor
`__post_init__` runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tidemark.errors import SerializationError, StateMigrationException
from tidemark.state.allowed_classes import is_only_data
from tidemark.state.serializers.base import BinarySerializer, TypeSerializer
from tidemark.state.serializers.compatibility import (
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
    dump_snapshot,
    find_class,
    load_serializer_snapshot,
    snapshot_of,
)
from tidemark.state.serializers.leaf import misfit
from tidemark.state.serializers.record import RecordCodec, none_or, null_positions, struct_column
from tidemark.state.serializers.streams import DataInputView, DataOutputView
from tidemark.types.inference import declared_fields, qualified_name, state_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataclassSerializer", "DataclassSerializerSnapshot", "StoredField", "stand_ins"]

_JAVA_DEFAULTS: dict[str, Any] = {"int": 0, "float": 0.0, "bool": False}
_NONE = type(None)

# Classes seen in this process, for those that no import would find: those of the user's script that arrived
# by value, and those whose name in state is not their own.
_seen: WeakValueDictionary[str, type[Any]] = WeakValueDictionary()
_renamed: WeakValueDictionary[str, type[Any]] = WeakValueDictionary()
_standing_in: ContextVar[bool] = ContextVar("standing_in", default=False)
_STAND_IN = "__tidemark_stand_in__"


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Inside, a class that is not to be found is made up of the stored fields, for those who only look at values.

    Such is every class of the program itself, `__main__`, in whatever other process.
    """
    token = _standing_in.set(True)
    try:
        yield
    finally:
        _standing_in.reset(token)


@dataclass(frozen=True, slots=True)
class StoredField:
    """One field as it is written: its name, its annotation in canonical text, its serializer."""

    name: str
    declared: str
    serializer: TypeSerializer[Any]


class DataclassSerializer(BinarySerializer[Any]):
    """DATACLASS."""

    nullable = True

    def __init__(self, cls: type[Any], fields: Sequence[StoredField]) -> None:
        self.cls = cls
        self.fields = tuple(fields)
        self.class_name = state_name(cls)
        serializers = [field.serializer for field in self.fields]
        self._serializers = serializers
        self._codec = RecordCodec(serializers, nullable=True)
        self._key_codec = RecordCodec(serializers, nullable=True, canonical=True)
        names = [field.name for field in self.fields]
        # A removed field is no longer there to be read from an instance.
        current = {field.name for field in dataclasses.fields(cls)}
        self._getters: list[Callable[[Any], Any]] = [
            attrgetter(name) if name in current else _nothing for name in names
        ]
        self._make = _maker(cls, names)
        own_name = qualified_name(cls)
        if hasattr(cls, _STAND_IN):
            return
        _seen[own_name] = cls
        if own_name != self.class_name:
            _renamed[self.class_name] = cls

    def _check(self, value: Any) -> None:
        cls = type(value)
        if cls is not self.cls and qualified_name(cls) != qualified_name(self.cls):
            raise misfit(f"DATACLASS({self.class_name})", value, "an instance of exactly this class, or None")

    def _encode(self, value: Any, codec: RecordCodec) -> bytes:
        if value is None:
            return b"\x00"
        if type(value) is not self.cls:
            self._check(value)
        try:
            values = [get(value) for get in self._getters]
        except AttributeError as exc:
            raise SerializationError(f"An instance of {self.class_name} is incomplete: {exc}") from exc
        return b"\x01" + codec.encode(values)

    def to_bytes(self, value: Any) -> bytes:
        """Return the encoded instance."""
        return self._encode(value, self._codec)

    def key_bytes(self, value: Any) -> bytes:
        """Return the canonical form."""
        return self._encode(value, self._key_codec)

    def from_bytes(self, data: bytes) -> Any:
        """Return an instance of the class as it is now."""
        if data[:1] == b"\x01":
            return self._make(self._codec.decode(data, 1))
        if data == b"\x00":
            return None
        raise SerializationError(f"These bytes are no {self!r}: {data[:64]!r}")

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a function that normalises the fields, and copies the instance if one of them changed."""
        plan = [
            (get, none_or(field.serializer.normalizer()))
            for get, field in zip(self._getters, self.fields, strict=True)
        ]
        cls, check, make = self.cls, self._check, self._make

        def normalize(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is not cls:
                check(value)
            changed = type(value) is not cls
            values = []
            for get, field in plan:
                old = get(value)
                new = field(old)
                if new is not old:
                    changed = True
                values.append(new)
            return make(values) if changed else value

        return normalize

    def arrow_type(self) -> pa.DataType:
        """Return a struct with a child per field."""
        import pyarrow as pa

        if not self.fields:
            return pa.struct([("$empty", pa.int8())])
        return pa.struct([(field.name, field.serializer.arrow_type()) for field in self.fields])

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column; None becomes null."""
        import pyarrow as pa

        kinds = set(map(type, values))
        if not kinds <= {self.cls, _NONE}:
            for value in values:
                if value is not None:
                    self._check(value)
        nulls = null_positions(values) if _NONE in kinds else None
        if nulls is None:
            columns = [list(map(get, values)) for get in self._getters]
        else:
            columns = [[None if value is None else get(value) for value in values] for get in self._getters]
        extra = pa.nulls(len(values), pa.int8()) if not self.fields else None
        return struct_column(self._serializers, columns, list(self.arrow_type()), nulls, True, extra)

    def to_arrow_nullable(self, values: Sequence[Any]) -> pa.Array:
        """Return a struct column; None becomes null."""
        return self.to_arrow(values)

    def _from_array(self, array: pa.Array) -> list[Any]:
        columns = [field.serializer.from_arrow(array.field(i)) for i, field in enumerate(self.fields)]
        records: list[tuple[Any, ...]] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        make = self._make
        if not array.null_count:
            return [make(record) for record in records]
        valid = array.is_valid().to_pylist()
        return [make(record) if ok else None for record, ok in zip(records, valid, strict=True)]

    def snapshot_configuration(self) -> TypeSerializerSnapshot[Any]:
        """Return a snapshot with the class name and, per field, name, annotation and nested snapshot."""
        return DataclassSerializerSnapshot(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled functions do not pickle; the other side compiles its own.
        return DataclassSerializer, (self.cls, self.fields)

    def __repr__(self) -> str:
        shown = ", ".join([f"{field.name}: {field.declared}" for field in self.fields])
        return f"DATACLASS({self.class_name}: {shown})"


def _nothing(instance: Any) -> None:
    """Stand in for the value of a field the class no longer has."""


def _maker(cls: type[Any], stored: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    """Return a function from the stored values to an instance of `cls` as it is now."""
    current = {field.name: field for field in dataclasses.fields(cls)}
    kept = [(at, name) for at, name in enumerate(stored) if name in current]
    added = [(name, _default(cls, field)) for name, field in current.items() if name not in set(stored)]
    # Attribute by attribute, also where a whole __dict__ could be set: frozen and slotted classes need it,
    # and the instances of the others keep sharing their keys in memory.
    new, put = object.__new__, object.__setattr__
    if len(kept) == len(stored) and not added:
        names = tuple(stored)

        def make(values: Sequence[Any]) -> Any:
            instance = new(cls)
            for name, value in zip(names, values, strict=True):
                put(instance, name, value)
            return instance

        return make

    def make_adapted(values: Sequence[Any]) -> Any:
        instance = new(cls)
        for at, name in kept:
            put(instance, name, values[at])
        for name, default in added:
            put(instance, name, default())
        return instance

    return make_adapted


def _default(cls: type[Any], field: dataclasses.Field[Any]) -> Callable[[], Any]:
    if field.default is not dataclasses.MISSING:
        value = field.default
        return lambda: value
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    declared = {declaration.name: declaration.declared for declaration in declared_fields(cls)}[field.name]
    java_default = _JAVA_DEFAULTS.get(declared.removeprefix("Annotated[").split(",")[0])
    return lambda: java_default


class _Skipped(BinarySerializer[Any]):
    """Reads over the values of a removed field, whose classes may be gone as well."""

    def __init__(self, fixed_width: int | None) -> None:
        self.fixed_width = fixed_width

    def to_bytes(self, value: Any) -> bytes:
        """Return as many zeros as the field is wide; only None is ever written."""
        return bytes(self.fixed_width or 0)

    def from_bytes(self, data: bytes) -> None:
        """Forget the value."""

    def _from_array(self, array: pa.Array) -> list[Any]:
        return [None] * len(array)


class _StoredSnapshot:
    """One field of a snapshot. The nested snapshot is only loaded if the field is still there."""

    def __init__(
        self, name: str, declared: str, data: bytes = b"", snapshot: TypeSerializerSnapshot[Any] | None = None
    ) -> None:
        self.name = name
        self.declared = declared
        self._data = data
        self._snapshot = snapshot

    def data(self) -> bytes:
        """Return the nested snapshot in its stored form."""
        return self._data if self._snapshot is None else dump_snapshot(self._snapshot)

    def snapshot(self) -> TypeSerializerSnapshot[Any]:
        """Return the nested snapshot."""
        if self._snapshot is None:
            self._snapshot = load_serializer_snapshot(self._data)
        return self._snapshot

    def skipped(self) -> StoredField:
        """Return the field as one to read over."""
        try:
            width = self.snapshot().restore_serializer().fixed_width
        except StateMigrationException:
            # Types of fixed width are our own and always there.
            width = None
        return StoredField(self.name, self.declared, _Skipped(width))


class DataclassSerializerSnapshot(TypeSerializerSnapshot[Any]):
    """Class name and fields at the time state was written.

    Layout, version 1: `class:utf | count:i32 | (name:utf | declared:utf | nested snapshot:bytes) ...`
    """

    def __init__(self, serializer: DataclassSerializer | None = None) -> None:
        self._class_name = ""
        self._class: type[Any] | None = None
        self._fields: list[_StoredSnapshot] = []
        if serializer is not None:
            self._class_name, self._class = serializer.class_name, serializer.cls
            self._fields = [
                _StoredSnapshot(f.name, f.declared, snapshot=snapshot_of(f.serializer))
                for f in serializer.fields
            ]

    def get_current_version(self) -> int:
        """Return the version of this format."""
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        """Write class name and fields."""
        out.write_utf(self._class_name)
        out.write_int(len(self._fields))
        for field in self._fields:
            out.write_utf(field.name)
            out.write_utf(field.declared)
            out.write_bytes(field.data())

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        """Read class name and fields."""
        self._class_name = in_.read_utf()
        self._fields = [
            _StoredSnapshot(in_.read_utf(), in_.read_utf(), in_.read_bytes()) for _ in range(in_.read_int())
        ]

    def resolve_schema_compatibility(
        self, new_serializer: TypeSerializer[Any]
    ) -> TypeSerializerSchemaCompatibility:
        """Match fields by name; refuse another class and another declared type."""
        incompatible = TypeSerializerSchemaCompatibility.incompatible()
        if not isinstance(new_serializer, DataclassSerializer):
            return incompatible
        if new_serializer.class_name != self._class_name:
            return incompatible
        self._class = new_serializer.cls
        chosen = {field.name: field for field in new_serializer.fields}
        migrate = [field.name for field in self._fields] != list(chosen)
        reconfigured = False
        for old in self._fields:
            new = chosen.get(old.name)
            if new is None:
                continue
            if new.declared != old.declared:
                return incompatible
            answer = old.snapshot().resolve_schema_compatibility(new.serializer)
            if answer.is_incompatible():
                return incompatible
            if answer.is_compatible_after_migration():
                migrate = True
            elif answer.is_compatible_with_reconfigured_serializer():
                reconfigured = True
                chosen[old.name] = StoredField(old.name, old.declared, answer.get_reconfigured_serializer())
        if migrate:
            return TypeSerializerSchemaCompatibility.compatible_after_migration()
        if reconfigured:
            return TypeSerializerSchemaCompatibility.compatible_with_reconfigured_serializer(
                DataclassSerializer(new_serializer.cls, list(chosen.values()))
            )
        return TypeSerializerSchemaCompatibility.compatible_as_is()

    def restore_serializer(self) -> DataclassSerializer:
        """Return a serializer that reads the stored fields into the class as it is now.

        Raises:
            StateMigrationException: The class cannot be imported, or is no dataclass any more.
        """
        cls = self._class or self._find_class()
        if not dataclasses.is_dataclass(cls):
            raise StateMigrationException(f"{self._class_name} was a dataclass and is none any more.")
        current = {field.name for field in dataclasses.fields(cls)}
        fields = [
            StoredField(field.name, field.declared, field.snapshot().restore_serializer())
            if field.name in current
            else field.skipped()
            for field in self._fields
        ]
        return DataclassSerializer(cls, fields)

    def _find_class(self) -> type[Any]:
        if is_only_data():
            return self._stand_in()
        if self._class_name.startswith("__main__.") and self._class_name in _seen:
            return _seen[self._class_name]
        try:
            found: type[Any] = find_class(self._class_name)
        except StateMigrationException:
            if self._class_name in _renamed:
                return _renamed[self._class_name]
            if not _standing_in.get():
                raise
            found = self._made_up()
        return found

    def _made_up(self) -> type[Any]:
        module, _, name = self._class_name.rpartition(".")
        names = [field.name for field in self._fields]
        return dataclasses.make_dataclass(name, names, namespace={"__module__": module, _STAND_IN: True})

    def _stand_in(self) -> type[Any]:
        """A class with the stored fields, where the one the snapshot names must not be imported."""
        names = [field.name for field in self._fields]
        try:
            if any(name.startswith("__") for name in names):
                raise TypeError("a field has a name that Python gives a meaning")
            return dataclasses.make_dataclass(
                "Stored", [(name, Any) for name in names], init=False, repr=False, eq=False
            )
        except TypeError as exc:
            raise StateMigrationException(
                f"{self._class_name[:200]!r} is stored as no dataclass: {exc}."
            ) from exc

    def field_snapshots(self) -> dict[str, TypeSerializerSnapshot[Any]]:
        """Return the stored fields by name, in their order.

        Raises:
            StateMigrationException: The snapshot of a field cannot be loaded.
        """
        return {field.name: field.snapshot() for field in self._fields}

    def __repr__(self) -> str:
        shown = ", ".join([f"{field.name}: {field.declared}" for field in self._fields])
        return f"DATACLASS({self._class_name}: {shown})"
