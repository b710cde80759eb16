"""What each type accepts, coerces and refuses; the three forms must agree on it."""

from __future__ import annotations

import datetime
import io
import pickle
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.errors import ConfigError, SerializationError
from tidemark.state.serializers import NullableSerializer, TypeSerializer, serializer_for
from tidemark.types.row import Row, RowKind
from tidemark.types.time import Instant
from tidemark.types.typeinfo import TypeInformation, Types

Pair = namedtuple("Pair", "a b")
UTC_NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)


@dataclass
class Event:
    name: str
    count: int


@dataclass
class SubEvent(Event):
    extra: int = 0


@dataclass
class Nothing:
    pass


REFUSED: list[tuple[TypeInformation, Any]] = [
    (Types.BYTE(), 128),
    (Types.SHORT(), -(2**15) - 1),
    (Types.INT(), 2**31),
    (Types.LONG(), 2**63),
    (Types.LONG(), None),
    (Types.LONG(), 1.0),
    (Types.LONG(), "1"),
    (Types.BOOLEAN(), None),
    (Types.BOOLEAN(), 1),
    (Types.FLOAT(), 1e300),
    (Types.FLOAT(), None),
    (Types.DOUBLE(), "1"),
    (Types.DOUBLE(), None),
    (Types.DOUBLE(), 10**400),
    (Types.STRING(), 1),
    (Types.CHAR(), "ab"),
    (Types.CHAR(), None),
    (Types.BIG_INT(), 1.5),
    (Types.BIG_DEC(), 1.5),
    (Types.INSTANT(), datetime.datetime(2020, 1, 1)),
    (Types.INSTANT(), Instant(2**63)),
    (Types.SQL_DATE(), "2020-01-01"),
    (Types.SQL_TIME(), datetime.time(1, tzinfo=datetime.UTC)),
    (Types.SQL_TIMESTAMP(), UTC_NOON),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [256]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), None),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None]),
    (Types.LIST(Types.INT()), None),
    (Types.LIST(Types.INT()), "abc"),
    (Types.LIST(Types.INT()), ["a"]),
    (Types.MAP(Types.STRING(), Types.INT()), None),
    (Types.MAP(Types.STRING(), Types.INT()), {None: 1}),
    (Types.MAP(Types.STRING(), Types.INT()), [("a", 1)]),
    (Types.MAP(Types.INT(), Types.INT()), {"a": 1}),
    (Types.TUPLE([Types.LONG(), Types.LONG()]), None),
    (Types.TUPLE([Types.LONG(), Types.LONG()]), (1,)),
    (Types.TUPLE([Types.LONG(), Types.LONG()]), (1, None)),
    (Types.TUPLE([Types.LONG(), Types.LONG()]), (1, 2**63)),
    (Types.TUPLE([Types.LONG(), Types.LONG()]), {1, 2}),
    (Types.TUPLE([Types.STRING(), Types.STRING()]), "ab"),
    (Types.TUPLE([Types.STRING(), Types.LONG()]), ("a", None)),
    (Types.ROW([Types.LONG()]), None),
    (Types.ROW([Types.LONG()]), Row(1, 2)),
    (Types.ROW([Types.LONG()]), Row("a")),
    (Types.ROW_NAMED(["a"], [Types.LONG()]), {"b": 1}),
    (Types.DATACLASS(Event), "Event"),
    (Types.DATACLASS(Event), SubEvent("a", 1)),
    (Types.DATACLASS(Event), Event("a", "b")),  # type: ignore[arg-type]
    (Types.AVRO('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}'), {"x": "a"}),
]


@pytest.mark.parametrize(("type_info", "value"), REFUSED, ids=lambda it: repr(it)[:40])
def test_values_that_do_not_fit_are_refused_in_every_form(type_info: TypeInformation, value: Any) -> None:
    serializer = serializer_for(type_info)
    normalize = serializer.normalizer()
    assert normalize is not None

    with pytest.raises(SerializationError):
        serializer.to_bytes(value)
    with pytest.raises(SerializationError):
        normalize(value)
    with pytest.raises(SerializationError):
        serializer.to_arrow([value])


LEAVES = [
    Types.BYTE(),
    Types.SHORT(),
    Types.INT(),
    Types.LONG(),
    Types.BOOLEAN(),
    Types.DOUBLE(),
    Types.STRING(),
]
EDGES = [
    *[sign * (1 << bits) + by for bits in (7, 15, 30, 31, 63) for sign in (1, -1) for by in (-1, 0, 1)],
    *(0, True, 0.5, float("nan"), None, "a", np.int64(3), np.float64(0.5), np.bool_(False), b"a"),
]


