"""Snapshots of custom serializers: what is stored, how it is read back, how the answers combine."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest

from tidemark.errors import StateMigrationException
from tidemark.state.serializers import (
    CompositeTypeSerializerSnapshot,
    DataInputView,
    DataOutputView,
    SimpleTypeSerializerSnapshot,
    TypeSerializer,
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
    dump_serializer_snapshot,
    load_serializer_snapshot,
    resolve_compatibility,
    resolve_key_compatibility,
    serializer_for,
)
from tidemark.types.typeinfo import Types

Answer = TypeSerializerSchemaCompatibility


class Text(TypeSerializer[str]):
    def serialize(self, element: str, stream: Any) -> None:
        stream.write_utf(element)

    def deserialize(self, stream: Any) -> str:
        return str(stream.read_utf())

    def snapshot_configuration(self) -> TypeSerializerSnapshot[str]:
        return TextSnapshot()


class TextSnapshot(SimpleTypeSerializerSnapshot[str]):
    def __init__(self) -> None:
        super().__init__(Text)


class LoudText(Text):
    pass


class Versioned(TypeSerializer[int]):
    """Scales numbers; version 1 of its snapshot did not store the scale, which was always 10."""

    def __init__(self, scale: int) -> None:
        self.scale = scale

    def serialize(self, element: int, stream: Any) -> None:
        stream.write_long(element * self.scale)

    def deserialize(self, stream: Any) -> int:
        return int(stream.read_long()) // self.scale

    def snapshot_configuration(self) -> TypeSerializerSnapshot[int]:
        return VersionedSnapshot(self.scale)


class VersionedSnapshot(TypeSerializerSnapshot[int]):
    version = 2

    def __init__(self, scale: int = 0) -> None:
        self.scale = scale

    def get_current_version(self) -> int:
        return self.version

    def write_snapshot(self, out: DataOutputView) -> None:
        if self.version > 1:
            out.write_int(self.scale)

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        self.scale = 10 if read_version == 1 else in_.read_int()

    def resolve_schema_compatibility(self, new_serializer: TypeSerializer[int]) -> Answer:
        if not isinstance(new_serializer, Versioned):
            return Answer.incompatible()
        if new_serializer.scale == self.scale:
            return Answer.compatible_as_is()
        if new_serializer.scale == 0:
            return Answer.compatible_with_reconfigured_serializer(Versioned(self.scale))
        return Answer.compatible_after_migration()

    def restore_serializer(self) -> TypeSerializer[int]:
        return Versioned(self.scale)


class PairOf(TypeSerializer[tuple[Any, Any]]):
    def __init__(self, nested: Sequence[TypeSerializer[Any]], tag: str = "t") -> None:
        self.nested = list(nested)
        self.tag = tag

    def serialize(self, element: tuple[Any, Any], stream: Any) -> None:
        for serializer, value in zip(self.nested, element, strict=True):
            serializer.serialize(value, stream)

    def deserialize(self, stream: Any) -> tuple[Any, Any]:
        first, second = [serializer.deserialize(stream) for serializer in self.nested]
        return first, second

    def snapshot_configuration(self) -> TypeSerializerSnapshot[tuple[Any, Any]]:
        return PairSnapshot(self)


class PairSnapshot(CompositeTypeSerializerSnapshot[tuple[Any, Any]]):
    def __init__(self, serializer: PairOf | None = None) -> None:
        super().__init__(PairOf if serializer is None else serializer)
        self.tag = "" if serializer is None else serializer.tag

    def get_current_outer_snapshot_version(self) -> int:
        return 3

    def get_nested_serializers(self, outer_serializer: PairOf) -> list[TypeSerializer[Any]]:
        return outer_serializer.nested

    def create_outer_serializer_with_nested_serializers(
        self, nested_serializers: Sequence[TypeSerializer[Any]]
    ) -> PairOf:
        return PairOf(nested_serializers, self.tag)

    def write_outer_snapshot(self, out: DataOutputView) -> None:
        out.write_utf(self.tag)

    def read_outer_snapshot(
        self, read_outer_snapshot_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        assert read_outer_snapshot_version == 3
        self.tag = in_.read_utf()

    def is_outer_snapshot_compatible(self, new_serializer: PairOf) -> bool:
        return new_serializer.tag == self.tag


class Plain(TypeSerializer[str]):
    """Has no snapshot of its own."""

    def serialize(self, element: str, stream: Any) -> None:
        stream.write_utf(element)

    def deserialize(self, stream: Any) -> str:
        return str(stream.read_utf())


class OtherPlain(Plain):
    pass


class PlainWithArgument(Plain):
    def __init__(self, argument: str) -> None:
        self.argument = argument


def stored(serializer: TypeSerializer[Any]) -> TypeSerializerSnapshot[Any]:
    return load_serializer_snapshot(dump_serializer_snapshot(serializer))


def test_answers_know_what_they_are() -> None:
    reconfigured = Answer.compatible_with_reconfigured_serializer(Text())

    assert Answer.compatible_as_is().is_compatible_as_is()
    assert Answer.compatible_after_migration().is_compatible_after_migration()
    assert Answer.incompatible().is_incompatible()
    assert reconfigured.is_compatible_with_reconfigured_serializer()
    assert isinstance(reconfigured.get_reconfigured_serializer(), Text)
    assert not reconfigured.is_compatible_as_is()
    assert "after migration" in repr(Answer.compatible_after_migration())
    with pytest.raises(ValueError, match="as is"):
        Answer.compatible_as_is().get_reconfigured_serializer()


def test_a_simple_snapshot_accepts_exactly_the_suppliers_class() -> None:
    snapshot = stored(Text())

    assert snapshot.resolve_schema_compatibility(Text()).is_compatible_as_is()
    assert snapshot.resolve_schema_compatibility(LoudText()).is_incompatible()
    assert snapshot.resolve_schema_compatibility(serializer_for(Types.STRING())).is_incompatible()
    assert type(snapshot.restore_serializer()) is Text


def test_a_snapshot_is_read_with_the_version_it_was_written_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VersionedSnapshot, "version", 1)
    data = dump_serializer_snapshot(Versioned(10))
    monkeypatch.undo()

    snapshot = load_serializer_snapshot(data)

    assert snapshot.resolve_schema_compatibility(Versioned(10)).is_compatible_as_is()
    assert snapshot.resolve_schema_compatibility(Versioned(100)).is_compatible_after_migration()


def test_stored_snapshots_hold_no_pickle() -> None:
    data = dump_serializer_snapshot(PairOf([Versioned(2), serializer_for(Types.LONG())]))

    assert data[0] == 1
    assert f"{__name__}.PairSnapshot".encode() in data
    assert b"\x80\x05" not in data


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (PairOf([Versioned(2), Text()]), "is_compatible_as_is"),
        (PairOf([Versioned(3), Text()]), "is_compatible_after_migration"),
        (PairOf([Versioned(0), Text()]), "is_compatible_with_reconfigured_serializer"),
        (PairOf([Versioned(3), LoudText()]), "is_incompatible"),
        (PairOf([Versioned(2), Text()], tag="other"), "is_incompatible"),
        (Text(), "is_incompatible"),
    ],
)
def test_a_composite_combines_the_answers_of_its_parts(new: Any, expected: str) -> None:
    snapshot = stored(PairOf([Versioned(2), Text()]))

    assert getattr(snapshot.resolve_schema_compatibility(new), expected)()


def test_a_reconfigured_part_rebuilds_the_whole() -> None:
    snapshot = stored(PairOf([Versioned(2), Text()]))

    resolution = resolve_compatibility(snapshot, PairOf([Versioned(0), Text()]))

    assert isinstance(resolution.serializer, PairOf)
    assert resolution.serializer.nested[0].scale == 2
    assert resolution.reader is resolution.serializer


def test_another_number_of_parts_is_a_programming_error() -> None:
    snapshot = stored(PairOf([Versioned(2), Text()]))

    with pytest.raises(ValueError, match="2 nested serializers"):
        snapshot.resolve_schema_compatibility(PairOf([Versioned(2)]))


def test_a_composite_restores_its_parts() -> None:
    old = PairOf([Versioned(2), Text()])

    restored = stored(old).restore_serializer()

    assert restored.from_bytes(old.to_bytes((21, "x"))) == (21, "x")


def test_a_serializer_without_snapshot_is_bound_to_its_class() -> None:
    snapshot = stored(Plain())

    assert snapshot.resolve_schema_compatibility(Plain()).is_compatible_as_is()
    assert snapshot.resolve_schema_compatibility(OtherPlain()).is_incompatible()
    assert type(stored(Plain()).restore_serializer()) is Plain


def test_a_serializer_with_arguments_is_restored_from_the_new_one() -> None:
    snapshot = stored(PlainWithArgument("x"))
    with pytest.raises(StateMigrationException, match="without arguments"):
        snapshot.restore_serializer()

    new = PlainWithArgument("y")
    assert snapshot.resolve_schema_compatibility(new).is_compatible_as_is()

    assert snapshot.restore_serializer() is new


class Nesting(Text):
    class Inner(SimpleTypeSerializerSnapshot[str]):
        def __init__(self) -> None:
            super().__init__(Nesting)

    def snapshot_configuration(self) -> TypeSerializerSnapshot[str]:
        return Nesting.Inner()


def test_a_nested_or_local_snapshot_class_is_refused_when_written() -> None:
    class Local(TextSnapshot):
        pass

    class UsesLocal(Text):
        def snapshot_configuration(self) -> TypeSerializerSnapshot[str]:
            return Local()

    for serializer in (Nesting(), UsesLocal(), serializer_for(Types.LIST(Types.SERIALIZED(Nesting())))):
        with pytest.raises(ValueError, match="module level"):
            dump_serializer_snapshot(serializer)


def test_something_else_than_a_snapshot_is_refused() -> None:
    class Wrong(Text):
        def snapshot_configuration(self) -> Any:
            return "snapshot"

    with pytest.raises(TypeError, match="must return a TypeSerializerSnapshot"):
        dump_serializer_snapshot(Wrong())


def module_with(source: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("passing_module")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, "passing_module", module)
    return module


SNAPSHOT_SOURCE = f"""
from {__name__} import Text, TextSnapshot
class Gone(TextSnapshot):
    pass
