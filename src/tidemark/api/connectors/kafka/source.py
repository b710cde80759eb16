"""`KafkaSource`: which partitions are read, from where to where, and how records become elements.

A declaration, made by its builder; `runtime.sources.kafka_splits` enumerates the partitions and reads them. Each
partition is a split: its offset is stored in checkpoints under `topic-partition`, and it has a watermark of its own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from tidemark.api.connectors.base import Source
from tidemark.api.connectors.kafka.deserialization import KafkaBadRecords, KafkaRecordDeserializationSchema
from tidemark.api.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    OffsetsKind,
)
from tidemark.api.connectors.kafka.properties import ClientProperties
from tidemark.api.specs import KafkaSourceSpec
from tidemark.errors import ConfigError
from tidemark.formats.schemas import DeserializationSchema
from tidemark.types.typeinfo import TypeInformation

__all__ = ["KafkaSource", "KafkaSourceBuilder"]

_DISCOVERY = "partition.discovery.interval.ms"
_DISCOVERY_MS = 5 * 60 * 1000
"""Flink's default."""
_COMMIT = "commit.offsets.on.checkpoint"
_RESETS = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "smallest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "largest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
    "error": KafkaOffsetResetStrategy.NONE,
}


@dataclass(frozen=True)
class KafkaSource(Source):
    """Reads topics; built with `KafkaSource.builder()`.

    Attributes:
        properties: Of the client.
        topics: Names; empty if there is a pattern or a set of partitions.
        pattern: Which topics are read, in full (`re.fullmatch`).
        partitions: Which partitions are read.
        starting: Where partitions begin that are there at the first start.
        stopping: Where they end; None: never.
        bounded: Whether the job may take the source for one that ends.
        discovery_interval_ms: How often new partitions are looked for; None: never.
        deserializer: What makes elements of records.
        bad_records: What becomes of records it refuses.
        out_of_range: What to do when a partition has no longer what a checkpoint wants to read next.
        commits_offsets: Whether the group hears of completed checkpoints.
        token: Tells the readers of this source in one process from others.
    """

    properties: ClientProperties
    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[KafkaTopicPartition, ...]
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    bounded: bool
    discovery_interval_ms: int | None
    deserializer: KafkaRecordDeserializationSchema
    bad_records: KafkaBadRecords
    out_of_range: KafkaOffsetResetStrategy
    commits_offsets: bool
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A builder."""
        return KafkaSourceBuilder()

    def source_spec(self) -> KafkaSourceSpec:
        """What the graph holds of it."""
        return KafkaSourceSpec(self)

    def produced_type(self) -> TypeInformation | None:
        """What the deserializer makes."""
        return self.deserializer.get_produced_type()

    @property
    def group_id(self) -> str | None:
        """The consumer group whose committed offsets are read and written; None: there is none."""
        return self.properties.get("group.id")

    @property
    def described(self) -> str:
        """The source in messages."""
        if self.topics:
            return f"The Kafka source of {', '.join(self.topics)}"
        if self.pattern is not None:
            return f"The Kafka source of topics like '{self.pattern}'"
        return f"The Kafka source of {', '.join(map(str, self.partitions))}"


class KafkaSourceBuilder:
    """Builds a `KafkaSource`; bootstrap servers, topics and a deserializer are needed."""

    def __init__(self) -> None:
        self._properties: dict[str, Any] = {}
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._partitions: tuple[KafkaTopicPartition, ...] = ()
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._deserializer: KafkaRecordDeserializationSchema | None = None
        self._bad_records = KafkaBadRecords.fail()

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Addresses of brokers, `host:port,host:port`."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The consumer group that is told how far completed checkpoints are; it assigns nothing."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics; they must be there when the job starts.

        Raises:
            ConfigError: No names, or partitions are chosen in another way already.
        """
        if not topics or not all(isinstance(topic, str) and topic for topic in topics):
            raise ConfigError(f"set_topics() needs names of topics, not {topics!r}.")
        self._subscribe("set_topics()")
        self._topics = tuple(dict.fromkeys(topics))
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole name matches, also those that are created later.

        Raises:
            ConfigError: No regular expression, or partitions are chosen in another way already.
        """
        try:
            re.compile(topic_pattern)
        except (re.error, TypeError) as exc:
            raise ConfigError(
                f"set_topic_pattern() needs a regular expression, not {topic_pattern!r}: {exc}."
            ) from exc
        self._subscribe("set_topic_pattern()")
        self._pattern = topic_pattern
        return self

    def set_partitions(self, partitions: Set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions only.

        Raises:
            ConfigError: Not `KafkaTopicPartition`s, or partitions are chosen in another way already.
        """
        if not partitions or not all(isinstance(each, KafkaTopicPartition) for each in partitions):
            raise ConfigError(f"set_partitions() needs a set of KafkaTopicPartition, not {partitions!r}.")
        self._subscribe("set_partitions()")
        self._partitions = tuple(sorted(set(partitions), key=lambda each: (each.topic, each.partition)))
        return self

    def _subscribe(self, method: str) -> None:
        if self._topics or self._pattern is not None or self._partitions:
            raise ConfigError(
                f"{method}: this builder has its topics already. Use one of set_topics(), set_topic_pattern() and "
                "set_partitions(), once."
            )

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Where partitions begin at the first start (default: `earliest()`); later ones are read from their start."""
        self._starting = _initializer(starting_offsets_initializer, "set_starting_offsets()")
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop at these offsets, in a job that is a streaming job all the same."""
        return self._stop("set_unbounded()", stopping_offsets_initializer, bounded=False)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop at these offsets; the source counts as bounded (batch mode is possible)."""
        return self._stop("set_bounded()", stopping_offsets_initializer, bounded=True)

    def _stop(self, method: str, stopping: KafkaOffsetsInitializer, *, bounded: bool) -> KafkaSourceBuilder:
        if _initializer(stopping, method).kind is OffsetsKind.EARLIEST:
            raise ConfigError(f"{method}: a source that stops at its earliest offsets reads nothing.")
        self._stopping, self._bounded = stopping, bounded
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Make elements of the values of records; see `KafkaRecordDeserializationSchema.value_only`."""
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Make elements of whole records, with keys, headers, timestamps and tombstones.

        Raises:
            ConfigError: Not a `KafkaRecordDeserializationSchema`.
        """
        if not isinstance(deserializer, KafkaRecordDeserializationSchema):
            raise ConfigError(
                f"set_deserializer() needs a KafkaRecordDeserializationSchema, not {deserializer!r}. A schema of "
                "values goes to set_value_only_deserializer()."
            )
        self._deserializer = deserializer
        return self

    def set_bad_records(self, bad_records: KafkaBadRecords) -> KafkaSourceBuilder:
        """What becomes of records that cannot be deserialized: `KafkaBadRecords.fail()` unless said.

        Raises:
            ConfigError: Not `KafkaBadRecords`.
        """
        if not isinstance(bad_records, KafkaBadRecords):
            raise ConfigError(f"set_bad_records() needs KafkaBadRecords, not {bad_records!r}.")
        self._bad_records = bad_records
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """What the names of this source's clients begin with, in the broker's logs and metrics."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """A property of the Kafka client, in Java's words or librdkafka's, or one of Flink's source.

        `auto.offset.reset` says what to do when a partition has no longer what a checkpoint wants to read next; it
        is `none` (fail) unless set. `isolation.level` is `read_committed` unless set.
        """
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, Any]) -> KafkaSourceBuilder:
        """Several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """The source.

        Raises:
            ConfigError: Something is missing, or settings contradict each other.
        """
        if not self._properties.get("bootstrap.servers"):
            raise ConfigError(
                "A KafkaSource needs set_bootstrap_servers() (or the property bootstrap.servers)."
            )
        if not (self._topics or self._pattern is not None or self._partitions):
            raise ConfigError("A KafkaSource needs set_topics(), set_topic_pattern() or set_partitions().")
        if self._deserializer is None:
            raise ConfigError("A KafkaSource needs set_value_only_deserializer() or set_deserializer().")
        given = dict(self._properties)
        interval = _whole_number(_DISCOVERY, given.pop(_DISCOVERY, _DISCOVERY_MS))
        commits = _boolean(_COMMIT, given.pop(_COMMIT, True))
        if _boolean("enable.auto.commit", given.pop("enable.auto.commit", False)):
            raise ConfigError(
                "enable.auto.commit=true would commit offsets of records that no checkpoint holds. Leave it out: the "
                f"group is told of offsets when a checkpoint completes ({_COMMIT}).",
                key="enable.auto.commit",
            )
        reset = str(given.pop("auto.offset.reset", "none"))
        if reset not in _RESETS:
            raise ConfigError(
                f"auto.offset.reset is none, earliest or latest, not {reset!r}.", key="auto.offset.reset"
            )
        for initializer in (self._starting, self._stopping):
            if (
                initializer is not None
                and initializer.kind is OffsetsKind.COMMITTED
                and not given.get("group.id")
            ):
                raise ConfigError(
                    "KafkaOffsetsInitializer.committed_offsets() needs set_group_id().", key="group.id"
                )
        prefix = given.pop("client.id.prefix", None)
        if prefix is not None:
            given["client.id"] = prefix
        return KafkaSource(
            ClientProperties(given),
            self._topics,
            self._pattern,
            self._partitions,
            self._starting,
            self._stopping,
            self._bounded,
            None if self._stopping is not None or interval <= 0 else interval,
            self._deserializer,
            self._bad_records,
            _RESETS[reset],
            commits and bool(given.get("group.id")),
        )


def _initializer(initializer: Any, method: str) -> KafkaOffsetsInitializer:
    if not isinstance(initializer, KafkaOffsetsInitializer):
        raise ConfigError(f"{method} needs a KafkaOffsetsInitializer, not {initializer!r}.")
    return initializer


def _whole_number(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{key} is a number of milliseconds, not {value!r}.", key=key) from exc


def _boolean(key: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} is true or false, not {value!r}.", key=key)
    return text == "true"
