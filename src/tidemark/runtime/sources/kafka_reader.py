"""Reads one partition in a task: offsets, elements, bad records.

The position is the offset that is read next. It moves with what `read` has given: records that were left out, bad
records and the control records of transactions lie in front of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import is_not
from typing import Any

from tidemark.api.connectors.kafka.deserialization import BadRecordAction, ValueOnly
from tidemark.api.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaTopicPartition
from tidemark.api.connectors.kafka.record import KafkaRecord
from tidemark.api.connectors.kafka.source import KafkaSource
from tidemark.api.split_source import SplitReader
from tidemark.errors import SerializationError
from tidemark.runtime.kafka.client import confluent
from tidemark.runtime.sources.kafka_consumer import POOL, SharedConsumer
from tidemark.runtime.sources.kafka_offsets import KafkaCluster, out_of_range
from tidemark.types.row import Row

__all__ = ["KafkaReader"]

_log = logging.getLogger("tidemark.kafka")

_FIRST_WAIT_S = 2.0
"""How long a reader that may wait waits until the broker has said anything about its partition: connecting takes
longer than looking."""
_ERRORS = "numRecordsInErrors"


class KafkaReader(SplitReader[Any]):
    """One partition from an offset on, up to another if there is one."""

    def __init__(
        self,
        source: KafkaSource,
        timeout_ms: int,
        at: KafkaTopicPartition,
        start: int,
        stop: int | None = None,
        topic_id: str | None = None,
    ) -> None:
        """Connect, or go on with what this process has fetched.

        Args:
            source: Of the job.
            timeout_ms: How long a broker may take to answer.
            at: The partition.
            start: The offset to begin with.
            stop: The one to end in front of; None: never.
            topic_id: Which topic of that name it was; None: nobody has told.
        """
        self._source = source
        self._timeout_ms = timeout_ms
        self._at = at
        self._stop = stop
        self._topic_id = topic_id
        self._kafka = confluent()
        self._value_only = source.deserializer if isinstance(source.deserializer, ValueOnly) else None
        self._consumer, self._feed = POOL.lease(
            source.token, at, start, lambda: SharedConsumer(source, timeout_ms)
        )
        self._stamps: list[int | None] = []
        self._bad: list[Row] = []
        self._errors = 0

    def read(self, max_records: int, timeout_ms: int) -> Sequence[Any] | None:
        """The elements behind the next messages; None at the stopping offset."""
        self._stamps, self._bad = [], []
        while True:
            if self._has_ended():
                self._check_topic()
                return None
            wait_s = timeout_ms / 1000
            if timeout_ms and not self._feed.heard:
                wait_s = max(wait_s, _FIRST_WAIT_S)
            messages = self._consumer.take(self._feed, max_records, wait_s)
            if not messages:
                if self._feed.problem is not None:
                    self._go_on_elsewhere()
                    continue
                if self._has_ended():
                    continue
                return []
            if self._stop is not None and self._feed.next > self._stop:
                messages = [each for each in messages if each.offset() < self._stop]
            elements = self._elements(messages)
            if elements or self._bad:
                return elements

    def _has_ended(self) -> bool:
        return self._stop is not None and self._feed.next >= self._stop

    # -- messages to elements ------------------------------------------------------------------------------------

    def _elements(self, messages: list[Any]) -> list[Any]:
        kind = self._kafka.Message
        if self._value_only is not None:
            try:
                elements = self._value_only.schema.deserialize_batch(list(map(kind.value, messages)))
            except Exception:
                # One of them is bad, or a tombstone; which one is found out below.
                elements = []
            if len(elements) == len(messages) and all(map(is_not, elements, repeat(None))):
                self._stamps = [_stamp(*each) for each in map(kind.timestamp, messages)]
                return elements
        return self._one_by_one(messages)

    def _one_by_one(self, messages: list[Any]) -> list[Any]:
        deserializer = self._source.deserializer
        elements = []
        for message in messages:
            record = KafkaRecord(
                message.value(),
                message.key(),
                tuple(message.headers() or ()),
                _stamp(*message.timestamp()),
                message.topic(),
                message.partition(),
                message.offset(),
            )
            try:
                element = deserializer.deserialize(record)
            except Exception as exc:
                self._take_bad(record, exc)
                continue
            if element is not None:
                elements.append(element)
                self._stamps.append(record.timestamp)
        return elements

    def _take_bad(self, record: KafkaRecord, reason: Exception) -> None:
        handling = self._source.bad_records
        if handling.action is BadRecordAction.FAIL:
            raise SerializationError(
                f"The record at offset {record.offset} of {self._at} cannot be read: {reason} To go on without such "
                "records: set_bad_records(KafkaBadRecords.skip()) or KafkaBadRecords.side_output(tag)."
            ) from reason
        self._errors += 1
        if handling.action is BadRecordAction.SIDE_OUTPUT:
            self._bad.append(
                Row(
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    reason=f"{type(reason).__name__}: {reason}",
                )
            )
        else:
            _log.debug("The record at offset %s of %s is left out: %s", record.offset, self._at, reason)

    def timestamps(self) -> Sequence[int | None] | None:
        """Those of the messages."""
        return self._stamps

    def side_outputs(self) -> Mapping[str, Sequence[Any]]:
        """Bad records."""
        tag = self._source.bad_records.tag
        return {tag.tag_id: self._bad} if self._bad and tag is not None else {}

    def counts(self) -> Mapping[str, int]:
        """How many bad records there were."""
        errors, self._errors = self._errors, 0
        return {_ERRORS: errors} if errors else {}

    def position(self) -> int:
        """The offset that is read next."""
        return self._feed.next if self._stop is None else min(self._feed.next, self._stop)

    def wake_fd(self) -> int | None:
        """What the consumer of this task has for it."""
        return self._consumer.wake_fd(self._feed)

    # -- trouble -------------------------------------------------------------------------------------------------

    def _check_topic(self) -> None:
        """At the end: it must have been one topic all the way (a job without checkpoints never asks otherwise).

        Raises:
            TidemarkError: It was made anew meanwhile, and has the offsets that were read, too.
        """
        if self._topic_id is None:
            return
        cluster = KafkaCluster(self._source, self._timeout_ms)
        try:
            for found in cluster.described([self._at.topic]):
                if found.at == self._at and found.topic_id not in (None, self._topic_id):
                    raise cluster.made_anew(self._at, self.position())
        finally:
            cluster.close()

    def _go_on_elsewhere(self) -> None:
        """After an error of the partition: where the source says, if records are missing there; else it is raised.

        Raises:
            OffsetsOutOfRangeError: The partition has lost what was to be read next.
            TidemarkError: Anything else.
        """
        wanted = self._feed.next
        if self._feed.problem.name() not in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            raise self._consumer.failure(self._feed)
        cluster = KafkaCluster(self._source, self._timeout_ms)
        try:
            available = cluster.ranges([self._at])[self._at]
        finally:
            cluster.close()
        why = "records were deleted, by retention or by hand, before they were read"
        if self._source.out_of_range is KafkaOffsetResetStrategy.NONE:
            raise out_of_range(self._source, self._at, wanted, available, why)
        earliest = self._source.out_of_range is KafkaOffsetResetStrategy.EARLIEST
        onward = available[0] if earliest else available[1]
        _log.warning(
            "%s goes on in %s at offset %d instead of %d, as auto.offset.reset says: %s",
            self._source.described, self._at, onward, wanted, why,
        )  # fmt: skip
        self._feed = self._consumer.attach(self._at, onward)

    def close(self) -> None:
        """Leave the consumer to the next reader."""
        POOL.release(self._consumer, self._feed)


def _stamp(kind: int, stamp: int) -> int | None:
    """0 says that there is none."""
    return stamp if kind else None
