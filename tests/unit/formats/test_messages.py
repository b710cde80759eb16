"""Single messages: JSON, CSV and Avro rows, text, bytes and fields."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from typing import Any

import pytest

from tidemark.common import Instant, Row, Types
from tidemark.common.serialization import ByteArraySchema, RowFieldExtractorSchema, SimpleStringSchema
from tidemark.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from tidemark.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from tidemark.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from tidemark.errors import ConfigError, SerializationError

ALL = Types.ROW_NAMED(
    [
        "id",
        "name",
        "ok",
        "ratio",
        "big",
        "price",
        "day",
        "at",
        "when",
        "instant",
        "raw",
        "tags",
        "counts",
        "inner",
    ],
    [
        Types.LONG(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.DOUBLE(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.INSTANT(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.LIST(Types.STRING()),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]),
    ],
)
FULL = Row(
    id=7,
    name='Zoë "x", y',
    ok=True,
    ratio=0.25,
    big=10**30,
    price=Decimal("1.10"),
    day=datetime.date(2026, 11, 16),
    at=datetime.time(12, 30, 5),
    when=datetime.datetime(2026, 11, 16, 12, 30, 5, 120000),
    instant=Instant(1_700_000_000, 5_000_000),
    raw=b"\x00\xff",
    tags=["a", None],
    counts={"x": 1, "y": None},
    inner=Row(a=1, b=None),
)
EMPTY = Row(**dict.fromkeys(ALL.get_field_names()))


def json_schemas(kind: Any, **switches: bool) -> tuple[Any, Any]:
    reader = JsonRowDeserializationSchema.builder().type_info(kind)
    for name, on in switches.items():
        if on:
            getattr(reader, name)()
    return JsonRowSerializationSchema.builder().with_type_info(kind).build(), reader.build()


@pytest.mark.parametrize("row", [FULL, EMPTY])
def test_a_row_of_every_type_comes_back_from_json(row: Row) -> None:
    write, read = json_schemas(ALL)
    write, read = pickle.loads(pickle.dumps(write)), pickle.loads(pickle.dumps(read))

    messages = write.serialize_batch([row, row])

    assert read.deserialize_batch(messages) == [row, row]
    assert read.get_produced_type() == ALL
    assert isinstance(read.deserialize(messages[0])["id"], int | None)


def test_json_follows_rfc_3339_and_leaves_unknown_properties_out() -> None:
    kind = Types.ROW_NAMED(["when", "n", "t"], [Types.SQL_TIMESTAMP(), Types.DOUBLE(), Types.STRING()])
    write, read = json_schemas(kind)

    assert (
        write.serialize(Row(when=datetime.datetime(2026, 1, 2, 3, 4, 5), n=1.5, t=None))
        == b'{"when":"2026-01-02T03:04:05.000Z","n":1.5,"t":null}'
    )
    row = read.deserialize(b'{"t": 12, "n": 3, "x": {}, "when": "2026-01-02T03:04:05+01:00"}')
    assert row == Row(when=datetime.datetime(2026, 1, 2, 2, 4, 5), n=3.0, t="12")
    assert isinstance(row.n, float)
    assert read.deserialize(b"null") is None


@pytest.mark.parametrize("message", [b"{", b"[1]", b'{"n": "x"}', b'{"n": true}', b"\xff", b"[" * 200_000])
def test_bad_json_fails_or_is_left_out(message: bytes) -> None:
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])

    with pytest.raises(SerializationError, match="ignore_parse_errors"):
        json_schemas(kind)[1].deserialize(message)
    assert json_schemas(kind, ignore_parse_errors=True)[1].deserialize_batch([message, b'{"n":1}']) == [
        None,
        Row(n=1),
    ]


def test_missing_json_fields_are_none_or_refused() -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])

    assert json_schemas(kind)[1].deserialize(b'{"b": 1}') == Row(a=None, b=1)
    with pytest.raises(SerializationError, match="'a'"):
        json_schemas(kind, fail_on_missing_field=True)[1].deserialize(b'{"b": 1}')
    with pytest.raises(ConfigError, match="exclude"):
        json_schemas(kind, fail_on_missing_field=True, ignore_parse_errors=True)


def test_a_json_schema_says_the_row_type() -> None:
    schema = """{
      "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
      "type": "object",
      "properties": {
        "name": {"type": ["string", "null"]}, "born": {"type": "string", "format": "date"},
        "raw": {"type": "string", "contentEncoding": "base64"}, "n": {"type": "integer"}, "x": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}}, "home": {"$ref": "#/definitions/place"},
        "pair": {"type": "array", "items": [{"type": "boolean"}, {"type": "string"}]}
      }}"""
    read = JsonRowDeserializationSchema.builder().json_schema(schema).build()

    assert read.get_produced_type() == Types.ROW_NAMED(
        ["name", "born", "raw", "n", "x", "tags", "home", "pair"],
        [
            Types.STRING(),
            Types.SQL_DATE(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.BIG_INT(),
            Types.BIG_DEC(),
            Types.OBJECT_ARRAY(Types.STRING()),
            Types.ROW_NAMED(["city"], [Types.STRING()]),
            Types.TUPLE([Types.BOOLEAN(), Types.STRING()]),
        ],
    )
    row = read.deserialize(
        b'{"n": 5, "x": 1.10, "home": {"city": "Bonn"}, "pair": [true, "p"], "raw": "AP8="}'
    )
    assert (row.n, row.x, row.home, row.pair, row.raw) == (
        5,
        Decimal("1.10"),
        Row(city="Bonn"),
        (True, "p"),
        b"\0\xff",
    )
    for bad in ("{", '{"type": "string"}', '{"type":"object","properties":{"a":{"$ref":"#/no"}}}'):
        with pytest.raises((ConfigError, TypeError)):
            JsonRowDeserializationSchema.builder().json_schema(bad).build()


CELLS = Types.ROW_NAMED(
    ["id", "name", "tags", "raw", "price", "ok"],
    [
        Types.INT(),
        Types.STRING(),
        Types.LIST(Types.LONG()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.BIG_DEC(),
        Types.BOOLEAN(),
    ],
)


def test_a_csv_row_comes_back_with_quotes_line_breaks_and_nulls() -> None:
    row = Row(id=1, name='a,"b"\nc', tags=[1, 2], raw=b"\xff", price=Decimal("2.50"), ok=False)
    nothing = Row(id=None, name=None, tags=None, raw=None, price=None, ok=None)
    write = CsvRowSerializationSchema.Builder(CELLS).set_null_literal("-").build()
    read = CsvRowDeserializationSchema.Builder(CELLS).set_null_literal("-").build()

    assert write.serialize(row) == b'1,"a,""b""\nc",1;2,/w==,2.50,false\n'
    assert write.serialize(nothing) == b"-,-,-,-,-,-\n"
    assert pickle.loads(pickle.dumps(read)).deserialize_batch(write.serialize_batch([row, nothing])) == [
        row,
        nothing,
    ]


def test_csv_takes_other_separators() -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.LIST(Types.STRING())])
    write = (
        CsvRowSerializationSchema.Builder(kind)
        .set_field_delimiter("|")
        .set_array_element_delimiter("/")
        .set_line_delimiter("")
        .set_escape_character("\\")
        .disable_quote_character()
        .build()
    )
    read = (
        CsvRowDeserializationSchema.Builder(kind)
        .set_field_delimiter("|")
        .set_array_element_delimiter("/")
        .set_escape_character("\\")
        .set_quote_character("'")
        .set_allow_comments(True)
        .build()
    )

    assert write.serialize(Row(a="x|y", b=["1", "2"])) == b"x\\|y|1/2"
    assert read.deserialize(b"x\\|y|1/2") == Row(a="x|y", b=["1", "2"])
    assert read.deserialize(b"'q|r'|") == Row(a="q|r", b=[])
    assert read.deserialize(b"# nothing") is None
    with pytest.raises(ConfigError, match="one character"):
        CsvRowSerializationSchema.Builder(kind).set_field_delimiter("||")


@pytest.mark.parametrize("message", [b"1", b"x,y,1,,,true", b'1,"a', b"1,a,b,,,true", b"", b"1,a\n2,b"])
def test_bad_csv_fails_or_is_left_out(message: bytes) -> None:
    builder = CsvRowDeserializationSchema.Builder(CELLS)

    with pytest.raises(SerializationError, match="CSV"):
        builder.build().deserialize(message)
    assert builder.set_ignore_parse_errors(True).build().deserialize(message) is None


AVRO = """{"type": "record", "name": "User", "namespace": "n", "fields": [
  {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}},
  {"name": "more", "type": {"type": "array", "items": "n.Inner"}},
  {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}}]}"""


def test_a_row_comes_back_from_avro() -> None:
    row = Row(
        id=1,
        name=None,
        at=datetime.datetime(2026, 1, 2, 3, 4, 5),
        inner=Row(x=1),
        more=[Row(x=2), Row(x=3)],
        kind="B",
    )
    write = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=AVRO)))
    read = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=AVRO)))

    assert read.deserialize(write.serialize(row)) == row
    assert read.get_produced_type().get_field_types()[2] == Types.SQL_TIMESTAMP()
    with pytest.raises(SerializationError, match="Avro"):
        read.deserialize(write.serialize(row) + b"x")
    with pytest.raises(SerializationError, match="does not fit"):
        write.serialize(Row(1, 2))
    with pytest.raises(ConfigError, match="Java"):
        AvroRowDeserializationSchema("a.b.C")
    with pytest.raises(ConfigError, match="record"):
        AvroRowSerializationSchema(avro_schema_string='"string"')


def test_text_bytes_and_fields_of_rows() -> None:
    assert SimpleStringSchema("latin-1").serialize_batch(["ä"]) == [b"\xe4"]
    assert SimpleStringSchema().get_produced_type() == Types.STRING()
    with pytest.raises(SerializationError, match="UTF-8"):
        SimpleStringSchema().deserialize(b"\xff")
    assert ByteArraySchema().deserialize_batch([b"x"]) == [b"x"]
    assert RowFieldExtractorSchema(1).serialize(Row(b"k", b"v")) == b"v"
    assert RowFieldExtractorSchema(0).serialize(Row(None, b"v")) == b""
    assert RowFieldExtractorSchema(0).serialize(None) == b""
    with pytest.raises(ValueError, match="Field index must be non-negative"):
        RowFieldExtractorSchema(-1)
    with pytest.raises(SerializationError, match="bytes"):
        RowFieldExtractorSchema(0).serialize(Row("k"))
    with pytest.raises(SerializationError, match="field 3"):
        RowFieldExtractorSchema(3).serialize(Row("k"))


def test_types_that_a_format_cannot_hold_are_refused_when_it_is_built() -> None:
    inner = Types.ROW_NAMED(["a"], [Types.MAP(Types.STRING(), Types.LONG())])

    with pytest.raises(ConfigError, match="CSV"):
        CsvRowSerializationSchema.Builder(inner).build()
    with pytest.raises(TypeError, match="ROW_NAMED"):
        JsonRowSerializationSchema.builder().with_type_info(Types.STRING())
    with pytest.raises(ConfigError, match="type_info"):
        JsonRowDeserializationSchema.builder().build()
