"""Producers of Kafka sinks without a broker: what they are told, what becomes of a record that nobody takes."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tidemark import KafkaRecordSerializationSchema, KafkaSink, SimpleStringSchema
from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.errors import ConfigError, SerializationError, StorageError
from tidemark.runtime.kafka.client import KafkaClients
from tidemark.runtime.sinks.kafka_sender import Sender, Senders, producer_settings
from tidemark.runtime.sinks.kafka_topics import Topics, message_limit


def sink_with(bootstrap: str = "127.0.0.1:1", **properties: str) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t")
    built = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    builder = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(built)
    for key, value in properties.items():
        builder.set_property(key.replace("_", "."), value)
    return builder.build()


def test_a_record_that_no_broker_takes_fails_the_flush_and_whatever_is_sent_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    sink = sink_with(address, message_timeout_ms="100")
    clients = KafkaClients(sink.properties, 1000, "The sink")
    sender = Sender(clients, producer_settings(sink, {"log_level": "0"}))
    sender.send(OutgoingRecords("t", [b"1"]))

    with pytest.raises(StorageError, match=f"write to topic 't'.*{address}"):
        sender.flush()
    with pytest.raises(StorageError, match="write to topic 't'"):
        sender.send(OutgoingRecords("t", [b"2"]))


@pytest.mark.parametrize("name", ["linger_ms", "queue_buffering_max_ms"])
def test_a_default_gives_way_to_the_user_by_whichever_name(name: str) -> None:
    assert producer_settings(sink_with(), {})["linger.ms"] == "1"
    assert "linger.ms" not in producer_settings(sink_with(**{name: "50"}), {})


def test_a_producer_is_lent_to_one_at_a_time() -> None:
    senders = Senders()
    sender: Any = object()
    assert senders.borrow("key") is None
    senders.give_back("key", sender)

    assert senders.borrow("other key") is None
    assert senders.borrow("key") is sender
    assert senders.borrow("key") is None

    senders.give_back("key", sender)
    senders.forget("key")
    assert senders.borrow("key") is None


def test_the_largest_record_is_a_number() -> None:
    assert message_limit({}) == 1_000_000
    assert message_limit({"message.max.bytes": "2000"}) == 2000
    with pytest.raises(ConfigError, match=r"message\.max\.bytes is 'much'"):
        message_limit({"message.max.bytes": "much"})


def test_a_partition_is_one_that_the_topic_has_or_left_to_the_client() -> None:
    clients: Any = None
    topics = Topics(clients, 1000, {"t": 2})
    topics.check(OutgoingRecords("t", [b"1", b"2", b"3"], partitions=[None, 0, 1]))

    for partition in (-1, 2):
        with pytest.raises(
            SerializationError, match=f"partition {partition} of the Kafka topic 't', which has 2"
        ):
            topics.check(OutgoingRecords(["t"], [b"1"], partitions=[partition]))
