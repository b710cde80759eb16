"""Whole files: what a writer writes, the reader of its format reads, from any position on."""

from __future__ import annotations

import datetime
import io
import pickle
from decimal import Decimal
from typing import Any

import pytest

from tidemark.common import Instant, Row, Types
from tidemark.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from tidemark.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from tidemark.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.files import FileFormat

SCHEMA = AvroSchema.parse_string(
    '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]}'
)
ROWS = Types.ROW_NAMED(["n", "t"], [Types.LONG(), Types.STRING()])
CSV = CsvSchema.builder().add_number_column("n").add_string_column("t").set_use_header().build()


class Output(io.BytesIO):
    """Cannot be sought, as a staged file cannot."""

    def seekable(self) -> bool:
        return False


def written(factory: Any, elements: list[Any]) -> bytes:
    out = Output()
    writer = pickle.loads(pickle.dumps(factory)).create(out)
    for first in range(0, len(elements), 100):
        writer.add_elements(elements[first : first + 100])
    writer.finish()
    return out.getvalue()


def pieces(file_format: FileFormat, data: bytes, limit: int) -> list[Any]:
    """Everything in a file, each piece read by another task from where the one before it stopped."""
    found: list[Any] = []
    at, end = 0, file_format.length(len(data), lambda: io.BytesIO(data))
    while at < end:
        read = list(pickle.loads(pickle.dumps(file_format)).read(io.BytesIO(data), at, limit))
        found += [value for values, _ in read for value in values]
        assert read[-1][1] > at
        at = read[-1][1]
    return found


RECORDS = [{"n": n, "t": f"t{n}\n" if n % 7 == 0 else 'a,"b"'} for n in range(1000)]
AS_ROWS = [Row(**record) for record in RECORDS]


@pytest.mark.parametrize("limit", [1, 777, 1 << 40])
@pytest.mark.parametrize(
    ("factory", "elements"),
    [
        pytest.param(CsvBulkWriters.for_schema(CSV), AS_ROWS, id="csv"),
        pytest.param(AvroBulkWriters.for_generic_record(SCHEMA), RECORDS, id="avro"),
        pytest.param(AvroParquetWriters.for_generic_record(SCHEMA), RECORDS, id="avro-parquet"),
        pytest.param(ParquetBulkWriters.for_row_type(ROWS), AS_ROWS, id="parquet"),
    ],
)
def test_what_is_written_is_read_whatever_the_pieces(factory: Any, elements: list[Any], limit: int) -> None:
    assert pieces(factory.reader(), written(factory, elements), limit) == elements
    assert pieces(factory.reader(), written(factory, []), limit) == []
    with pytest.raises(SerializationError):
        written(factory, [Row("no", "such", "row")])


def test_avro_files_are_resolved_to_the_readers_schema() -> None:
    newer = AvroSchema.parse_string(
        '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "double"}, '
        '{"name": "x", "type": "string", "default": "?"}]}'
    )
    data = written(AvroBulkWriters.for_generic_record(SCHEMA), RECORDS[:2])

    assert pieces(AvroInputFormat("p", newer), data, 1 << 40) == [{"n": 0.0, "x": "?"}, {"n": 1.0, "x": "?"}]
    with pytest.raises(SerializationError, match="Avro"):
        pieces(AvroInputFormat("p", newer), b"no avro file", 1)


def test_parquet_holds_every_type_and_reads_columns_by_name() -> None:
    kind = Types.ROW_NAMED(
        ["a", "price", "day", "at", "when", "instant", "raw", "tags", "map", "inner", "f"],
        [
            Types.INT(),
            Types.BIG_DEC(),
            Types.SQL_DATE(),
            Types.SQL_TIME(),
            Types.SQL_TIMESTAMP(),
            Types.INSTANT(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.LIST(Types.STRING()),
            Types.MAP(Types.STRING(), Types.LONG()),
            Types.ROW_NAMED(["x"], [Types.LONG()]),
            Types.FLOAT(),
        ],
    )
    full = Row(
        a=1,
        price=Decimal("1.5"),
        day=datetime.date(2026, 1, 2),
        at=datetime.time(1, 2, 3),
        when=datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        instant=Instant(5, 7),
        raw=b"\0",
        tags=["x", None],
        map={"k": 1},
        inner=Row(x=3),
        f=0.5,
    )
    empty = Row(**dict.fromkeys(kind.get_field_names()))
    data = written(ParquetBulkWriters.for_row_type(kind), [full, empty])

    assert pieces(ParquetColumnarRowInputFormat(kind), data, 1) == [full, empty]
    other = Types.ROW_NAMED(["F", "A"], [Types.DOUBLE(), Types.LONG()])
    relaxed = ParquetColumnarRowInputFormat(other, is_case_sensitive=False, batch_size=1)
    assert pieces(relaxed, data, 1 << 40) == [Row(F=0.5, A=1), Row(F=None, A=None)]
    with pytest.raises(SerializationError, match="F"):
        pieces(ParquetColumnarRowInputFormat(other), data, 1)
    with pytest.raises(SerializationError, match="Parquet"):
        pieces(ParquetColumnarRowInputFormat(other), b"text", 1)
    with pytest.raises(ConfigError, match="Hadoop"):
        ParquetBulkWriters.for_row_type(kind, {"a": 1})
    assert AvroParquetReaders.for_generic_record(SCHEMA).produced_type() == Types.AVRO(SCHEMA)


def test_a_csv_schema_says_what_a_file_looks_like() -> None:
    schema = (
        CsvSchema.builder()
        .add_columns_from(CsvSchema.builder().add_boolean_column("ok").build())
        .add_array_column("xs", "#", Types.INT())
        .add_number_column("n", Types.DOUBLE())
        .add_string_column("t")
        .set_column_separator("|")
        .set_quote_char("'")
        .set_null_value("none")
        .set_allow_comments()
        .set_use_header()
        .set_strict_headers()
        .set_skip_first_data_row()
        .build()
    )
    text = b"# first\nok|xs|n|t\r\nskipped|||\n#\ntrue|1#2|none|'a\nb|'\n\nfalse||1.5|none"

    assert len(schema) == 4
    assert str(schema) == "CsvSchema(ok: Boolean, xs: ListTypeInfo<Integer>, n: Double, t: String)"
    reader = CsvReaderFormat.for_schema(schema)
    assert pieces(reader, text, 1) == [
        Row(ok=True, xs=[1, 2], n=None, t="a\nb|"),
        Row(ok=False, xs=[], n=1.5, t=None),
    ]
    with pytest.raises(SerializationError, match="heading"):
        pieces(reader, b"ok|xs|n|other\n", 1)
    with pytest.raises(SerializationError, match="4 fields"):
        pieces(reader, b"ok|xs|n|t\nskip\nfalse|1\n", 1)
    with pytest.raises(TypeError, match="CsvSchema"):
        CsvReaderFormat.for_schema("a,b")  # type: ignore[arg-type]
