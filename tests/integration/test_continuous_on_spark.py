"""Continuous execution on Spark: tasks that last, what they leave behind, what is refused, and who may die."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_jobs_on_spark import DEADLINE, Discard, RunningCount, wait_for
from tests.integration.test_recovery_on_spark import committed, python_workers

from tidemark import (
    Encoder,
    FileSink,
    FsStateBackend,
    JobStatus,
    MapFunction,
    NumberSequenceSource,
    RestartStrategies,
    Split,
    SplitReader,
    SplitSource,
    Types,
    WatermarkStrategy,
)
from tidemark.errors import ConfigError, JobExecutionException

pytestmark = pytest.mark.spark

NO_WATERMARKS = WatermarkStrategy.no_watermarks()
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
CONTINUOUS = {"execution__mode": "continuous"}


class GatedReader(SplitReader[int]):
    """The numbers of a split; the second half waits for a file."""

    def __init__(self, numbers: list[int], gate: Path, position: Any | None) -> None:
        self.numbers, self.gate, self.next = numbers, gate, position or 0

    def read(self, max_records: int, timeout_ms: int) -> Sequence[int] | None:
        if self.next >= len(self.numbers):
            return None
        half = len(self.numbers) // 2
        limit = len(self.numbers) if self.gate.exists() else half
        first, self.next = self.next, max(self.next, min(limit, self.next + 100))
        return self.numbers[first : self.next]

    def position(self) -> int:
        return self.next


class Gated(SplitSource[int]):
    """The numbers below a limit in four splits."""

    bounded = True

    def __init__(self, limit: int, gate: Path) -> None:
        self.limit, self.gate = limit, gate

    def enumerate(self) -> list[Split]:
        return [Split(str(n), n) for n in range(4)]

    def open(self, split: Split, position: Any | None) -> GatedReader:
        return GatedReader(list(range(split.data, self.limit, 4)), self.gate, position)

    def get_produced_type(self) -> Any:
        return Types.LONG()


def counts(stream: Any) -> Any:
    return stream.key_by(lambda n: n % 10, Types.LONG()).process(RunningCount(), PAIR).uid("counts")


def gated_counts(env: Any, limit: int, gate: Path) -> Any:
    return counts(env.from_source(Gated(limit, gate), NO_WATERMARKS, "numbers").uid("numbers"))


def expected(limit: int) -> Counter[tuple[int, int]]:
    return Counter((key, count) for key in range(10) for count in range(1, limit // 10 + 1))


def assert_nothing_is_left(spark: Any) -> None:
    """No endless Spark job holds a core, and no thread waits for one."""
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    # The thread that tells the outcome ends right behind it.
    wait_for(lambda: not [t.name for t in threading.enumerate() if t.name.startswith(("tasks-", "task-"))])


def test_jobs_end_by_themselves_exact_and_leave_their_cores_to_the_next_one(spark, make_env):
    for _ in range(2):
        # Three of the four cores: the second job could not start beside what the first one left behind.
        env = make_env(3, **CONTINUOUS)
        env.enable_checkpointing(100)
        numbers = env.from_source(NumberSequenceSource(0, 19_999), NO_WATERMARKS, "numbers")

        with counts(numbers).execute_and_collect() as results:
            assert Counter(results) == expected(20_000)

        assert_nothing_is_left(spark)


@pytest.mark.parametrize("drain", [False, True])
def test_a_savepoint_that_stops_the_job_goes_on_in_epochs(spark, make_env, tmp_path, drain):
    limit, gate = 4_000, tmp_path / "go"
    env = make_env(2, **CONTINUOUS)
    gated_counts(env, limit, gate).add_sink(Discard())
    client = env.execute_async("stopped")
    wait_for(lambda: client.get_progress()["records"] >= limit // 2)
    assert client.get_progress()["mode"] == "continuous"

    path = client.stop_with_savepoint(drain, str(tmp_path / "savepoints")).result(DEADLINE)
    client.get_job_execution_result().result(DEADLINE)
    assert_nothing_is_left(spark)

    gate.touch()
    env = make_env(3, execution__mode="epochs", execution__savepoint__path=path)
    results = Counter(gated_counts(env, limit, gate).execute_and_collect())
    half = limit // 2
    assert results == expected(limit) - Counter(
        {pair: 1 for pair in expected(limit) if pair[1] <= half // 10}
    )


def test_cancelling_ends_tasks_that_would_never_end(spark, make_env, tmp_path):
    env = make_env(2, **CONTINUOUS)
    gated_counts(env, 1_000, tmp_path / "never").add_sink(Discard())
    client = env.execute_async("endless")
    wait_for(lambda: client.get_progress()["records"] >= 500)

    client.cancel().result(DEADLINE)

    assert client.get_job_status().result() is JobStatus.CANCELED
    assert_nothing_is_left(spark)


class FailsAt(MapFunction):
    """Fails at a number until a file is there, and makes it."""

    def __init__(self, number: int, once: Path | None) -> None:
        self.number, self.once = number, once

    def map(self, value: int) -> int:
        if value == self.number and not (self.once is not None and self.once.exists()):
            if self.once is not None:
                self.once.touch()
            raise ValueError("seven is not allowed")
        return value


def test_a_failing_function_is_named_or_restarted_as_the_strategy_says(
    spark, make_env, checkpoints, tmp_path
):
    env = make_env(2, **CONTINUOUS)
    numbers = env.from_source(NumberSequenceSource(0, 99), NO_WATERMARKS, "numbers")
    numbers.map(FailsAt(7, None), Types.LONG()).name("picky").add_sink(Discard())
    env.set_restart_strategy(RestartStrategies.no_restart())
    with pytest.raises(JobExecutionException, match=r"picky.*seven is not allowed"):
        env.execute("named")
    assert_nothing_is_left(spark)

    env = make_env(2, **CONTINUOUS)
    env.set_state_backend(FsStateBackend(checkpoints))
    env.enable_checkpointing(50)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    numbers = env.from_source(NumberSequenceSource(0, 9_999), NO_WATERMARKS, "numbers")
    picky = numbers.map(FailsAt(7_777, tmp_path / "failed"), Types.LONG())
    counts(picky).sink_to(
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    )
    client = env.execute_async("restarted")
    client.get_job_execution_result().result(DEADLINE)

    assert client.get_progress()["attempt"] == 1
    assert committed(tmp_path / "out") == Counter(f"({k},{n})" for k, n in expected(10_000))
    assert_nothing_is_left(spark)


def test_workers_and_slots_killed_in_turn_lose_and_repeat_nothing(spark, make_env, checkpoints, tmp_path):
    limit, gate = 20_000, tmp_path / "go"
    env = make_env(2, **CONTINUOUS)
    env.set_state_backend(FsStateBackend(checkpoints))
    env.enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 0))
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    gated_counts(env, limit, gate).sink_to(sink).uid("out")
    client = env.execute_async("killed")

    for kill in range(4):
        before = client.get_progress()["checkpoints"]
        wait_for(lambda b=before: client.get_progress()["checkpoints"] > b)
        if kill % 2:
            os.kill(client.get_progress()["slot_pids"][kill // 2], signal.SIGKILL)
        else:
            for worker in python_workers():
                worker.kill()
        wait_for(lambda k=kill: client.get_progress()["attempt"] > k)
    gate.touch()
    client.get_job_execution_result().result(DEADLINE)

    assert committed(tmp_path / "out") == Counter(f"({k},{n})" for k, n in expected(limit))
    assert_nothing_is_left(spark)


def test_more_tasks_than_cores_are_refused_when_the_job_is_submitted(make_env):
    env = make_env(50, **CONTINUOUS)
    env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers").add_sink(Discard())

    with pytest.raises(ConfigError, match=r"needs 50 cores for its tasks .* and 4 can be had"):
        env.execute("wide")


def test_cores_that_another_job_holds_are_missed_after_half_a_minute(spark, make_env, checkpoints, tmp_path):
    def known_job() -> Any:
        lasting = {"high-availability.type": "filesystem", "high-availability.storageDir": f"{tmp_path}/ha"}
        env = make_env(2, **CONTINUOUS, **lasting)
        env.set_state_backend(FsStateBackend(checkpoints))
        env.enable_checkpointing(50)
        gated_counts(env, 1_000, tmp_path / "go").add_sink(Discard())
        return env.execute_async("known")

    known = known_job()
    wait_for(lambda: known.get_progress()["checkpoints"] > 0)
    known.runner.suspend()
    wait_for(lambda: known.get_job_status().result().is_terminal_state())
    env = make_env(3, **CONTINUOUS)
    gated_counts(env, 1_000, tmp_path / "never").add_sink(Discard())
    first = env.execute_async("first")
    wait_for(lambda: first.get_progress()["records"] >= 500)

    known = known_job()
    env = make_env(2, **CONTINUOUS)
    numbers = env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers")
    numbers.map(lambda n: Path(tmp_path / "read").touch()).add_sink(Discard())
    try:
        with pytest.raises(JobExecutionException, match=r"needs 2 free cores .*, and has [01]"):
            env.execute("second")
        # A job that has run before knows that there are cores for it: its next attempts wait for them.
        wait_for(
            lambda: known.get_progress()["attempt"] > 0 or known.get_job_status().result().is_terminal_state()
        )
    finally:
        first.cancel().result(DEADLINE)
    (tmp_path / "go").touch()
    known.get_job_execution_result().result(DEADLINE)

    assert not (tmp_path / "read").exists(), "nothing may be read before all tasks have started"
    assert_nothing_is_left(spark)


def test_what_only_spark_can_read_or_write_is_named(spark, make_env, tmp_path):
    env = make_env(2, **CONTINUOUS)
    numbers = env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers")
    numbers.foreach_batch(lambda frame, epoch: None).name("frames")
    with pytest.raises(ConfigError, match="'frames' wants a DataFrame"):
        env.execute("sink")

    spark.range(0, 10).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    env = make_env(2, **CONTINUOUS)
    env.from_spark_stream(frame).name("files").add_sink(Discard())
    with pytest.raises(ConfigError, match="'files' is read by Spark"):
        env.execute("source")


def test_an_idle_timeout_that_kills_workers_is_refused_before_anything_is_read(spark, make_env, tmp_path):
    prefix = "spark.sql.execution.pyspark.udf."
    settings = {prefix + "killOnIdleTimeout": "true", prefix + "idleTimeoutSeconds": "30"}
    env = make_env(2, **CONTINUOUS)
    numbers = env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers")
    numbers.map(lambda n: Path(tmp_path / "read").touch()).add_sink(Discard())
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        with pytest.raises(ConfigError, match="killOnIdleTimeout is on, which kills tasks"):
            env.execute("idle")
    finally:
        for key in settings:
            spark.conf.unset(key)
    assert not (tmp_path / "read").exists()


def test_auto_says_why_it_takes_epochs(make_env):
    env = make_env(4, execution__mode="auto")
    env.from_source(NumberSequenceSource(0, 9), NO_WATERMARKS, "numbers").add_sink(Discard())
    client = env.execute_async("four on four cores")
    client.get_job_execution_result().result(DEADLINE)

    progress = client.get_progress()
    assert (progress["mode"], progress["mode_reason"]) == (
        "epochs",
        "it needs 4 cores for its tasks for as long as it runs, and 3 can be had",
    )


def test_records_are_seen_while_the_source_still_waits(make_env, tmp_path):
    env = make_env(2, **CONTINUOUS)
    with gated_counts(env, 1_000, tmp_path / "go").execute_and_collect() as results:
        first = [next(results) for _ in range(500)]
        (tmp_path / "go").touch()
        rest = list(results)

    assert Counter(first + rest) == expected(1_000)
