"""Every type: bytes, Arrow columns and normalised objects agree, whatever the values."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.campaign import examples

from tidemark.errors import SerializationError
from tidemark.state.serializers import (
    DataInputView,
    DataOutputView,
    NullableSerializer,
    TypeSerializer,
    dump_serializer_snapshot,
    load_serializer_snapshot,
    serializer_for,
)
from tidemark.state.serializers.carrier import carrying_serializer
from tidemark.types.avro import AvroSchema, GenericRecordAvroTypeInfo
from tidemark.types.row import Row, RowKind
from tidemark.types.time import Instant
from tidemark.types.typeinfo import TypeInformation, Types

PROFILE = settings(max_examples=examples(40))


@dataclass
class Point:
    x: int
    label: str | None
    weights: list[float]


@dataclass(frozen=True, slots=True)
class Cart:
    owner: str
    points: dict[str, Point]
    corner: tuple[int, str]
    price: Decimal
    best: Point | None = None


class Reversed(TypeSerializer[str]):
    """A user's serializer: the least one has to write."""

    def serialize(self, element: str, stream: Any) -> None:
        data = element[::-1].encode("utf-8", "surrogatepass")
        stream.write(len(data).to_bytes(4, "big") + data)

    def deserialize(self, stream: Any) -> str:
        size = int.from_bytes(stream.read(4), "big")
        return stream.read(size).decode("utf-8", "surrogatepass")[::-1]


AVRO = AvroSchema.parse_string(
    '{"type": "record", "name": "User", "namespace": "t", "fields": ['
    '{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]}'
)


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


TEXT = st.text(st.characters(), max_size=8)
CLEAN_TEXT = st.text(max_size=8)
DOUBLES = st.floats()
POINTS = st.builds(Point, ints(64), st.none() | TEXT, st.lists(DOUBLES, max_size=3))
CARTS = st.builds(
    Cart,
    TEXT,
    st.dictionaries(TEXT, POINTS, max_size=2),
    st.tuples(ints(64), TEXT),
    st.decimals(),
    st.none() | POINTS,
)

BASIC: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "STRING": (Types.STRING(), st.none() | TEXT),
    "BOOLEAN": (Types.BOOLEAN(), st.booleans()),
    "BYTE": (Types.BYTE(), ints(8)),
    "SHORT": (Types.SHORT(), ints(16)),
    "INT": (Types.INT(), ints(32)),
    "LONG": (Types.LONG(), ints(64)),
    "FLOAT": (Types.FLOAT(), st.floats(width=32)),
    "DOUBLE": (Types.DOUBLE(), DOUBLES),
    "CHAR": (Types.CHAR(), st.characters()),
    "BIG_INT": (Types.BIG_INT(), st.none() | st.integers()),
    "BIG_DEC": (Types.BIG_DEC(), st.none() | st.decimals()),
    "INSTANT": (Types.INSTANT(), st.none() | st.builds(Instant, ints(64), st.integers(0, 999_999_999))),
    "SQL_DATE": (Types.SQL_DATE(), st.none() | st.dates()),
    "SQL_TIME": (Types.SQL_TIME(), st.none() | st.times()),
    "SQL_TIMESTAMP": (Types.SQL_TIMESTAMP(), st.none() | st.datetimes()),
    "BYTES": (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=8)),
}

