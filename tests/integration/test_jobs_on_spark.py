"""Whole jobs on a real Spark session: results, sources, sinks, errors, cancelling."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tidemark import (
    BucketAssigner,
    CheckpointedFunction,
    Configuration,
    EmbeddedRocksDBStateBackend,
    Encoder,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    FlatMapFunction,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    NumberSequenceSource,
    OutputTag,
    ParquetBulkWriters,
    RichSinkFunction,
    Row,
    SourceFunction,
    StreamFormat,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    field,
)
from tidemark.errors import JobExecutionException

pytestmark = pytest.mark.spark

DEADLINE = 600.0
"""For whatever takes seconds on a machine that has nothing else to do; nothing here measures speed."""


class CountWindowAverage(FlatMapFunction):
    """The worked example of the state documentation."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(
            ValueStateDescriptor("average", Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def flat_map(self, value: Any) -> Any:
        count, total = self.sum.value() or (0, 0)
        count, total = count + 1, total + value[1]
        if count >= 2:
            self.sum.clear()
            yield value[0], total // count
        else:
            self.sum.update((count, total))


class RunningCount(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


def test_count_window_average_prints_what_the_documentation_says(make_env, capfd):
    env = make_env(1)
    stream = env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)])

    stream.key_by(lambda v: v[0]).flat_map(CountWindowAverage()).print()
    env.execute("average")

    assert capfd.readouterr().out.splitlines() == ["(1, 4)", "(1, 5)"]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_results_do_not_depend_on_parallelism_or_backend(make_env, parallelism, backend):
    words = [f"word-{n % 17}" for n in range(500)]
    env = make_env(parallelism)
    env.set_state_backend(backend())

    counted = env.from_collection(words).key_by(lambda w: w, Types.STRING()).process(RunningCount())
    results = list(counted.execute_and_collect())

    assert Counter(key for key, _ in results) == Counter(words)
    for word in set(words):
        assert [count for key, count in results if key == word] == list(range(1, words.count(word) + 1))


def test_spark_and_local_execution_give_equal_results(make_env):
    """Two readers reach a key in any order, and are collected in another; number and largest sum are the same."""

    def job(env: Any) -> tuple[Counter[int], dict[int, int]]:
        source = env.from_source(NumberSequenceSource(1, 200), WatermarkStrategy.no_watermarks(), "numbers")
        sevens = source.map(lambda n: (n % 7, n), Types.TUPLE([Types.LONG(), Types.LONG()]))
        sums = list(sevens.key_by(lambda t: t[0], Types.LONG()).sum(1).execute_and_collect())
        return Counter(key for key, _ in sums), dict(sorted(sums))

    assert job(make_env(2)) == job(make_env(2, target="local"))


def test_a_dataframe_is_keyed_by_column_without_python_rows(spark, make_env):
    frame = spark.range(0, 1000, 1, 3).selectExpr("id % 10 AS k", "id AS v")
    env = make_env(2)

    counted = env.from_spark_stream(frame).key_by(field("k"), Types.LONG()).process(RunningCount())
    results = list(counted.execute_and_collect())

    assert Counter(key for key, _ in results) == {key: 100 for key in range(10)}
    assert {key: max(c for k, c in results if k == key) for key in range(10)} == {k: 100 for k in range(10)}


def test_side_outputs_of_fused_and_slot_operators_arrive(make_env):
    odd = OutputTag("odd", Types.LONG())

    class Split(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            if value % 2:
                ctx.output(odd, value)
            else:
                yield value

    env = make_env(2)
    split = (
        env.from_collection(list(range(10)), Types.LONG())
        .key_by(lambda v: v, Types.LONG())
        .process(Split(), Types.LONG())
    )

    assert sorted(split.get_side_output(odd).execute_and_collect()) == [1, 3, 5, 7, 9]


def test_text_files_are_read_and_file_sinks_show_each_line_once(make_env, tmp_path):
    for name in "ab":
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.txt").write_text("".join(f"{name}{n}\n" for n in range(100)))
    env = make_env(2)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "in")
    ).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")

    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    lines.map(str.upper, Types.STRING()).sink_to(sink)
    rows = Types.ROW_NAMED(["line"], [Types.STRING()])
    bulk = FileSink.for_bulk_format(str(tmp_path / "bulk"), ParquetBulkWriters.for_row_type(rows))
    bulk.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    merged = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
    bulk.enable_compact(merged, FileCompactor.record_wise_file_compactor())
    lines.map(lambda line: Row(line=line), rows).sink_to(bulk.build())
    env.execute("copy")

    written = [line for path in (tmp_path / "out").rglob("part-*") for line in path.read_text().splitlines()]
    assert sorted(written) == sorted(f"{name}{n}" for name in "AB" for n in range(100))
    assert not list((tmp_path / "out").rglob(".*"))
    (merged_file,) = (tmp_path / "bulk").rglob("part-compacted-*")
    assert sorted(pq.read_table(merged_file)["line"].to_pylist()) == sorted(line.lower() for line in written)


