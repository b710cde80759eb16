"""Queryable state of a job on Spark, read by a hammering client while slots are killed."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from tests.integration.test_jobs_on_spark import DEADLINE, Discard, Numbers, wait_for
from tests.integration.test_recovery_on_spark import SlowNumbers
from tests.recovery.test_incremental_heap import shared_files

from tidemark import (
    Configuration,
    KeyedProcessFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.cli.main import cli
from tidemark.errors import UnknownKeyOrNamespaceException, UnknownKvStateError
from tidemark.jobs import find_job
from tidemark.queryablestate import QueryableStateClient
from tidemark.queryablestate.proxy import QueryableStateClientProxy
from tidemark.queryablestate.server import QueryableStateServer
from tidemark.runtime.rest import announcing
from tidemark.state_processor import erase_from_job, register

pytestmark = pytest.mark.spark


def descriptor() -> ValueStateDescriptor:
    return ValueStateDescriptor("count", Types.LONG())


class QueryableCount(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        count = descriptor()
        count.set_queryable("counts")
        self.count = runtime_context.get_state(count)
        threads = ValueStateDescriptor("threads", Types.LONG())
        threads.set_queryable("threads")
        self.threads = runtime_context.get_state(threads)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        if not value % 1000 // 10:
            names = [thread.name for thread in threading.enumerate()]
            self.threads.update(names.count(QueryableStateServer.title))


@contextlib.contextmanager
def running(checkpoints: str, **settings: str) -> Iterator[Any]:
    """A running job with the queryable states "counts" and "threads", keys 0 to 9, in two slots."""
    keys = {"execution.target": "spark", "execution.mode": "epochs", "queryable-state.enable": "true"}
    settings = {**keys, "state.backend": "filesystem", "state.checkpoints.dir": checkpoints, **settings}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    env.enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 100))
    numbers = env.add_source(SlowNumbers(2**62)).key_by(lambda n: n % 10, Types.LONG())
    numbers.process(QueryableCount(), Types.LONG()).add_sink(Discard())
    client = env.execute_async("queryable")
    try:
        wait_for(lambda: client.get_progress()["checkpoints"] >= 1)
        yield client
    finally:
        client.cancel().result(DEADLINE)


FIRST_PORT, PORTS = 23_100, 50


@pytest.fixture(scope="module")
def watched(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A job with few threads, a range of ports and figures of everything, for tests that only read; and its page."""
    options = {
        "state.backend": "rocksdb",
        "state.backend.rocksdb.metrics.estimate-num-keys": "true",
        "queryable-state.server.ports": f"{FIRST_PORT}-{FIRST_PORT + PORTS}",
        "queryable-state.proxy.ports": f"{FIRST_PORT + PORTS + 1}-{FIRST_PORT + 2 * PORTS}",
        "queryable-state.server.network-threads": "1",
        "queryable-state.server.query-threads": "2",
        "queryable-state.proxy.network-threads": "1",
        "queryable-state.proxy.query-threads": "4",
        "queryable-state.enable-statistics": "true",
        "rest.enabled": "true",
        "rest.port": "0",
    }
    addresses: list[str] = []
    with (
        announcing(addresses.append),
        running(f"file://{tmp_path_factory.mktemp('checkpoints')}", **options) as client,
    ):
        yield client, addresses[0]


@pytest.fixture
def job(watched: tuple[Any, str]) -> Any:
    """A running job with the queryable state "counts", keys 0 to 9, which nobody disturbs."""
    return watched[0]


def connect(job: Any, timeout: float = DEADLINE) -> QueryableStateClient:
    record = find_job(job.get_job_id())
    return QueryableStateClient(
        "127.0.0.1", record.query_port, timeout=timeout, token=bytes.fromhex(record.token)
    )


def read(client: QueryableStateClient, job: Any, key: int) -> int:
    state = client.get_kv_state(job.get_job_id(), "counts", key, Types.LONG(), descriptor()).result(DEADLINE)
    return int(state.value())


