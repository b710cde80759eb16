from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidemark import Row, Types
from tidemark.errors import ConfigError
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.key_hashing import key_group_column
from tidemark.state.serializers.registry import serializer_for
from tidemark.state_processor.columns import as_struct, conform, element_schema, shown_type
from tidemark.state_processor.input_splits import parse_ranges
from tidemark.state_processor.streams import elements_batch, elements_of

ROW = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LIST(Types.ROW_NAMED(["c"], [Types.STRING()]))])


def test_the_kind_of_rows_is_not_shown_at_any_depth() -> None:
    shown = shown_type(serializer_for(Types.MAP(Types.STRING(), ROW)).arrow_type())

    assert "$kind" not in str(shown)
    assert shown.item_type.field("b").type.value_type == pa.struct([("c", pa.string())])


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.LONG(), [1, 2]),
        (Types.STRING(), ["a", ""]),
        (ROW, [Row(a=1, b=[Row(c="x"), Row(c=None)]), Row(a=None, b=[])]),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, "a"), (2, "b")]),
        (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), [{"a": [1, 2]}, {}]),
        (Types.PICKLED_BYTE_ARRAY(), [{"any": "thing"}, None]),
    ],
)
def test_elements_survive_the_way_through_shown_columns(type_info: Any, values: list[Any]) -> None:
    batch = elements_batch(values, type_info)

    assert batch.schema == element_schema(serializer_for(type_info))
    assert elements_of(batch, type_info) == values
    assert elements_of(batch.slice(1), type_info) == values[1:]


def test_a_column_conforms_by_the_names_of_struct_children() -> None:
    array = pa.array([{"b": 1, "a": "x"}, None], pa.struct([("b", pa.int32()), ("a", pa.string())]))

    wanted = pa.struct([("a", pa.string()), ("b", pa.int64()), ("missing", pa.int8())])

    assert conform(array, wanted).to_pylist() == [{"a": "x", "b": 1, "missing": None}, None]


def test_nested_columns_conform_when_they_are_slices() -> None:
    array = pa.array([[1], None, [2, 3], []], pa.list_(pa.int32())).slice(1)
    maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int32())).slice(1)

    assert conform(array, pa.list_(pa.int64())).to_pylist() == [None, [2, 3], []]
    assert conform(maps, pa.map_(pa.string(), pa.int64())).to_pylist() == [None, [("b", 2)]]


def test_a_value_that_does_not_fit_is_an_error_that_names_both_types() -> None:
    with pytest.raises(ConfigError, match=r"type int64 cannot be read as int8"):
        conform(pa.array([300]), pa.int8())


@pytest.mark.parametrize(
    ("type_info", "keys"),
    [
        (Types.LONG(), [0, 1, -1, 2**62]),
        (Types.INT(), [0, 7, -7]),
        (Types.SHORT(), [0, 7, -7]),
        (Types.STRING(), ["", "a", "ä" * 9]),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), ("b", 2)]),
        (Types.PICKLED_BYTE_ARRAY(), ["a", 1, ("a", 1)]),
        (Types.BOOLEAN(), [True, False]),
    ],
)
def test_key_groups_of_a_column_are_those_of_the_keys(type_info: Any, keys: list[Any]) -> None:
    serializer = serializer_for(type_info)
    expected = [assign_to_key_group(serializer.key_bytes(key), 300) for key in keys]

    assert key_group_column(serializer.to_arrow(keys), serializer, 300).tolist() == expected


def test_a_struct_is_rebuilt_from_columns_by_position() -> None:
    kind = serializer_for(Types.ROW_NAMED(["a"], [Types.LONG()])).arrow_type()

    column = as_struct(pa.RecordBatch.from_pydict({"anything": [1, 2]}), kind)

    assert column.to_pylist() == [{"a": 1, "$kind": None}, {"a": 2, "$kind": None}]


def test_key_group_ranges_are_parsed_and_checked() -> None:
    assert parse_ranges("20, 0-15", 128) == [(0, 15), (20, 20)]
    with pytest.raises(ConfigError, match="no list of key groups"):
        parse_ranges("a-b", 128)
    with pytest.raises(ConfigError, match="leaves the key groups 0 to 127"):
        parse_ranges("0-128", 128)
