# Optional and Union are what is tested here.
# ruff: noqa: UP007, UP045
from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, NewType, Optional, Union

import pytest

from tidemark.errors import ConfigError
from tidemark.state.serializers import TypeSerializer
from tidemark.types.avro import AvroSchema, GenericRecordAvroTypeInfo
from tidemark.types.inference import declared_name, infer_type
from tidemark.types.time import Instant
from tidemark.types.typeinfo import Types, to_type_info

UserId = NewType("UserId", int)


@dataclass
class Leaf:
    n: int


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Left:
    right: Right | None


@dataclass
class Right:
    left: Left | None


class Custom(TypeSerializer[str]):
    def serialize(self, element: str, stream: Any) -> None:
        stream.write(element.encode())

    def deserialize(self, stream: Any) -> str:
        return str(stream.read().decode())


def test_equal_declarations_are_equal_and_hash_alike() -> None:
    first = Types.MAP(Types.STRING(), Types.TUPLE([Types.LONG(), Types.LIST(Types.INT())]))
    second = Types.MAP(Types.STRING(), Types.TUPLE([Types.LONG(), Types.LIST(Types.INT())]))

    assert first == second
    assert hash(first) == hash(second)
    assert first != Types.MAP(Types.STRING(), Types.TUPLE([Types.LONG(), Types.LIST(Types.LONG())]))
    assert Types.LIST(Types.INT()) != Types.OBJECT_ARRAY(Types.INT())
    assert Types.INT() != Types.LONG()
    assert Types.INT() != "Integer"


def test_declarations_print_their_structure() -> None:
    row = Types.ROW_NAMED(["id", "tags"], [Types.LONG(), Types.LIST(Types.STRING())])

    assert str(row) == "RowTypeInfo(id: Long, tags: ListTypeInfo<String>)"
    assert str(Types.TUPLE([Types.INT()])) == "TupleTypeInfo(Integer)"
    assert str(Types.PICKLED_BYTE_ARRAY()) == "PickledByteArrayTypeInfo"
    assert str(Types.DATACLASS(Leaf)).endswith("Leaf>")
    assert "Custom" in str(Types.SERIALIZED(Custom()))


def test_rows_know_their_fields() -> None:
    row = Types.ROW([Types.INT(), Types.STRING()])

    assert row.get_field_names() == ["f0", "f1"]
    assert row.get_field_types() == [Types.INT(), Types.STRING()]
    assert (row.get_field_index("f1"), row.get_field_index("x")) == (1, -1)
    assert row == Types.ROW_NAMED(["f0", "f1"], [Types.INT(), Types.STRING()])


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", ""], ["a", 1]])
def test_bad_field_names_are_refused(names: Any) -> None:
    with pytest.raises(ConfigError):
        Types.ROW_NAMED(names, [Types.INT(), Types.INT()])


def test_other_things_stand_for_types() -> None:
    serializer = Custom()

    assert to_type_info([Types.INT(), [Types.STRING()]]) == Types.ROW(
        [Types.INT(), Types.ROW([Types.STRING()])]
    )
    assert to_type_info(Leaf) == Types.DATACLASS(Leaf)
    assert to_type_info(serializer) == Types.SERIALIZED(serializer)
    assert to_type_info(serializer) != Types.SERIALIZED(Custom())


@pytest.mark.parametrize("wrong", [int, "INT", None, Custom, (Types.INT(),), Leaf(1), [int]])
def test_anything_else_is_no_type(wrong: Any) -> None:
    with pytest.raises(TypeError):
        to_type_info(wrong)