class UsesGone(Text):
    def snapshot_configuration(self):
        return Gone()
"""


def test_a_snapshot_class_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_with(SNAPSHOT_SOURCE, monkeypatch)
    data = dump_serializer_snapshot(module.UsesGone())

    monkeypatch.delitem(sys.modules, "passing_module")

    with pytest.raises(StateMigrationException, match=r"passing_module\.Gone"):
        load_serializer_snapshot(data)


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        ("Gone = 5", "cannot be imported"),
        ("class Gone: pass", "no TypeSerializerSnapshot"),
        (
            f"from {__name__} import TextSnapshot\nclass Gone(TextSnapshot):\n    def __init__(self, x): pass",
            "without arguments",
        ),
    ],
)
def test_a_snapshot_class_that_changed_its_nature_is_named(
    replacement: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dump_serializer_snapshot(module_with(SNAPSHOT_SOURCE, monkeypatch).UsesGone())

    module_with(replacement, monkeypatch)

    with pytest.raises(StateMigrationException, match=message):
        load_serializer_snapshot(data)


TRAP_SOURCE = """
made = []
class {name}:
    def __init__(self):
        made.append(self)
"""


def test_nothing_is_made_from_a_class_that_is_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dump_serializer_snapshot(module_with(SNAPSHOT_SOURCE, monkeypatch).UsesGone())
    trap = module_with(TRAP_SOURCE.format(name="Gone"), monkeypatch)

    with pytest.raises(StateMigrationException, match=r"passing_module\.Gone.* is no TypeSerializerSnapshot"):
        load_serializer_snapshot(data)
    assert trap.made == []


def test_nothing_is_made_from_a_class_that_is_no_serializer(monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"from {Plain.__module__} import Plain\nclass Mine(Plain):\n    pass\n"
    data = dump_serializer_snapshot(module_with(source, monkeypatch).Mine())
    trap = module_with(TRAP_SOURCE.format(name="Mine"), monkeypatch)
    stored = load_serializer_snapshot(data)

    with pytest.raises(StateMigrationException, match=r"passing_module\.Mine.* is no TypeSerializer "):
        stored.restore_serializer()
    assert trap.made == []


def test_a_newer_snapshot_format_is_refused() -> None:
    data = b"\x09" + dump_serializer_snapshot(Text())[1:]

    with pytest.raises(StateMigrationException, match="format 9"):
        load_serializer_snapshot(data)


TYPES = [
    Types.LONG(),
    Types.INT(),
    Types.STRING(),
    Types.PICKLED_BYTE_ARRAY(),
    Types.TUPLE([Types.LONG(), Types.LONG()]),
    Types.TUPLE([Types.LONG()]),
    Types.TUPLE([Types.LONG(), Types.INT()]),
    Types.ROW([Types.LONG(), Types.LONG()]),
    Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()]),
    Types.LIST(Types.LONG()),
    Types.LIST(Types.INT()),
    Types.OBJECT_ARRAY(Types.LONG()),
    Types.BASIC_ARRAY(Types.LONG()),
    Types.PRIMITIVE_ARRAY(Types.LONG()),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Types.MAP(Types.STRING(), Types.LONG()),
    Types.MAP(Types.STRING(), Types.INT()),
    Types.AVRO('"int"'),
    Types.SERIALIZED(Text()),
]


@pytest.mark.parametrize("old", TYPES, ids=str)
def test_a_built_in_type_is_compatible_with_itself_only(old: Any) -> None:
    data = dump_serializer_snapshot(serializer_for(old))

    compatible = [t for t in TYPES if not resolve_compatibility(data, serializer_for(t)).is_incompatible()]

    assert compatible == [old]


def test_an_incompatible_answer_names_state_and_types() -> None:
    resolution = resolve_compatibility(
        dump_serializer_snapshot(serializer_for(Types.LONG())), serializer_for(Types.STRING())
    )

    with pytest.raises(
        StateMigrationException, match="'cart' was written as LONG but is read as STRING"
    ) as caught:
        resolution.require_compatible("cart", "uid-1")
    assert caught.value.state_name == "cart"
    assert caught.value.operator_uid == "uid-1"
    with pytest.raises(StateMigrationException, match="The map key of state 'cart'"):
        resolution.require_compatible("cart", role="map key")
    with pytest.raises(StateMigrationException, match="The key was written"):
        resolution.require_compatible(role="key")


def test_a_compatible_answer_raises_nothing() -> None:
    serializer = serializer_for(Types.LONG())

    resolution = resolve_compatibility(serializer.snapshot_configuration(), serializer)
    resolution.require_compatible("cart")

    assert (resolution.serializer, resolution.reader) == (serializer, serializer)


def test_a_declared_migration_bridges_two_types() -> None:
    old = serializer_for(Types.LONG())
    new = serializer_for(Types.TUPLE([Types.LONG(), Types.STRING()]))
    migrations = [(Types.STRING(), lambda v: (0, v)), (Types.LONG(), lambda v: (v, ""))]

    resolution = resolve_compatibility(dump_serializer_snapshot(old), new, migrations)

    assert resolution.is_compatible_after_migration()
    assert resolution.reader.from_bytes(old.to_bytes(5)) == (5, "")
    assert resolution.reader.from_arrow(old.to_arrow([5, 6])) == [(5, ""), (6, "")]
    assert resolution.reader.arrow_type() == old.arrow_type()
    assert resolution.reader.deserialize(DataInputView(b"\x08" + old.to_bytes(5))) == (5, "")
    with pytest.raises(StateMigrationException, match="new serializer"):
        resolution.reader.to_bytes((5, ""))


def test_a_migration_from_another_type_does_not_apply() -> None:
    data = dump_serializer_snapshot(serializer_for(Types.INT()))

    resolution = resolve_compatibility(data, serializer_for(Types.STRING()), [(Types.LONG(), str)])

    assert resolution.is_incompatible()


def test_keys_never_migrate() -> None:
    data = dump_serializer_snapshot(PairOf([Versioned(2), Text()]))

    assert resolve_key_compatibility(data, PairOf([Versioned(2), Text()])).is_compatible_as_is()
    assert resolve_key_compatibility(data, PairOf([Versioned(3), Text()])).is_incompatible()
    assert resolve_key_compatibility(data, Text()).is_incompatible()
