"""Transactions of one sink: records and a marker, all or nothing, by the newest owner of the transactional id.

The marker is an offset of a consumer group that nobody consumes with. It is stored in the very transaction that writes
the records it stands for, so whoever reads it knows what is visible. Its metadata says how far the sink has published.

    init_transactions        fences whoever had the id before, and ends what it had begun
    read the marker          what is published, for good: nobody else can write now
    end what hangs           see `Transactions._end_hanging`
    begin, produce, send_offsets (the marker), commit
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.errors import StorageError, StorageVerdict, TidemarkError
from tidemark.runtime.kafka.client import QUIET, KafkaClients, confluent, is_fenced, is_settling
from tidemark.runtime.sinks.frontier import Frontier
from tidemark.runtime.sinks.kafka_records import send

__all__ = ["Marker", "MarkerPlace", "ProducerFenced", "Transactions", "read_marker"]

_log = logging.getLogger(__name__)

_SLICE_S = 0.5
_ASK_AGAIN_S = 0.2


class ProducerFenced(Exception):
    """Another producer has the transactional id now, or the brokers have ended a transaction that took too long."""


class Marker(msgspec.Struct, frozen=True):
    """What the metadata of the marker's offset says."""

    frontier: Frontier
    token: str
    """Of the transaction that wrote it; tells a commit that was not acknowledged from one that did not happen."""


class MarkerPlace(msgspec.Struct, frozen=True):
    """Where the marker is."""

    group: str
    topic: str
    partition: int = 0


def read_marker(clients: KafkaClients, place: MarkerPlace) -> tuple[Marker | None, Any]:
    """The marker, None if there is none, and what a producer needs to store a new one.

    Raises:
        StorageError: No broker answered, or there is an offset that no sink has stored.
    """
    asked = {"group.id": place.group, "isolation.level": "read_committed", "enable.auto.commit": "false"}
    consumer = clients.consumer(**QUIET, **asked)
    kafka = confluent()
    deadline = time.monotonic() + clients.timeout_s
    try:
        with clients.mapped(f"read the marker of group '{place.group}'", topic=place.topic):
            while True:
                try:
                    wanted = kafka.TopicPartition(place.topic, place.partition)
                    (found,) = consumer.committed([wanted], timeout=clients.timeout_s)
                    if found.error is not None:
                        raise kafka.KafkaException(found.error)
                    break
                except kafka.KafkaException as exc:
                    if not is_settling(exc.args[0]) or time.monotonic() > deadline:
                        raise
                    time.sleep(_ASK_AGAIN_S)
            group = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    if found.offset < 0:
        return None, group
    try:
        return msgspec.json.decode(found.metadata or "", type=Marker), group
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise StorageError(
            f"{clients.what}: consumer group '{place.group}' has an offset for '{place.topic}' that is no marker of a "
            f"sink ({exc}): somebody has committed or reset offsets of that group. Nothing can say what is published; "
            "delete the group after you have made sure what the topic holds, or use another transactional id prefix.",
            verdict=StorageVerdict.UNUSABLE,
        ) from exc


