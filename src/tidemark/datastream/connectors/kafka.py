"""Kafka as source and sink."""

from __future__ import annotations

from tidemark.api.connectors.kafka.record import KafkaRecord
from tidemark.api.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from tidemark.api.connectors.kafka.sink import (
    KafkaSink,
    KafkaSinkBuilder,
)

__all__ = [
    "KafkaRecord",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaTopicSelector",
]
