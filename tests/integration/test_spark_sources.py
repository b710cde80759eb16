"""Every source that Spark ships: counted exactly through the loss of a slot and of the driver."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.test_jobs_on_spark import wait_for
from tests.watching import completed_checkpoints, files_below

from tidemark import (
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    FsStateBackend,
    KeyedProcessFunction,
    OutputTag,
    RestartStrategies,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.api.specs import SparkStreamSourceSpec
from tidemark.errors import ConfigError
from tidemark.runtime.sources.spark_callbacks import protect_callbacks
from tidemark.runtime.sources.spark_file_log import source_roots
from tidemark.runtime.sources.spark_stream import SparkStreamSource

pytestmark = pytest.mark.spark

LATE = OutputTag("late", Types.STRING())
STEPS = 20
FORMATS = ("text", "csv", "json", "parquet", "orc")
FILE_ROWS = 600


class Numbered(KeyedProcessFunction):
    """Numbers the values of each group: a lost value, a repeated one and a lost count all show."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        self.count.update((self.count.value() or 0) + 1)
        yield f"{value[0]} {value[1]} {self.count.value()}"


class Result:
    """What a job has made visible: lines of group, value and number."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def lines(self) -> list[tuple[str, int, int]]:
        found = []
        for path in files_below(self._out, "part-*"):
            for line in path.read_text().splitlines():
                group, value, number = line.split(" ")
                found.append((group, int(value), int(number)))
        return found

    def __len__(self) -> int:
        return len(self.lines())

    def assert_exact(self) -> None:
        """Per group: the values 0, 1, 2, ... once each, numbered 1, 2, 3, ..."""
        lines = self.lines()
        sizes = Counter(group for group, _value, _number in lines)
        for group, size in sizes.items():
            mine = [line for line in lines if line[0] == group]
            assert sorted(value for _g, value, _n in mine) == list(range(size)), group
            assert sorted(number for _g, _v, number in mine) == list(range(1, size + 1)), group


def start(env: Any, stream: Any, directory: Path) -> Any:
    """A job over a stream of (group string, value long)."""
    env.set_state_backend(FsStateBackend(f"file://{directory}/checkpoints"))
    env.enable_checkpointing(200)
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 100))
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder()).build()
    numbered = (
        stream.uid("in")
        .key_by(lambda row: row[0], Types.STRING())
        .process(Numbered(), Types.STRING())
        .uid("numbered")
    )
    numbered.sink_to(sink).uid("out")
    return env.execute_async("numbers")


def newest_checkpoint(directory: Path) -> str:
    return str(completed_checkpoints(directory / "checkpoints")[-1])


def count_through_failures(
    make_env: Any, frame: Callable[[], Any], directory: Path, total: int | None = None
) -> None:
    """The same for a frame."""
    count_stream_through_failures(make_env, lambda env: env.from_spark_stream(frame()), directory, total)


def count_stream_through_failures(
    make_env: Any,
    stream: Callable[[Any], Any],
    directory: Path,
    total: int | None = None,
    parallelisms: tuple[int, int] = (2, 2),
) -> None:
    """Kill a slot, then start a second job from the retained checkpoint of the first; nothing is lost or doubled."""
    result = Result(directory / "out")
    env = make_env(parallelisms[0])
    first = start(env, stream(env), directory)
    wait_for(lambda: len(result) > 0)
    os.kill(first.get_progress()["slot_pids"][0], signal.SIGKILL)
    wait_for(lambda: first.get_progress()["attempt"] > 0)
    before = len(result)
    wait_for(lambda: len(result) > before or len(result) == total)
    first.cancel().result(120)

    before = len(result)
    env = make_env(parallelisms[1], execution__savepoint__path=newest_checkpoint(directory))
    second = start(env, stream(env), directory)
    wait_for(lambda: len(result) > before if total is None else len(result) >= total)
    second.cancel().result(120)

    result.assert_exact()
    assert total is None or len(result) == total


def test_the_rate_source_is_counted_exactly(spark, make_env, tmp_path):
    frame = spark.readStream.format("rate").option("rowsPerSecond", 40).option("numPartitions", 2).load()
    count_through_failures(make_env, lambda: frame.selectExpr("'rate'", "value"), tmp_path)


def test_the_rate_micro_batch_source_is_counted_exactly(spark, make_env, tmp_path):
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
    frame = reader.option("numPartitions", 2).load().selectExpr("'rate'", "value")
    count_through_failures(make_env, lambda: frame, tmp_path)


def test_files_of_every_format_are_counted_exactly_as_sources_of_one_query(spark, make_env, tmp_path):
    def frame() -> Any:
        whole = None
        for name in FORMATS:
            path = str(tmp_path / "in" / name)
            column = "value string" if name == "text" else "value long"
            reader = spark.readStream.schema(column).option("maxFilesPerTrigger", 1)
            one = (
                reader.format(name).load(path).selectExpr(f"'{name}' AS kind", "cast(value AS long) AS value")
            )
            whole = one if whole is None else whole.union(one)
        return whole

    for name in FORMATS:
        rows = spark.range(0, FILE_ROWS, 1, 12).selectExpr("id AS value")
        if name == "text":
            rows = rows.selectExpr("cast(value AS string) AS value")
        rows.write.format(name).save(str(tmp_path / "in" / name))

    count_through_failures(make_env, frame, tmp_path, total=FILE_ROWS * len(FORMATS))


def python_sources() -> tuple[type, type]:
    """Data sources in Python; made here because pyspark is not imported before a test needs it."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamReader,
        InputPartition,
        SimpleDataSourceStreamReader,
    )

    class SimpleReader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"next": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str, int]], dict[str, int]]:
            end = {"next": start["next"] + 10}
            return self.readBetweenOffsets(start, end), end

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[str, int]]:
            return iter([("simple", n) for n in range(start["next"], end["next"])])

    class PartitionedReader(DataSourceStreamReader):
        def __init__(self, began: float) -> None:
            self.began = began

        def initialOffset(self) -> dict[str, int]:
            return {"next": 0}

        def latestOffset(self) -> dict[str, int]:
            return {"next": int((time.time() - self.began) * 50)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition((name, start["next"], end["next"])) for name in ("even", "odd")]

        def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
            name, first, last = partition.value
            for n in range(first, last):
                yield name, n

    class Simple(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tidemark_simple"

        def schema(self) -> str:
            return "kind string, value long"

        def simpleStreamReader(self, schema: Any) -> SimpleReader:
            return SimpleReader()

    class Partitioned(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tidemark_partitioned"

        def schema(self) -> str:
            return "kind string, value long"

        def streamReader(self, schema: Any) -> PartitionedReader:
            return PartitionedReader(float(self.options["began"]))

    return Simple, Partitioned


@pytest.mark.parametrize("kind", ["simple", "partitioned"])
def test_python_data_sources_are_counted_exactly(spark, make_env, tmp_path, kind):
    for source in python_sources():
        spark.dataSource.register(source)
    frame = spark.readStream.format(f"tidemark_{kind}").option("began", str(time.time())).load()
    count_through_failures(make_env, lambda: frame, tmp_path)


def test_a_socket_is_refused_by_name_before_anything_runs(spark, make_env):
    frame = (
        spark.readStream.format("socket")
        .option("host", "127.0.0.1")
        .option("port", 1)
        .load()
        .union(spark.readStream.format("rate").load().selectExpr("cast(value AS string)"))
    )

    with pytest.raises(ConfigError, match=r"'socket'.*not replayable.*Kafka"):
        make_env(2).from_spark_stream(frame)


def test_a_position_before_the_first_epoch_says_where_the_source_began(spark):
    def began(source: SparkStreamSource) -> bytes:
        return source.position()["sources"]["0"]["0"]

    frame = spark.readStream.format("rate").load()
    vertex = SimpleNamespace(name="rate", uid="rate", spec=SparkStreamSourceSpec(frame))
    source = SparkStreamSource(vertex, spark, lambda: None)
    source.start(None)
    position = source.position()
    first = began(source)
    source.stop()
    assert position["offsets"] is None

    source.start(position)
    try:
        wait_for(lambda: source.poll() is not None)
        source.advanced({})
        assert began(source) == first
        assert source.position()["offsets"] is not None
    finally:
        source.stop()


class Lateness(KeyedProcessFunction):
    """Passes values on; those that are late go to a side output."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        watermark = ctx.timer_service().current_watermark()
        text = f"{value[0]} {value[1]} {watermark}"
        if ctx.timestamp() <= watermark:
            ctx.output(LATE, text)
        yield text


def uneven_source() -> type:
    """Two partitions in order: one has records in every batch, the other, far behind, now and then."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def __init__(self) -> None:
            self.step = 0

        def initialOffset(self) -> dict[str, int]:
            return {"step": 0}

        def latestOffset(self) -> dict[str, int]:
            self.step = min(STEPS, self.step + 1)
            return {"step": self.step}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            found = [InputPartition(("fast", n)) for n in range(start["step"], end["step"])]
            slow = [InputPartition(("slow", n)) for n in range(start["step"], end["step"]) if n % 5 == 0]
            return slow + found if start["step"] % 2 else found + slow

        def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
            name, step = partition.value
            yield name, step * 1000 if name == "fast" else step

    class Uneven(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tidemark_uneven"

        def schema(self) -> str:
            return "kind string, at long"

        def streamReader(self, schema: Any) -> Reader:
            return Reader()

    return Uneven


@pytest.mark.parametrize("partition_by", [None, "kind"], ids=["unknown partitions", "named partitions"])
def test_a_slow_partition_has_no_late_record(spark, make_env, tmp_path, partition_by):
    spark.dataSource.register(uneven_source())
    frame = spark.readStream.format("tidemark_uneven").load()
    env = make_env(2)
    env.enable_checkpointing(100)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _old: row[1])
    judged = (
        env.from_spark_stream(frame, partition_by=partition_by)
        .filter(lambda row: True)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda row: 0, Types.LONG())
        .process(Lateness(), Types.STRING())
    )
    encoder = Encoder.simple_string_encoder()
    judged.sink_to(FileSink.for_row_format(str(tmp_path / "all"), encoder).build())
    judged.get_side_output(LATE).sink_to(FileSink.for_row_format(str(tmp_path / "late"), encoder).build())
    client = env.execute_async("uneven")

    def lines(name: str) -> list[str]:
        return [line for path in (tmp_path / name).rglob("part-*") for line in path.read_text().splitlines()]

    wait_for(lambda: len(lines("all")) == STEPS + STEPS // 5)
    client.cancel().result(120)

    assert lines("late") == []
    assert max(int(line.split()[2]) for line in lines("all")) >= 0, (
        "the watermark moves with the slow partition"
    )


def test_a_stranger_cannot_call_the_driver_through_pysparks_callback_server(spark):
    called: list[str] = []
    assert protect_callbacks(spark)
    gateway = spark.sparkContext._gateway
    server = gateway._callback_server.server_socket.getsockname()
    assert server[0] == "127.0.0.1"
    number = gateway.gateway_property.pool.put(SimpleNamespace(call=lambda: called.append("stranger")))

    for greeting in ("", "A\nguessed\ne\n"):
        with socket.create_connection(server) as connection:
            connection.sendall(f"{greeting}c\n{number}\ncall\ne\n".encode())
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(300)
            try:
                while connection.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    assert called == []

    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = reader.writeStream.foreachBatch(lambda frame, batch: called.append("Spark"))
    query.trigger(availableNow=True).start().awaitTermination(300)
    assert called == ["Spark"]


KILLED_ROWS = 400


def driver_main(directory: str, savepoint: str | None) -> None:
    """The program of the driver process in the test below."""
    from tidemark import Configuration, StreamExecutionEnvironment
    from tidemark.runtime.session import find_or_create_session

    session, _new = find_or_create_session({"spark.master": "local[2]"})
    configuration = Configuration()
    if savepoint is not None:
        configuration.set_string("execution.savepoint.path", savepoint)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    rate = session.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 2).load()
    frame = rate.where(f"value < {KILLED_ROWS}").selectExpr("'rate'", "value")
    start(env, env.from_spark_stream(frame), Path(directory)).get_job_execution_result().result()


def start_driver(directory: Path, savepoint: str | None) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    program = (
        "from tests.integration.test_spark_sources import driver_main; "
        f"driver_main({str(directory)!r}, {savepoint!r})"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        "TMPDIR": str(directory),
    }
    with open(directory / f"driver-{savepoint is not None}.log", "w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program], stdout=log, stderr=log, text=True, env=environment
        )


def test_the_rate_source_survives_a_killed_driver(tmp_path):
    result = Result(tmp_path / "out")

    def run(savepoint: str | None, rows: int) -> None:
        driver = start_driver(tmp_path, savepoint)
        try:
            wait_for(lambda: len(result) >= rows or driver.poll() is not None)
        finally:
            driver.kill()
            driver.wait()
        assert len(result) >= rows, (tmp_path / f"driver-{savepoint is not None}.log").read_text()

    run(None, 1)
    run(newest_checkpoint(tmp_path), KILLED_ROWS)

    result.assert_exact()
    assert len(result) == KILLED_ROWS


def test_the_directories_file_streams_read_are_known_unless_they_may_have_been_moved(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "x").write_text("1")
    plain = spark.readStream.text(str(folder))
    wild = spark.readStream.text(f"{tmp_path}/*")
    moved = spark.readStream.option("fileNameOnly", "TRUE")

    assert source_roots(spark, plain.union(wild)) == [f"file://{tmp_path}/a%20b", f"file://{tmp_path}"]
    assert source_roots(spark, plain.union(moved.text(str(folder)))) == []
    assert source_roots(spark, moved.option("cleanSource", "delete").text(str(folder))) != []
    assert source_roots(spark, spark.readStream.format("rate").load()) == []
