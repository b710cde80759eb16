from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from tidemark import Row, Types
from tidemark.runtime.spark_bridge import LineDecoder, LineEncoder


def through(type_info, values):
    encoder, decoder = LineEncoder(type_info), pickle.loads(pickle.dumps(LineDecoder(type_info)))
    lines = b"".join([encoder.encode(value, type_info) for value in values]).decode().splitlines()
    batch = pa.RecordBatch.from_arrays([pa.array(lines)], names=["value"])
    (decoded,) = list(decoder(iter([batch])))
    assert decoded.schema == decoder.schema
    return decoded.to_pylist()


def test_rows_become_columns():
    kind = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])

    assert through(kind, [Row(word="a\nb", count=1), Row(word=None, count=2)]) == [
        {"word": "a\nb", "count": 1},
        {"word": None, "count": 2},
    ]


@pytest.mark.parametrize(("kind", "value"), [(Types.LONG(), 5), (Types.STRING(), "ä"), (Types.DOUBLE(), 1.5)])
def test_types_without_fields_have_one_column(kind, value):
    assert through(kind, [value]) == [{"value": value}]


def test_untyped_elements_are_pickles():
    (row,) = through(Types.PICKLED_BYTE_ARRAY(), [{"a": 1}])

    assert isinstance(row["value"], bytes)
