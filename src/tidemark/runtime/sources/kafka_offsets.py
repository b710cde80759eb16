"""What a cluster says about partitions: which there are, which offsets they have, and what an initializer means there.

Asked by the driver. Every answer that goes into a checkpoint is a number, so that a restart finds the same records
whatever has happened to the topics meanwhile, or says that it cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.api.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    OffsetsKind,
)
from tidemark.api.connectors.kafka.source import KafkaSource
from tidemark.errors import ConfigError, OffsetsOutOfRangeError, TidemarkError
from tidemark.runtime.kafka.client import KafkaClients, confluent
from tidemark.runtime.sources.kafka_group import KafkaGroup

__all__ = ["FoundPartition", "KafkaCluster", "out_of_range"]


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition that exists."""

    at: KafkaTopicPartition
    topic_id: str | None
    """Changes when a topic is deleted and made anew; None: the broker does not tell."""


class KafkaCluster:
    """Answers questions of one source; connects with the first of them."""

    def __init__(self, source: KafkaSource, timeout_ms: int) -> None:
        self._source = source
        self._clients = KafkaClients(source.properties, timeout_ms, source.described)
        self._admin: Any = None
        self._known_group: KafkaGroup | None = None

    def partitions(self) -> list[FoundPartition]:
        """All partitions the source reads that exist now, in order.

        Raises:
            ConfigError: A topic or a partition that was asked for by name does not exist.
            StorageError: No broker answered in time.
        """
        source = self._source
        if source.pattern is not None:
            names = self._matching(source.pattern)
        else:
            names = list(source.topics) or sorted({each.topic for each in source.partitions})
            self._clients.require_topics(self.admin(), names)
        found = self.described(names)
        if source.partitions:
            wanted = set(source.partitions)
            missing = wanted - {each.at for each in found}
            if missing:
                raise ConfigError(
                    f"{source.described}: there is no partition {', '.join(sorted(map(str, missing)))} on the Kafka "
                    f"brokers at {source.properties.bootstrap_servers}. Correct set_partitions()."
                )
            found = [each for each in found if each.at in wanted]
        return found

    def _matching(self, pattern: str) -> list[str]:
        with self._clients.mapped("list topics"):
            topics = self.admin().list_topics(timeout=self._clients.timeout_s).topics
        return sorted(name for name in topics if re.fullmatch(pattern, name) and not name.startswith("__"))

    def described(self, topics: Sequence[str], at_most_s: float | None = None) -> list[FoundPartition]:
        """The partitions of topics; a topic that is not there has none.

        Raises:
            StorageError: No broker answered in time, `at_most_s` if that is less.
        """
        if not topics:
            return []
        kafka = confluent()
        asked = self.admin().describe_topics(
            kafka.TopicCollection(list(topics)),
            request_timeout=min(at_most_s or self._clients.timeout_s, self._clients.timeout_s),
        )
        found = []
        for topic, answer in sorted(asked.items()):
            try:
                with self._clients.mapped(f"look up topic '{topic}'", topic=topic):
                    description = answer.result()
            except ConfigError:
                continue  # named by the caller, who knows whether it must be there
            topic_id = None if description.topic_id is None else str(description.topic_id)
            found += [
                FoundPartition(KafkaTopicPartition(topic, each.id), topic_id)
                for each in sorted(description.partitions, key=lambda each: each.id)
            ]
        return found

    def made_anew(self, at: KafkaTopicPartition, wanted: int | None) -> TidemarkError:
        """That a topic was deleted and made anew while it was read.

        A source that is told to go on elsewhere does so when it is restarted: that may help, so the error says less.
        """
        why = "the topic was deleted and made anew while it was read"
        if wanted is None or self._source.out_of_range is not KafkaOffsetResetStrategy.NONE:
            return TidemarkError(f"{self._source.described} cannot go on in {at}: {why}.")
        return out_of_range(self._source, at, wanted, self.ranges([at])[at], why)

    def ranges(self, partitions: Iterable[KafkaTopicPartition]) -> dict[KafkaTopicPartition, tuple[int, int]]:
        """First offset, and the one behind the last record, of partitions that exist."""
        from confluent_kafka.admin import OffsetSpec

        asked = list(partitions)
        first = self._listed(dict.fromkeys(asked, OffsetSpec.earliest()))
        last = self._listed(dict.fromkeys(asked, OffsetSpec.latest()))
        return {each: (first[each], last[each]) for each in asked}

    def resolve(
        self, initializer: KafkaOffsetsInitializer, partitions: Sequence[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        """What an initializer means for partitions that exist, as numbers.

        Raises:
            OffsetsOutOfRangeError: There is no such offset, and the strategy is not to go on elsewhere.
        """
        from confluent_kafka.admin import OffsetSpec

        if not partitions:
            return {}
        earliest = self._listed(dict.fromkeys(partitions, OffsetSpec.earliest()))
        latest = self._listed(dict.fromkeys(partitions, OffsetSpec.latest()), as_seen=True)
        match initializer.kind:
            case OffsetsKind.EARLIEST:
                return earliest
            case OffsetsKind.LATEST:
                return latest
            case OffsetsKind.TIMESTAMP:
                spec = OffsetSpec.for_timestamp(initializer.timestamp_ms)
                found = self._listed(dict.fromkeys(partitions, spec))
                return {each: latest[each] if found[each] < 0 else found[each] for each in partitions}
            case OffsetsKind.COMMITTED:
                wanted = self.committed(partitions)
            case OffsetsKind.OFFSETS:
                wanted = {each: at for each, at in initializer.specified.items() if each in earliest}
        resets = {
            KafkaOffsetResetStrategy.EARLIEST: earliest,
            KafkaOffsetResetStrategy.LATEST: latest,
        }.get(initializer.reset_strategy)
        resolved = {}
        highest = self._listed(dict.fromkeys(partitions, OffsetSpec.latest()))
        for each in partitions:
            at = wanted.get(each)
            if at is not None and earliest[each] <= at <= highest[each]:
                resolved[each] = at
            elif resets is not None:
                resolved[each] = resets[each]
            else:
                raise self._no_start(initializer, each, at, (earliest[each], highest[each]))
        return resolved

    def _no_start(
        self,
        initializer: KafkaOffsetsInitializer,
        at: KafkaTopicPartition,
        wanted: int | None,
        available: tuple[int, int],
    ) -> OffsetsOutOfRangeError:
        what = (
            f"the group '{self._source.group_id}' has no committed offset"
            if wanted is None and initializer.kind is OffsetsKind.COMMITTED
            else f"it is to begin at offset {wanted}"
        )
        return OffsetsOutOfRangeError(
            f"{self._source.described} cannot begin to read {at}: {what}, and the partition has the offsets "
            f"{available[0]} to {available[1]}. Give {initializer.kind.value}"
            f"{'_offsets' if initializer.kind is OffsetsKind.COMMITTED else ''}() a KafkaOffsetResetStrategy "
            "(EARLIEST, LATEST) that says where to begin then.",
            topic=at.topic,
            partition=at.partition,
            wanted=wanted,
            earliest=available[0],
            latest=available[1],
        )

    def committed(self, partitions: Sequence[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """What the group has committed; partitions without are left out."""
        return self._group().committed(partitions)

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Let the group know offsets; see `KafkaGroup.commit`."""
        self._group().commit(offsets)

    def _group(self) -> KafkaGroup:
        if self._known_group is None:
            self._known_group = KafkaGroup(self._clients, str(self._source.group_id))
        return self._known_group

    def _listed(
        self, asked: Mapping[KafkaTopicPartition, Any], *, as_seen: bool = False
    ) -> dict[KafkaTopicPartition, int]:
        """Offsets; `as_seen` by a reader of this source, who does not see what is not committed."""
        kafka = confluent()
        isolation = kafka.IsolationLevel.READ_UNCOMMITTED
        if as_seen and self._source.properties.get("isolation.level") != "read_uncommitted":
            isolation = kafka.IsolationLevel.READ_COMMITTED
        with self._clients.mapped("ask for offsets"):
            answers = self.admin().list_offsets(
                {kafka.TopicPartition(each.topic, each.partition): spec for each, spec in asked.items()},
                isolation_level=isolation,
                request_timeout=self._clients.timeout_s,
            )
            return {
                KafkaTopicPartition(at.topic, at.partition): answer.result().offset
                for at, answer in answers.items()
            }

    def admin(self) -> Any:
        """The client, which connects by itself."""
        if self._admin is None:
            # Warnings are about properties that concern consumers only.
            self._admin = self._clients.admin(log_level=3)
        return self._admin

    def close(self) -> None:
        """Let the clients go."""
        self._admin = None
        group, self._known_group = self._known_group, None
        if group is not None:
            group.close()


def out_of_range(
    source: KafkaSource, at: KafkaTopicPartition, wanted: int, available: tuple[int, int], why: str
) -> OffsetsOutOfRangeError:
    """A partition that no longer has what comes next."""
    return OffsetsOutOfRangeError(
        f"{source.described} cannot go on in {at}: offset {wanted} is to be read next, and the partition has the "
        f"offsets {available[0]} to {available[1]} ({why}). Records would be left out. To go on all the "
        "same: set_property('auto.offset.reset', 'earliest') or 'latest', or start from a newer snapshot.",
        topic=at.topic,
        partition=at.partition,
        wanted=wanted,
        earliest=available[0],
        latest=available[1],
    )