@pytest.mark.parametrize("type_info", LEAVES, ids=repr)
def test_a_tuple_lets_pass_what_its_fields_let_pass(type_info: TypeInformation) -> None:
    def answer(normalize: Any, value: Any) -> Any:
        try:
            return repr(normalize(value))
        except SerializationError as exc:
            return str(exc)

    field = serializer_for(type_info).normalizer()
    pair = serializer_for(Types.TUPLE([type_info, type_info])).normalizer()
    assert field is not None
    assert pair is not None
    good = next(value for value in EDGES if not answer(field, value).startswith("A value"))
    for value in EDGES:
        expected = answer(lambda it: (field(good), field(it)), value)
        assert answer(pair, (good, value)) == expected
        assert answer(pair, [good, value]) == expected


COERCED: list[tuple[TypeInformation, Any, Any]] = [
    (Types.LONG(), True, 1),
    (Types.LONG(), np.int32(7), 7),
    (Types.BYTE(), np.int64(-128), -128),
    (Types.BOOLEAN(), np.bool_(True), True),
    (Types.DOUBLE(), 3, 3.0),
    (Types.DOUBLE(), np.float32(0.5), 0.5),
    (Types.FLOAT(), 110.1, 110.0999984741211),
    (Types.FLOAT(), 1, 1.0),
    (Types.BIG_INT(), np.int64(5), 5),
    (Types.BIG_DEC(), 5, Decimal(5)),
    (Types.SQL_DATE(), datetime.datetime(2020, 1, 2, 3), datetime.date(2020, 1, 2)),
    (Types.INSTANT(), UTC_NOON, Instant(1577880000)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"ab"), b"ab"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [-1, 255], b"\xff\xff"),
    (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), np.array([1.5]), [1.5]),
    (Types.LIST(Types.INT()), (1, 2), [1, 2]),
    (Types.TUPLE([Types.STRING(), Types.LONG()]), ["a", 1], ("a", 1)),
    (Types.TUPLE([Types.LONG(), Types.LONG()]), [1, 2], (1, 2)),
    (Types.TUPLE([Types.STRING(), Types.LONG()]), Row("a", 1), ("a", 1)),
    (Types.TUPLE([Types.STRING(), Types.LONG()]), Pair("a", 1), ("a", 1)),
    (Types.ROW([Types.STRING(), Types.LONG()]), ("a", None), Row(f0="a", f1=None)),
    (Types.ROW([Types.STRING(), Types.LONG()]), Row(x="a", y=1), Row(f0="a", f1=1)),
    (Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()]), Row(b=2, a=1), Row(a=1, b=2)),
    (Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()]), Row(1, 2), Row(a=1, b=2)),
    (Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()]), {"b": 2, "a": 1}, Row(a=1, b=2)),
    (Types.DATACLASS(Event), Event("a", True), Event("a", 1)),
]


@pytest.mark.parametrize(("type_info", "value", "expected"), COERCED, ids=lambda it: repr(it)[:40])
def test_close_values_are_coerced_alike_in_every_form(
    type_info: TypeInformation, value: Any, expected: Any
) -> None:
    serializer = serializer_for(type_info)
    normalize = serializer.normalizer()
    assert normalize is not None

    results = [
        serializer.from_bytes(serializer.to_bytes(value)),
        normalize(value),
        serializer.from_arrow(serializer.to_arrow([value]))[0],
    ]

    for result in results:
        assert result == expected
        assert type(result) is type(expected)


def test_long_and_string_keys_have_the_bytes_the_vectorised_hash_expects() -> None:
    assert serializer_for(Types.LONG()).key_bytes(-2) == (-2).to_bytes(8, "big", signed=True)
    assert serializer_for(Types.STRING()).key_bytes("ä") == "ä".encode()
    assert serializer_for(Types.STRING()).key_bytes(None) == b"\xff"