NESTED: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "PICKLED": (Types.PICKLED_BYTE_ARRAY(), st.none() | st.lists(TEXT, max_size=3) | DOUBLES),
    "TUPLE": (Types.TUPLE([Types.STRING(), Types.LONG()]), st.tuples(st.none() | TEXT, ints(64))),
    "TUPLE_FIXED": (
        Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.BYTE()]),
        st.tuples(ints(64), DOUBLES, ints(8)),
    ),
    "TUPLE_EMPTY": (Types.TUPLE([]), st.just(())),
    "TUPLE_WIDE": (Types.TUPLE([Types.STRING()] * 9), st.tuples(*[st.none() | CLEAN_TEXT] * 9)),
    "ROW": (
        Types.ROW([Types.LONG(), Types.STRING()]),
        st.builds(Row.of_kind, st.sampled_from(RowKind), f0=st.none() | ints(64), f1=st.none() | TEXT),
    ),
    "ROW_NAMED": (
        Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.TUPLE([Types.INT()])]),
        st.builds(Row, a=st.none() | ints(64), b=st.none() | st.tuples(ints(32))),
    ),
    "PRIMITIVE_ARRAY": (Types.PRIMITIVE_ARRAY(Types.INT()), st.lists(ints(32), max_size=4)),
    "BASIC_ARRAY": (Types.BASIC_ARRAY(Types.LONG()), st.lists(st.none() | ints(64), max_size=4)),
    "OBJECT_ARRAY": (
        Types.OBJECT_ARRAY(Types.TUPLE([Types.STRING()])),
        st.lists(st.none() | st.tuples(TEXT), max_size=4),
    ),
    "LIST": (Types.LIST(Types.STRING()), st.lists(st.none() | TEXT, max_size=20)),
    "LIST_OF_LISTS": (
        Types.LIST(Types.LIST(Types.DOUBLE())),
        st.lists(st.none() | st.lists(st.none() | DOUBLES, max_size=3), max_size=3),
    ),
    "MAP": (
        Types.MAP(Types.STRING(), Types.LONG()),
        st.dictionaries(TEXT, st.none() | ints(64), max_size=4),
    ),
    "MAP_OF_MAPS": (
        Types.MAP(Types.LONG(), Types.MAP(Types.BYTE(), Types.STRING())),
        st.dictionaries(ints(64), st.none() | st.dictionaries(ints(8), TEXT, max_size=2), max_size=3),
    ),
    "DATACLASS": (Types.DATACLASS(Point), st.none() | POINTS),
    "DATACLASS_NESTED": (Types.DATACLASS(Cart), st.none() | CARTS),
    "AVRO": (
        GenericRecordAvroTypeInfo(AVRO),
        st.none() | st.fixed_dictionaries({"id": ints(64), "tags": st.lists(CLEAN_TEXT, max_size=3)}),
    ),
    "SERIALIZED": (Types.SERIALIZED(Reversed()), TEXT),
    "NULLABLE": (Types.SERIALIZED(NullableSerializer(serializer_for(Types.INT()))), st.none() | ints(32)),
    "NULLABLE_TEXT": (
        Types.SERIALIZED(NullableSerializer(serializer_for(Types.STRING()))),
        st.none() | TEXT,
    ),
    "MAP_OF_LISTS": (Types.MAP(Types.LIST(Types.LONG()), Types.LONG()), st.just({})),
    "LIST_OF_SERIALIZED": (
        Types.LIST(Types.SERIALIZED(Reversed())),
        st.lists(st.none() | TEXT, max_size=3),
    ),
}

ALL = {**BASIC, **NESTED}
CASES = [pytest.param(type_info, values, id=name) for name, (type_info, values) in ALL.items()]


