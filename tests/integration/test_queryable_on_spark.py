"""Queryable state of a job on Spark, read by a hammering client while slots are killed."""

from __future__ import annotations

import os
import runpy
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_jobs_on_spark import DEADLINE, Discard, wait_for
from tests.integration.test_recovery_on_spark import SlowNumbers

from tidemark import FsStateBackend, KeyedProcessFunction, RestartStrategies, Types, ValueStateDescriptor
from tidemark.errors import UnknownKeyOrNamespaceException, UnknownKvStateError
from tidemark.jobs import find_job
from tidemark.queryablestate import QueryableStateClient
from tidemark.state_processor import erase_from_job, register

pytestmark = pytest.mark.spark


def descriptor() -> ValueStateDescriptor:
    return ValueStateDescriptor("count", Types.LONG())


class QueryableCount(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        count = descriptor()
        count.set_queryable("counts")
        self.count = runtime_context.get_state(count)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)


@pytest.fixture
def job(make_env: Callable[..., Any], checkpoints: str) -> Any:
    """A running job with the queryable state "counts", keys 0 to 9."""
    few = {"queryable-state__server__network-threads": "1", "queryable-state__proxy__network-threads": "1"}
    env = make_env(2, **{"queryable-state__enable": "true", "queryable-state__server__ports": "0", **few})
    env.set_state_backend(FsStateBackend(checkpoints))
    env.enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 100))
    numbers = env.add_source(SlowNumbers(2**62)).key_by(lambda n: n % 10, Types.LONG())
    numbers.process(QueryableCount(), Types.LONG()).add_sink(Discard())
    client = env.execute_async("queryable")
    wait_for(lambda: client.get_progress()["checkpoints"] >= 1)
    yield client
    client.cancel().result(DEADLINE)


def connect(job: Any, timeout: float = DEADLINE) -> QueryableStateClient:
    record = find_job(job.get_job_id())
    return QueryableStateClient(
        "127.0.0.1", record.query_port, timeout=timeout, token=bytes.fromhex(record.token)
    )


def read(client: QueryableStateClient, job: Any, key: int) -> int:
    state = client.get_kv_state(job.get_job_id(), "counts", key, Types.LONG(), descriptor()).result(DEADLINE)
    return int(state.value())


def test_reads_through_three_slot_kills_are_correct_and_never_fail(job):
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


def test_slots_and_checkpoints_forget_a_key(make_env, checkpoints, tmp_path):
    env = make_env(2)
    env.set_state_backend(FsStateBackend(checkpoints))
    env.enable_checkpointing(500)
    numbers = env.add_source(SlowNumbers(2**62)).key_by(lambda n: n // 20, Types.LONG())
    numbers.process(QueryableCount(), Types.LONG()).uid("counts").add_sink(Discard())
    client = env.execute_async("forgetting")
    try:
        wait_for(lambda: client.get_progress()["state_entries"] >= 3)

        proof = erase_from_job(client.get_job_id(), "0", tmp_path / "proof.json")

        assert proof.complete
        assert proof.facts["erased"] == {"counts": {"count": 1}}
        assert {each["rows_found"] for each in proof.facts["checkpoints"]} == {0}
    finally:
        client.cancel().result(DEADLINE)
