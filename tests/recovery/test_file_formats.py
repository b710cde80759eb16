"""Files of every format through jobs: each record once, whatever crashes; small files merged before they are seen."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.campaign import seeds

from tidemark import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroParquetReaders,
    AvroParquetWriters,
    AvroSchema,
    BucketAssigner,
    Configuration,
    CsvBulkWriters,
    CsvReaderFormat,
    CsvSchema,
    Encoder,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    OutputFileConfig,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
    RollingPolicy,
    Row,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)
from tidemark.errors import ConfigError
from tidemark.runtime.execution import CRASH_POINTS
from tidemark.testing import CHECKPOINT, CRASH_AT, END, RESCALE, SAVEPOINT, run_script

SCHEMA = AvroSchema.parse_string('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}')
ROWS = Types.ROW_NAMED(["n"], [Types.LONG()])
CSV = CsvSchema.builder().add_number_column("n").set_use_header().build()

WRITERS: dict[str, tuple[Any, Any]] = {
    "csv": (CsvBulkWriters.for_schema(CSV), ROWS),
    "avro": (AvroBulkWriters.for_generic_record(SCHEMA), Types.AVRO(SCHEMA)),
    "avro-parquet": (AvroParquetWriters.for_generic_record(SCHEMA), Types.AVRO(SCHEMA)),
    "parquet": (ParquetBulkWriters.for_row_type(ROWS), ROWS),
}
READERS: dict[str, Any] = {
    "csv": CsvReaderFormat.for_schema(CSV),
    "avro": AvroInputFormat("", SCHEMA),
    "avro-parquet": AvroParquetReaders.for_generic_record(SCHEMA),
    "parquet": ParquetColumnarRowInputFormat(ROWS),
}


def to_files(directory: Path, name: str, compaction: FileCompactStrategy | None = None) -> Any:
    factory, kind = WRITERS[name]

    def build(stream: Any) -> Any:
        record = Row if kind == ROWS else dict
        records = stream.map(lambda n: record(n=n), kind)
        builder = FileSink.for_bulk_format(str(directory), factory)
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        builder.with_output_file_config(OutputFileConfig.builder().with_part_suffix("." + name).build())
        builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        if compaction is not None:
            builder.enable_compact(compaction, FileCompactor.record_wise_file_compactor())
        records.sink_to(builder.build()).uid(name)
        return stream

    return build


def visible(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name[0] != "."]


def staged(directory: Path) -> list[Path]:
    return list(directory.rglob("*.inprogress"))


def local(**options: Any) -> StreamExecutionEnvironment:
    keys = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", **keys})
    )


def source_of(directory: Path, name: str) -> FileSource:
    make = (
        FileSource.for_record_stream_format
        if name in ("csv", "avro-parquet")
        else FileSource.for_bulk_file_format
    )
    return make(READERS[name], str(directory)).build()


def read_back(directory: Path, name: str) -> list[int]:
    env = local()
    stream = env.from_source(source_of(directory, name), WatermarkStrategy.no_watermarks(), "files")
    with stream.map(lambda record: record["n"], Types.LONG()).execute_and_collect() as found:
        return sorted(found)


@pytest.mark.parametrize("name", WRITERS)
def test_a_bulk_sink_writes_every_record_once_and_its_source_reads_them(tmp_path: Path, name: str) -> None:
    script = [0, 1, CRASH_AT("after-metadata"), CHECKPOINT, 2, 3, CRASH_AT("commit"), CHECKPOINT, 4, END]

    run_script(to_files(tmp_path, name), script, parallelism=2)

    assert read_back(tmp_path, name) == [0, 1, 2, 3, 4]
    assert staged(tmp_path) == []
    assert all(path.name.startswith("part-") and path.suffix == "." + name for path in visible(tmp_path))


def test_avro_files_are_read_with_create_input(tmp_path: Path) -> None:
    run_script(to_files(tmp_path, "avro"), [1, 2, END])

    env = local()
    with env.create_input(AvroInputFormat(str(tmp_path), SCHEMA)).execute_and_collect() as found:
        assert sorted(record["n"] for record in found) == [1, 2]


EVERY_TWO = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_files_are_merged_and_hold_every_record_once_after_a_crash_at_any_point(
    tmp_path: Path, point: str
) -> None:
    for at in range(4):
        crashes: list[list[Any]] = [[], [], [], []]
        crashes[at] = [CRASH_AT(point), CRASH_AT("epoch")] if point == "restore" else [CRASH_AT(point)]
        target = tmp_path / f"{point}-{at}"
        script = [0, 1, *crashes[0], CHECKPOINT, 2, *crashes[1], CHECKPOINT, 3, *crashes[2], CHECKPOINT, 4]
        run_script(to_files(target, "parquet", EVERY_TWO), [*script, *crashes[3], CHECKPOINT, 5, END])
        assert read_back(target, "parquet") == [0, 1, 2, 3, 4, 5]
        assert staged(target) == []
        assert any("-compacted-" in path.name for path in visible(target))


@pytest.mark.parametrize("seed", seeds(15))
def test_random_crashes_leave_every_record_once_in_merged_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    events: list[Any] = []
    count = 0
    for _ in range(rng.randint(4, 18)):
        kind = rng.choice("eeeecccksr")
        if kind == "e":
            events.append(count)
            count += 1
        elif kind == "k":
            events.append(CRASH_AT(rng.choice(CRASH_POINTS)))
        else:
            events.append({"c": CHECKPOINT, "s": SAVEPOINT, "r": RESCALE(rng.randint(1, 3))}[kind])
    strategy = FileCompactStrategy(rng.choice([1, 2, 3]), rng.choice([-1, 40]), rng.choice([1, 4]))

    run_script(to_files(tmp_path, "csv", strategy), [*events, END], parallelism=2)

    assert read_back(tmp_path, "csv") == list(range(count)) if count else visible(tmp_path) == []
    assert staged(tmp_path) == []


def text_sink(directory: Path, strategy: FileCompactStrategy, compactor: FileCompactor) -> Any:
    def build(stream: Any) -> Any:
        builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        builder.enable_compact(strategy, compactor)
        stream.map(str, Types.STRING()).sink_to(builder.build()).uid("files")
        return stream

    return build


def test_files_wait_for_the_size_and_are_put_behind_each_other(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    strategy = FileCompactStrategy.builder().set_size_threshold(6).set_num_compact_threads(2).build()
    build = text_sink(tmp_path, strategy, FileCompactor.concat_file_compactor(b"--\n"))

    def watched(stream: Any) -> Any:
        return build(stream).map(lambda n: seen.append([p.read_text() for p in visible(tmp_path)]) or n)

    run_script(watched, [1, CHECKPOINT, 2, CHECKPOINT, 3, CHECKPOINT, 4, CHECKPOINT, END])

    assert seen == [[], [], [], ["1\n--\n2\n--\n3\n"]]
    assert sorted(path.read_text() for path in visible(tmp_path)) == ["1\n--\n2\n--\n3\n", "4\n"]


def test_identical_files_only_wait(tmp_path: Path) -> None:
    run_script(
        text_sink(tmp_path, EVERY_TWO, FileCompactor.identical_file_compactor()),
        [1, CHECKPOINT, 2, CHECKPOINT, 3, END],
    )

    assert sorted(path.read_text() for path in visible(tmp_path)) == ["1\n", "2\n", "3\n"]


def test_a_batch_job_merges_what_it_wrote(tmp_path: Path) -> None:
    env = local(execution_runtime__mode="BATCH")
    env.set_parallelism(2)
    numbers = env.from_collection(range(10), Types.LONG()).rebalance()
    to_files(tmp_path, "parquet", EVERY_TWO)(numbers)
    env.execute()

    assert len(visible(tmp_path)) == 1
    assert read_back(tmp_path, "parquet") == list(range(10))


def test_what_cannot_be_merged_or_rolled_is_refused(tmp_path: Path) -> None:
    bulk = FileSink.for_bulk_format(str(tmp_path), WRITERS["parquet"][0])
    row = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())

    with pytest.raises(ConfigError, match="record_wise"):
        bulk.enable_compact(EVERY_TWO, FileCompactor.concat_file_compactor())
    with pytest.raises(ConfigError, match="concat"):
        row.enable_compact(EVERY_TWO, FileCompactor.record_wise_file_compactor())
    with pytest.raises(ConfigError, match="checkpoints only"):
        bulk.with_rolling_policy(RollingPolicy.default_rolling_policy())
    with pytest.raises(ConfigError, match="set_size_threshold"):
        FileCompactStrategy.builder().build()
    with pytest.raises(TypeError, match="BulkWriterFactory"):
        FileSink.for_bulk_format(str(tmp_path), "parquet")
    assert bulk.disable_compact().build().compaction is None
    assert isinstance(row, FileSink.RowFormatBuilder)
    assert isinstance(bulk, FileSink.BulkFormatBuilder)
    assert isinstance(OutputFileConfig.builder(), OutputFileConfig.OutputFileConfigBuilder)
