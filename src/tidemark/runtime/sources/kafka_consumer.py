"""One consumer for all partitions of a source that a task reads, kept from epoch to epoch.

librdkafka fetches ahead in threads of its own and gives records of all assigned partitions through one queue. A
`Feed` is one partition's part of it, in order. In epochs readers live for one task only: the
consumer stays behind in its process (`POOL`) with what it has fetched, and the next reader that wants to go on
exactly there does. Whoever wants to go on elsewhere has the partition assigned anew: what was fetched is a cache.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tidemark.api.connectors.kafka.offsets import KafkaTopicPartition
from tidemark.api.connectors.kafka.source import KafkaSource
from tidemark.runtime.kafka.client import KafkaClients, confluent
from tidemark.runtime.sources.kafka_watch import Watch

__all__ = ["POOL", "ConsumerPool", "Feed", "SharedConsumer"]

_log = logging.getLogger("tidemark.kafka")

_TAKE = 8192
"""Messages taken from the client at once."""
_ENOUGH, _FEW = 4 * _TAKE, _TAKE
"""A feed with so many messages waiting is paused, and goes on when so few are left."""
_IDLE_S = 10.0
"""How long a consumer stays that nobody reads with; the next epoch comes sooner."""
_DEFAULTS = {
    # A partition that is assigned while a fetch is under way waits for its end: the client's 500 ms are long.
    "fetch.wait.max.ms": "100",
    # How long the client stops to fetch when it has enough; tasks may have used that up long before its 1000 ms.
    "fetch.queue.backoff.ms": "50",
    "queued.max.messages.kbytes": "32768",
    "isolation.level": "read_committed",
}
"""Where the user says nothing."""
_OF_ONE_PARTITION = (
    "_AUTO_OFFSET_RESET",
    "OFFSET_OUT_OF_RANGE",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "TOPIC_AUTHORIZATION_FAILED",
)


class Feed:
    """Messages of one partition that have come and have not been taken.

    Attributes:
        next: Offset behind the last message that was taken, control records of transactions included.
        problem: The client's error that ends the feed.
        heard: Whether the broker has said anything about the partition since it was assigned.
    """

    __slots__ = (
        "_batches",
        "_end",
        "_paused",
        "at",
        "heard",
        "leased",
        "next",
        "problem",
        "used_at",
        "waiting",
    )

    def __init__(self, at: KafkaTopicPartition, offset: int) -> None:
        self.at = at
        self.next = offset
        self.problem: Any = None
        self.heard = False
        self.leased = True
        self.used_at = 0.0
        self.waiting = 0
        self._batches: deque[list[Any]] = deque()
        self._end: int | None = None
        self._paused = False

    def add(self, messages: list[Any]) -> None:
        """Messages have come."""
        self._batches.append(messages)
        self.waiting += len(messages)
        self._end = None
        self.heard = True

    def reached_end(self, offset: int) -> None:
        """There is nothing behind what has come, up to `offset`."""
        self._end = offset
        self.heard = True

    def take(self, most: int) -> list[Any]:
        """The next messages; moves `next`."""
        if not self._batches:
            if self._end is not None:
                self.next = max(self.next, self._end)
            return []
        batch = self._batches.popleft()
        if len(batch) > most:
            self._batches.appendleft(batch[most:])
            batch = batch[:most]
        self.waiting -= len(batch)
        self.next = batch[-1].offset() + 1
        if not self._batches and self._end is not None:
            self.next = max(self.next, self._end)
        return batch

    @property
    def has_news(self) -> bool:
        """Whether there is something to take, or to learn."""
        moves = self._end is not None and self._end > self.next
        return moves or self.waiting > 0 or self.problem is not None

    def pausing(self) -> bool | None:
        """True: to be paused now, False: to be resumed, None: neither."""
        if not self._paused and self.waiting >= _ENOUGH:
            self._paused = True
            return True
        if self._paused and self.waiting <= _FEW:
            self._paused = False
            return False
        return None


class SharedConsumer:
    """A client that partitions are assigned to by hand; used by one thread at a time."""

    def __init__(self, source: KafkaSource, timeout_ms: int) -> None:
        given = source.properties.client()
        self._kafka = confluent()
        self._clients = KafkaClients(source.properties, timeout_ms, source.described)
        self._consumer = self._clients.consumer(
            **{key: value for key, value in _DEFAULTS.items() if key not in given},
            **{
                # Never joined, only named: partitions are assigned by the driver.
                "group.id": source.group_id or f"tidemark-{source.token}",
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
            },
        )
        self._watch = Watch(self._consumer.poll)
        self._feeds: dict[tuple[str, int], Feed] = {}
        self.token = source.token
        self.thread: int | None = None
        self.idle_since: float | None = None

    @property
    def in_use(self) -> bool:
        """Whether a reader is open."""
        return any(feed.leased for feed in self._feeds.values())

    def has_leased(self, at: KafkaTopicPartition) -> bool:
        """Whether a reader of that partition is open."""
        feed = self._feeds.get((at.topic, at.partition))
        return feed is not None and feed.leased

    def attach(self, at: KafkaTopicPartition, offset: int) -> Feed:
        """The feed of a partition from an offset on; what was fetched for it before goes on if it fits."""
        key = (at.topic, at.partition)
        feed = self._feeds.get(key)
        if feed is not None and feed.next == offset and feed.problem is None:
            feed.leased = True
            return feed
        with self._clients.mapped(f"read {at}", topic=at.topic):
            # What comes behind another assignment must not be taken for what was waited for.
            self._dispatch(self._watch.stop())
            self._forget_unused()
            if self._feeds.pop(key, None) is not None:
                self._consumer.incremental_unassign([self._kafka.TopicPartition(*key)])
            self._consumer.incremental_assign([self._kafka.TopicPartition(*key, offset)])
            # The client remembers that a partition was paused when it was unassigned, and would give nothing.
            self._consumer.resume([self._kafka.TopicPartition(*key)])
        feed = self._feeds[key] = Feed(at, offset)
        return feed

    def detach(self, feed: Feed) -> None:
        """The reader is closed."""
        feed.leased = False
        feed.used_at = time.monotonic()

    def _forget_unused(self) -> None:
        """Partitions that are read elsewhere by now."""
        before = time.monotonic() - _IDLE_S
        unused = [key for key, feed in self._feeds.items() if not feed.leased and feed.used_at < before]
        for key in unused:
            del self._feeds[key]
        if unused:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*key) for key in unused])

    def take(self, feed: Feed, most: int, timeout_s: float) -> list[Any]:
        """The next messages of a feed; waits up to `timeout_s` if none have come."""
        if not feed.waiting:
            self._poll(0.0)
            until = time.monotonic() + timeout_s
            while not feed.waiting and feed.problem is None and (left := until - time.monotonic()) > 0:
                self._poll(left)
        taken = feed.take(most)
        self._pause_or_resume(feed)
        return taken

    def wake_fd(self, feed: Feed) -> int:
        """A descriptor that becomes readable when there may be something for a feed that had nothing."""
        return self._watch.ring() if feed.has_news else self._watch.begin()

    def _poll(self, timeout_s: float) -> None:
        messages = self._watch.take(timeout_s)
        if self._watch.pending:
            return
        if timeout_s > 0 and not messages:
            # consume() would wait for as many as are asked for.
            first = self._consumer.poll(timeout_s)
            if first is None:
                return
            messages.append(first)
        messages += self._consumer.consume(_TAKE, 0.0)
        if messages:
            self._dispatch(messages)

    def _dispatch(self, messages: list[Any]) -> None:
        kind = self._kafka.Message
        if any(map(kind.error, messages)):
            errors = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        else:
            errors = []
        # Messages of one partition come in long runs: the client has fetched them at once.
        places = zip(map(kind.topic, messages), map(kind.partition, messages), strict=True)
        first = 0
        for place, run in itertools.groupby(places):
            last = first + sum(1 for _ in run)
            feed = self._feeds.get(place)
            if feed is not None:
                feed.add(messages[first:last])
                self._pause_or_resume(feed)
            first = last
        for message in errors:
            self._take_error(message)

    def _take_error(self, message: Any) -> None:
        error = message.error()
        feed = self._feeds.get((message.topic(), message.partition()))
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            if feed is not None:
                feed.reached_end(message.offset())
        elif error.name() in _OF_ONE_PARTITION:
            for each in [feed] if feed is not None else self._feeds.values():
                if each is not None and each.at.topic == message.topic():
                    each.problem = error
        elif error.fatal():
            raise self._clients.error(error, "read")
        else:
            # Brokers that are away, elections: the client goes on by itself.
            _log.info("Reading goes on after: %s", error)

    def _pause_or_resume(self, feed: Feed) -> None:
        pausing = feed.pausing()
        if pausing is not None:
            place = [self._kafka.TopicPartition(feed.at.topic, feed.at.partition)]
            (self._consumer.pause if pausing else self._consumer.resume)(place)

    def failure(self, feed: Feed) -> Exception:
        """The problem of a feed in our words."""
        return self._clients.error(feed.problem, f"read {feed.at}", topic=feed.at.topic)

    def close(self) -> None:
        """End the client."""
        self._watch.close()
        self._consumer.close()


class ConsumerPool:
    """The consumers of this process."""

    def __init__(self, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._consumers: list[SharedConsumer] = []
        self._process = os.getpid()
        self._closer: threading.Thread | None = None

    def lease(
        self, token: str, at: KafkaTopicPartition, offset: int, make: Callable[[], SharedConsumer]
    ) -> tuple[SharedConsumer, Feed]:
        """A consumer for this thread, and the feed of a partition from `offset` on."""
        thread = threading.get_ident()
        with self._lock:
            if self._process != os.getpid():
                # After a fork the clients' threads are the parent's.
                self._process, self._consumers, self._closer = os.getpid(), [], None
            mine = [each for each in self._consumers if each.token == token and not each.has_leased(at)]
            found = next((each for each in mine if each.thread == thread), None)
            if found is None:
                found = next((each for each in mine if each.idle_since is not None), None)
            if found is not None:
                found.thread, found.idle_since = thread, None
        if found is None:
            found = make()
            found.thread = thread
            with self._lock:
                self._consumers.append(found)
        return found, found.attach(at, offset)

    def release(self, consumer: SharedConsumer, feed: Feed) -> None:
        """A reader is closed; its consumer stays for a while."""
        with self._lock:
            consumer.detach(feed)
            if not consumer.in_use:
                consumer.idle_since = time.monotonic()
                consumer.thread = None
                if self._closer is None:
                    self._closer = threading.Thread(
                        target=self._close_unused, name="tidemark-kafka-idle", daemon=True
                    )
                    self._closer.start()

    def close_idle(self, token: str) -> None:
        """Close the consumers of a source that nobody reads with."""
        self._close(lambda each: each.token == token)

    def _close(self, which: Callable[[SharedConsumer], bool]) -> None:
        with self._lock:
            closing = [each for each in self._consumers if each.idle_since is not None and which(each)]
            self._consumers = [each for each in self._consumers if each not in closing]
        for each in closing:
            each.close()

    def _close_unused(self) -> None:
        while True:
            time.sleep(self._idle_s / 10)
            before = time.monotonic() - self._idle_s
            self._close(partial(_is_older, before))
            with self._lock:
                if not any(each.idle_since is not None for each in self._consumers):
                    self._closer = None
                    return


def _is_older(before: float, consumer: SharedConsumer) -> bool:
    return consumer.idle_since is not None and consumer.idle_since < before


POOL = ConsumerPool()
"""Of this process."""
