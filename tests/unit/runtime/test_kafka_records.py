"""Records on their way to Kafka, without a broker: schemas, staged files, what a snapshot may list."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
import xxhash

from tidemark import KafkaRecord, KafkaRecordSerializationSchema, KafkaSink, SimpleStringSchema
from tidemark.api.connectors.base import DeliveryGuarantee
from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.errors import ConfigError, MetadataError, SerializationError, StorageError
from tidemark.runtime.sinks.kafka_commits import decode_groups, encode_groups, listed_files, waits_elsewhere
from tidemark.runtime.sinks.kafka_records import MAGIC, check_sizes, encode_frame, read_staged, send
from tidemark.runtime.sinks.staged_files import StagedFile, encode_commits

FULL = OutgoingRecords(
    ["a", "b"], [b"1", None], [None, b"k"], [7, None], [[("h", b"x"), ("n", None)], []], [0, None]
)
PLAIN = OutgoingRecords("t", [b"1", b"2", b"3"])


def staged(*batches: OutgoingRecords) -> tuple[bytes, StagedFile]:
    data = MAGIC + b"".join(map(encode_frame, batches))
    rows = sum(map(len, batches))
    return data, StagedFile("/s/.f.inprogress", "/s/f", rows, len(data), xxhash.xxh3_128_hexdigest(data))


def test_staged_records_come_back_as_they_were() -> None:
    data, file = staged(FULL, PLAIN)

    assert list(read_staged(io.BytesIO(data), file)) == [FULL, PLAIN]


@pytest.mark.parametrize("at", [0, 3, 9, 20, -1])
def test_a_changed_byte_is_found_before_the_end(at: int) -> None:
    data, file = staged(FULL, PLAIN)
    changed = bytearray(data)
    changed[at] ^= 0x01

    with pytest.raises(StorageError, match="cannot be written to Kafka"):
        list(read_staged(io.BytesIO(bytes(changed)), file))


def test_every_cut_is_found() -> None:
    data, file = staged(FULL, PLAIN)

    for end in range(len(data)):
        with pytest.raises(StorageError, match="cannot be written to Kafka"):
            list(read_staged(io.BytesIO(data[:end]), file))


def test_columns_of_different_lengths_are_no_records() -> None:
    data, file = staged(OutgoingRecords("t", [b"1"], keys=[b"a", b"b"]))

    with pytest.raises(StorageError, match="different lengths"):
        list(read_staged(io.BytesIO(data), file))


def test_files_are_listed_by_the_checkpoint_that_covers_them_first() -> None:
    _, file = staged(PLAIN)

    groups = decode_groups(encode_groups({5: [file], 4: [], 3: [file, file]}), "uid")

    assert [(group.checkpoint, len(group.files)) for group in groups] == [(3, 2), (5, 1)]
    assert (
        listed_files(encode_groups({5: [file]}), "uid")
        == listed_files(encode_commits([file]), "uid")
        == [file]
    )
    assert encode_groups({7: []}) == b""
    assert decode_groups(b"", "uid") == []


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x00",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode({"version": 2, "groups": []}),
        msgspec.msgpack.encode({"version": 1, "groups": [[-1, []]]}),
        msgspec.msgpack.encode({"version": 1, "groups": [[1, [["", "", 0, 0, ""]]]]}),
    ],
)
def test_a_snapshot_that_lists_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataError, match="no list of staged Kafka records"):
        decode_groups(data, "uid")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/s/.tidemark-x/.area-1-0123456789abcdef/.f.inprogress",
        f"/s/.tidemark-{'0' * 32}/../.f.inprogress",
        f"s3://elsewhere/.tidemark-{'0' * 32}/.area-1-0123456789abcdef/.f.inprogress",
    ],
)
def test_files_that_no_sink_stages_are_not_looked_for(path: str) -> None:
    with pytest.raises(MetadataError, match="do not restore snapshots you do not trust"):
        waits_elsewhere("/s", StagedFile(path, "/s/f", 1, 1, ""), "uid")


class Producer:
    """Takes records as the client library does; None and what it takes for none are the same."""

    def __init__(self) -> None:
        self.produced: list[tuple[Any, ...]] = []

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        self.produced.append((topic, value, key, partition, timestamp, headers))

    def poll(self, timeout: float) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, (None, -1, 0, None)),
        ({"keys": [b"k"]}, (b"k", -1, 0, None)),
        ({"timestamps": [7]}, (None, -1, 7, None)),
        ({"headers": [[("h", b"x")]]}, (None, -1, 0, [("h", b"x")])),
        ({"partitions": [3]}, (None, 3, 0, None)),
        ({"keys": [b"k"], "partitions": [None], "headers": [[]]}, (b"k", -1, 0, None)),
    ],
)
def test_whatever_a_record_has_goes_with_it(given: dict[str, Any], sent: tuple[Any, ...]) -> None:
    producer = Producer()

    send(producer, OutgoingRecords("t", [b"v"], **given), lambda: None)

    assert producer.produced == [("t", b"v", *sent)]


def test_sizes_count_key_value_and_headers() -> None:
    check_sizes(FULL, 1000)
    check_sizes(OutgoingRecords("t", [None]), 1000)

    for large in (
        OutgoingRecords("t", [b"x", b"x" * 1000]),
        OutgoingRecords("t", [b"x"], keys=[b"x" * 1000]),
        OutgoingRecords(["t"], [b"x"], headers=[[("h", b"x" * 1000)]]),
    ):
        with pytest.raises(SerializationError, match="Kafka topic 't' has"):
            check_sizes(large, 1000)


class Own(KafkaRecordSerializationSchema):
    def to_record(self, element: Any, timestamp: int | None) -> KafkaRecord | None:
        return element


def test_records_of_ones_own_are_checked() -> None:
    schema = Own()

    made = schema.to_records([KafkaRecord(b"v", topic="t"), None], [5, 6])

    assert made == OutgoingRecords(["t"], [b"v"], [None], [5], [[]], [None])
    with pytest.raises(SerializationError, match="without topic"):
        schema.to_records([KafkaRecord(b"v")], None)
    with pytest.raises(SerializationError, match="must be bytes or None"):
        schema.to_records([KafkaRecord("text", topic="t")], None)  # type: ignore[arg-type]


def test_a_time_before_1970_is_left_to_the_broker() -> None:
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_key_serialization_schema(SimpleStringSchema())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )

    made = schema.to_records(["a", "b"], [-1, 3])

    assert made == OutgoingRecords("t", [b"a", b"b"], [b"a", b"b"], [None, 3])
    assert schema.to_record("a", 3) == KafkaRecord(b"a", b"a", (), 3, "t")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, None, "täh"])
def test_names_no_topic_can_have_are_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="no name of a Kafka topic"):
        KafkaRecordSerializationSchema.builder().set_topic(name)


def test_a_builder_says_what_is_missing() -> None:
    value = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())
    with pytest.raises(ConfigError, match="set_topic"):
        value.build()
    with pytest.raises(ConfigError, match="set_value_serialization_schema"):
        KafkaRecordSerializationSchema.builder().set_topic("t").build()
    with pytest.raises(ConfigError, match="set_bootstrap_servers"):
        KafkaSink.builder().set_record_serializer(value.set_topic("t").build()).build()
    with pytest.raises(ConfigError, match="set_record_serializer"):
        KafkaSink.builder().set_bootstrap_servers("a:1").build()
    ready = KafkaSink.builder().set_bootstrap_servers("a:1").set_record_serializer(value.build())
    assert ready.build().delivery_guarantee is DeliveryGuarantee.NONE
    with pytest.raises(ConfigError, match="set_transactional_id_prefix"):
        ready.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    with pytest.raises(ConfigError, match="makes it"):
        ready.set_property("transactional.id", "mine")
    with pytest.raises(ConfigError, match="6400"):
        ready.set_transactional_id_prefix("x" * 6401)
    with pytest.raises(TypeError):
        value.set_topic_selector("t")  # type: ignore[arg-type]


def test_a_sink_shows_no_secret() -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t")
    built = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    sink = KafkaSink.builder().set_bootstrap_servers("a:1").set_record_serializer(built)

    assert "hunter2" not in repr(sink.set_property("sasl.password", "hunter2").build())