def test_misused_factories_explain_themselves() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(TypeError, match="module level"):
        Types.DATACLASS(Local)
    with pytest.raises(TypeError, match="dataclass type"):
        Types.DATACLASS(int)
    with pytest.raises(TypeError, match="TypeSerializer"):
        Types.SERIALIZED("x")
    with pytest.raises(TypeError, match="primitive"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError, match="basic"):
        Types.BASIC_ARRAY(Types.LIST(Types.INT()))
    with pytest.raises(TypeError, match="AvroSchema"):
        GenericRecordAvroTypeInfo("int")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (int, Types.LONG()),
        (bool, Types.BOOLEAN()),
        (float, Types.DOUBLE()),
        (str, Types.STRING()),
        (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE())),
        (Decimal, Types.BIG_DEC()),
        (datetime.date, Types.SQL_DATE()),
        (datetime.time, Types.SQL_TIME()),
        (datetime.datetime, Types.SQL_TIMESTAMP()),
        (Instant, Types.INSTANT()),
        (UserId, Types.LONG()),
        (list[int], Types.LIST(Types.LONG())),
        (dict[str, float], Types.MAP(Types.STRING(), Types.DOUBLE())),
        (tuple[int, str], Types.TUPLE([Types.LONG(), Types.STRING()])),
        (tuple[int, ...], Types.PICKLED_BYTE_ARRAY()),
        (Optional[int], Types.LONG()),
        (int | None, Types.LONG()),
        (int | str, Types.PICKLED_BYTE_ARRAY()),
        (list, Types.PICKLED_BYTE_ARRAY()),
        (set[int], Types.PICKLED_BYTE_ARRAY()),
        (Leaf, Types.DATACLASS(Leaf)),
        (Annotated[int, "unit", Types.INT()], Types.INT()),
        (Annotated[int, "unit"], Types.LONG()),
        ("Unknown", Types.PICKLED_BYTE_ARRAY()),
    ],
)
def test_annotations_choose_types(hint: Any, expected: Any) -> None:
    assert infer_type(hint) == expected


def test_a_class_that_contains_itself_is_pickled_at_that_point() -> None:
    tree = {f.name: f.type_info for f in Types.DATACLASS(Tree).fields}
    left = {f.name: f.type_info for f in Types.DATACLASS(Left).fields}

    assert tree == {"value": Types.LONG(), "children": Types.LIST(Types.PICKLED_BYTE_ARRAY())}
    assert left == {"right": Types.PICKLED_BYTE_ARRAY()}


def test_a_class_that_lost_its_module_still_has_types(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Wanderer:
        count: int
        seen: Optional[datetime.datetime]
        day: Optional[date]  # type: ignore[name-defined]  # noqa: F821
        odd: NoSuchName  # type: ignore[name-defined]  # noqa: F821

    Wanderer.__qualname__ = "Wanderer"
    Wanderer.__module__ = "gone"

    fields = {f.name: (f.type_info, f.declared) for f in Types.DATACLASS(Wanderer).fields}

    assert fields["count"] == (Types.LONG(), "int")
    assert fields["seen"] == (Types.SQL_TIMESTAMP(), "None | datetime.datetime")
    assert fields["day"] == (Types.SQL_DATE(), "None | datetime.date")
    assert fields["odd"] == (Types.PICKLED_BYTE_ARRAY(), "NoSuchName")


def test_equal_annotations_have_one_canonical_text() -> None:
    assert declared_name(Optional[int]) == declared_name(int | None) == declared_name(Union[None, int])
    assert declared_name(list[dict[str, Leaf]]) == f"list[dict[str, {__name__}.Leaf]]"
    assert declared_name(int) != declared_name(Optional[int])
    assert declared_name(tuple[int, ...]) == "tuple[int, ...]"
    assert declared_name(Annotated[int, Types.INT()]) == "Annotated[int, Integer]"
    assert declared_name(Any) == "typing.Any"


def test_avro_schemas_compare_by_document(tmp_path: Any) -> None:
    text = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}'
    path = tmp_path / "a.avsc"
    path.write_text(text)

    assert AvroSchema.parse_file(path) == AvroSchema.parse_string(text)
    assert Types.AVRO(text) == GenericRecordAvroTypeInfo(AvroSchema.parse_string(text))
    assert AvroSchema.parse_string('"int"') == AvroSchema.parse_string("int")
    assert hash(AvroSchema.parse_string("int")) != hash(AvroSchema.parse_string("long"))


def test_bad_avro_schemas_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="not an Avro schema"):
        AvroSchema.parse_string('{"type": "nonsense"}')
    with pytest.raises(ConfigError, match="not an Avro schema"):
        AvroSchema.parse_string("{broken")
    with pytest.raises(ConfigError, match="cannot be read"):
        AvroSchema.parse_file(tmp_path / "missing.avsc")
