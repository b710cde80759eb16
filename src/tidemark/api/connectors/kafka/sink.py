"""Kafka as a sink. `runtime` writes; here are only the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark.api.connectors.base import DeliveryGuarantee, Sink
from tidemark.api.connectors.kafka.properties import ClientProperties
from tidemark.api.connectors.kafka.serialization import KafkaRecordSerializationSchema, checked_topic
from tidemark.api.specs import KafkaSinkSpec
from tidemark.errors import ConfigError

__all__ = ["KafkaSink", "KafkaSinkBuilder"]

_MAX_PREFIX = 6400
"""Bytes, as in Flink."""
_OURS = {
    "transactional.id": "set_transactional_id_prefix() makes it",
    "enable.idempotence": "the delivery guarantee decides it",
    "delivery.report.only.error": "the sink decides it",
}


@dataclass(frozen=True, slots=True)
class KafkaSink(Sink):
    """Writes elements to Kafka topics; see `DeliveryGuarantee` for how often one may appear.

    `NONE` sends without idempotence. `AT_LEAST_ONCE` has every record acknowledged before a checkpoint counts it.
    `EXACTLY_ONCE` stages the records of a checkpoint and writes them in one transaction when it is complete: readers
    with `isolation.level=read_committed` see each of them once.
    """

    record_serializer: KafkaRecordSerializationSchema
    properties: ClientProperties
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    transactional_id_prefix: str = "kafka-sink"
    marker_topic: str | None = None
    """Topic under which the consumer group of the marker stores its offset; None: that of the records."""

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Start a sink."""
        return KafkaSinkBuilder()

    def sink_spec(self) -> KafkaSinkSpec:
        """Plain data for the runtime."""
        return KafkaSinkSpec(self)


class KafkaSinkBuilder:
    """Collects the settings of a `KafkaSink`; every method returns the builder."""

    def __init__(self) -> None:
        """Nothing is set."""
        self._properties = ClientProperties()
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._marker_topic: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Name brokers to begin with: `host:port`, separated by commas."""
        self._properties = self._properties.with_property("bootstrap.servers", bootstrap_servers)
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Choose the guarantee, `NONE` if this is not called.

        Raises:
            TypeError: No `DeliveryGuarantee`.
        """
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise TypeError(f"A DeliveryGuarantee is needed, not {delivery_guarantee!r}.")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Begin transactional ids, and the group of the marker, with this; it must stay the same over restarts.

        Jobs on one Kafka cluster should have different ones.

        Raises:
            ConfigError: It is empty or longer than 6400 bytes.
        """
        if not isinstance(transactional_id_prefix, str) or not transactional_id_prefix:
            raise ConfigError("The transactional id prefix must be a text that is not empty.")
        if len(transactional_id_prefix.encode()) > _MAX_PREFIX:
            raise ConfigError(f"The transactional id prefix is longer than {_MAX_PREFIX} bytes. Shorten it.")
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Say how elements become records.

        Raises:
            TypeError: No `KafkaRecordSerializationSchema`.
        """
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise TypeError(f"A KafkaRecordSerializationSchema is needed, not {record_serializer!r}.")
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer, in Java's words or librdkafka's.

        Raises:
            ConfigError: The connector decides it, or there is no such property outside of Java.
        """
        if key == "group.id":
            # Of consumers; PyFlink's own programs set it on sinks, where Kafka's producer takes no notice of it.
            return self
        if key in _OURS:
            raise ConfigError(f"The Kafka property '{key}' cannot be set on a sink: {_OURS[key]}.", key=key)
        self._properties = self._properties.with_property(key, value)
        return self

    def set_marker_topic(self, marker_topic: str) -> KafkaSinkBuilder:
        """Keep the marker of exactly-once commits with this topic, which must be there; not one of PyFlink's settings.

        The marker is an offset of a consumer group, and an offset belongs to a topic: by default the sink's own, and
        `__consumer_offsets` if every record names its own.

        Raises:
            ConfigError: No topic can have that name.
        """
        self._marker_topic = checked_topic(marker_topic)
        return self

    def build(self) -> KafkaSink:
        """The finished sink.

        Raises:
            ConfigError: Bootstrap servers, serializer or, for EXACTLY_ONCE, the prefix are missing.
        """
        if not self._properties.bootstrap_servers:
            raise ConfigError("A KafkaSink needs brokers: call set_bootstrap_servers().")
        if self._serializer is None:
            raise ConfigError("A KafkaSink needs to know how records look: call set_record_serializer().")
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and self._prefix is None:
            raise ConfigError("EXACTLY_ONCE needs transactional ids: call set_transactional_id_prefix().")
        sink = KafkaSink(self._serializer, self._properties, self._guarantee, marker_topic=self._marker_topic)
        return sink if self._prefix is None else replace(sink, transactional_id_prefix=self._prefix)
