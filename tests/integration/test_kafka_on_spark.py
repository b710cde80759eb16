"""Kafka to Kafka on Spark, exactly once: slots and workers are killed; a `read_committed` reader sees counts once."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.test_recovery_on_spark import python_workers
from tests.kafka.broker import DEADLINE_S, Broker, jars_present, wait_until
from tests.kafka.sink_program import kafka_sink
from tests.recovery.killed_driver import Count

from tidemark import FsStateBackend, RestartStrategies, SimpleStringSchema, Types, WatermarkStrategy
from tidemark.datastream.connectors.kafka import KafkaSource

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.skipif(not jars_present(), reason="KAFKA TESTS DO NOT RUN: scripts/ensure_kafka.sh"),
]

KEYS = 30
PARTITIONS = 4
SPARK_S = 3 * DEADLINE_S
"""Attempts on Spark take their time."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka"))
    yield made
    made.kill()


def counts_of(env: Any, broker: Broker, read: str, written: str) -> None:
    """Numbers of one topic, counted by key, into another."""
    env.enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 10))
    source = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap).set_topics(read)
    source.set_group_id(f"group-of-{read}").set_value_only_deserializer(SimpleStringSchema())
    texts = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = texts.key_by(lambda text: int(text) % KEYS, Types.LONG()).process(Count(), Types.STRING())
    counted.uid("count").sink_to(kafka_sink(broker.bootstrap, written)).uid("topic")


def cancelled(client: Any) -> None:
    """A test that fails leaves no job behind."""
    with contextlib.suppress(Exception):
        client.cancel().result(SPARK_S)


@pytest.mark.parametrize("mode", ["epochs", "continuous"])
def test_killed_slots_and_workers_lose_and_double_nothing(
    make_env: Any, checkpoints: str, broker: Broker, tmp_path: Any, request: Any, mode: str
) -> None:
    read, written = broker.create_topic(PARTITIONS), broker.create_topic(3)
    env = make_env(2)
    env.set_state_backend(FsStateBackend(checkpoints))
    counts_of(env, broker, read, written)
    client = env.execute_async("Kafka to Kafka")
    total = 0

    def produce_more() -> None:
        nonlocal total
        for partition in range(PARTITIONS):
            broker.produce(
                read, map(str, range(total + partition, total + 600, PARTITIONS)), partition=partition
            )
        total += 600

    def one_more_checkpoint() -> None:
        before = client.get_progress()["checkpoints"]
        wait_until(lambda: client.get_progress()["checkpoints"] > before, "another checkpoint", SPARK_S)

    def strike(pids: Any) -> None:
        """Kill a process, another one if that was between two epochs and nobody missed it, until the job has."""
        before, due = client.get_progress()["attempt"], 0.0

        def missed() -> bool:
            nonlocal due
            if client.get_progress()["attempt"] > before:
                return True
            if time.monotonic() > due:
                due = time.monotonic() + 1.0
                for pid in pids()[:1]:
                    os.kill(pid, signal.SIGKILL)
            return False

        wait_until(missed, "another attempt", SPARK_S)

    def written_values() -> Counter[str | None]:
        broker.await_transactions(written)
        return Counter(broker.committed_values(written))

    request.addfinalizer(lambda: cancelled(client))
    produce_more()
    one_more_checkpoint()
    produce_more()
    strike(lambda: list(client.get_progress()["slot_pids"].values()))
    one_more_checkpoint()
    produce_more()
    strike(lambda: [worker.pid for worker in python_workers()])
    wait_until(lambda: written_values().total() >= total, "all counts are there", SPARK_S)
    client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(SPARK_S)
    client.get_job_execution_result().result(SPARK_S)

    exact = Counter(f"{key} {count}" for key in range(KEYS) for count in range(1, total // KEYS + 1))
    seen = written_values()
    assert (exact - seen, seen - exact) == (Counter(), Counter())
    told = broker.group_offsets(f"group-of-{read}")
    assert told == {(read, partition): total // PARTITIONS for partition in range(PARTITIONS)}
