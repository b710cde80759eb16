"""A Kafka source on Spark, in both modes: workers and slots are killed, and every record counts once."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from tests.integration.test_jobs_on_spark import DEADLINE, RunningCount, wait_for
from tests.integration.test_recovery_on_spark import committed, python_workers
from tests.kafka.broker import Broker, jars_present
from tests.kafka.conftest import MISSING

from tidemark import (
    Encoder,
    FileSink,
    FsStateBackend,
    RestartStrategies,
    SimpleStringSchema,
    Types,
    WatermarkStrategy,
)
from tidemark.datastream.connectors.kafka import KafkaSource

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.skipif(not jars_present(), reason=MISSING),
]

KEYS, CHUNK = 50, 5000
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.mark.parametrize("mode", ["epochs", "continuous"])
def test_workers_and_slots_killed_in_turn_lose_and_repeat_nothing(
    spark, make_env, checkpoints, tmp_path, broker, mode
):
    topic = broker.create_topic(4)
    env = make_env(2)
    env.set_state_backend(FsStateBackend(checkpoints))
    env.enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 0))
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker.bootstrap)
        .set_topics(topic)
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = numbers.key_by(lambda value: int(value) % KEYS, Types.LONG()).process(RunningCount(), PAIR)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    counted.uid("count").sink_to(sink).uid("out")
    client = env.execute_async("killed")

    total = 0
    for kill in range(2):
        for partition in range(4):
            broker.produce(topic, [str(total + n) for n in range(CHUNK)], partition=partition)
            total += CHUNK
        before = client.get_progress()["checkpoints"]
        wait_for(lambda b=before: client.get_progress()["checkpoints"] > b)
        attempt = client.get_progress()["attempt"]
        if kill:
            os.kill(client.get_progress()["slot_pids"][0], signal.SIGKILL)
        else:
            for worker in python_workers():
                worker.kill()
        wait_for(lambda a=attempt: client.get_progress()["attempt"] > a)
    expected = Counter(f"({key},{n})" for key in range(KEYS) for n in range(1, total // KEYS + 1))
    wait_for(lambda: sum(committed(tmp_path / "out").values()) >= total)
    client.cancel().result(DEADLINE)

    assert committed(tmp_path / "out") == expected
