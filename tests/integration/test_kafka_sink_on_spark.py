"""The exactly-once Kafka sink on Spark: slots and workers are killed; a `read_committed` reader sees records once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.test_recovery_on_spark import python_workers
from tests.kafka.broker import DEADLINE_S, Broker, jars_present, wait_until
from tests.kafka.sink_program import EXACT, build

from tidemark import FsStateBackend, RestartStrategies

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.skipif(not jars_present(), reason="KAFKA TESTS DO NOT RUN: scripts/ensure_kafka.sh"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka"))
    yield made
    made.kill()


@pytest.mark.parametrize("mode", ["epochs", "continuous"])
def test_killed_slots_and_workers_lose_and_double_nothing(
    make_env: Any, checkpoints: str, broker: Broker, mode: str
) -> None:
    topic = broker.create_topic(3)
    env = make_env(2)
    env.set_state_backend(FsStateBackend(checkpoints))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 10))
    build(env, broker.bootstrap, topic, pause_s=0.15)
    client = env.execute_async("killed slots and workers")

    def one_more_checkpoint() -> None:
        before = client.get_progress()["checkpoints"]
        wait_until(
            lambda: client.get_progress()["checkpoints"] > before, "another checkpoint", 2 * DEADLINE_S
        )

    one_more_checkpoint()
    os.kill(client.get_progress()["slot_pids"][0], signal.SIGKILL)
    wait_until(lambda: client.get_progress()["attempt"] > 0, "another attempt", 2 * DEADLINE_S)
    one_more_checkpoint()
    for worker in python_workers():
        worker.kill()
    client.get_job_execution_result().result(3 * DEADLINE_S)

    broker.await_transactions(topic)
    seen = Counter(broker.committed_values(topic))
    assert (EXACT - seen, seen - EXACT) == (Counter(), Counter())
    assert client.get_progress()["attempt"] >= 1
