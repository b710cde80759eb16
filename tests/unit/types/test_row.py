from __future__ import annotations

import pickle

import pytest

from tidemark.types.row import Row, RowKind, row_of


def test_fields_are_read_by_index_name_and_attribute() -> None:
    row = Row(a=1, b="x")

    assert (row[0], row["b"], row.a, list(row), len(row)) == (1, "x", 1, [1, "x"], 2)
    assert row[0:2] == [1, "x"]


def test_a_named_row_contains_names_and_an_unnamed_one_values() -> None:
    assert "a" in Row(a=1)
    assert 1 not in Row(a=1)
    assert 1 in Row(1)
    row = Row("a")
    row.set_field_names(["b"])
    assert "b" in row
    assert "a" not in row


def test_positional_and_named_values_cannot_be_mixed() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, b=2)


def test_unnamed_fields_answer_to_f0_and_f1() -> None:
    row = Row(1, "x")

    assert (row.f0, row["f1"]) == (1, "x")
    assert row == Row(1, "x")
    with pytest.raises(AttributeError, match="f2"):
        _ = row.f2
    with pytest.raises(KeyError):
        _ = row["f²"]


def test_unknown_names_are_refused() -> None:
    row = Row(a=1)

    with pytest.raises(KeyError):
        _ = row["b"]
    with pytest.raises(KeyError):
        row["b"] = 1
    with pytest.raises(AttributeError):
        _ = row.b
    with pytest.raises(AttributeError):
        row.a = 2


def test_fields_can_be_replaced_without_touching_the_source_of_the_row() -> None:
    values = (1, 2)
    row = row_of(values, ("a", "b"))

    row["a"] = 5
    row[1] = 6

    assert row == Row(a=5, b=6)
    assert values == (1, 2)


def test_named_rows_compare_by_name_set_values_and_kind() -> None:
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert Row(a=1) != Row(a=2)
    assert Row(a=1) != Row(b=1)
    assert Row(a=1) != Row.of_kind(RowKind.DELETE, a=1)
    assert Row(a=1) != (1,)


def test_a_named_row_never_equals_an_unnamed_one() -> None:
    assert Row(f0=1) != Row(1)
    assert Row(1, 2) == Row(1, 2)
    assert Row(1, 2) != Row(2, 1)


def test_repr_shows_whether_the_row_is_named() -> None:
    assert repr(Row(a=1, b="x")) == "Row(a=1, b='x')"
    assert repr(Row(1, "x")) == "<Row(1, 'x')>"


def test_as_dict_turns_nested_rows_on_request() -> None:
    row = Row(a=Row(b=1), c=[Row(d=2)], e={"k": (Row(g=3),)})

    assert row.as_dict()["a"] == Row(b=1)
    assert row.as_dict(True) == {"a": {"b": 1}, "c": [{"d": 2}], "e": {"k": ({"g": 3},)}}
    with pytest.raises(TypeError, match="field names"):
        Row(1).as_dict()


def test_kinds_print_as_flink_prints_them() -> None:
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]
    row = Row.of_kind(RowKind.UPDATE_AFTER, 1)
    assert row.get_row_kind() is RowKind.UPDATE_AFTER
    row.set_row_kind(RowKind.DELETE)
    assert row.get_row_kind() is RowKind.DELETE
    with pytest.raises(TypeError, match="RowKind"):
        row.set_row_kind("+I")  # type: ignore[arg-type]


def test_field_names_can_be_set_later() -> None:
    row = Row(1, 2)

    row.set_field_names(["a", "b"])

    assert row == Row(a=1, b=2)
    assert row.get_field_names() == ["a", "b"]
    with pytest.raises(ValueError, match="2 fields"):
        row.set_field_names(["a"])


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")

    assert person("Ann", 3) == Row(name="Ann", age=3)
    with pytest.raises(ValueError, match="2 fields"):
        person("Ann")


def test_rows_survive_pickling_with_names_and_kind() -> None:
    row = Row.of_kind(RowKind.UPDATE_BEFORE, a=1)

    assert pickle.loads(pickle.dumps(row)) == row
