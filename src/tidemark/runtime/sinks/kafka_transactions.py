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
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import msgspec

from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.errors import StorageError, StorageVerdict, TidemarkError
from tidemark.runtime.kafka.client import QUIET, KafkaClients, confluent, is_fenced, is_settling
from tidemark.runtime.sinks.kafka_attempts import Marker, Outcome, Stretch
from tidemark.runtime.sinks.kafka_records import send

__all__ = ["MarkerPlace", "ProducerFenced", "Transactions", "UnstableMarker", "read_marker"]

_log = logging.getLogger(__name__)

_SLICE_S = 0.5
_ASK_AGAIN_S = 0.2
_GRACE_S = 5.0
"""How long a call of the client may take beyond its timeout."""
_UNSTABLE_S = 10.0
"""How long brokers may take to end a transaction that they were told to end."""


class ProducerFenced(Exception):
    """Another producer has the transactional id now, or the brokers have ended a transaction that took too long."""


class UnstableMarker(StorageError):
    """A transaction that stores a marker has not ended, and does not."""


class MarkerPlace(msgspec.Struct, frozen=True):
    """Where the marker is."""

    group: str
    topic: str
    partition: int = 0


def read_marker(
    clients: KafkaClients, place: MarkerPlace, *, stable: bool = True
) -> tuple[Marker | None, Any]:
    """The marker, None if there is none, and what a producer needs to store a new one.

    Args:
        clients: Of the sink.
        place: Of the marker.
        stable: Whether to wait for the end of a transaction that stores a new one.

    Raises:
        UnstableMarker: Such a transaction does not end.
        StorageError: No broker answered, or there is an offset that no sink has stored.
    """
    isolation = "read_committed" if stable else "read_uncommitted"
    asked = {"group.id": place.group, "isolation.level": isolation, "enable.auto.commit": "false"}
    consumer = clients.consumer(**QUIET, **asked)
    doing = f"read the marker of group '{place.group}'"
    kafka = confluent()
    deadline = time.monotonic() + clients.timeout_s
    try:
        while True:
            try:
                wanted = kafka.TopicPartition(place.topic, place.partition)
                patience = min(_UNSTABLE_S, clients.timeout_s) if stable else clients.timeout_s
                (found,) = consumer.committed([wanted], timeout=patience)
                if found.error is not None:
                    raise kafka.KafkaException(found.error)
                break
            except kafka.KafkaException as exc:
                error = exc.args[0]
                if stable and error.code() == kafka.KafkaError._TIMED_OUT:
                    # Either nobody answers, which the other question finds out, or the answer is to wait.
                    read_marker(clients, place, stable=False)
                    raise UnstableMarker(
                        f"{clients.what} cannot {doing}: the brokers have not ended the transaction that stores it."
                    ) from None
                if not is_settling(error) or time.monotonic() > deadline:
                    raise clients.error(error, doing, topic=place.topic) from None
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

    def __init__(
        self,
        clients: KafkaClients,
        settings: dict[str, Any],
        place: MarkerPlace,
        last: Callable[[Marker | None], tuple[Outcome, Marker | None]],
    ) -> None:
        """Connect, and fence whoever had the transactional id before.

        Args:
            clients: Makes clients of the sink.
            settings: Of the producer, `transactional.id` among them.
            place: Of the marker.
            last: How the last transaction ended, and its marker, given the one before it; asked only if the brokers
                do not know.

        Raises:
            ConfigError: `transaction.timeout.ms` is more than the brokers allow, or another property is wrong.
            StorageError: No broker answered, or one refused.
        """
        self._clients = clients
        self._place = place
        self._failure: TidemarkError | None = None
        self._fenced = False
        self._hangs = False
        self._producer = clients.producer(**settings, on_delivery=self._failed)
        with clients.mapped("begin transactions"):
            self._within_time(self._producer.init_transactions)
        try:
            self.marker, self._group = read_marker(clients, place)
        except UnstableMarker:
            self._decide(last)
            self.marker, self._group = read_marker(clients, place)

    def _decide(self, last: Callable[[Marker | None], tuple[Outcome, Marker | None]]) -> None:
        """End the transaction that brokers have left undecided as it should have ended.

        What is in its other partitions is not touched: a commit there waits for the next one, an abort for `commit`.
        """
        stored, self._group = read_marker(self._clients, self._place, stable=False)
        outcome, marker = last(stored)
        _log.warning(
            "%s: the brokers have left a transaction of it undecided, at group '%s'; it was %s, and is so now.",
            self._clients.what,
            self._place.group,
            outcome.value,
        )
        with self._clients.mapped("end a transaction that the brokers have left undecided"):
            self._producer.begin_transaction()
            if outcome is Outcome.COMMITTED:
                self._store(marker)
                self._within_time(self._producer.commit_transaction)
            else:
                self._store(None)
                self._within_time(self._producer.abort_transaction)

    def _store(self, marker: Marker | None) -> None:
        """Let the transaction store a marker; None: one that is never seen, because the transaction is aborted."""
        metadata = "" if marker is None else msgspec.json.encode(marker).decode()
        published = 0 if marker is None else marker.frontier.published
        offset = confluent().TopicPartition(
            self._place.topic, self._place.partition, published, metadata=metadata
        )
        self._within_time(self._producer.send_offsets_to_transaction, [offset], self._group)

    def commit(
        self,
        batches: Callable[[], Iterable[OutgoingRecords]],
        marker: Marker,
        topics: Collection[str],
        note: Callable[[list[Stretch]], None],
        *,
        again: bool,
    ) -> None:
        """Write records and the marker, all or nothing.

        Whatever is raised, the transaction may have been committed nevertheless: only the marker tells.

        Args:
            batches: Gives the records, each time it is called.
            marker: To be stored with them.
            topics: Where they go.
            note: Keeps where they went, for whoever has to find out whether this was committed.
            again: Whether they may have been written before, by a transaction that was aborted.

        Raises:
            ProducerFenced: Another producer has the transactional id.
            ConfigError, StorageError: It failed otherwise.
        """
        kafka = confluent()
        try:
            if again:
                self._end_hanging(batches(), topics)
            partitions = self._clients.partitions(topics)
            starts = self._clients.ends(partitions, committed=False)
            self._producer.begin_transaction()
            for records in batches():
                send(self._producer, records, self._check)
            self._await_delivery()
            stops = self._clients.ends(partitions, committed=False)
            note([Stretch(*at, starts[at], stops[at]) for at in partitions])
            self._store(marker)
            self._within_time(self._producer.commit_transaction)
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
            self._within_time(self._producer.abort_transaction)

    def _end_hanging(self, batches: Iterable[OutgoingRecords], topics: Collection[str]) -> None:
        """End what brokers have left open of an aborted transaction, or the next commit would commit it, too.

        Records in partitions that a coordinator has skipped (see `kafka_attempts`) stay open under our producer id. So
        where something is open, which may be somebody else's, we begin a transaction and abort it: that ends all that
        is open of ours, and readers never see it.
        """
        hanging = self._clients.open_partitions(topics)
        if hanging:
            samples = _sample_of_each(topics, batches)
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
            self._within_time(self._producer.abort_transaction)

    def _within_time(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call of the client that takes a timeout, and keep to it: behind an outage some of them do not return.

        Raises:
            KafkaException: It failed, or did not come back; then this producer hangs and must not be used any more.
        """
        kafka = confluent()
        done: Future[None] = Future()

        def run() -> None:
            try:
                call(*args, self._clients.timeout_s)
            except BaseException as exc:
                done.set_exception(exc)
            else:
                done.set_result(None)

        timed_out = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
        if self._hangs:
            raise timed_out
        threading.Thread(target=run, name="kafka-transaction", daemon=True).start()
        try:
            done.result(self._clients.timeout_s + _GRACE_S)
        except TimeoutError:
            self._hangs = True
            raise timed_out from None

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


def _sample_of_each(
    topics: Collection[str], batches: Iterable[OutgoingRecords]
) -> dict[str, tuple[bytes | None, bytes | None]]:
    """Value and key of the first record of each topic; reads no further than it has to."""
    found: dict[str, tuple[bytes | None, bytes | None]] = {}
    for records in batches:
        names = [records.topics] if isinstance(records.topics, str) else records.topics
        for at, topic in enumerate(names[: len(records)]):
            if topic not in found:
                found[topic] = records.values[at], None if records.keys is None else records.keys[at]
        if len(found) == len(topics):
            break
    return found
