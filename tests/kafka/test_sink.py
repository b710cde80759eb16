"""What the Kafka sink writes, with which guarantee, and what it says when it cannot. No JVM."""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import Broker, timestamp_of

from tidemark import (
    Configuration,
    DeliveryGuarantee,
    KafkaRecord,
    KafkaRecordSerializationSchema,
    KafkaSink,
    RestartStrategies,
    RuntimeExecutionMode,
    SimpleStringSchema,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)
from tidemark.common.serialization import RowFieldExtractorSchema
from tidemark.common.types import Row
from tidemark.datastream.formats.avro import AvroRowSerializationSchema
from tidemark.datastream.formats.csv import CsvRowSerializationSchema
from tidemark.datastream.formats.json import JsonRowSerializationSchema
from tidemark.errors import ConfigError, ExecutionError

MODES = ("epochs", "continuous")
EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


def environment(tmp_path: Path, mode: str = "continuous", **settings: str) -> StreamExecutionEnvironment:
    named = {key.replace("__", "-").replace("_", "."): value for key, value in settings.items()}
    fixed = {
        "execution.target": "local",
        "execution.mode": mode,
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({**fixed, **named}))
    env.set_parallelism(2)
    env.set_restart_strategy(RestartStrategies.no_restart())
    return env


def plain(topic: str) -> KafkaRecordSerializationSchema:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return schema.set_value_serialization_schema(SimpleStringSchema()).build()


def sink_to(
    bootstrap: str,
    schema: KafkaRecordSerializationSchema,
    guarantee: DeliveryGuarantee = EXACTLY_ONCE,
    **properties: str,
) -> KafkaSink:
    builder = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(schema)
    builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix("test")
    for key, value in properties.items():
        builder.set_property(key.replace("_", "."), value)
    return builder.build()


def records(broker: Broker, topic: str) -> list[Any]:
    """What a `read_committed` reader sees when all transactions are over."""
    broker.await_transactions(topic)
    return broker.read_committed(topic)


def committed(broker: Broker, topic: str) -> list[str]:
    return [each.value().decode() for each in records(broker, topic)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee), ids=lambda one: one.name.lower())
def test_every_record_arrives_once(
    tmp_path: Path, broker: Broker, mode: str, guarantee: DeliveryGuarantee
) -> None:
    topic = broker.create_topic(2)
    env = environment(tmp_path, mode)
    env.enable_checkpointing(20)
    numbers = [str(number) for number in range(500)]
    env.from_collection(numbers, Types.STRING()).sink_to(sink_to(broker.bootstrap, plain(topic), guarantee))

    env.execute()

    assert sorted(committed(broker, topic)) == sorted(numbers)
    assert not list(tmp_path.rglob("*.inprogress"))


def test_a_batch_job_commits_at_its_end(tmp_path: Path, broker: Broker) -> None:
    topic = broker.create_topic()
    env = environment(tmp_path, "epochs")
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_collection(["a", "b"], Types.STRING()).sink_to(sink_to(broker.bootstrap, plain(topic)))

    env.execute()

    assert sorted(committed(broker, topic)) == ["a", "b"]


class Whole(KafkaRecordSerializationSchema):
    """Headers, tombstones, partitions and timestamps; nothing for "skip"."""

    topic = "set by the test"

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def to_record(self, element: Any, timestamp: int | None) -> KafkaRecord | None:
        if element == "skip":
            return None
        value = None if element == "gone" else element.encode()
        return KafkaRecord(value, b"k-" + element.encode(), (("h", b"1"), ("empty", None)), 1234, None, 1)


