"""How records of a topic become elements of a stream, and what becomes of those that cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from tidemark.api.connectors.kafka.record import KafkaRecord
from tidemark.api.output_tag import OutputTag
from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.schemas import DeserializationSchema
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["BadRecordAction", "KafkaBadRecords", "KafkaRecordDeserializationSchema"]

BAD_RECORD_TYPE = Types.ROW_NAMED(
    ["topic", "partition", "offset", "timestamp", "key", "value", "reason"],
    [
        Types.STRING(),
        Types.LONG(),
        Types.LONG(),
        Types.LONG(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.STRING(),
    ],
)


class KafkaRecordDeserializationSchema(ABC):
    """Turns whole records into elements: key, value, headers, timestamp, topic, partition and offset are there."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """The element behind a record; None for a record that is to be left out.

        Anything raised here makes it a bad record: see `KafkaBadRecords`.
        """

    def get_produced_type(self) -> TypeInformation | None:
        """Type of the elements; None: pickled."""
        return None

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """The value alone, read by a schema of messages; a tombstone (a record without a value) is a bad record.

        Raises:
            ConfigError: Not a `DeserializationSchema`.
        """
        return ValueOnly(_schema(schema, "value_only()"))

    @staticmethod
    def records(
        value: DeserializationSchema | None = None, key: DeserializationSchema | None = None
    ) -> KafkaRecordDeserializationSchema:
        """`KafkaRecord`s with everything a record has; key and value are read by schemas, or stay bytes.

        A tombstone has the value None, a record without a key the key None.

        Raises:
            ConfigError: Not `DeserializationSchema`s.
        """
        for schema in (value, key):
            if schema is not None:
                _schema(schema, "records()")
        return WholeRecords(value, key)


@dataclass(frozen=True, slots=True)
class ValueOnly(KafkaRecordDeserializationSchema):
    """The value, read by a schema; connectors call the schema's batch form themselves."""

    schema: DeserializationSchema

    def deserialize(self, record: KafkaRecord) -> Any:
        """The element behind the value."""
        if record.value is None:
            raise SerializationError(
                "The record has no value (a tombstone). Read whole records: "
                "set_deserializer(KafkaRecordDeserializationSchema.records(...))."
            )
        return self.schema.deserialize(record.value)

    def get_produced_type(self) -> TypeInformation | None:
        """What the schema says."""
        return self.schema.get_produced_type()


@dataclass(frozen=True, slots=True)
class WholeRecords(KafkaRecordDeserializationSchema):
    """The record, with key and value read."""

    value: DeserializationSchema | None
    key: DeserializationSchema | None

    def deserialize(self, record: KafkaRecord) -> Any:
        """The record; None if a schema leaves its value out."""
        value, key = record.value, record.key
        if self.value is not None and value is not None:
            value = self.value.deserialize(value)
            if value is None:
                return None
        if self.key is not None and key is not None:
            key = self.key.deserialize(key)
        return replace(record, value=value, key=key)


class BadRecordAction(Enum):
    """What becomes of a record that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"
    SIDE_OUTPUT = "side-output"


@dataclass(frozen=True, slots=True)
class KafkaBadRecords:
    """What becomes of records that the deserializer refuses.

    Attributes:
        action: What is done.
        tag: Of the side output.
    """

    action: BadRecordAction
    tag: OutputTag | None = None

    TYPE = BAD_RECORD_TYPE
    """Elements of the side output: a row with topic, partition, offset, timestamp, key, value and reason."""

    @staticmethod
    def fail() -> KafkaBadRecords:
        """The job fails, naming topic, partition, offset and the reason. The default."""
        return KafkaBadRecords(BadRecordAction.FAIL)

    @staticmethod
    def skip() -> KafkaBadRecords:
        """They are left out and counted, in the metric `numRecordsInErrors` of the source."""
        return KafkaBadRecords(BadRecordAction.SKIP)

    @staticmethod
    def side_output(tag: OutputTag) -> KafkaBadRecords:
        """They go to a side output of the source, exactly once like all others, and are counted.

        With a Kafka sink behind it, `stream.get_side_output(tag)` fills a dead-letter topic.

        Args:
            tag: `OutputTag(name, KafkaBadRecords.TYPE)`.

        Raises:
            ConfigError: Another type, or no tag.
        """
        if not isinstance(tag, OutputTag):
            raise ConfigError(f"side_output() needs an OutputTag, not {tag!r}.")
        if tag.type_info != BAD_RECORD_TYPE:
            raise ConfigError(
                f"The side output '{tag.tag_id}' of bad records must have the type KafkaBadRecords.TYPE: "
                f"OutputTag({tag.tag_id!r}, KafkaBadRecords.TYPE)."
            )
        return KafkaBadRecords(BadRecordAction.SIDE_OUTPUT, tag)


def _schema(schema: Any, where: str) -> DeserializationSchema:
    if not isinstance(schema, DeserializationSchema):
        raise ConfigError(f"{where} needs a DeserializationSchema, not {schema!r}.")
    return schema
