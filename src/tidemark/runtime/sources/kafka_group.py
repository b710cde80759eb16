"""The consumer group of a Kafka source: offsets that it has committed, and those of completed checkpoints.

Asked through a consumer that joins nothing. The client's admin calls would do the same, but those that go to the
coordinator of a group end the process when its broker goes away (an assertion in librdkafka 2.x).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.api.connectors.kafka.offsets import KafkaTopicPartition
from tidemark.runtime.kafka.client import KafkaClients, confluent

__all__ = ["KafkaGroup"]

_log = logging.getLogger("tidemark.kafka")

_LAST_COMMIT_S = 2.0
"""How long the end of an attempt waits for the group to be told."""


class KafkaGroup:
    """One group; used by one thread at a time."""

    def __init__(self, clients: KafkaClients, group_id: str) -> None:
        """Connects when it is asked something."""
        self._clients = clients
        self._group_id = group_id
        self._kafka = confluent()
        self._under_way = False
        self._next: dict[KafkaTopicPartition, int] = {}
        settings = {
            "group.id": group_id,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "on_commit": self._committed,
        }
        self._consumer = clients.consumer(**settings)

    def committed(self, partitions: Sequence[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """What the group has committed; partitions without are left out.

        Raises:
            StorageError: No broker answered in time.
        """
        with self._clients.mapped(f"ask for the committed offsets of group '{self._group_id}'"):
            asked = [self._kafka.TopicPartition(each.topic, each.partition) for each in partitions]
            found = self._consumer.committed(asked, timeout=self._clients.timeout_s)
        return {
            KafkaTopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0
        }

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Let the group know offsets, without waiting; while it is still being told others, these come after them.

        That a group could not be told is no failure: only the log says so, and the next commit covers it.
        """
        self._next = dict(offsets)
        self._consumer.poll(0)
        self._commit_next()

    def _commit_next(self) -> None:
        if self._under_way or not self._next:
            return
        offsets, self._next = self._next, {}
        told = [self._kafka.TopicPartition(each.topic, each.partition, at) for each, at in offsets.items()]
        try:
            self._consumer.commit(offsets=told, asynchronous=True)
            self._under_way = True
        except self._kafka.KafkaException as exc:
            self._committed(exc.args[0], [])

    def _committed(self, error: Any, partitions: list[Any]) -> None:
        self._under_way = False
        for problem in (error, *(each.error for each in partitions)):
            if problem is not None:
                text = self._clients.error(problem, f"commit offsets of group '{self._group_id}'")
                _log.warning("Offsets were not committed: %s", text)
                return

    def close(self) -> None:
        """Wait shortly for what the group is being told, and end the client."""
        until = time.monotonic() + _LAST_COMMIT_S
        while (self._under_way or self._next) and time.monotonic() < until:
            self._commit_next()
            self._consumer.poll(0.05)
        self._consumer.close()