@pytest.mark.parametrize(
    "guarantee", [EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE], ids=lambda one: one.name.lower()
)
def test_whole_records_keep_key_headers_time_partition_and_tombstone(
    tmp_path: Path, broker: Broker, guarantee: DeliveryGuarantee
) -> None:
    topic = broker.create_topic(2)
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    stream = env.from_collection(["there", "skip", "gone"], Types.STRING())
    stream.sink_to(sink_to(broker.bootstrap, Whole(topic), guarantee))

    env.execute()

    found = [
        (each.key(), each.value(), each.headers(), timestamp_of(each), each.partition())
        for each in records(broker, topic)
    ]
    headers = [("h", b"1"), ("empty", None)]
    assert sorted(found, key=lambda each: each[0]) == [
        (b"k-gone", None, headers, 1234, 1),
        (b"k-there", b"there", headers, 1234, 1),
    ]


def test_elements_take_their_event_time_along(tmp_path: Path, broker: Broker) -> None:
    topic = broker.create_topic()
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: int(value)
    )
    stream = env.from_collection(["1000", "2000"], Types.STRING()).assign_timestamps_and_watermarks(strategy)
    stream.sink_to(sink_to(broker.bootstrap, plain(topic)))

    env.execute()

    assert sorted(timestamp_of(each) for each in records(broker, topic)) == [1000, 2000]


ROW = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}'


def test_formats_of_rows_are_those_of_messages(tmp_path: Path, broker: Broker) -> None:
    schemas = {
        "json": JsonRowSerializationSchema.builder().with_type_info(ROW).build(),
        "csv": CsvRowSerializationSchema.Builder(ROW).build(),
        "avro": AvroRowSerializationSchema(avro_schema_string=AVRO),
    }
    topics = {name: broker.create_topic() for name in schemas}
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    stream = env.from_collection([Row(1, "ann")], ROW)
    for name, schema in schemas.items():
        built = KafkaRecordSerializationSchema.builder().set_topic(topics[name])
        stream.sink_to(sink_to(broker.bootstrap, built.set_value_serialization_schema(schema).build()))

    env.execute()

    values = {name: [each.value() for each in records(broker, topics[name])] for name in schemas}
    assert values == {"json": [b'{"id":1,"name":"ann"}'], "csv": [b"1,ann\n"], "avro": [b"\x02\x06ann"]}


def test_a_selector_chooses_topics_and_a_field_is_the_key(tmp_path: Path, broker: Broker) -> None:
    topics = [broker.create_topic(), broker.create_topic()]
    built = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda row: topics[row[1][0] % 2])
    built.set_key_serialization_schema(RowFieldExtractorSchema(0))
    built.set_value_serialization_schema(RowFieldExtractorSchema(1))
    kind = Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.PRIMITIVE_ARRAY(Types.BYTE())])
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    env.from_collection([Row(b"k0", b"\x00"), Row(b"k1", b"\x01")], kind).sink_to(
        sink_to(broker.bootstrap, built.build())
    )

    env.execute()

    found = [[(each.key(), each.value()) for each in records(broker, topic)] for topic in topics]
    assert found == [[(b"k0", b"\x00")], [(b"k1", b"\x01")]]


