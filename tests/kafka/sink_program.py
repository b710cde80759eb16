"""A job to be killed: numbers, counted by key, into a topic exactly once.

`main` says "complete n" for every checkpoint that is, and "finished" at its end.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path

from tests.kafka.proxy import CLIENT
from tests.recovery.killed_driver import Count

from tidemark import (
    Configuration,
    DeliveryGuarantee,
    ExternalizedCheckpointRetention,
    KafkaRecordSerializationSchema,
    KafkaSink,
    SimpleStringSchema,
    Split,
    SplitReader,
    SplitSource,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)

TOTAL = 1200
KEYS = 30
BATCH = 20
BLOCK = 100
"""Numbers of a split between two checkpoints, at least."""
EXACT = Counter(f"{key} {count}" for key in range(KEYS) for count in range(1, TOTAL // KEYS + 1))
"""What the topic must hold."""

_complete: list[int] = []
"""Checkpoints that this process has seen completed."""


class HalfReader(SplitReader):
    """Every second number; a block is followed by another when a checkpoint is complete, or with time on Spark."""

    def __init__(self, first, pause_s):
        self.next, self.pause_s = first, pause_s
        self.seen, self.due = 0, 0.0

    def read(self, max_records, timeout_ms):
        if self.next >= TOTAL:
            return None
        if self.pause_s and time.monotonic() < self.due:
            return []
        if not self.pause_s and self.next // 2 % BLOCK == 0 and self.next > 1 and len(_complete) <= self.seen:
            return []
        self.seen, self.due = len(_complete), time.monotonic() + self.pause_s
        numbers = list(range(self.next, TOTAL, 2))[:BATCH]
        self.next = numbers[-1] + 2
        return numbers

    def position(self):
        return self.next


class Halves(SplitSource):
    bounded = True

    def __init__(self, pause_s=0.0):
        self.pause_s = pause_s

    def enumerate(self):
        return [Split("even", 0), Split("odd", 1)]

    def open(self, split, position):
        return HalfReader(split.data if position is None else position, self.pause_s)

    def notify_checkpoint_complete(self, checkpoint_id, positions):
        _complete.append(checkpoint_id)
        print("complete", checkpoint_id, flush=True)


def kafka_sink(bootstrap, topic):
    """The sink of the job."""
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(schema.build())
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("counts")
    return sink.set_property("client.id", CLIENT).set_property("transaction.timeout.ms", "20000").build()


def build(env, bootstrap, topic, pause_s=0.0):
    """Numbers, counted by key, to the topic."""
    env.enable_checkpointing(10 if not pause_s else 100)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    numbers = env.from_source(Halves(pause_s), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    counted = numbers.uid("numbers").key_by(lambda n: n % KEYS, Types.LONG()).process(Count(), Types.STRING())
    counted.uid("count").sink_to(kafka_sink(bootstrap, topic)).uid("topic")


def main(directory: Path, bootstrap: str, topic: str, mode: str, settings: dict[str, str]) -> None:
    """Run the job in this process, without a JVM."""
    logging.basicConfig(level=logging.WARNING)
    fixed = {
        "execution.target": "local",
        "execution.mode": mode,
        "state.checkpoints.dir": f"{directory}/checkpoints",
        "kafka.connection-timeout": "60 s",
        "restart-strategy": "none",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({**fixed, **settings}))
    env.set_parallelism(2)
    build(env, bootstrap, topic)
    env.execute()
    print("finished", flush=True)
