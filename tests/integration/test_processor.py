"""Savepoints as DataFrames on a real Spark session; the jobs around them run in the local executor."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state_processor import jobs

from tidemark import ListStateDescriptor, Row, Types, ValueStateDescriptor
from tidemark.errors import ConfigError, ExecutionError
from tidemark.state_processor import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    StateBootstrapFunction,
    diff,
    register,
)

pytestmark = pytest.mark.spark

ELEMENTS = [(f"k{number % 20}", number) for number in range(200)]
MakeEnv = Callable[..., Any]


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return jobs.take_savepoint(tmp_path_factory.mktemp("savepoint"), ELEMENTS)


@pytest.fixture(scope="module")
def incremental(tmp_path_factory: pytest.TempPathFactory) -> str:
    return jobs.retained_checkpoint(tmp_path_factory.mktemp("incremental"), ELEMENTS)


@pytest.fixture
def read(spark: Any) -> Callable[..., Any]:
    register(spark)

    def frame(path: str, state: str, uid: str = "sum", **options: Any) -> Any:
        return spark.read.format("tidemark").options(path=path, uid=uid, state=state, **options).load()

    return frame


@pytest.mark.parametrize("rocksdb", [False, True])
def test_a_job_goes_on_with_what_sql_changed(
    rocksdb: bool, tmp_path: Path, spark: Any, make_env: MakeEnv, read: Callable[..., Any]
) -> None:
    before = jobs.take_savepoint(tmp_path, ELEMENTS, rocksdb=rocksdb)
    read(before, "total").createOrReplaceTempView("totals")
    changed = spark.sql(
        "select key, if(key = 'k3', 1000L, value) as value from totals where key <> 'k5' "
        "union all select 'new', 7L"
    )

    writer = SavepointWriter.from_existing_savepoint(make_env(2), before).write_state("sum", "total", changed)
    after = writer.write(str(tmp_path / "after"))

    [entry] = [state for state in diff(before, after) if not state.is_equal]
    assert entry.samples == {"added": ["new"], "removed": ["k5"], "changed": ["k3"]}
    results = jobs.continue_job(
        after, [("k3", 1), ("k4", 1), ("k5", 1), ("new", 1)], parallelism=3, rocksdb=not rocksdb
    )
    assert results == [("k3", 1001), ("k4", 941), ("k5", 1), ("new", 8)]


def test_an_incremental_checkpoint_is_edited_too(
    incremental: str, tmp_path: Path, spark: Any, make_env: MakeEnv, read: Callable[..., Any]
) -> None:
    doubled = read(incremental, "total").selectExpr("key", "value * 2 as value")

    writer = SavepointWriter.from_existing_savepoint(make_env(2), incremental)
    after = writer.write_state("sum", "total", doubled).write(str(tmp_path / "after"))

    assert {state.state for state in diff(incremental, after) if not state.is_equal} == {"total"}
    assert jobs.continue_job(after, [("k3", 1)], rocksdb=True) == [("k3", 1861)]


def test_an_edited_savepoint_is_edited_again(
    savepoint: str, tmp_path: Path, make_env: MakeEnv, read: Callable[..., Any]
) -> None:
    env = make_env(5)
    path = savepoint
    for step in ("one", "two"):
        more = read(path, "total").selectExpr("key", "value + 1 as value")
        timers = read(path, "_timers/event").selectExpr("key", "timestamp + 1 as timestamp")
        writer = SavepointWriter.from_existing_savepoint(env, path).write_state("sum", "total", more)
        path = writer.write_state("sum", "_timers/event", timers).write(str(tmp_path / step))

    assert jobs.continue_job(path, [("k3", 1)]) == [("k3", 933)]
    assert {row.timestamp for row in read(path, "_timers/event").collect()} == {
        jobs.LATER + 4,
        jobs.LATER + 5,
    }


def test_typed_columns_are_shown_without_user_code(savepoint: str, read: Callable[..., Any]) -> None:
    assert read(savepoint, "total").schema.simpleString() == "struct<key_group:int,key:string,value:bigint>"
    assert read(savepoint, "last").schema["value"].dataType.simpleString() == "struct<n:int,text:string>"
    assert (
        read(savepoint, "seen").schema["value"].dataType.simpleString()
        == "array<struct<f0:bigint,f1:string>>"
    )
    assert read(savepoint, "union").schema.simpleString() == "struct<subtask:int,position:int,value:string>"


@pytest.mark.parametrize("which", ["savepoint", "incremental"])
def test_every_state_can_be_queried_with_sql(
    which: str, request: pytest.FixtureRequest, spark: Any, read: Callable[..., Any]
) -> None:
    path = request.getfixturevalue(which)
    for state in ("total", "last", "seen", "_timers/event", "list"):
        read(path, state).createOrReplaceTempView(state.replace("/", "_"))

    [row] = spark.sql(
        "select sum(value) as total, (select count(*) from last where value.text = key) as entries, "
        "(select sum(size(value)) from seen) as seen, (select count(*) from _timers_event) as timers, "
        "(select sum(value) from list) as list from total"
    ).collect()

    assert row.asDict() == {"total": sum(range(200)), "entries": 60, "seen": 200, "timers": 20, "list": 1}


@pytest.mark.parametrize("which", ["savepoint", "incremental"])
def test_only_the_key_groups_asked_for_are_read(
    which: str, request: pytest.FixtureRequest, read: Callable[..., Any]
) -> None:
    path = request.getfixturevalue(which)
    whole = read(path, "total", partitions=8)
    one, few = read(path, "total", key="k3"), read(path, "total", key_groups="10-20")

    assert [row.value for row in whole.where("key = 'k3'").collect()] == [930]
    assert whole.count() == 20
    assert 1 < whole.rdd.getNumPartitions() <= 8
    assert [(row.key, row.value) for row in one.collect()] == [("k3", 930)]
    assert one.rdd.getNumPartitions() == 1
    assert sorted(few.collect()) == sorted(row for row in whole.collect() if 10 <= row.key_group <= 20)
    assert read(path, "total", key="nobody").count() == 0


def test_the_data_source_says_what_is_wrong(
    savepoint: str, tmp_path: Path, spark: Any, read: Callable[..., Any]
) -> None:
    with pytest.raises(Exception, match=r"needs the option\(s\) uid, state"):
        spark.read.format("tidemark").load(savepoint)
    with pytest.raises(Exception, match="no state 'nothing'"):
        read(savepoint, "nothing")
    with pytest.raises(Exception, match="no completed checkpoint or savepoint"):
        read(str(tmp_path), "total")


@pytest.mark.parametrize("which", ["savepoint", "incremental"])
def test_keyed_state_is_read_by_tasks_as_frame_and_as_stream(
    which: str, request: pytest.FixtureRequest, make_env: MakeEnv
) -> None:
    total, seen, later = jobs.TOTAL, jobs.SEEN, jobs.LATER

    class Reader(KeyedStateReaderFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(total)
            self.seen = runtime_context.get_list_state(seen)

        def read_key(self, key: Any, ctx: Any) -> Any:
            timers = [time - later for time in ctx.registered_event_time_timers()]
            yield Row(key=key, total=self.total.value(), seen=len(self.seen.get()), timers=timers)

    output = Types.ROW_NAMED(
        ["key", "total", "seen", "timers"],
        [Types.STRING(), Types.LONG(), Types.INT(), Types.LIST(Types.LONG())],
    )
    reader = SavepointReader.read(make_env(2), request.getfixturevalue(which))
    stream = reader.read_keyed_state("sum", Reader(), Types.STRING(), output)

    rows = {row.key: (row.total, row.seen, row.timers) for row in stream.to_dataframe().collect()}
    with stream.execute_and_collect() as iterator:
        streamed = {row.key: (row.total, row.seen, row.timers) for row in iterator}

    assert len(rows) == 20
    assert rows["k3"] == (930, 10, [2])
    assert streamed == rows


def test_list_state_is_a_frame_too(savepoint: str, make_env: MakeEnv) -> None:
    reader = SavepointReader.read(make_env(2), savepoint)

    assert [row.value for row in reader.read_union_state("sum", "union").to_dataframe().collect()] == [
        "u0",
        "u1",
    ]
    assert reader.read_dataframe("sum", "total").count() == 20


def test_state_is_bootstrapped_from_a_frame_a_list_and_a_stream(
    tmp_path: Path, spark: Any, make_env: MakeEnv, read: Callable[..., Any]
) -> None:
    total, seen = jobs.TOTAL, jobs.SEEN

    class Fill(KeyedStateBootstrapFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(total)
            self.seen = runtime_context.get_list_state(seen)

        def process_element(self, value: Any, ctx: Any) -> None:
            self.total.update((self.total.value() or 0) + value[1])
            self.seen.add((value[1], value[0]))

    class Keep(StateBootstrapFunction):
        def initialize_state(self, context: Any) -> None:
            store = context.get_operator_state_store()
            self.list = store.get_list_state(ListStateDescriptor("list", Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.list.add(value[1])

        def snapshot_state(self, context: Any) -> None:
            pass

    env = make_env(2)
    frame = spark.range(100).selectExpr("concat('k', id % 10) as key", "id")
    elements = [(f"k{number % 10}", number) for number in range(100)]
    stream = env.from_collection(elements, jobs.PAIR).map(lambda pair: pair, jobs.PAIR)
    writer = SavepointWriter.new_savepoint(env, None, 64)
    for name, data in (("frame", frame), ("list", elements), ("stream", stream)):
        keyed = OperatorTransformation.bootstrap_with(data).key_by(lambda pair: pair[0], Types.STRING())
        writer.with_operator(name, keyed.transform(Fill()))
        writer.with_operator(f"{name}-op", OperatorTransformation.bootstrap_with(data).transform(Keep()))

    path = writer.write(str(tmp_path / "new"))

    for name in ("frame", "list", "stream"):
        rows = {row.key: (row.value[0].f0, len(row.value)) for row in read(path, "seen", name).collect()}
        assert rows == {f"k{number}": (number, 10) for number in range(10)}
        assert read(path, "total", name).groupBy().sum("value").first()[0] == sum(range(100))
        assert read(path, "list", f"{name}-op").groupBy().sum("value").first()[0] == sum(range(100))
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


def test_a_job_on_spark_goes_on_from_bootstrapped_state(
    tmp_path: Path, spark: Any, make_env: MakeEnv, read: Callable[..., Any]
) -> None:
    descriptor = ValueStateDescriptor("total", Types.LONG())

    class Fill(KeyedStateBootstrapFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(descriptor)

        def process_element(self, value: Any, ctx: Any) -> None:
            self.total.update(value.total)

    def count(env: Any) -> Any:
        from tidemark import KeyedProcessFunction

        class Count(KeyedProcessFunction):
            def open(self, runtime_context: Any) -> None:
                self.total = runtime_context.get_state(descriptor)

            def process_element(self, value: Any, ctx: Any) -> Any:
                self.total.update((self.total.value() or 0) + 1)
                yield value, self.total.value()

        source = env.from_collection(["a", "b"], Types.STRING())
        return source.key_by(lambda text: text, Types.STRING()).process(Count()).uid("count")

    frame = spark.createDataFrame([("a", 10), ("c", 5)], "name string, total long")
    data = OperatorTransformation.bootstrap_with(frame).key_by(lambda row: row.name, Types.STRING())
    writer = SavepointWriter.new_savepoint(make_env(2), None, 128)
    path = writer.with_operator("count", data.transform(Fill())).write(str(tmp_path / "new"))

    with count(make_env(2, **{"execution__state-recovery__path": path})).execute_and_collect() as iterator:
        assert sorted(iterator) == [("a", 11), ("b", 1)]


def test_failures_of_tasks_are_raised_as_what_they_are(
    savepoint: str, tmp_path: Path, spark: Any, make_env: MakeEnv, read: Callable[..., Any]
) -> None:
    class Fails(KeyedStateBootstrapFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            raise KeyError("no such thing")

    frame = read(savepoint, "total")
    target = str(tmp_path / "new")
    data = OperatorTransformation.bootstrap_with([("a", 1)]).key_by(lambda pair: pair[0], Types.STRING())

    def edit(changed: Any) -> None:
        SavepointWriter.from_existing_savepoint(make_env(2), savepoint).write_state(
            "sum", "total", changed
        ).write(target)

    with pytest.raises(ConfigError, match="several rows for one key"):
        edit(frame.union(frame))
    with pytest.raises(ConfigError, match=r"lacks the column\(s\) value"):
        edit(frame.select("key"))
    with pytest.raises(ConfigError, match="null in column 'value'"):
        edit(frame.selectExpr("key", "cast(null as bigint) as value"))
    with pytest.raises(ExecutionError, match="no such thing"):
        SavepointWriter.new_savepoint(make_env(2), None, 16).with_operator(
            "x", data.transform(Fails())
        ).write(target)
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        bad = OperatorTransformation.bootstrap_with([("a", 1)]).key_by(lambda pair: 1 // 0, Types.LONG())
        SavepointWriter.new_savepoint(make_env(2), None, 16).with_operator("x", bad.transform(Fails())).write(
            target
        )
    assert not Path(target).exists()


def test_the_example_corrects_a_balance(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "savepoint_as_dataframe.py"
    monkeypatch.setattr(sys, "argv", [str(example), "--directory", str(tmp_path)])

    runpy.run_path(str(example), run_name="__main__")

    assert capfd.readouterr().out.splitlines() == [
        "before: [('ann', 15), ('bob', 20), ('eve', 1)]",
        "after: [('ann', 16), ('bob', 121), ('eve', 1)]",
    ]
