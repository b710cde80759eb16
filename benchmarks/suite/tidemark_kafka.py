"""Kafka jobs of tidemark: records counted by key, and the age of records on their way from topic to topic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs import environment
from measure import EpochLog

from suite import kafka_work
from suite.latency import figures_of
from suite.worker import Case
from tidemark import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KeyedProcessFunction,
    SimpleStringSchema,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
PATIENCE_S = 120.0
WARM_S = 15
"""Until broker and job are compiled and connected."""
BARE_S = 5
SENDER = Path(__file__).with_name("kafka_ticker.py")


class CountTexts(KeyedProcessFunction):
    """Counts the records of a key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % kafka_work.EVERY == 0:
            yield int(value), count


class CountAndPassOn(KeyedProcessFunction):
    """Counts a key's records and passes each on."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


def source_of(case: Case, topic: str) -> Any:
    """A builder for a source of text from the start of a topic."""
    source = KafkaSource.builder().set_bootstrap_servers(case.options["bootstrap"]).set_topics(topic)
    source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    return source.set_value_only_deserializer(SimpleStringSchema())


def run_count(case: Case, topic: str, folder: Path) -> list[Any]:
    """The records of a topic, counted by key."""
    mode = {"execution.mode": case.options["mode"]}
    env = environment(case.backend, case.slots, folder / "checkpoints", case.checkpoint_ms, **mode)
    source = source_of(case, topic).set_bounded(KafkaOffsetsInitializer.latest()).build()
    texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka")
    counted = texts.key_by(lambda text: text, Types.STRING()).process(CountTexts(), PAIR)
    with counted.execute_and_collect() as found:
        return list(found)


def run_latency(case: Case, folder: Path) -> dict[str, Any]:
    """Age of records in the second topic: read from the first, counted by key, written at least once.

    And of records of the first that are read there: one of the two ways through the broker, without a job.
    """
    bootstrap, read, written = (case.options[key] for key in ("bootstrap", "read", "written"))
    mode = {"execution.mode": case.options["mode"]}
    env = environment(case.backend, case.slots, folder / "checkpoints", case.checkpoint_ms, **mode)
    schema = KafkaRecordSerializationSchema.builder().set_topic(written)
    built = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    sink = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(built)
    texts = env.from_source(source_of(case, read).build(), WatermarkStrategy.no_watermarks(), "kafka")
    counted = texts.key_by(lambda text: text.partition(",")[0], Types.STRING())
    counted.process(CountAndPassOn(), Types.STRING()).sink_to(
        sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    )
    client = env.execute_async("latency")
    try:
        with reader_of(bootstrap, written) as consumer:
            # A job takes a while to start, and what waits for it meanwhile has an age that says nothing.
            paced(case, consumer, WARM_S)
            found = figures_of(*paced(case, consumer, case.options["seconds"]))
    finally:
        client.cancel().result(PATIENCE_S)
    with reader_of(bootstrap, read) as consumer:
        bare = figures_of(*paced(case, consumer, BARE_S))
    return {**found, "bare_p50_ms": bare["p50_ms"], "bare_p99_ms": bare["p99_ms"]}


@contextmanager
def reader_of(bootstrap: str, topic: str) -> Iterator[Any]:
    """A consumer of what comes to a topic from now on."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "latency", "fetch.wait.max.ms": 100, "log_level": 0}
    )
    places = [TopicPartition(topic, each) for each in range(kafka_work.PARTITIONS)]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[1]
    consumer.assign(places)
    try:
        yield consumer
    finally:
        consumer.close()


def paced(case: Case, consumer: Any, seconds: int) -> tuple[list[list[float]], int]:
    """Send records at the case's rate; their ages in milliseconds when they have come back, and how many were sent."""
    bootstrap, read, rate = case.options["bootstrap"], case.options["read"], case.options["rate"]
    sending = subprocess.Popen(
        [sys.executable, str(SENDER), bootstrap, read, str(rate), str(seconds), str(case.keys)],
        stdout=subprocess.PIPE,
        text=True,
    )
    ages: list[float] = []
    sent, give_up = -1, time.monotonic() + seconds + PATIENCE_S
    try:
        while (sent < 0 or len(ages) < sent) and time.monotonic() < give_up:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                ages.append(time.time() * 1000 - int(message.value().partition(b",")[2]) / 1000)
            if sent < 0 and message is None and sending.poll() is not None:
                assert sending.stdout is not None
                sent = int(sending.stdout.readline())
    finally:
        sending.kill()
        sending.wait()
    return [ages], sent


def measure(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """One case of either kind."""
    if case.state == "kafka-latency":
        return run_latency(case, folder)
    return kafka_work.figures(case, lambda topic: run_count(case, topic, folder))
