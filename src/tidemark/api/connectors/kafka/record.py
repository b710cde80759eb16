"""A Kafka record as programs see it, beyond its value."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KafkaRecord"]


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record of a topic, read or to be written."""

    value: bytes | None
    """None is a tombstone: in a compacted topic it deletes the key."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds since the epoch; a record to be written without one gets the element's, else the broker's."""
    topic: str | None = None
    """A record to be written without one goes to the topic of the sink."""
    partition: int | None = None
    """A record to be written without one goes where its key says."""
    offset: int | None = None
    """Of a record that was read."""