def test_encodings_never_change() -> None:
    golden: list[tuple[Any, Any, str]] = [
        (Types.LONG(), 1, "0000000000000001"),
        (Types.BIG_INT(), -129, "ff7f"),
        (Types.BIG_DEC(), Decimal("1.50"), "312e3530"),
        (Types.INSTANT(), Instant(1, 2), "000000000000000100000002"),
        (Types.SQL_DATE(), datetime.date(1970, 1, 2), "00000001"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1), "016100000001"),
        (Types.ROW([Types.STRING(), Types.INT()]), Row(None, 1), "000100000001"),
        (Types.LIST(Types.STRING()), ["a", None], "0201020161"),
        (Types.LIST(Types.INT()), [1], "010000000001"),
        (Types.MAP(Types.STRING(), Types.BYTE()), {"a": 1}, "010001610001"),
        (Types.DATACLASS(Event), Event("a", 1), "010001610000000000000001"),
        (Types.DATACLASS(Event), None, "00"),
    ]

    for type_info, value, expected in golden:
        assert serializer_for(type_info).to_bytes(value).hex() == expected, type_info


def test_damaged_bytes_are_reported() -> None:
    for type_info, data in [
        (Types.LONG(), b"\x00"),
        (Types.DOUBLE(), b"\x00"),
        (Types.BOOLEAN(), b"\x05"),
        (Types.STRING(), b"\xfe\xfe"),
        (Types.BIG_DEC(), b"x"),
        (Types.TUPLE([Types.STRING()]), b"\x05a"),
        (Types.TUPLE([Types.STRING()]), b""),
        (Types.ROW([Types.STRING()]), b"\x09"),
        (Types.LIST(Types.STRING()), b"\x02\x00\x01a"),
        (Types.LIST(Types.STRING()), b"\x00\x00rest"),
        (Types.DATACLASS(Event), b"\x07"),
        (Types.PICKLED_BYTE_ARRAY(), b"nonsense"),
        (Types.AVRO('"int"'), b"\x07"),
    ]:
        with pytest.raises(SerializationError):
            serializer_for(type_info).from_bytes(data)


def test_a_stream_that_ends_too_early_is_reported() -> None:
    serializer = serializer_for(Types.STRING())

    with pytest.raises(SerializationError, match="ended where"):
        serializer.deserialize(io.BytesIO(b""))
    with pytest.raises(SerializationError, match="ended inside"):
        serializer.deserialize(io.BytesIO(b"\x05ab"))


def test_immutable_values_are_shared_and_others_copied() -> None:
    pair = ("a", 1)
    rows = [1, 2]

    assert serializer_for(Types.TUPLE([Types.STRING(), Types.LONG()])).copy(pair) is pair
    assert serializer_for(Types.LIST(Types.LONG())).copy(rows) == rows
    assert serializer_for(Types.LIST(Types.LONG())).copy(rows) is not rows


def test_equal_types_share_a_serializer() -> None:
    assert serializer_for(Types.LIST(Types.INT())) is serializer_for(Types.LIST(Types.INT()))
    assert serializer_for(Event) is serializer_for(Types.DATACLASS(Event))
    with pytest.raises(TypeError):
        serializer_for(int)
    with pytest.raises(TypeError, match="no serializer"):
        serializer_for(TypeInformation())


def test_row_kinds_survive_in_bytes_and_columns() -> None:
    serializer = serializer_for(Types.ROW([Types.LONG()]))
    rows = [Row(f0=1), Row.of_kind(RowKind.UPDATE_AFTER, f0=2)]

    assert serializer.from_arrow(serializer.to_arrow(rows)) == rows
    assert [serializer.from_bytes(serializer.to_bytes(row)) for row in rows] == rows
    with pytest.raises(ConfigError, match=r"\$kind"):
        serializer_for(Types.ROW_NAMED(["$kind"], [Types.LONG()]))


def test_columns_are_typed_and_can_be_stored_as_parquet(tmp_path: Any) -> None:
    columns = {
        "tuple": (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1)]),
        "empty": (Types.TUPLE([]), [()]),
        "nothing": (Types.DATACLASS(Nothing), [Nothing()]),
        "event": (Types.DATACLASS(Event), [Event("a", 1)]),
        "row": (Types.ROW_NAMED(["x"], [Types.INT()]), [Row(x=1)]),
        "map": (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), [{"a": [1, None]}]),
        "instant": (Types.INSTANT(), [Instant(1, 2)]),
        "time": (Types.SQL_TIMESTAMP(), [datetime.datetime(2020, 1, 1)]),
    }
    table = pa.table({name: serializer_for(t).to_arrow(v) for name, (t, v) in columns.items()})

    pq.write_table(table, tmp_path / "t.parquet")
    read = pq.read_table(tmp_path / "t.parquet")

    assert table.schema.field("tuple").type == pa.struct([("f0", pa.utf8()), ("f1", pa.int64())])
    assert table.schema.field("event").type == pa.struct([("name", pa.utf8()), ("count", pa.int64())])
    for name, (type_info, values) in columns.items():
        assert serializer_for(type_info).from_arrow(read[name]) == values


