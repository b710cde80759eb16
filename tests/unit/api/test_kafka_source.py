"""What the builder of a Kafka source takes and refuses; no broker, no client."""

from __future__ import annotations

import pickle

import pytest

from tidemark import (
    KafkaBadRecords,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
    OutputTag,
    SimpleStringSchema,
    Types,
)
from tidemark.errors import ConfigError


def complete():
    builder = KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t")
    return builder.set_value_only_deserializer(SimpleStringSchema())


def test_a_source_says_what_it_makes_and_survives_pickling():
    source = complete().set_group_id("g").set_client_id_prefix("billing").build()

    copy = pickle.loads(pickle.dumps(source))

    assert copy.topics == ("t",)
    assert copy.produced_type() == Types.STRING()
    assert not copy.bounded
    assert copy.group_id == "g"
    assert copy.commits_offsets
    assert copy.properties.get("client.id") == "billing"
    assert copy.token == source.token
    assert copy.out_of_range is KafkaOffsetResetStrategy.NONE, "nothing is left out unless one says so"


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (lambda: KafkaSource.builder().set_topics("t"), r"set_bootstrap_servers\(\)"),
        (lambda: KafkaSource.builder().set_bootstrap_servers("b:1"), r"set_topics\(\)"),
        (lambda: KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t"), "deserializer"),
        (lambda: complete().set_topic_pattern("t.*"), "has its topics already"),
        (lambda: complete().set_property("enable.auto.commit", "true"), r"enable\.auto\.commit"),
        (lambda: complete().set_property("auto.offset.reset", "sometimes"), "none, earliest or latest"),
        (lambda: complete().set_property("partition.discovery.interval.ms", "soon"), "milliseconds"),
        (
            lambda: complete().set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()),
            "set_group_id",
        ),
        (lambda: complete().set_bounded(KafkaOffsetsInitializer.earliest()), "reads nothing"),
        (lambda: complete().set_starting_offsets("earliest"), "KafkaOffsetsInitializer"),
        (lambda: complete().set_deserializer(SimpleStringSchema()), "set_value_only_deserializer"),
        (lambda: KafkaSource.builder().set_topic_pattern("("), "regular expression"),
        (lambda: KafkaSource.builder().set_partitions({"t-0"}), "KafkaTopicPartition"),
        (lambda: KafkaTopicPartition("t", -1), "from 0 on"),
        (lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("t", 0): -5}), "from 0 on"),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "milliseconds"),
        (lambda: KafkaBadRecords.side_output(OutputTag("bad", Types.STRING())), r"KafkaBadRecords\.TYPE"),
        (lambda: KafkaRecordDeserializationSchema.records(value="text"), "DeserializationSchema"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_source_is_built(builder, message):
    with pytest.raises(ConfigError, match=message):
        builder().build()


def test_sources_that_stop_look_for_no_partitions():
    bounded = complete().set_bounded(KafkaOffsetsInitializer.latest()).build()
    stopping = complete().set_unbounded(KafkaOffsetsInitializer.latest()).build()

    assert (bounded.bounded, bounded.discovery_interval_ms) == (True, None)
    assert (stopping.bounded, stopping.discovery_interval_ms) == (False, None)
    assert complete().build().discovery_interval_ms == 300_000
    assert (
        complete().set_property("partition.discovery.interval.ms", "-1").build().discovery_interval_ms is None
    )
