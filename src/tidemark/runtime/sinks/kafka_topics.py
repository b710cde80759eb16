"""What a sink must know of topics before it writes: are they there, how many partitions, how large may a record be.

Looked up before records are staged or sent: a record that cannot be written would make every later commit fail.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from tidemark.api.connectors.kafka.serialization import OutgoingRecords, checked_topic
from tidemark.errors import ConfigError, SerializationError
from tidemark.runtime.kafka.client import KafkaClients, confluent

__all__ = ["Topics", "message_limit"]

_log = logging.getLogger(__name__)

_DEFAULT_LIMIT = 1_000_000
"""librdkafka's message.max.bytes."""


def message_limit(properties: dict[str, str]) -> int:
    """Bytes of the largest record that a client with these properties sends.

    Raises:
        ConfigError: The value is no number.
    """
    text = properties.get("message.max.bytes", str(_DEFAULT_LIMIT))
    try:
        return int(text)
    except ValueError as exc:
        raise ConfigError(
            f"message.max.bytes is {text!r}, but has to be a number.", key="message.max.bytes"
        ) from exc


@dataclass(slots=True)
class Topics:
    """Topics that were looked up, with their partitions."""

    clients: KafkaClients
    limit: int
    """Bytes of the largest record the sink makes."""
    _known: dict[str, int] = field(default_factory=dict)
    _admin: Any = None

    def require(self, *names: str) -> None:
        """Make sure that topics are there and take records as large as the sink makes.

        Raises:
            ConfigError: One is not, or does not.
            StorageError: No broker answered.
        """
        new = [checked_topic(name) for name in names if name not in self._known]
        if not new:
            return
        if self._admin is None:
            self._admin = self.clients.admin()
        found = self.clients.require_topics(self._admin, new)
        for name in new:
            self._check_limit(name)
        self._known.update(found)

    def check(self, records: OutgoingRecords) -> None:
        """Make sure that records can be written where they say.

        Raises:
            ConfigError: A topic is missing.
            SerializationError: There is no such partition, or no topic of that name can be.
        """
        topics = {records.topics} if isinstance(records.topics, str) else set(records.topics)
        self.require(*topics)
        if records.partitions is None:
            return
        of_each = [records.topics] * len(records) if isinstance(records.topics, str) else records.topics
        for topic, partition in zip(of_each, records.partitions, strict=True):
            if partition is not None and not 0 <= partition < self._known[topic]:
                raise SerializationError(
                    f"A record is to go to partition {partition} of the Kafka topic '{topic}', which has "
                    f"{self._known[topic]}, counted from 0."
                )

    def close(self) -> None:
        """Disconnect; what was found stays known."""
        self._admin = None

    def _check_limit(self, topic: str) -> None:
        limit = self._limit_of(topic)
        if limit is not None and limit < self.limit:
            raise ConfigError(
                f"{self.clients.what}: the topic '{topic}' takes messages of up to {limit} bytes (max.message.bytes), "
                f"the sink would send up to {self.limit}. Set message.max.bytes (max.request.size) of the sink to "
                f"{limit} or less, or raise the topic's.",
                key="message.max.bytes",
            )

    def _limit_of(self, topic: str) -> int | None:
        """None if the brokers do not tell us, for which it takes a right of its own."""
        kafka = confluent()
        from confluent_kafka.admin import ConfigResource

        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            answer = self._admin.describe_configs([asked], request_timeout=self.clients.timeout_s)
            return int(answer[asked].result()["max.message.bytes"].value)
        except (kafka.KafkaException, KeyError, TypeError, ValueError) as exc:
            _log.info("How large records of topic %s may be is not known: %s", topic, exc)
            return None