class Numbers(SourceFunction, CheckpointedFunction):
    """Counts to a limit, with its position in operator state."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.next = 0
        self.running = True

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("next", Types.LONG())
        )
        for value in self.state.get():
            self.next = value

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])

    def run(self, ctx: Any) -> None:
        while self.running and self.next < self.limit:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False


def test_a_user_source_delivers_everything_and_ends_the_job(make_env):
    env = make_env(2)

    keyed = env.add_source(Numbers(5000)).key_by(lambda n: n % 5, Types.LONG()).process(RunningCount())

    assert Counter(key for key, _ in keyed.execute_and_collect()) == {key: 1000 for key in range(5)}


def test_foreach_batch_gets_typed_frames(make_env):
    seen: list[int] = []
    env = make_env(2)
    stream = env.from_collection(
        [(n, f"n{n}") for n in range(20)], Types.ROW_NAMED(["n", "name"], [Types.LONG(), Types.STRING()])
    )

    stream.foreach_batch(lambda frame, epoch: seen.extend(row.n for row in frame.collect()))
    env.execute("frames")

    assert sorted(seen) == list(range(20))


def test_frames_hold_the_rows_of_tasks_with_few_and_of_tasks_with_many(spark, make_env):
    kind = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
    rows = spark.range(0, 20_000, 1, 2).selectExpr("id AS n")
    frames: list[tuple[int, int, list[str]]] = []
    env = make_env(2)

    def take(frame, _epoch):
        frames.append((frame.count(), frame.selectExpr("sum(length(text))").first()[0], frame.columns))

    # All but three rows come from the second of two partitions, and are too much for the driver.
    wanted = env.from_spark_stream(rows).filter(lambda row: row.n < 3 or row.n >= 10_000)
    wanted.map(lambda row: (row.n, "x" * 100), output_type=kind).foreach_batch(take)
    env.execute("frames")

    assert frames == [(10_003, 1_000_300, ["n", "text"])]


def test_any_spark_writer_is_a_sink(spark, make_env, tmp_path):
    env = make_env(2)
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    env.from_collection([(n,) for n in range(30)], kind).write_spark("parquet", str(tmp_path / "out"))

    env.execute("write")

    assert spark.read.parquet(str(tmp_path / "out")).count() == 30


def test_a_streaming_dataframe_is_read_to_its_end_by_available_files(spark, make_env, tmp_path):
    spark.range(0, 100, 1, 4).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    env = make_env(2)
    results: list[int] = []
    done = threading.Event()

    keyed = env.from_spark_stream(frame).map(lambda row: row[0], Types.LONG())
    iterator = keyed.execute_and_collect()
    with iterator:
        for value in iterator:
            results.append(value)
            if len(results) == 100:
                done.set()
                break

    assert done.is_set()
    assert sorted(results) == list(range(100))


def test_a_failing_function_is_named_with_its_own_traceback(make_env):
    def explode(value: int) -> int:
        if value == 3:
            raise ValueError("three is right out")
        return value

    env = make_env(2)
    env.from_collection([1, 2, 3]).map(explode).name("explosive").uid("boom").print()

    with pytest.raises(JobExecutionException) as caught:
        env.execute("failing")

    text = str(caught.value)
    assert "ValueError: three is right out" in text
    assert "explosive" in text
    assert "boom" in text
    assert "in explode" in text
    assert "py4j" not in text
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_failing_keyed_function_names_slot_and_epoch(make_env):
    class Fails(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            raise KeyError("missing")

    env = make_env(1)
    env.from_collection([1]).key_by(lambda v: v).process(Fails()).uid("fails").print()

    with pytest.raises(JobExecutionException, match=r"epoch 0 on slot 0.*KeyError") as caught:
        env.execute("failing")

    assert caught.value.operator_uid == "fails"


def test_an_unpicklable_function_is_named(make_env):
    lock = threading.Lock()
    env = make_env(1)
    env.from_collection([1]).map(lambda v: (lock, v)).name("locked").print()

    with pytest.raises(JobExecutionException, match=r"'locked'.*cannot be shipped"):
        env.execute("unpicklable")


def test_a_value_of_the_wrong_type_is_refused_with_the_declared_type(make_env):
    env = make_env(1)
    env.from_collection([1]).map(lambda v: "text", Types.LONG()).name("liar").print()

    with pytest.raises(JobExecutionException, match=r"(?s)'liar'.*'text'"):
        env.execute("wrong type")


class Endless(SourceFunction):
    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: Any) -> None:
        n = 0
        while self.running:
            ctx.collect(n)
            n += 1
            if n % 100 == 0:
                time.sleep(0.005)

    def cancel(self) -> None:
        self.running = False


def test_cancel_ends_an_endless_job(make_env):
    env = make_env(2)
    env.add_source(Endless()).key_by(lambda n: n % 10, Types.LONG()).process(RunningCount()).add_sink(
        Discard()
    )
    client = env.execute_async("endless")
    wait_for(lambda: client.get_progress()["records"] > 100)

    client.cancel().result(DEADLINE)

    assert client.get_job_status().result().name == "CANCELED"


class Discard(RichSinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass


def test_two_jobs_run_at_once_in_one_session(make_env):
    first, second = make_env(1), make_env(2)
    results = {}

    def run(name: str, env: Any) -> None:
        counted = env.from_collection(list(range(300))).key_by(lambda n: n % 3).process(RunningCount())
        results[name] = len(list(counted.execute_and_collect()))

    threads = [threading.Thread(target=run, args=pair) for pair in (("first", first), ("second", second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)

    assert results == {"first": 300, "second": 300}


def wait_for(condition: Any) -> None:
    """Wait until a condition holds, with a deadline."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


def test_configuration_names_are_part_of_the_fixture(make_env):
    env = make_env(3, **{"pipeline__max-parallelism": "64"})

    assert isinstance(env.get_configuration(), Configuration)
    assert env.get_max_parallelism() == 64


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