def test_reads_through_three_slot_kills_are_correct_and_never_fail(spark, checkpoints):
    few = {"queryable-state.server.network-threads": "1", "queryable-state.proxy.network-threads": "1"}
    with running(checkpoints, **few, **{"queryable-state.server.ports": "0"}) as job:
        read_while_slots_are_killed(job)


def read_while_slots_are_killed(job):
    floors = dict.fromkeys(range(10), 0)
    problems: list[str] = []
    stop = threading.Event()
    reads = [0]

    def hammer(key: int) -> None:
        with connect(job) as client:
            while not stop.is_set():
                floor = floors[key]
                try:
                    value = read(client, job, key)
                except Exception as exc:
                    problems.append(f"key {key}: {type(exc).__name__}: {exc}")
                    return
                reads[0] += 1
                if value < floor:
                    problems.append(f"key {key} fell to {value}, below {floor}")

    threads = [threading.Thread(target=hammer, args=(key,)) for key in range(4)]
    for thread in threads:
        thread.start()
    with connect(job) as client:
        for kill in range(3):
            seen = {key: read(client, job, key) for key in range(10)}
            done = job.get_progress()["checkpoints"]
            wait_for(lambda done=done: job.get_progress()["checkpoints"] >= done + 2)
            floors.update(seen)
            os.kill(job.get_progress()["slot_pids"][kill % 2], signal.SIGKILL)
            wait_for(lambda kill=kill: job.get_progress()["attempt"] > kill)
    attempts = job.get_progress()["attempt"]
    wait_for(lambda: job.get_progress()["checkpoints_of_attempt"] >= 1)
    stop.set()
    for thread in threads:
        thread.join(DEADLINE)

    assert problems == []
    assert attempts >= 3
    assert reads[0] > 20


def test_batched_reads_and_scans_agree_with_single_ones(job):
    with connect(job) as client:
        before = read(client, job, 3)
        states = client.get_kv_states(
            job.get_job_id(), "counts", [3, 4, 99], Types.LONG(), descriptor()
        ).result(DEADLINE)
        pairs = client.scan(job.get_job_id(), "counts", Types.LONG(), descriptor(), limit=5).result(DEADLINE)

    assert states[0].value() >= before
    assert states[2] is None
    assert len(pairs) == 5
    assert all(0 <= key < 10 and state.value() > 0 for key, state in pairs)


