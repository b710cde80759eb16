"""Where reading begins and ends: `KafkaOffsetsInitializer`, and what it speaks of.

Plain data. What it means on a cluster is asked once, in the driver, when a partition is first seen; checkpoints
store the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemark.errors import ConfigError

__all__ = ["KafkaOffsetResetStrategy", "KafkaOffsetsInitializer", "KafkaTopicPartition", "OffsetsKind"]


@dataclass(frozen=True, slots=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise ConfigError(f"The topic of a KafkaTopicPartition is a name, not {self.topic!r}.")
        if isinstance(self.partition, bool) or not isinstance(self.partition, int) or self.partition < 0:
            raise ConfigError(
                f"The partition of a KafkaTopicPartition is a number from 0 on, not {self.partition!r}."
            )

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """What to do where there is no offset, or none that the partition still has."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2
    """Fail."""


class OffsetsKind(Enum):
    """What an initializer speaks of."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    COMMITTED = "committed"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class KafkaOffsetsInitializer:
    """Offsets of partitions, made by the static methods; for the start of a source as for its end."""

    kind: OffsetsKind
    reset_strategy: KafkaOffsetResetStrategy
    timestamp_ms: int = 0
    specified: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What is committed for the group; the strategy says what to do for partitions without."""
        return KafkaOffsetsInitializer(OffsetsKind.COMMITTED, _strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record of each partition with that timestamp (ms) or a later one; its end if there is none."""
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0:
            raise ConfigError(f"timestamp() takes milliseconds since 1970, not {timestamp!r}.")
        return KafkaOffsetsInitializer(OffsetsKind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first record that each partition still has."""
        return KafkaOffsetsInitializer(OffsetsKind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """The end of each partition as it is when the job starts."""
        return KafkaOffsetsInitializer(OffsetsKind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """These offsets; the strategy is for partitions that are not named and offsets that do not exist.

        Raises:
            ConfigError: No mapping from `KafkaTopicPartition` to offsets.
        """
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition):
                raise ConfigError(
                    f"offsets() takes KafkaTopicPartition -> offset; got the key {partition!r}."
                )
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise ConfigError(f"The offset of {partition} is a number from 0 on, not {offset!r}.")
        return KafkaOffsetsInitializer(
            OffsetsKind.OFFSETS, _strategy(offset_reset_strategy), 0, dict(offsets)
        )


def _strategy(strategy: KafkaOffsetResetStrategy) -> KafkaOffsetResetStrategy:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise ConfigError(f"offset_reset_strategy must be a KafkaOffsetResetStrategy, not {strategy!r}.")
    return strategy
