"""NUMPY_ARRAY: arrays keep element type, shape and content in every form, and read nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from tidemark import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.config import Configuration
from tidemark.errors import SerializationError
from tidemark.state.serializers.compatibility import dump_serializer_snapshot, load_serializer_snapshot
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import to_type_info

DTYPES = st.sampled_from(["bool", "i1", "<i8", ">i4", "u2", "f2", "f4", ">f8", "c16", "M8[ms]", "S3", "U2"])
SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def same(left: Any, right: Any) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@settings(max_examples=60)
@given(DTYPES.flatmap(lambda dtype: arrays_of.arrays(dtype, SHAPES)))
def test_every_form_gives_the_array_back(array: Any) -> None:
    little = array.astype(array.dtype.newbyteorder("<"))
    for declared in [
        Types.NUMPY_ARRAY(),
        Types.NUMPY_ARRAY(array.dtype),
        Types.NUMPY_ARRAY(None, array.shape),
        Types.NUMPY_ARRAY(array.dtype, array.shape),
    ]:
        serializer = serializer_for(declared)

        data = serializer.to_bytes(array)
        column = serializer.to_arrow([array, array])
        sparse = serializer.to_arrow_nullable([None, array])

        assert same(serializer.from_bytes(data), little)
        assert [same(read, little) for read in serializer.from_arrow(column)] == [True, True]
        assert serializer.from_arrow(sparse)[0] is None
        assert same(serializer.from_arrow(sparse.slice(1))[0], little)
        assert same(serializer.normalizer()(array), little)
        assert serializer.fixed_width in (None, len(data))
        assert serializer.to_bytes(serializer.from_bytes(data)) == data


@settings(max_examples=200)
@given(st.binary(max_size=40), st.sampled_from([(None, None), ("f8", None), (None, 2), ("?", (2,))]))
def test_arbitrary_bytes_are_refused_or_read_as_what_they_are(data: bytes, declared: Any) -> None:
    serializer = serializer_for(Types.NUMPY_ARRAY(*declared))
    try:
        read = serializer.from_bytes(data)
    except SerializationError:
        return
    assert serializer.to_bytes(read) == data


def test_numbers_are_lists_that_other_programs_read() -> None:
    fixed = serializer_for(Types.NUMPY_ARRAY("f4", (2, 2))).to_arrow([np.eye(2, dtype="f4")])
    free = serializer_for(Types.NUMPY_ARRAY("i8")).to_arrow([[[1, 2, 3]]])

    assert fixed.to_pylist() == [[1.0, 0.0, 0.0, 1.0]]
    assert free.to_pylist() == [{"shape": [1, 3], "values": [1, 2, 3]}]


def test_an_array_in_state_belongs_to_nobody_else() -> None:
    serializer = serializer_for(Types.NUMPY_ARRAY("f8"))
    array = np.zeros(3)

    kept = serializer.normalizer()(array)
    read = serializer.from_bytes(serializer.to_bytes(array))
    array[:] = 1
    read += 5

    assert kept.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        (Types.NUMPY_ARRAY("i4"), np.array([1.5]), "without loss"),
        (Types.NUMPY_ARRAY("f8"), np.array(["a"]), "without loss"),
        (Types.NUMPY_ARRAY("f8"), None, "without loss"),
        (Types.NUMPY_ARRAY(), np.array([object()]), "without loss"),
        (Types.NUMPY_ARRAY("f8", 3), np.zeros(2), "has the shape"),
    ],
)
def test_what_does_not_fit_is_refused(declared: Any, value: Any, said: str) -> None:
    for write in (serializer_for(declared).to_bytes, serializer_for(declared).normalizer()):
        with pytest.raises(SerializationError, match=said):
            write(value)


def test_element_types_without_bytes_are_no_type() -> None:
    for dtype in (object, [("a", "i4")], "V8", np.longdouble):
        with pytest.raises(TypeError, match="cannot hold elements"):
            Types.NUMPY_ARRAY(dtype)


def test_classes_of_numpy_and_pandas_stand_for_types() -> None:
    pandas = pytest.importorskip("pandas")

    assert to_type_info(np.ndarray) == Types.NUMPY_ARRAY()
    assert to_type_info(np.float64) == Types.DOUBLE()
    assert to_type_info(np.int64) == Types.LONG()
    assert to_type_info(np.bool_) == Types.BOOLEAN()
    assert to_type_info(pandas.Timestamp) == Types.SQL_TIMESTAMP()
    with pytest.raises(TypeError):
        to_type_info(np.complex64)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (("f4", 2), ("f4", 2), "as is"),
        (("f4", 2), ("f8", 2), "after migration"),
        (("i4", 2), ("f8", None), "after migration"),
        (("i4", 2), (None, None), "after migration"),
        (("f8", 2), ("f4", 2), "incompatible"),
        (("f8", 2), ("f8", 3), "incompatible"),
        ((None, None), ("f8", None), "incompatible"),
    ],
)
def test_arrays_evolve_where_nothing_is_lost(old: Any, new: Any, verdict: str) -> None:
    before, after = serializer_for(Types.NUMPY_ARRAY(*old)), serializer_for(Types.NUMPY_ARRAY(*new))
    stored = before.to_bytes(np.array([1, 2], old[0]))

    snapshot = load_serializer_snapshot(dump_serializer_snapshot(before))
    answer = snapshot.resolve_schema_compatibility(after)

    assert verdict in repr(answer)
    if verdict != "incompatible":
        read = snapshot.restore_serializer().from_bytes(stored)
        assert read.tolist() == [1, 2]
        assert new[0] is None or read.dtype == np.dtype(new[0])


class Mean(KeyedProcessFunction):
    """The running mean of the arrays of a key, changed in place as models are."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("mean", Types.NUMPY_ARRAY("f8", 2)))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        mean, count = self.state.value(), (self.count.value() or 0) + 1
        mean = np.zeros(2) if mean is None else mean
        mean += (value[1] - mean) / count
        self.state.update(mean)
        self.count.update(count)
        yield value[0], mean


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_a_model_lives_in_state_of_a_job(backend: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration().set_string("execution.target", "local")
    )
    env.set_parallelism(1)
    env.set_state_backend(backend())
    kind = Types.TUPLE([Types.STRING(), Types.NUMPY_ARRAY("f8")])
    points = [("a", np.array([0.0, 2.0])), ("b", np.array([5.0, 5.0])), ("a", np.array([2.0, 4.0]))]
    stream = (
        env.from_collection(points, kind).key_by(lambda point: point[0], Types.STRING()).process(Mean(), kind)
    )

    found = {key: mean.tolist() for key, mean in stream.execute_and_collect()}

    assert found == {"a": [1.0, 3.0], "b": [5.0, 5.0]}
