"""What became of a transaction that brokers have neither committed nor aborted everywhere.

A coordinator that ends a transaction skips partitions that have no leader at that moment, as after a restart of all
their brokers, and takes it for done. The marker may then stay undecided for ever: readers of stable offsets are told to
wait. So the sink notes, before it asks for a commit, between which offsets its records are. What readers of what is
committed see there tells how it ended:

    no note of it                          it never came to the commit: aborted
    one of its records is visible          committed
    none is                                aborted, or open everywhere: nobody has seen it, so it may be aborted
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import Enum

import msgspec

from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.runtime.kafka.client import QUIET, KafkaClients, confluent
from tidemark.runtime.sinks.frontier import Frontier
from tidemark.runtime.sinks.staged_files import StagedFile

__all__ = ["Attempt", "Marker", "Outcome", "Stretch", "outcome_of"]

_POLL_S = 0.2


class Marker(msgspec.Struct, frozen=True):
    """What the metadata of the marker's offset says."""

    frontier: Frontier
    token: str
    """Of the transaction that wrote it; tells a commit that was not acknowledged from one that did not happen."""


class Stretch(msgspec.Struct, frozen=True):
    """Offsets of a partition among which records of a transaction are, perhaps with those of others."""

    topic: str
    partition: int
    start: int
    stop: int


class Attempt(msgspec.Struct, frozen=True):
    """A transaction whose records are written, and whose commit is asked for next."""

    marker: Marker
    stretches: tuple[Stretch, ...]
    files: tuple[StagedFile, ...]
    """The records."""


class Outcome(Enum):
    """How a transaction has ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Or may be, since nobody has seen anything of it."""


def outcome_of(
    clients: KafkaClients, attempt: Attempt, records: Callable[[], Iterable[OutgoingRecords]]
) -> Outcome:
    """How a transaction ended, for whoever has fenced all producers of its id.

    Args:
        clients: Of the sink.
        attempt: The note of it.
        records: Gives what it has written.

    Raises:
        StorageError: No broker answered, or staged records cannot be read.
    """
    written = {
        pair
        for batch in records()
        for pair in zip(batch.keys or [None] * len(batch), batch.values, strict=True)
    }
    for stretch in attempt.stretches:
        if stretch.start < stretch.stop and _sees(clients, stretch, written):
            return Outcome.COMMITTED
    return Outcome.ABORTED


def _sees(clients: KafkaClients, stretch: Stretch, written: set[tuple[bytes | None, bytes | None]]) -> bool:
    """Whether a reader of what is committed sees one of these records in a stretch."""
    at = stretch.topic, stretch.partition
    stop = min(stretch.stop, clients.ends([at], committed=True)[at])
    kafka = confluent()
    asked = {"group.id": "tidemark", "isolation.level": "read_committed", "enable.auto.commit": "false"}
    consumer = clients.consumer(**QUIET, **asked, **{"enable.partition.eof": "true"})
    position = stretch.start
    deadline = time.monotonic() + clients.timeout_s
    try:
        with clients.mapped("look for records", topic=stretch.topic):
            consumer.assign([kafka.TopicPartition(*at, position)])
            while position < stop:
                message = consumer.poll(_POLL_S)
                if message is None:
                    if time.monotonic() > deadline:
                        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
                    continue
                if message.error() is not None:
                    if message.error().code() == kafka.KafkaError._PARTITION_EOF:
                        return False
                    raise kafka.KafkaException(message.error())
                position = message.offset()
                if position < stop and (message.key(), message.value()) in written:
                    return True
                position += 1
    finally:
        consumer.close()
    return False