def test_ports_threads_and_statistics_are_those_that_were_asked_for(watched):
    job, address = watched
    with connect(job) as client:
        asked = [read(client, job, key) for key in range(10)]
        threads = ValueStateDescriptor("threads", Types.LONG())
        told = client.get_kv_states(job.get_job_id(), "threads", list(range(10)), Types.LONG(), threads)
        servers = {state.value() for state in told.result(DEADLINE)}

    assert len(asked) == 10
    # Receiving, answering, and the one that accepts connections; for a moment one more for each that comes in.
    assert min(servers) == 1 + 2 + 1
    title = QueryableStateClientProxy.title
    wait_for(lambda: [thread.name for thread in threading.enumerate()].count(title) == 1 + 4 + 1)
    proxy_port = find_job(job.get_job_id()).query_port
    server_ports = {
        connection.laddr.port
        for pid in job.get_progress()["slot_pids"].values()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert FIRST_PORT + PORTS < proxy_port <= FIRST_PORT + 2 * PORTS
    assert len(server_ports) == 2
    assert all(FIRST_PORT <= port <= FIRST_PORT + PORTS for port in server_ports)
    wait_for(lambda: metric(address, "flink_jobmanager_job_queryableState_numRequests") >= 11)
    wait_for(lambda: metric(address, "flink_taskmanager_queryableState_numRequests") >= 11)
    wait_for(lambda: metric(address, "flink_taskmanager_job_task_operator_rocksdb_estimate_num_keys") >= 10)


def metric(address: str, name: str) -> float:
    """What a metric adds up to over its labels."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0] == name)


def test_unknown_names_and_keys_are_told_apart(job):
    with connect(job) as client:
        with pytest.raises(UnknownKeyOrNamespaceException):
            client.get_kv_state(job.get_job_id(), "counts", 99, Types.LONG(), descriptor()).result(DEADLINE)
        with pytest.raises(UnknownKvStateError):
            client.get_kv_state(job.get_job_id(), "nothing", 1, Types.LONG(), descriptor()).result(DEADLINE)


def test_a_client_without_the_token_gets_nothing(job):
    record = find_job(job.get_job_id())
    with (
        QueryableStateClient("127.0.0.1", record.query_port, timeout=3.0, token=b"x" * 32) as client,
        pytest.raises(Exception, match=r"token|refused|closed|answer"),
    ):
        client.get_kv_state(job.get_job_id(), "counts", 1, Types.LONG(), descriptor()).result(DEADLINE)


def test_sql_reads_live_state_in_parallel(job, spark):
    register(spark)
    options = {"job": job.get_job_id(), "state": "counts"}
    wait_for(lambda: spark.read.format("tidemark").options(**options).load().count() == 10)

    frame = spark.read.format("tidemark").options(**options, partitions=3).load()
    frame.createOrReplaceTempView("counts")

    assert frame.columns == ["key_group", "key", "value"]
    assert frame.rdd.getNumPartitions() == 3
    before = spark.sql("select sum(value) as total from counts").first().total
    wait_for(lambda: spark.sql("select sum(value) as total from counts").first().total > before)
    assert spark.read.format("tidemark").options(**options, key="4").load().first().key == 4
    with pytest.raises(Exception, match="exclude each other"):
        spark.read.format("tidemark").options(**options, path="/tmp/x").load()


def test_the_example_asks_a_running_job(spark, capfd):
    example = Path(__file__).parents[2] / "examples" / "live_state_as_sql.py"

    runpy.run_path(str(example), run_name="__main__")

    assert capfd.readouterr().out.splitlines() == ["[('bob', 20), ('ann', 15)]"]


class Blocks(Numbers):
    """The numbers below 100, those below 120 when `gate` is there, and then nothing for ever."""

    def __init__(self, gate: Path) -> None:
        super().__init__(120)
        self.gate = gate

    def run(self, ctx: Any) -> None:
        while self.running:
            if self.next < (self.limit if self.gate.exists() else 100):
                with ctx.get_checkpoint_lock():
                    ctx.collect(self.next)
                    self.next += 1
            else:
                time.sleep(0.02)


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(descriptor())

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)


@pytest.mark.parametrize(("mode", "backend"), [("epochs", "hashmap"), ("continuous", "rocksdb")])
def test_incremental_checkpoints_are_compared_and_a_running_job_forgets_a_key(
    make_env, checkpoints, tmp_path, mode, backend
):
    directory = Path(checkpoints.removeprefix("file://"))
    env = make_env(2, state__backend=backend, state__backend__incremental="true")
    env.enable_checkpointing(3_600_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(checkpoints)
    env.configure(Configuration.from_dict({"state.checkpoints.num-retained": "3"}))
    keyed = env.add_source(Blocks(tmp_path / "go")).uid("numbers").key_by(lambda n: n % 110, Types.LONG())
    keyed.process(Count(), Types.LONG()).uid("counts").add_sink(Discard())
    client = env.execute_async("forgetting")

    def checkpoint_behind(records: int) -> str:
        wait_for(lambda: client.get_progress()["records"] >= records)
        number = client.runner.checkpoint().result(DEADLINE)
        return str(directory / client.get_job_id() / f"chk-{number}")

    try:
        before = checkpoint_behind(100)
        (tmp_path / "go").touch()
        after = checkpoint_behind(120)

        told = CliRunner().invoke(cli, ["diff", before, after, "--json"])
        [counts] = [state for state in json.loads(told.stdout) if state["state"] == "count"]
        assert (counts["added"], counts["removed"], counts["changed"]) == (10, 0, 10)
        first, second = shared_files(Path(before)), shared_files(Path(after))
        assert first & second, "the second one goes on with files of the first"
        assert second - first

        proof = erase_from_job(client.get_job_id(), "0", tmp_path / "proof.json")

        assert proof.complete
        assert proof.facts["erased"] == {"counts": {"count": 1}}
        assert {each["rows_found"] for each in proof.facts["checkpoints"]} == {0}
    finally:
        client.cancel().result(DEADLINE)
