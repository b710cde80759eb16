"""A real broker for tests: topics, records in, and records out as a `read_committed` reader sees them."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kafka.sh"
DEADLINE_S = 120.0
"""For every wait; a machine ten times slower must pass."""
_SETTLING = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
"""What a broker says that was started again just now."""


def jars_present() -> bool:
    """Whether a broker can be started."""
    return subprocess.run([SCRIPT, "present"], check=False, capture_output=True).returncode == 0


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for `condition`; fail naming `what` when it does not come about."""
    give_up = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up, f"waited {deadline_s:g} s in vain: {what}"
        time.sleep(0.02)


class Broker:
    """One broker with a directory of its own. It can be killed and started again at the same address with its data."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        self.directory = directory
        self._extra = extra
        self._names = itertools.count(1)
        self._lock = threading.Lock()
        """One thing at a time: a proxy's thread may still be killing it when a test starts it again."""
        self.bootstrap = ""
        self.start()
        # For what this class does not do. Kept: futures of a client that is collected end in an error.
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _run(self, verb: str, *rest: str) -> str:
        environment = {**os.environ, "KAFKA_EXTRA": self._extra, "KAFKA_OWNER": str(os.getpid())}
        command = [str(SCRIPT), verb, str(self.directory), *rest]
        with self._lock:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    # -- the process ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, again if it has been killed or stopped; returns when it serves."""
        self.bootstrap = self._run("start")

    def kill(self) -> None:
        """`kill -9`; returns when the process is gone."""
        self._run("kill")

    def stop(self) -> None:
        """End it in order."""
        self._run("stop")

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        return int((self.directory / "pid").read_text())

    # -- topics --------------------------------------------------------------------------------------------------

    def create_topic(
        self, partitions: int = 1, name: str | None = None, config: Mapping[str, str] | None = None
    ) -> str:
        """A new topic, under a name nobody else has unless one is given; returns when it can be used.

        Records stay, also those with timestamps of long ago, unless `config` says otherwise.
        """
        topic = name or f"t{next(self._names)}-{uuid.uuid4().hex[:8]}"
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=1,
            config={"retention.ms": "-1", **(config or {})},
        )
        self._done(self.admin.create_topics([new]))
        self._wait_for_partitions(topic, partitions)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic have `total` partitions from now on."""
        self._done(self.admin.create_partitions([NewPartitions(topic, total)]))
        self._wait_for_partitions(topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete it; returns when nobody finds it any more."""
        self._done(self.admin.delete_topics([topic]))
        wait_until(lambda: topic not in self.admin.list_topics(timeout=30).topics, f"{topic} is gone")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete records of partitions in front of an offset, as retention does."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        self._done(self.admin.delete_records(wanted))

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        def served() -> bool:
            found = self.admin.list_topics(topic, timeout=30).topics[topic]
            return (
                found.error is None
                and len(found.partitions) == count
                and all(each.leader >= 0 for each in found.partitions.values())
            )

        wait_until(served, f"{topic} has {count} partitions")

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(timeout=DEADLINE_S)

    # -- records -------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        partition: int | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Write records; returns when the broker has all of them."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        failures: list[KafkaError] = []

        def reported(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for index, value in enumerate(values):
            options: dict[str, Any] = {}
            if partition is not None:
                options["partition"] = partition
            if timestamps is not None:
                options["timestamp"] = timestamps[index]
            if headers is not None:
                options["headers"] = list(headers)
            key = None if keys is None else keys[index]
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=reported, **options)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(DEADLINE_S) == 0, f"not all records reached {topic}"
        assert not failures, failures

    def ends(self, topic: str) -> dict[int, int]:
        """The offset behind the last record of each partition."""
        consumer = self.consumer()
        try:
            found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            return {
                each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1]
                for each in found
            }
        finally:
            consumer.close()

    def consumer(self, **options: Any) -> Consumer:
        """A `read_committed` consumer that tells of the end of partitions; the caller closes it."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"test-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        return Consumer({**settings, **options})

    def read_committed(self, topic: str) -> list[Message]:
        """All committed records of the topic as of now, by partition and offset.

        An open transaction hides what lies behind its begin.
        """
        consumer = self.consumer()
        try:
            left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, each, 0) for each in left])
            found: list[Message] = []
            give_up = time.monotonic() + DEADLINE_S
            while left:
                assert time.monotonic() < give_up, f"no end of {topic} partitions {left}"
                for message in consumer.consume(10_000, 0.5):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(found, key=lambda each: (each.partition(), each.offset()))

    def await_transactions(self, topic: str) -> None:
        """Wait until no transaction is open in the topic.

        A producer is told that its transaction is committed before all partitions are: readers see it a bit later.
        """
        partitions = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in partitions}

        def ends(isolation: IsolationLevel) -> list[int]:
            asked = self.admin.list_offsets(wanted, isolation_level=isolation)
            return [asked[each].result(timeout=DEADLINE_S).offset for each in wanted]

        def is_over() -> bool:
            try:
                return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)
            except KafkaException as exc:
                if exc.args[0].code() not in _SETTLING:
                    raise
                return False

        wait_until(is_over, f"no transaction is open in {topic}")

    def committed_values(self, topic: str) -> list[str | None]:
        """The values of `read_committed`, as text."""
        return [
            None if each.value() is None else each.value().decode() for each in self.read_committed(topic)
        ]

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What is committed for a consumer group: (topic, partition) -> offset."""
        (future,) = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        found = future.result(timeout=DEADLINE_S).topic_partitions
        return {(each.topic, each.partition): each.offset for each in found}


def timestamp_of(message: Message) -> int | None:
    """Timestamp of a record in ms."""
    kind, stamp = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else stamp
