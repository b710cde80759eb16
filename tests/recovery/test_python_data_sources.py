"""Data sources written for Spark, read by ourselves: ranges of offsets, exact over crashes, no JVM."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import LongType, StructType
from tests.recovery.local_jobs import Count, board, finals, local_env, new_board
from tests.recovery.test_split_sources import Flaky

from tidemark import RestartStrategies, Row, Types, WatermarkStrategy
from tidemark.api.split_source import Split
from tidemark.errors import ConfigError, RestoreError
from tidemark.runtime.sources.python_data_source import PythonDataSource
from tidemark.runtime.sources.spark_ddl import struct_of

TOTAL = 95
STEP = 10


class Simple(SimpleDataSourceStreamReader):
    """Numbers in ranges of STEP, the last one shorter."""

    def __init__(self, board_name):
        self.board_name = board_name

    def initialOffset(self):
        return {"next": 0}

    def read(self, start):
        end = {"next": min(TOTAL, start["next"] + STEP)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start, end):
        return iter([(n, f"n{n}") for n in range(start["next"], end["next"])])

    def commit(self, end):
        board(self.board_name).note("commit", end["next"])


class Planned(DataSourceStreamReader):
    """The same in two partitions for each range: tuples in one, Arrow batches in the other."""

    def __init__(self, board_name):
        self.board_name = board_name

    def initialOffset(self):
        return {"next": 0}

    def latestOffset(self, start, limit):
        return {"next": min(TOTAL, start["next"] + STEP)}

    def partitions(self, start, end):
        assert start != end
        middle = (start["next"] + end["next"]) // 2
        return [InputPartition(range(start["next"], middle)), InputPartition(range(middle, end["next"]))]

    def read(self, partition):
        first = partition.value.start
        if first % 2:
            for n in partition.value:
                yield n, f"n{n}"
        else:
            numbers = list(partition.value)
            yield pa.RecordBatch.from_pydict({"n": numbers, "name": [f"n{n}" for n in numbers]})

    def commit(self, end):
        board(self.board_name).note("commit", end["next"])

    def stop(self):
        board(self.board_name).note("stop")


class Old(Planned):
    """As they were before Spark 4.2: the end of everything, whatever the start."""

    def latestOffset(self):
        return {"next": TOTAL}


class Numbers(DataSource):
    def schema(self):
        return "n bigint, name string"

    def simpleStreamReader(self, schema):
        assert schema["n"].dataType == LongType()
        return Simple(self.options["board"])


class PlannedNumbers(Numbers):
    reader_class = Planned

    def streamReader(self, schema):
        return self.reader_class(self.options["board"])


class OldNumbers(PlannedNumbers):
    reader_class = Old


SOURCES = [Numbers, PlannedNumbers, OldNumbers]


@pytest.mark.parametrize("kind", SOURCES)
def test_rows_are_counted_exactly_over_crashes_and_committed(kind, monkeypatch):
    monkeypatch.setenv("TIDEMARK_EXECUTION_EPOCHS_MAX_RECORDS_PER_TASK", "7")
    seen = new_board()
    env = local_env()
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))
    rows = env.from_python_data_source(kind({"board": seen.name}), WatermarkStrategy.no_watermarks())
    numbers = rows.map(lambda row: row.n, Types.LONG()).map(Flaky(seen.name, (13, 50, 94)), Types.LONG())
    results = numbers.key_by(lambda n: n % 7, Types.LONG()).process(Count()).execute_and_collect()

    pairs = [next(results) for _ in range(TOTAL)]
    seen.wait(lambda board: ("commit", TOTAL) in board.events, "the commit of everything")
    results.close()

    assert sorted(pairs) == sorted((k, n) for k in range(7) for n in range(1, len(range(k, TOTAL, 7)) + 1))
    assert finals(pairs) == {k: len(range(k, TOTAL, 7)) for k in range(7)}
    assert {13, 50, 94} <= set(seen.values)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_reader_goes_on_amid_a_range(kind):
    source = PythonDataSource(kind({"board": new_board().name}))
    [split] = source.enumerate()
    rows, position = [], None

    while len(rows) < TOTAL:
        reader = source.open(split, position)
        taken = reader.read(3, 0)
        assert len(taken) <= 3
        rows += taken
        position = reader.position()
        reader.close()

    assert [tuple(row) for row in rows] == [(n, f"n{n}") for n in range(TOTAL)]
    assert source.open(split, position).read(3, 5) == []


@pytest.mark.parametrize("kind", SOURCES)
def test_a_reader_says_that_there_is_nothing_only_if_there_is_nothing(kind):
    source = PythonDataSource(kind({"board": new_board().name}))
    reader = source.open(source.enumerate()[0], None)

    taken = [len(reader.read(STEP, 0)) for _ in range(TOTAL // STEP)]

    assert taken == [STEP] * (TOTAL // STEP)


def test_a_source_that_has_nothing_is_left_alone_for_a_while():
    asked = []

    class Empty(Simple):
        def read(self, start):
            asked.append(start)
            return iter(()), start

    class Nothing(Numbers):
        def simpleStreamReader(self, schema):
            return Empty("nobody")

    source = PythonDataSource(Nothing({}))
    began = time.monotonic()
    reader = source.open(Split("stream", {"start": {"next": 0}}), None)

    assert not any(reader.read(5, 0) for _ in range(10_000))

    assert len(asked) <= 1 + (time.monotonic() - began) / 0.01


def test_rows_have_the_type_of_the_schema():
    env = local_env()
    source = Numbers({"board": new_board().name})
    with env.from_python_data_source(
        source, WatermarkStrategy.no_watermarks(), "numbers"
    ).execute_and_collect() as rows:
        first = next(rows)

    assert first == Row(n=0, name="n0")
    assert first.name == "n0"


@pytest.mark.parametrize("position", [7, {}, {"start": {}, "skip": "x"}])
def test_a_position_that_is_none_is_refused(position):
    source = PythonDataSource(Numbers({"board": "nobody"}))
    with pytest.raises(RestoreError, match="position of a Python data source"):
        source.open(Split("stream", {"start": {"next": 0}}), position)


@pytest.mark.parametrize("wrong", [Numbers, "kafka", Simple("nobody")])
def test_only_data_source_objects_are_taken(wrong):
    with pytest.raises(TypeError, match="derived from pyspark's DataSource"):
        local_env().from_python_data_source(wrong, WatermarkStrategy.no_watermarks())


def test_schemas_as_text_are_read_without_a_session_if_they_are_simple(monkeypatch):
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    read = struct_of("a int, `b` STRING NOT NULL,c: decimal(10, 2), d timestamp_ntz, e Decimal")

    assert read.simpleString() == "struct<a:int,b:string,c:decimal(10,2),d:timestamp_ntz,e:decimal(10,0)>"
    assert [field.nullable for field in read] == [True, False, True, True, True]
    assert struct_of(StructType()) == StructType()
    for nested in ("a array<int>", "a struct<b: int>", "a int, b map<string, int>", "a", "a nonsense"):
        with pytest.raises(ConfigError, match="Only Spark can read the schema"):
            struct_of(nested)
