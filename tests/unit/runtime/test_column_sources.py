"""Which sources give columns, to whom, and how what they give compares with the same by record."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.runtime.test_enumerators import vertex
from tests.unit.runtime.test_pipeline import Task

from tidemark import (
    BatchProcessFunction,
    FileSource,
    KeyedProcessFunction,
    NumberSequenceSource,
    OutputTag,
    ParquetColumnarRowInputFormat,
    StreamFormat,
    Types,
    WatermarkStrategy,
    field,
)
from tidemark.clock import ManualClock
from tidemark.runtime.sources.enumerators import make_enumerator
from tidemark.runtime.sources.readers import open_reader
from tidemark.runtime.sources.splits import FileSplit, RangeSplit, read_split
from tidemark.types.time import Instant

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TAG = OutputTag("aside", Types.LONG())
ROW = Types.ROW_NAMED(["n", "at", "name"], [Types.LONG(), Types.LONG(), Types.STRING()])
NO_WATERMARKS = WatermarkStrategy.no_watermarks()
BY_FIELD = NO_WATERMARKS.with_timestamp_assigner(field("at"))


class Each(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class All(BatchProcessFunction):
    def process_batch(self, batch, keys, ctx):
        return batch


def same(batch):
    return batch


def discard(stream):
    stream.print()


READ_BY = {
    "map_batch": (True, lambda s: discard(s.map_batch(same, output_type=ROW))),
    "filter_batch": (True, lambda s: discard(s.filter_batch(lambda batch: batch["n"].is_valid()))),
    "a key that is a field": (
        True,
        lambda s: discard(s.key_by(field("n"), Types.LONG()).process(Each(), ROW)),
    ),
    "process_batch": (
        True,
        lambda s: discard(s.key_by(field("name"), Types.STRING()).process_batch(All(), output_type=ROW)),
    ),
    "timestamps of a field": (
        True,
        lambda s: discard(s.assign_timestamps_and_watermarks(BY_FIELD).map_batch(same, output_type=ROW)),
    ),
    "a key selector": (
        False,
        lambda s: discard(s.key_by(lambda r: r["n"], Types.LONG()).process(Each(), ROW)),
    ),
    "a field of another type": (False, lambda s: discard(s.key_by(field("n")).process(Each(), ROW))),
    "map": (False, lambda s: discard(s.map(lambda r: r, ROW))),
    "filter": (False, lambda s: discard(s.filter(lambda r: True).map_batch(same, output_type=ROW))),
    "timestamps of a function": (
        False,
        lambda s: discard(
            s.assign_timestamps_and_watermarks(
                NO_WATERMARKS.with_timestamp_assigner(lambda row, _stamp: row["at"])
            ).map_batch(same, output_type=ROW)
        ),
    ),
    "records behind timestamps of a field": (
        False,
        lambda s: discard(s.assign_timestamps_and_watermarks(BY_FIELD).map(lambda r: r, ROW)),
    ),
    "a sink": (False, discard),
    "columns and records": (
        False,
        lambda s: (discard(s.map_batch(same, output_type=ROW)), discard(s.map(lambda r: r, ROW))),
    ),
    "nobody": (False, lambda s: discard(s.get_side_output(TAG))),
}


@pytest.mark.parametrize("reader", READ_BY)
def test_a_source_gives_columns_if_everybody_who_reads_it_takes_them(reader):
    takes, attach = READ_BY[reader]
    task = Task()
    attach(task.source(type_info=ROW))
    task.start()

    assert task.pipeline.takes_columns(task.ids["source"]) is takes


@pytest.mark.parametrize(
    ("strategy", "takes"),
    [
        (NO_WATERMARKS, True),
        (WatermarkStrategy.for_monotonous_timestamps(), True),
        (NO_WATERMARKS.with_timestamp_assigner(lambda number, _stamp: number), False),
    ],
)
def test_the_strategy_of_a_source_reads_its_records_too(strategy, takes):
    task = Task()
    numbers = task.env.from_source(NumberSequenceSource(0, 9), strategy, "source").name("source")
    discard(numbers.map_batch(lambda batch: {"f0": batch[0], "f1": batch[0]}, output_type=PAIR))
    task.start()

    assert task.pipeline.takes_columns(task.ids["source"]) is takes


def everything(reader, size):
    """Values and the position behind them, read by read."""
    found = []
    while (records := reader.read(size, 0)) is not None:
        found.append((records.values, reader.position(), records.column is not None))
    return found


def test_numbers_are_the_same_with_the_same_positions():
    source = vertex(NumberSequenceSource(5, 27).source_spec(), 1, Types.LONG())
    [assigned] = make_enumerator(source, ManualClock()).start(None)

    by_record = everything(open_reader(source, assigned, 0), 10)
    by_column = everything(open_reader(source, assigned, 0, by_column=True), 10)

    assert [part[:2] for part in by_column] == [part[:2] for part in by_record]
    assert [len(values) for values, _position, _column in by_column] == [10, 10, 3]
    assert {column for *_, column in by_column} == {True}
    assert {column for *_, column in by_record} == {False}


@pytest.mark.parametrize("declared", [None, Types.INT()])
def test_numbers_of_another_type_stay_objects(declared):
    spec, split = NumberSequenceSource(0, 9).source_spec(), RangeSplit(0, 9)

    [(records, behind)] = read_split(spec, split, declared, 0, by_column=True)

    assert records.column is None
    assert (records.values, behind) == (list(range(10)), 10)


def parquet_source(tmp_path, kind, table, **options):
    pq.write_table(table, tmp_path / "file", row_group_size=1000)
    file_format = ParquetColumnarRowInputFormat(kind, **options)
    return FileSource.for_bulk_file_format(file_format, str(tmp_path / "file")).build().source_spec()


NAMES = ["long", "int", "text", "double", "truth", "data", "day", "at"]
KINDS = [Types.LONG(), Types.INT(), Types.STRING(), Types.DOUBLE(), Types.BOOLEAN(),
         Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.SQL_DATE(), Types.SQL_TIMESTAMP()]  # fmt: skip


def rows_of(spec, kind, offset, limit, by_column):
    split = FileSplit(spec.paths[0], offset, limit)
    return list(read_split(spec, split, kind, 0, by_column=by_column))


@pytest.mark.parametrize(("offset", "limit"), [(0, 2500), (700, 600), (1000, 10_000), (2499, 1), (1700, 500)])
def test_rows_of_parquet_files_are_the_same_by_column(tmp_path, offset, limit):
    kind = Types.ROW_NAMED(NAMES, KINDS)
    table = pa.table(
        {
            "data": [None if n % 11 == 0 else b"%d" % n for n in range(2500)],
            "long": pa.array([None if n % 7 == 0 else n for n in range(2500)], pa.int32()),
            "text": [f"t{n}" for n in range(2500)],
            "unread": list(range(2500)),
            "int": pa.array([-n for n in range(2500)], pa.int64()),
            "double": [n / 3 for n in range(2500)],
            "truth": [n % 2 == 0 for n in range(2500)],
            "day": pa.array(range(2500), pa.date32()),
            "at": pa.array([n * 1001 for n in range(2500)], pa.timestamp("us")),
        }
    )
    spec = parquet_source(tmp_path, kind, table, batch_size=100)

    by_record, by_column = (rows_of(spec, kind, offset, limit, way) for way in (False, True))

    flat = [row for records, _position in by_record for row in records.values]
    taken = [row for records, _position in by_column for row in records.values]
    # Batches of columns are larger, so the last one goes further.
    assert taken[: len(flat)] == flat
    assert all(records.column is not None for records, _position in by_column)
    assert by_column[-1][1][1] == offset + len(taken) >= min(2500, offset + limit)


def test_types_that_files_hold_in_another_way_stay_objects(tmp_path):
    kind = Types.ROW_NAMED(["n", "at"], [Types.LONG(), Types.INSTANT()])
    times = pa.array([1_500_000_000, None], pa.timestamp("ns", "UTC"))
    spec = parquet_source(tmp_path, kind, pa.table({"n": [1, 2], "at": times}))

    [(records, _position)] = rows_of(spec, kind, 0, 2, True)

    assert records.column is None
    assert [row["at"] for row in records.values] == [Instant(1, 500_000_000), None]


def test_a_file_that_does_not_hold_the_columns_says_so_by_column_too(tmp_path):
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    for table in (pa.table({"m": [1]}), pa.table({"n": ["text"]})):
        spec = parquet_source(tmp_path, kind, table)
        for by_column in (False, True):
            with pytest.raises(Exception, match="A Parquet file does not hold"):
                rows_of(spec, kind, 0, 1, by_column)


def test_wide_rows_come_in_smaller_batches(tmp_path):
    kind = Types.ROW_NAMED(["text"], [Types.STRING()])
    texts = [f"{n:04}" * (1 << 16) for n in range(100)]
    spec = parquet_source(tmp_path, kind, pa.table({"text": texts}))

    batches = rows_of(spec, kind, 0, 100, True)

    assert [text for records, _position in batches for (text,) in records.values] == texts
    assert 16 <= max(len(records) for records, _position in batches) <= 64


def test_formats_without_columns_are_read_by_record(tmp_path):
    (tmp_path / "lines").write_text("a\nb\n")
    text = StreamFormat.text_line_format()
    spec = FileSource.for_record_stream_format(text, str(tmp_path / "lines")).build().source_spec()

    [(records, _position)] = rows_of(spec, Types.STRING(), 0, 4, True)

    assert (records.column, records.values) == (None, ["a", "b"])