def same(first: Any, second: Any) -> bool:
    """Equality by type and value in which NaN equals itself and 0.0 differs from -0.0."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        if math.isnan(first):
            return math.isnan(second)
        return first == second and math.copysign(1, first) == math.copysign(1, second)
    if isinstance(first, Decimal):
        return first.as_tuple() == second.as_tuple()
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, Row):
        return repr(first) == repr(second) and first.get_row_kind() is second.get_row_kind()
    if isinstance(first, (Point, Cart)):
        return all(same(getattr(first, n), getattr(second, n)) for n in type(first).__match_args__)
    return bool(first == second)


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_bytes_give_back_the_value(type_info: Any, values: Any, data: st.DataObject) -> None:
    serializer = serializer_for(type_info)
    value = data.draw(values)

    encoded = serializer.to_bytes(value)

    assert same(serializer.from_bytes(encoded), value)
    assert serializer.fixed_width in (None, len(encoded))


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_arrow_columns_give_back_the_values(type_info: Any, values: Any, data: st.DataObject) -> None:
    serializer = serializer_for(type_info)
    column = data.draw(st.lists(values, max_size=5))

    array = serializer.to_arrow(column)

    assert array.type == serializer.arrow_type()
    assert same(serializer.from_arrow(array), column)
    assert same(serializer.from_arrow(array.slice(1)), column[1:])
    assert same(
        serializer.from_arrow(pa.chunked_array([array.slice(2), array.slice(0, 2)])),
        [*column[2:], *column[:2]],
    )


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_nullable_columns_hold_none_for_every_type(type_info: Any, values: Any, data: st.DataObject) -> None:
    serializer = serializer_for(type_info)
    column = data.draw(st.lists(st.none() | values, max_size=5))

    array = serializer.to_arrow_nullable(column)

    assert array.type == serializer.arrow_type()
    assert same(serializer.from_arrow(array), column)


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_the_normaliser_agrees_with_a_round_trip(type_info: Any, values: Any, data: st.DataObject) -> None:
    serializer = serializer_for(type_info)
    value = data.draw(values)
    normalize = serializer.normalizer() or (lambda it: it)

    assert same(normalize(value), serializer.from_bytes(serializer.to_bytes(value)))


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_streams_hold_values_one_after_the_other(type_info: Any, values: Any, data: st.DataObject) -> None:
    serializer = serializer_for(type_info)
    elements = data.draw(st.lists(values, max_size=3))
    out = DataOutputView()

    for element in elements:
        serializer.serialize(element, out)
    in_ = DataInputView(out.getvalue())

    assert same([serializer.deserialize(in_) for _ in elements], elements)
    assert in_.read() == b""


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@PROFILE
def test_key_bytes_are_canonical_and_readable(type_info: Any, values: Any, data: st.DataObject) -> None:
    serializer = serializer_for(type_info)
    value = data.draw(values)
    rebuilt = pickle.loads(pickle.dumps(value))

    encoded = serializer.key_bytes(value)

    assert encoded == serializer.key_bytes(rebuilt)
    assert same(serializer.from_bytes(encoded), value)


IDENTITY = [case for case in CASES if serializer_for(case.values[0]).identity_key]


@pytest.mark.parametrize(("type_info", "values"), IDENTITY)
@given(data=st.data())
@PROFILE
def test_identity_keys_are_equal_exactly_if_their_bytes_are(
    type_info: Any, values: Any, data: st.DataObject
) -> None:
    serializer = serializer_for(type_info)
    first, second = data.draw(values), data.draw(values)

    assert (first == second) == (serializer.key_bytes(first) == serializer.key_bytes(second))
    assert hash(first) == hash(serializer.from_bytes(serializer.to_bytes(first)))


@pytest.mark.parametrize(("type_info", "values"), CASES)
@given(data=st.data())
@settings(PROFILE, max_examples=examples(10))
def test_a_stored_snapshot_restores_a_serializer_that_reads_the_bytes(
    type_info: Any, values: Any, data: st.DataObject
) -> None:
    serializer = serializer_for(type_info)
    value = data.draw(values)
    snapshot = load_serializer_snapshot(dump_serializer_snapshot(serializer))

    restored = snapshot.restore_serializer()

    assert snapshot.resolve_schema_compatibility(serializer).is_compatible_as_is()
    assert same(restored.from_bytes(serializer.to_bytes(value)), value)
    assert same(restored.from_arrow(serializer.to_arrow([value])), [value])


@pytest.mark.parametrize(("type_info", "values"), CASES)
def test_serializers_and_types_survive_pickling(type_info: Any, values: Any) -> None:
    serializer = pickle.loads(pickle.dumps(serializer_for(type_info)))

    assert repr(serializer) == repr(serializer_for(type_info))
    assert repr(pickle.loads(pickle.dumps(type_info))) == repr(type_info)


# Pickles and users' serializers say nothing about their bytes, and Avro itself allows several forms of one value.
STRICT = sorted(ALL.keys() - {"PICKLED", "SERIALIZED", "LIST_OF_SERIALIZED", "AVRO"})


def has_nan(value: Any) -> bool:
    """Whether a NaN is inside, whose bits need not survive a round trip through a Python float."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, dict):
        return any(map(has_nan, [*value, *value.values()]))
    if isinstance(value, (Point, Cart)):
        return any(has_nan(getattr(value, name)) for name in type(value).__match_args__)
    return isinstance(value, (list, tuple)) and any(map(has_nan, value))


def refuses_or_would_write(name: str, data: bytes) -> None:
    """Assert that the decoder accepts `data` only if its encoder writes exactly them."""
    serializer = serializer_for(ALL[name][0])
    try:
        value = serializer.from_bytes(data)
    except SerializationError:
        return

    assert same(serializer.from_bytes(serializer.to_bytes(value)), value)
    assert serializer.to_bytes(value) == data or has_nan(value)


