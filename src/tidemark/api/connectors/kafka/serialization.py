"""How elements become Kafka records: topic, key, value; or whole records by a schema of the user's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.api.connectors.kafka.record import KafkaRecord
from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.schemas import SerializationSchema

__all__ = [
    "BuiltRecordSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "OutgoingRecords",
    "checked_topic",
]

_MAX_TOPIC = 249
_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class KafkaTopicSelector(ABC):
    """Says which topic an element goes to."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic of an element; it has to be there."""


@dataclass(frozen=True, slots=True)
class OutgoingRecords:
    """Records to be written, column by column; None stands for a column of nothing.

    Attributes:
        topics: One for all of them, or one each.
        values: None among them is a tombstone.
        keys: None among them is a record without key.
        timestamps: None among them leaves it to the broker.
        headers: Of each record.
        partitions: None among them leaves it to the key.
    """

    topics: str | list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    timestamps: list[int | None] | None = None
    headers: list[list[tuple[str, bytes | None]]] | None = None
    partitions: list[int | None] | None = None

    def __len__(self) -> int:
        return len(self.values)


class KafkaRecordSerializationSchema(ABC):
    """Turns elements into Kafka records.

    `builder()` makes one from schemas of key and value. For headers, timestamps, partitions or tombstones derive
    from this class; `to_record` is then called for every element, in the task.
    """

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Start a schema."""
        return KafkaRecordSerializationSchemaBuilder()

    @abstractmethod
    def to_record(self, element: Any, timestamp: int | None) -> KafkaRecord | None:
        """The record of an element, None to write nothing.

        Args:
            element: Of the stream.
            timestamp: Its event time, if it has one.

        Raises:
            SerializationError: The element does not fit.
        """

    @property
    def topic(self) -> str | None:
        """The topic of all records that name none; None: each has to name its own."""
        return None

    def to_records(self, elements: Sequence[Any], timestamps: Sequence[int | None] | None) -> OutgoingRecords:
        """The records of many elements.

        Raises:
            SerializationError: An element does not fit, or its record names no topic.
        """
        times = timestamps or [None] * len(elements)
        made = [(self.to_record(element, at), at) for element, at in zip(elements, times, strict=True)]
        records = [(record, at) for record, at in made if record is not None]
        return OutgoingRecords(
            [self._topic_of(record) for record, _ in records],
            [_bytes_or_none(record.value, "value") for record, _ in records],
            [_bytes_or_none(record.key, "key") for record, _ in records],
            [_time(at if record.timestamp is None else record.timestamp) for record, at in records],
            [
                [(str(name), _bytes_or_none(value, "header")) for name, value in record.headers]
                for record, _ in records
            ],
            [record.partition for record, _ in records],
        )

    def _topic_of(self, record: KafkaRecord) -> str:
        topic = record.topic if record.topic is not None else self.topic
        if topic is None:
            raise SerializationError(
                f"to_record() of {type(self).__name__} gave a record without topic, and the schema has none either. "
                "Set one of the two."
            )
        return topic


@dataclass(frozen=True, slots=True)
class BuiltRecordSchema(KafkaRecordSerializationSchema):
    """What the builder makes: works on whole batches."""

    value_schema: SerializationSchema
    key_schema: SerializationSchema | None = None
    fixed_topic: str | None = None
    selector: KafkaTopicSelector | None = None

    @property
    def topic(self) -> str | None:
        """The fixed topic, if there is no selector."""
        return self.fixed_topic

    def to_record(self, element: Any, timestamp: int | None) -> KafkaRecord:
        """The record of one element."""
        made = self.to_records([element], [timestamp])
        topic = made.topics if isinstance(made.topics, str) else made.topics[0]
        return KafkaRecord(made.values[0], made.keys[0] if made.keys else None, (), _time(timestamp), topic)

    def to_records(self, elements: Sequence[Any], timestamps: Sequence[int | None] | None) -> OutgoingRecords:
        """Serialise keys and values batch by batch."""
        select = None if self.selector is None else self.selector.apply
        topics = self.fixed_topic if select is None else [_selected(select(element)) for element in elements]
        assert topics is not None, "the builder asks for a topic"
        keys: list[bytes | None] | None = None
        if self.key_schema is not None:
            keys = list(self.key_schema.serialize_batch(elements))
        times = None if timestamps is None else [_time(at) for at in timestamps]
        return OutgoingRecords(topics, list(self.value_schema.serialize_batch(elements)), keys, times)


class _FunctionSelector(KafkaTopicSelector):
    """A plain function as a selector."""

    def __init__(self, function: Callable[[Any], str]) -> None:
        self._function = function

    def apply(self, data: Any) -> str:
        return self._function(data)


class KafkaRecordSerializationSchemaBuilder:
    """Collects topic, key and value of a schema; every method returns the builder."""

    def __init__(self) -> None:
        """Nothing is set."""
        self._topic: str | None = None
        self._selector: KafkaTopicSelector | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all records to one topic.

        Raises:
            ConfigError: No topic can have that name.
        """
        self._topic, self._selector = checked_topic(topic), None
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record by its element.

        Raises:
            TypeError: Neither a selector nor callable.
        """
        if not isinstance(topic_selector, KafkaTopicSelector):
            if not callable(topic_selector):
                raise TypeError(
                    f"topic_selector must be a KafkaTopicSelector or callable, not {topic_selector!r}."
                )
            topic_selector = _FunctionSelector(topic_selector)
        self._topic, self._selector = None, topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Make keys of elements; without it records have none.

        Raises:
            TypeError: No `SerializationSchema`.
        """
        self._key = _checked_schema(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Make values of elements.

        Raises:
            TypeError: No `SerializationSchema`.
        """
        self._value = _checked_schema(value_serialization_schema)
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """The finished schema.

        Raises:
            ConfigError: The value or the topic is not set.
        """
        if self._value is None:
            raise ConfigError("A Kafka record needs a value: call set_value_serialization_schema().")
        if self._topic is None and self._selector is None:
            raise ConfigError("A Kafka record needs a topic: call set_topic() or set_topic_selector().")
        return BuiltRecordSchema(self._value, self._key, self._topic, self._selector)


def checked_topic(name: Any) -> str:
    """`name`, if a topic can have it.

    Raises:
        ConfigError: It cannot.
    """
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _MAX_TOPIC
        or name in (".", "..")
        or not _TOPIC_CHARACTERS.issuperset(name)
    ):
        raise ConfigError(
            f"{str(name)[:300]!r} is no name of a Kafka topic: up to {_MAX_TOPIC} letters, digits, '.', '_' and '-'."
        )
    return name


def _checked_schema(schema: Any) -> SerializationSchema:
    if not isinstance(schema, SerializationSchema):
        raise TypeError(f"A SerializationSchema is needed, not {schema!r}.")
    return schema


def _selected(topic: Any) -> str:
    if not isinstance(topic, str):
        raise SerializationError(f"The topic selector gave {topic!r}; a topic is text.")
    return topic


def _bytes_or_none(data: Any, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise SerializationError(f"The {what} of a KafkaRecord must be bytes or None, not {data!r}.")


def _time(timestamp: int | None) -> int | None:
    """Kafka has no time before 1970; the broker's is taken instead."""
    return None if timestamp is None or timestamp < 0 else timestamp
