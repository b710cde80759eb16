"""Kafka as source and sink."""

from __future__ import annotations

from tidemark.api.connectors.base import DeliveryGuarantee
from tidemark.api.connectors.kafka.deserialization import (
    KafkaBadRecords,
    KafkaRecordDeserializationSchema,
)
from tidemark.api.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
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
from tidemark.api.connectors.kafka.source import (
    KafkaSource,
    KafkaSourceBuilder,
)

__all__ = [
    "DeliveryGuarantee",
    "KafkaBadRecords",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
]