class Transactions:
    """A transactional producer; of no use after its first error."""

    def __init__(self, clients: KafkaClients, settings: dict[str, Any], place: MarkerPlace) -> None:
        """Connect, and fence whoever had the transactional id before.

        Args:
            clients: Makes clients of the sink.
            settings: Of the producer, `transactional.id` among them.
            place: Of the marker.

        Raises:
            ConfigError: `transaction.timeout.ms` is more than the brokers allow, or another property is wrong.
            StorageError: No broker answered, or one refused.
        """
        self._clients = clients
        self._place = place
        self._failure: TidemarkError | None = None
        self._fenced = False
        self._may_hang = True
        self._producer = clients.producer(**settings, on_delivery=self._failed)
        with clients.mapped("begin transactions"):
            self._producer.init_transactions(clients.timeout_s)
        self.marker, self._group = read_marker(clients, place)

    def commit(self, batches: Callable[[], Iterable[OutgoingRecords]], marker: Marker) -> None:
        """Write records and the marker, all or nothing.

        Whatever is raised, the transaction may have been committed nevertheless: only the marker tells.

        Args:
            batches: Gives the records, each time it is called.
            marker: To be stored with them.

        Raises:
            ProducerFenced: Another producer has the transactional id.
            ConfigError, StorageError: It failed otherwise.
        """
        kafka = confluent()
        metadata = msgspec.json.encode(marker).decode()
        offset = kafka.TopicPartition(
            self._place.topic, self._place.partition, marker.frontier.published, metadata=metadata
        )
        try:
            if self._may_hang:
                self._end_hanging(batches())
            self._producer.begin_transaction()
            for records in batches():
                send(self._producer, records, self._check)
            self._await_delivery()
            self._producer.send_offsets_to_transaction([offset], self._group, self._clients.timeout_s)
            self._producer.commit_transaction(self._clients.timeout_s)
        except SystemError:
            # What the client's C code leaves of a fatal error, being fenced among them, if it came twice.
            raise ProducerFenced("the producer has failed for good") from None
        except kafka.KafkaException as exc:
            error = exc.args[0]
            self._check()
            if is_fenced(error):
                raise ProducerFenced(str(error.str())) from None
            raise self._clients.error(error, "commit a transaction") from None
        self.marker = marker

    def abort(self) -> None:
        """End an open transaction if there is one, so that readers need not wait for its timeout."""
        with suppress(confluent().KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(self._clients.timeout_s)

    def _end_hanging(self, batches: Iterable[OutgoingRecords]) -> None:
        """End what brokers have left open of an earlier transaction, or the next commit would commit it, too.

        A coordinator that aborts a transaction skips partitions that have no leader at that moment, as after a restart
        of all their brokers, and takes the abort for done. The records stay, open, under our producer id. Whoever
        committed to such a partition would make them visible. So where something is open (it may be somebody else's),
        we begin a transaction and abort it: that ends all that is open of ours, and readers never see it.
        """
        samples = {topic: (value, key) for topic, value, key in _first_of_each_topic(batches)}
        if not samples:
            return
        hanging = self._clients.open_partitions(samples)
        if hanging:
            _log.warning(
                "%s: transactions are open in %s; those of its own that a broker has left open are aborted.",
                self._clients.what,
                ", ".join([f"{topic}-{partition}" for topic, partition in hanging]),
            )
            self._producer.begin_transaction()
            for topic, partition in hanging:
                value, key = samples[topic]
                self._producer.produce(topic, value, key, partition)
            # What has not been sent when a transaction is aborted never was in it.
            self._await_delivery()
            self._producer.abort_transaction(self._clients.timeout_s)
        self._may_hang = False

    def _await_delivery(self) -> None:
        """Wait for all records, for as long as some arrive."""
        left, progress = len(self._producer), time.monotonic()
        while left:
            self._producer.flush(_SLICE_S)
            self._check()
            now = len(self._producer)
            if now < left:
                left, progress = now, time.monotonic()
            elif time.monotonic() - progress > self._clients.timeout_s:
                timed_out = confluent().KafkaError(confluent().KafkaError._TIMED_OUT)
                raise self._clients.error(timed_out, f"write {left} records")

    def _failed(self, error: Any, message: Any) -> None:
        if error is None or self._failure is not None:
            return
        topic = None if message is None else message.topic()
        self._fenced = is_fenced(error)
        self._failure = self._clients.error(error, f"write to topic '{topic}'", topic=topic)

    def _check(self) -> None:
        if self._failure is not None:
            raise ProducerFenced(str(self._failure)) if self._fenced else self._failure


def _first_of_each_topic(
    batches: Iterable[OutgoingRecords],
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    seen: set[str] = set()
    for records in batches:
        topics = [records.topics] if isinstance(records.topics, str) else records.topics
        for at, topic in enumerate(topics[: len(records)]):
            if topic not in seen:
                seen.add(topic)
                yield topic, records.values[at], None if records.keys is None else records.keys[at]
