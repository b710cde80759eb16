"""Batches on the wire come back whole or in parts, with their timestamps and keys."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark import Row, Types
from tidemark.protocol.batch import Batch
from tidemark.protocol.codec import BatchCodec, codec_for
from tidemark.state.serializers.registry import serializer_for

ROWS = Types.ROW_NAMED(["k", "text"], [Types.LONG(), Types.STRING()])


def batch(count: int, *, stamped: bool, keyed: bool) -> Batch:
    return Batch(
        [Row(k=n, text=None if n % 3 == 0 else f"t{n}") for n in range(count)],
        [None if n % 5 == 0 else n for n in range(count)] if stamped else None,
        [n % 7 for n in range(count)] if keyed else None,
    )


@pytest.mark.parametrize("type_info", [ROWS, None], ids=["typed", "untyped"])
@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(("count", "limit", "sizes"), [(10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3])])
def test_parts_are_the_batch_in_order(
    type_info: Any, stamped: bool, keyed: bool, count: int, limit: int, sizes: list[int]
) -> None:
    codec: BatchCodec = codec_for(type_info, serializer_for(Types.LONG()))
    whole = batch(count, stamped=stamped, keyed=keyed)
    flags, data = codec.encode(whole)

    parts = list(codec.decode_parts(flags, data, limit))

    assert [len(part) for part in parts] == sizes
    assert [value for part in parts for value in part.values] == whole.values
    for name in ("timestamps", "keys"):
        lists = [getattr(part, name) for part in parts]
        expected = getattr(whole, name)
        if expected is None:
            assert lists == [None] * len(parts)
        else:
            assert [item for items in lists for item in items] == expected
    assert codec.decode(flags, data) == whole


@pytest.mark.parametrize(("kind", "key_type"), [(Types.LONG(), Types.LONG()), (Types.INT(), Types.LONG())])
@pytest.mark.parametrize("stamped", [False, True])
def test_a_key_that_is_a_field_does_not_travel_beside_it(kind: Any, key_type: Any, stamped: bool) -> None:
    rows = Types.ROW_NAMED(["text", "k"], [Types.STRING(), kind])
    codec = codec_for(rows, serializer_for(key_type))
    values = [Row(text=f"t{n}", k=n % 7) for n in range(100)]
    stamps = list(range(100)) if stamped else None
    column = serializer_for(rows).to_arrow(values)

    keys = [row.k for row in values]
    flags, data = codec.encode_column(column, stamps, None, key_at=1)
    _, twice = codec.encode_column(column, stamps, keys)

    assert memoryview(data).nbytes < memoryview(twice).nbytes
    assert codec.decode(flags, data) == Batch(values, stamps, keys)
    parts = list(codec.decode_parts(flags, data, 30))
    assert [key for part in parts for key in part.keys or ()] == keys
    found = codec.decode_columns(flags, data).keys
    assert found is not None
    assert found.type == serializer_for(key_type).arrow_type()
    assert found.to_pylist() == keys