class FailsOnce:
    """Fails when the file is there, and takes it away."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __call__(self, value: str) -> str:
        if value == "400" and self.flag.exists():
            self.flag.unlink()
            raise ValueError("once")
        return value


@pytest.mark.parametrize("mode", MODES)
def test_an_attempt_that_fails_is_repeated_without_a_trace(tmp_path: Path, broker: Broker, mode: str) -> None:
    topic = broker.create_topic(2)
    flag = tmp_path / "fail"
    flag.touch()
    env = environment(tmp_path, mode)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    numbers = [str(number) for number in range(500)]
    stream = env.from_collection(numbers, Types.STRING()).map(FailsOnce(flag), Types.STRING())
    stream.sink_to(sink_to(broker.bootstrap, plain(topic)))

    env.execute()

    assert not flag.exists()
    assert sorted(committed(broker, topic)) == sorted(numbers)


# What it says when it cannot


def failure(env: StreamExecutionEnvironment) -> str:
    with pytest.raises((ExecutionError, ConfigError)) as raised:
        env.execute()
    return str(raised.value)


@pytest.mark.parametrize(
    "guarantee", [EXACTLY_ONCE, DeliveryGuarantee.NONE], ids=lambda one: one.name.lower()
)
def test_brokers_that_are_down_are_named_in_time(tmp_path: Path, guarantee: DeliveryGuarantee) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    env = environment(tmp_path, kafka_connection__timeout="2 s")
    env.enable_checkpointing(20)
    env.from_collection(["a"], Types.STRING()).sink_to(sink_to(address, plain("t"), guarantee))
    started = time.monotonic()

    said = failure(env)

    assert time.monotonic() - started < 60
    assert f"the Kafka brokers at {address} did not answer within 2 s" in said


@pytest.mark.parametrize(
    "guarantee", [EXACTLY_ONCE, DeliveryGuarantee.NONE], ids=lambda one: one.name.lower()
)
def test_a_topic_that_is_missing_is_named_before_anything_is_read(
    tmp_path: Path, broker: Broker, guarantee: DeliveryGuarantee
) -> None:
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    env.from_collection(["a"], Types.STRING()).sink_to(sink_to(broker.bootstrap, plain("nowhere"), guarantee))

    assert "the topic 'nowhere' does not exist" in failure(env)


def test_a_topic_that_a_selector_makes_up_is_named_before_its_record_is_staged(
    tmp_path: Path, broker: Broker
) -> None:
    built = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda element: f"no-{element}")
    schema = built.set_value_serialization_schema(SimpleStringSchema()).build()
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    env.from_collection(["a"], Types.STRING()).sink_to(sink_to(broker.bootstrap, schema))

    assert "the topic 'no-a' does not exist" in failure(env)


def test_records_that_are_too_large_fail_before_they_are_staged(tmp_path: Path, broker: Broker) -> None:
    topic = broker.create_topic()
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    sink = sink_to(broker.bootstrap, plain(topic), max_request_size="5000")
    env.from_collection(["x" * 6000], Types.STRING()).sink_to(sink)

    assert "more than message.max.bytes (max.request.size) of the sink, 5000" in failure(env)


def test_a_topic_that_takes_less_than_the_sink_sends_is_refused(tmp_path: Path, broker: Broker) -> None:
    topic = broker.create_topic(config={"max.message.bytes": "4000"})
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    env.from_collection(["x"], Types.STRING()).sink_to(sink_to(broker.bootstrap, plain(topic)))

    assert "takes messages of up to 4000 bytes (max.message.bytes)" in failure(env)


def test_a_transaction_timeout_above_the_brokers_is_named(tmp_path: Path, broker: Broker) -> None:
    topic = broker.create_topic()
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    sink = sink_to(broker.bootstrap, plain(topic), transaction_timeout_ms="1000000")
    env.from_collection(["x"], Types.STRING()).sink_to(sink)

    said = failure(env)

    assert "transaction.timeout.ms is above what the brokers" in said
    assert "transaction.max.timeout.ms" in said


def test_exactly_once_needs_checkpoints_and_a_directory(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection(["x"], Types.STRING()).sink_to(sink_to("127.0.0.1:1", plain("t")))
    assert "needs checkpoints" in failure(env)

    env = environment(tmp_path)
    env.configure(Configuration.from_dict({"state.checkpoints.dir": ""}))
    env.enable_checkpointing(20)
    env.from_collection(["x"], Types.STRING()).sink_to(sink_to("127.0.0.1:1", plain("t")))
    assert "kafka.sink.staging-dir" in failure(env)


def test_a_property_nobody_knows_is_named_and_no_secret_is_told(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create_topic()
    env = environment(tmp_path)
    env.enable_checkpointing(20)
    properties = {"sasl_password": "hunter2-hunter2", "no_such_thing": "1"}
    env.from_collection(["x"], Types.STRING()).sink_to(sink_to(broker.bootstrap, plain(topic), **properties))

    with caplog.at_level(logging.DEBUG):
        said = failure(env)

    assert "no.such.thing" in said
    assert "hunter2" not in said + caplog.text
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [data for data in written if b"hunter2" in data]