@given(data=st.binary(max_size=40), name=st.sampled_from(STRICT))
@example(data=b"l" + bytes(7), name="SQL_TIME")
@example(data=b"\x7f\xff\xff\xff", name="SQL_DATE")
@example(data=b"\x01\x01\x01", name="PRIMITIVE_ARRAY")  # a mark for a missing item where none can be missing
@settings(PROFILE, max_examples=examples(2000))
def test_arbitrary_bytes_never_crash_the_typed_decoders(data: bytes, name: str) -> None:
    refuses_or_would_write(name, data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("PRIMITIVE_ARRAY", b"\x01\x01\x01", id="an array of primitives with a missing item"),
        pytest.param("BASIC_ARRAY", b"\x01\x02\x01", id="a flag that is neither 0 nor 1"),
        pytest.param("BASIC_ARRAY", b"\x01\x01\x00" + bytes(8), id="a mask without a missing item"),
        pytest.param("BASIC_ARRAY", b"\x01\x01\x03", id="a mask with more bits than items"),
        pytest.param("LIST", b"\x01\x00\x01\xff", id="a missing item that is not marked"),
        pytest.param("LIST", b"\x81\x00\x00\x01a", id="a count with a byte too many"),
        pytest.param("LIST", b"\x01\x00\x81\x00a", id="a length with a byte too many"),
        pytest.param("LIST", b"\x01\x00\x01ab", id="bytes behind a list"),
        pytest.param("MAP", b"\x01\x01\x01\x00" + bytes(8), id="a map with the key None, marked"),
        pytest.param("MAP", b"\x01\x00\x01\xff\x00" + bytes(8), id="a map with the key None, unmarked"),
        pytest.param("MAP", b"\x02\x00\x01a\x01a\x00" + bytes(16), id="a map with one key twice"),
        pytest.param("MAP_OF_LISTS", b"\x01\x00\x02\x00\x00\x00" + bytes(8), id="keys no dict can have"),
        pytest.param("ROW", b"\x00\x00" + bytes(8) + b"\x01\xff", id="a None field that is not marked"),
        pytest.param("ROW", b"\x00\x06" + bytes(8), id="a mask with more bits than fields"),
        pytest.param("ROW", b"\x04\x03", id="a kind of row that does not exist"),
        pytest.param("TUPLE", b"\x81\x00a" + bytes(8), id="a field with a length too long"),
        pytest.param("DATACLASS", b"\x00\x00", id="bytes behind None instead of an instance"),
        pytest.param("NULLABLE", b"\x00\x00", id="bytes behind a nullable None"),
        pytest.param("NULLABLE_TEXT", b"\x01\xff", id="None inside a nullable that is marked present"),
        pytest.param("AVRO", b"\x00\x00", id="bytes behind an Avro None"),
        pytest.param("AVRO", b"\x01\x02\x00\x00", id="bytes behind an Avro record"),
        pytest.param("BIG_INT", b"\x00\x01", id="an integer with a byte too many"),
        pytest.param("BIG_INT", b"\x80", id="an integer without room for its sign"),
        pytest.param("BIG_DEC", b"1_0", id="a decimal with an underscore"),
        pytest.param("BIG_DEC", b" 1", id="a decimal with a blank"),
        pytest.param("BIG_DEC", b"+1", id="a decimal with a plus"),
        pytest.param("BIG_DEC", b"inf", id="an infinity in another spelling"),
        pytest.param("BOOLEAN", b"\x02", id="a boolean that is neither 0 nor 1"),
        pytest.param("CHAR", b"ab", id="two characters"),
        pytest.param("STRING", b"\xc0\x80", id="overlong UTF-8"),
        pytest.param("INSTANT", bytes(8) + b"\xff\xff\xff\xff", id="negative nanoseconds"),
    ],
)
def test_a_decoder_refuses_what_its_encoder_never_writes(name: str, data: bytes) -> None:
    with pytest.raises(SerializationError):
        serializer_for(ALL[name][0]).from_bytes(data)


@pytest.mark.parametrize("name", STRICT)
@given(data=st.data())
@PROFILE
def test_a_damaged_value_is_refused_or_is_another_value(name: str, data: st.DataObject) -> None:
    encoded = bytearray(serializer_for(ALL[name][0]).to_bytes(data.draw(ALL[name][1])))
    at = data.draw(st.integers(0, len(encoded)))
    taken = data.draw(st.integers(0, 2))

    encoded[at : at + taken] = data.draw(st.binary(max_size=2))

    refuses_or_would_write(name, bytes(encoded))


def test_a_carrier_of_records_refuses_what_no_dataclass_writes() -> None:
    stored = dump_serializer_snapshot(serializer_for(Types.DATACLASS(Point)))
    carrier = carrying_serializer(load_serializer_snapshot(stored))

    for data in (b"", b"\x00\x00", b"\x02", b"\x01\x08" + bytes(8)):
        with pytest.raises(SerializationError):
            carrier.from_bytes(data)


def test_an_instant_with_negative_nanoseconds_is_refused_before_it_is_written() -> None:
    with pytest.raises(SerializationError, match="INSTANT"):
        serializer_for(Types.INSTANT()).to_bytes(Instant(1, -1))


def test_a_decimal_written_under_another_context_is_read() -> None:
    serializer = serializer_for(Types.BIG_DEC())
    with localcontext() as context:
        context.capitals = 0
        written = serializer.to_bytes(Decimal("1E+9"))

    assert serializer.from_bytes(written) == Decimal("1E+9")


@pytest.mark.parametrize("damage", [b"\x80\x00", b"\x81\x00a"])
def test_a_stream_with_an_overlong_length_is_refused(damage: bytes) -> None:
    with pytest.raises(SerializationError, match="more bytes than it needs"):
        serializer_for(Types.STRING()).deserialize(DataInputView(damage))


def test_typed_reads_of_a_stream_refuse_what_typed_writes_never_give() -> None:
    with pytest.raises(SerializationError, match="boolean"):
        DataInputView(b"\x02").read_boolean()
    with pytest.raises(SerializationError, match="text"):
        DataInputView(b"\x00\x00\x00\x01\xff").read_utf()
