"""A handful of records takes a way of its own: the values, targets and parts are those of a large batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_serializers import ALL, CASES, PROFILE, same

from tidemark.operators.routing import KeyRouter, split_few, split_lists
from tidemark.protocol.batch import Batch
from tidemark.protocol.codec import BatchCodec
from tidemark.state.serializers import serializer_for
from tidemark.types.typeinfo import Types

KEYS = [
    pytest.param(*ALL[name], id=name)
    for name in (
        "STRING",
        "LONG",
        "INT",
        "BYTE",
        "BOOLEAN",
        "DOUBLE",
        "BYTES",
        "TUPLE",
        "TUPLE_FIXED",
        "PICKLED",
    )
]


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_few_values_arrive_as_they_would_in_a_column(
    type_info: Any, values: Any, data: st.DataObject
) -> None:
    serializer = serializer_for(type_info)
    codec = BatchCodec(serializer, serializer_for(Types.LONG()))
    records = data.draw(st.lists(values, min_size=1, max_size=5))
    stamps = [None if n % 2 else n for n in range(len(records))]
    keys = list(range(len(records)))

    flags, body = codec.encode(Batch(records, stamps, keys))
    column_flags, column_body = codec.encode_column(serializer.to_arrow(records), stamps, keys)

    assert not codec.is_column(flags)
    assert codec.is_column(column_flags)
    few, many = codec.decode(flags, body), codec.decode(column_flags, column_body)
    assert same(few.values, many.values)
    assert (few.timestamps, few.keys) == (many.timestamps, many.keys) == (stamps, keys)


@pytest.mark.parametrize(("type_info", "values"), KEYS)
@given(data=st.data(), parallelism=st.integers(2, 7))
@PROFILE
def test_few_keys_go_where_they_would_among_many(
    type_info: Any, values: Any, data: st.DataObject, parallelism: int
) -> None:
    router = KeyRouter(lambda value: value, type_info, 128, parallelism)
    tokens = router.tokens(
        data.draw(st.lists(values.filter(lambda key: key is not None), min_size=1, max_size=9))
    )

    few, many = router.few_subtasks(tokens), router.subtasks(tokens)

    assert many is not None
    assert few == many.tolist()
    numbers = list(range(len(tokens)))
    assert split_few(few, numbers, None) == split_lists(many, parallelism, numbers, None)
