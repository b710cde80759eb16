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
