"""Whole programs of batch functions: local jobs in both execution modes, crashes, rescaling, side outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark import (
    BatchProcessFunction,
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    OutputTag,
    Row,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    field,
)
from tidemark.errors import ConfigError, JobExecutionException
from tidemark.testing import CHECKPOINT, CRASH, END, RESCALE, run_script

ROW = Types.ROW_NAMED(["user", "amount", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])
TOTAL = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.LONG()])


@pytest.fixture
def make_env() -> Callable[..., Any]:
    def make(parallelism: int = 2) -> Any:
        configuration = Configuration()
        configuration.set_string("execution.target", "local")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        return env

    return make


class Totals(BatchProcessFunction):
    """The running total of each user; large amounts also go to a side output; a last word at the end of time."""

    large = OutputTag("large", Types.LONG())

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        running = keys.running_sum(batch["amount"], self.total.read(keys))
        self.total.write(keys, keys.last(running))
        ctx.register_event_time_timers(keys, 10_000)
        ctx.output(self.large, {"value": batch["amount"].filter(pc.greater(batch["amount"], 90))})
        return {"user": batch["user"], "total": running}

    def on_timers(self, keys: Any, timestamps: Any, ctx: Any) -> Any:
        return {"user": keys.distinct, "total": -self.total.read(keys)}


def _rows(count: int) -> list[Row]:
    rng = np.random.default_rng(5)
    users, amounts = rng.integers(0, 17, count).tolist(), rng.integers(1, 100, count).tolist()
    return [Row(user=f"u{u}", amount=a, at=i) for i, (u, a) in enumerate(zip(users, amounts, strict=True))]


def _expected(rows: list[Row]) -> tuple[list[tuple[str, int]], list[int]]:
    total: dict[str, int] = defaultdict(int)
    out = []
    for row in rows:
        total[row["user"]] += row["amount"]
        out.append((row["user"], total[row["user"]]))
    return sorted(out + [(user, -value) for user, value in total.items()]), sorted(
        [row["amount"] for row in rows if row["amount"] > 90]
    )


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_a_job_of_batch_functions(make_env: Callable[..., Any], backend: Any, mode: Any) -> None:
    rows = _rows(400)
    env = make_env()
    env.set_state_backend(backend())
    env.set_runtime_mode(mode)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field("at"))
    totals = (
        env.from_collection(rows, ROW)
        .assign_timestamps_and_watermarks(strategy)
        .filter_batch(pc.field("amount") > 0)
        .key_by(field("user"), Types.STRING())
        .process_batch(Totals(), TOTAL)
    )
    seen, large = [], []
    with totals.execute_and_collect() as found:
        seen = [(row["user"], row["total"]) for row in found]
    env2 = make_env()
    env2.set_runtime_mode(mode)
    side = (
        env2.from_collection(rows, ROW)
        .key_by(field("user"), Types.STRING())
        .process_batch(Totals(), TOTAL)
        .get_side_output(Totals.large)
    )
    with side.execute_and_collect() as found:
        large = list(found)

    assert (sorted(seen), sorted(large)) == _expected(rows)


def test_maps_and_filters_by_column(make_env: Callable[..., Any]) -> None:
    env = make_env(1)
    doubled = Types.ROW_NAMED(["user", "twice"], [Types.STRING(), Types.LONG()])
    stream = (
        env.from_collection(_rows(50), ROW)
        .filter_batch(lambda batch: pc.greater(batch["amount"], 50))
        .map_batch({"user": pc.field("user"), "twice": pc.field("amount") * 2}, doubled)
        .map_batch(lambda batch: batch.append_column("extra", batch["twice"]).drop_columns(["extra"]))
        .filter_batch(lambda batch: batch["twice"].to_numpy() < 190)
        .map(lambda row: (row["user"], row["twice"]))
    )
    with stream.execute_and_collect() as found:
        seen = list(found)

    assert seen == [(r["user"], 2 * r["amount"]) for r in _rows(50) if 50 < r["amount"] < 95]


def test_what_is_wrong_is_said_before_the_job_runs(make_env: Callable[..., Any]) -> None:
    env = make_env(1)
    untyped = env.from_collection([1, 2]).map(lambda value: value)
    with pytest.raises(ConfigError, match="type must be declared"):
        untyped.key_by(lambda value: value).process_batch(Totals())
    with pytest.raises(ConfigError, match="type must be declared"):
        untyped.map_batch(lambda batch: batch)
    typed = env.from_collection(_rows(3), ROW)
    with pytest.raises(TypeError, match="BatchProcessFunction"):
        typed.key_by(field("user")).process_batch(lambda batch: batch)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expressions"):
        typed.map_batch({"a": 1})
    with pytest.raises(TypeError, match="expression"):
        typed.filter_batch(True)


def test_a_failure_names_the_operator(make_env: Callable[..., Any]) -> None:
    env = make_env(1)
    env.from_collection(_rows(3), ROW).filter_batch(lambda batch: [True]).name("odd filter").print()

    with pytest.raises(JobExecutionException, match="odd filter") as caught:
        env.execute()
    assert "boolean array" in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_state_by_column_survives_crashes_and_another_parallelism(backend: Any) -> None:
    kind = Types.TUPLE([Types.LONG(), Types.LONG()])

    def build(stream: Any) -> Any:
        typed = stream.map(lambda value: value, kind)
        return typed.key_by(lambda row: row[0], Types.LONG()).process_batch(_Counts()).uid("counts")

    elements = [(key, 0) for key in range(6)]
    script = [*elements, CHECKPOINT, *elements, CRASH, *elements, CHECKPOINT, RESCALE(3), *elements, END]
    found = run_script(build, script, parallelism=2, state_backend=backend())

    assert sorted(found) == [(key, count) for key in range(6) for count in (1, 2, 3, 4)]


class _Counts(BatchProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        counts = keys.running_count(self.count.read(keys))
        self.count.write(keys, keys.last(counts))
        return {"f0": batch["f0"], "f1": counts}


def test_a_running_count_by_field_and_by_function(make_env: Callable[..., Any]) -> None:
    rows, seen = _rows(600), []
    for selector, name in ((field("user"), "user"), (field(0), "user"), (lambda row: row["user"], "key")):
        counts = make_env().from_collection(rows, ROW).key_by(selector, Types.STRING()).count()
        with counts.execute_and_collect() as found:
            seen.append(sorted([(row[name], row["count"]) for row in found]))

    number: dict[str, int] = defaultdict(int)
    for row in rows:
        number[row["user"]] += 1
    expected = sorted([(user, n) for user, most in number.items() for n in range(1, most + 1)])
    assert seen == [expected] * 3