def test_pickled_keys_do_not_depend_on_object_identity_or_hash_seed() -> None:
    serializer = serializer_for(Types.PICKLED_BYTE_ARRAY())
    shared = "".join(["a", "b"])
    program = (
        "from tidemark.state.serializers import serializer_for\n"
        "from tidemark.types.typeinfo import Types\n"
        "key = (frozenset(['x', 'y', 'zz']), {'b': 1, 'a': {3, 4}}, [('ab', 'ab')])\n"
        "print(serializer_for(Types.PICKLED_BYTE_ARRAY()).key_bytes(key).hex())\n"
    )
    key = (frozenset(["zz", "y", "x"]), {"a": {4, 3}, "b": 1}, [(shared, shared)])

    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert serializer.key_bytes((shared, shared)) == serializer.key_bytes(("ab", "a" + "b"))
    assert printed == {serializer.key_bytes(key).hex()}
    assert serializer.from_bytes(serializer.key_bytes(key)) == key


def test_a_key_that_contains_itself_is_still_written() -> None:
    serializer = serializer_for(Types.PICKLED_BYTE_ARRAY())
    key: list[Any] = []
    key.append(key)

    back = serializer.from_bytes(serializer.key_bytes(key))

    assert back[0] is back


def test_values_that_cannot_be_pickled_are_refused() -> None:
    serializer = serializer_for(Types.PICKLED_BYTE_ARRAY())

    with pytest.raises(SerializationError, match="cannot be pickled"):
        serializer.to_bytes(sys._getframe())
    with pytest.raises(SerializationError, match="importable"):
        serializer.key_bytes(lambda: 1)


def test_values_of_script_classes_are_pickled_by_value() -> None:
    program = (
        "from tidemark.state.serializers import serializer_for\n"
        "from tidemark.types.typeinfo import Types\n"
        "class Mine:\n"
        "    def __init__(self, x): self.x = x\n"
        "print(serializer_for(Types.PICKLED_BYTE_ARRAY()).to_bytes(Mine(7)).hex())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    value = serializer_for(Types.PICKLED_BYTE_ARRAY()).from_bytes(bytes.fromhex(done.stdout.strip()))

    assert value.x == 7


class Csv(TypeSerializer[list[str]]):
    """Relies on no constructor of ours."""

    def __init__(self, separator: str = ",") -> None:
        self.separator = separator

    def serialize(self, element: list[str], stream: Any) -> None:
        stream.write_utf(self.separator.join(element))

    def deserialize(self, stream: Any) -> list[str]:
        return str(stream.read_utf()).split(self.separator)


class Greedy(Csv):
    def deserialize(self, stream: Any) -> list[str]:
        stream.read(4)
        return []


def test_a_custom_serializer_needs_two_methods_only() -> None:
    serializer = Csv()
    value = ["a", "b"]

    assert serializer.from_bytes(serializer.to_bytes(value)) == value
    assert serializer.from_arrow(serializer.to_arrow([value])) == [value]
    assert serializer.key_bytes(value) == serializer.to_bytes(value)
    assert serializer.copy(value) == value
    assert serializer.normalizer() is None
    assert serializer.qualified_name() == f"{__name__}.Csv"
    assert serializer_for(Types.SERIALIZED(serializer)) is serializer
    assert pickle.loads(pickle.dumps(serializer)).separator == ","


def test_a_custom_serializer_must_read_what_it_wrote() -> None:
    with pytest.raises(SerializationError, match="unread"):
        Greedy().from_bytes(Csv().to_bytes(["abc"]))


def test_nullable_adds_one_byte_and_none() -> None:
    serializer = NullableSerializer(serializer_for(Types.LONG()))
    stream = io.BytesIO()

    serializer.serialize(None, stream)
    serializer.serialize(5, stream)
    stream.seek(0)

    assert [serializer.deserialize(stream), serializer.deserialize(stream)] == [None, 5]
    assert (serializer.to_bytes(None), len(serializer.to_bytes(5))) == (b"\x00", 9)
    assert serializer.from_arrow(serializer.to_arrow([None, 5])) == [None, 5]
    with pytest.raises(SerializationError, match="00 or 01"):
        serializer.from_bytes(b"\x02")
    normalize = serializer.normalizer()
    assert normalize is not None
    assert normalize(None) is None
    assert NullableSerializer(Csv()).normalizer() is None
