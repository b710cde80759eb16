"""The splits of a `KafkaSource`: its partitions, found in the driver and read in tasks.

A split's data says where the partition began and where it ends, both as offsets, and which topic it was (topics can be
deleted and made anew under the same name); its position is the offset that is read next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark.api.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaTopicPartition
from tidemark.api.connectors.kafka.source import KafkaSource
from tidemark.api.split_source import Split, SplitReader, SplitSource
from tidemark.errors import StorageError, StorageVerdict, TidemarkError
from tidemark.runtime.sources.kafka_offsets import FoundPartition, KafkaCluster, out_of_range

__all__ = ["KafkaSplits"]

_log = logging.getLogger("tidemark.kafka")

_PATIENCE_S = 2.0
"""How long a barrier waits to hear whether topics are still the same."""


class KafkaSplits(SplitSource[Any]):
    """Enumerates and opens the partitions of a Kafka source."""

    def __init__(self, source: KafkaSource, timeout_ms: int) -> None:
        """Nothing is connected.

        Args:
            source: What is to be read.
            timeout_ms: How long a broker may take to answer.
        """
        self.source = source
        self.timeout_ms = timeout_ms
        self.bounded = source.bounded
        self.discovery_interval_ms = source.discovery_interval_ms
        self._cluster: KafkaCluster | None = None
        self._found: list[Split] = []
        self._topic_ids: dict[str, str] = {}
        """Of the topics that are being read."""

    def _asked(self) -> KafkaCluster:
        if self._cluster is None:
            self._cluster = KafkaCluster(self.source, self.timeout_ms)
        return self._cluster

    # -- in the driver -------------------------------------------------------------------------------------------

    def enumerate(self) -> Sequence[Split]:
        """All partitions, with the offsets between which they are read."""
        cluster = self._asked()
        found = cluster.partitions()
        starts = cluster.resolve(self.source.starting, [each.at for each in found])
        self._found = self._splits(found, starts)
        return self._found

    def discover(self) -> Sequence[Split]:
        """All partitions there are; those that are new begin at their first record.

        While no broker answers nothing is new: readers wait for it, too.
        """
        cluster = self._asked()
        known = {split.id for split in self._found}
        try:
            found = cluster.partitions()
            self._check_same_topics(found, {})
            fresh = [each for each in found if str(each.at) not in known]
            starts = {at: first for at, (first, _) in cluster.ranges([each.at for each in fresh]).items()}
        except TidemarkError as exc:
            if not self._found or not _is_passing(exc):
                raise
            _log.warning("New partitions could not be looked for: %s", exc)
            return self._found
        self._found = [*self._found, *self._splits(fresh, starts)]
        return self._found

    def _splits(
        self, found: Sequence[FoundPartition], starts: Mapping[KafkaTopicPartition, int]
    ) -> list[Split]:
        self._topic_ids |= {each.at.topic: each.topic_id for each in found if each.topic_id is not None}
        stops: Mapping[KafkaTopicPartition, int] = {}
        if self.source.stopping is not None:
            stops = self._asked().resolve(self.source.stopping, [each.at for each in found])
        return [
            Split(
                str(each.at),
                {
                    "topic": each.at.topic,
                    "partition": each.at.partition,
                    "topic_id": each.topic_id,
                    "start": starts[each.at],
                    "stop": stops.get(each.at),
                },
            )
            for each in found
        ]

    def restore(self, splits: Sequence[tuple[Split, Any]]) -> Sequence[tuple[Split, Any]]:
        """Make sure that everything a snapshot wants to read next is still there.

        Raises:
            OffsetsOutOfRangeError: It is not, and the source is not told to go on elsewhere.
        """
        cluster = self._asked()
        there = {
            each.at: each for each in cluster.described(sorted({_at(split).topic for split, _ in splits}))
        }
        known = [split for split, _ in splits]
        self._found = [*self._found, *known]
        self._topic_ids |= {
            split.data["topic"]: split.data["topic_id"] for split in known if split.data.get("topic_id")
        }
        ranges = cluster.ranges([_at(split) for split in known if _at(split) in there])
        moved: list[tuple[Split, Any]] = []
        for split, position in splits:
            at, wanted = _at(split), split.data["start"] if position is None else position
            if at not in there:
                raise out_of_range(self.source, at, wanted, (0, 0), "it does not exist any more")
            why = self._lost(split, wanted, ranges[at], there[at])
            if why is not None:
                now = replace(split, data={**split.data, "topic_id": there[at].topic_id})
                moved.append((now, self._gone_on(at, wanted, ranges[at], why)))
                if there[at].topic_id is not None:
                    self._topic_ids[at.topic] = str(there[at].topic_id)
        return moved

    @staticmethod
    def _lost(split: Split, wanted: int, available: tuple[int, int], found: FoundPartition) -> str | None:
        """Why the partition does not go on at `wanted`; None if it does."""
        then = split.data.get("topic_id")
        if then is not None and found.topic_id is not None and then != found.topic_id:
            return "the topic was deleted and made anew since"
        if wanted < available[0]:
            return "older ones were deleted, by retention or by hand"
        if wanted > available[1]:
            return "the topic was made anew, or has lost its newest records"
        return None

    def _gone_on(self, at: KafkaTopicPartition, wanted: int, available: tuple[int, int], why: str) -> int:
        error = out_of_range(self.source, at, wanted, available, why)
        if self.source.out_of_range is KafkaOffsetResetStrategy.NONE:
            raise error
        earliest = self.source.out_of_range is KafkaOffsetResetStrategy.EARLIEST
        next_offset = available[0] if earliest else available[1]
        _log.warning(
            "%s goes on in %s at offset %d instead of %d, as auto.offset.reset says: %s",
            self.source.described, at, next_offset, wanted, why,
        )  # fmt: skip
        return next_offset

    def check_positions(self, positions: Mapping[str, Any]) -> None:
        """Make sure that the topics are still those whose offsets a checkpoint is going to store.

        A topic that is deleted and made anew while it is read goes on under the same name, and readers with it if it
        has the offset they want next. Records in front of that offset would be left out.

        While no broker answers nothing is said: nothing is read, either, and the next barrier asks again.

        Raises:
            OffsetsOutOfRangeError: One was made anew, and the source is not told to go on elsewhere.
            TidemarkError: One was, and restarting goes on as the source says.
        """
        cluster = self._asked()
        try:
            found = cluster.described(sorted(self._topic_ids), at_most_s=_PATIENCE_S)
            self._check_same_topics(found, positions)
        except TidemarkError as exc:
            if not _is_passing(exc):
                raise
            _log.info("Whether topics are still the same could not be asked: %s", exc)

    def _check_same_topics(self, found: Sequence[FoundPartition], positions: Mapping[str, Any]) -> None:
        for each in found:
            known = self._topic_ids.get(each.at.topic)
            if known is None or each.topic_id is None or known == each.topic_id:
                continue
            raise self._asked().made_anew(each.at, positions.get(str(each.at)))

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        """Tell the group; that it could not be told is no failure of the job."""
        if not self.source.commits_offsets:
            return
        at = {split.id: _at(split) for split in self._found}
        offsets = {at[key]: offset for key, offset in positions.items() if offset is not None and key in at}
        if offsets:
            self._asked().commit(offsets)

    def close(self) -> None:
        """Close clients of this process that belong to the source and that nobody reads with."""
        from tidemark.runtime.sources.kafka_consumer import POOL

        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        POOL.close_idle(self.source.token)

    # -- in tasks ------------------------------------------------------------------------------------------------

    def open(self, split: Split, position: Any | None) -> SplitReader[Any]:
        """A reader of a partition."""
        from tidemark.runtime.sources.kafka_reader import KafkaReader

        start = split.data["start"] if position is None else position
        stop, topic_id = split.data.get("stop"), split.data.get("topic_id")
        return KafkaReader(self.source, self.timeout_ms, _at(split), start, stop, topic_id)


def _at(split: Split) -> KafkaTopicPartition:
    return KafkaTopicPartition(split.data["topic"], split.data["partition"])


def _is_passing(error: TidemarkError) -> bool:
    """Whether the brokers are only out of reach."""
    return isinstance(error, StorageError) and error.verdict is StorageVerdict.TRANSIENT
