"""How expired state is removed beyond explicit reads: the strategies of a `StateTtlConfig`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias, cast

from tidemark.types.time import Duration, TimeLike, to_millis

__all__ = ["CleanupStrategies", "CleanupStrategy", "Strategies"]


class Strategies(Enum):
    """The kinds of clean-up; each is configured at most once."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class CleanupStrategy(ABC):  # noqa: B024
    """What the settings of every kind are."""


class EmptyCleanupStrategy(CleanupStrategy):
    """A kind without settings."""


class IncrementalCleanupStrategy(tuple[int, bool]):
    """Heap clean-up that advances a lazy iterator on state access; equals `(size, for every record)`."""

    __slots__ = ()

    def __new__(
        cls, cleanup_size: int = 5, run_cleanup_for_every_record: bool = False
    ) -> IncrementalCleanupStrategy:
        """Make the settings."""
        return super().__new__(cls, (cleanup_size, run_cleanup_for_every_record))

    def __getnewargs__(self) -> tuple[int, bool]:
        return self[0], self[1]

    def get_cleanup_size(self) -> int:
        """Entries looked at per step."""
        return self[0]

    def run_cleanup_for_every_record(self) -> bool:
        """Whether each processed record advances the iterator too."""
        return self[1]


class RocksdbCompactFilterCleanupStrategy(NamedTuple):
    """RocksDB clean-up during compaction."""

    query_time_after_num_entries: int = 1000
    periodic_compaction_time: TimeLike | None = None

    @property
    def period_ms(self) -> int | None:
        """Milliseconds after which expired state is looked for although little was written; None: never."""
        period = self.periodic_compaction_time
        return (to_millis(period) or None) if period else None

    def get_query_time_after_num_entries(self) -> int:
        """Entries between two looks at the clock."""
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> TimeLike:
        """As it was given; 30 days if nothing was, which PyFlink says too."""
        return self.periodic_compaction_time or Duration.of_days(30)


CleanupStrategy.register(IncrementalCleanupStrategy)
CleanupStrategy.register(RocksdbCompactFilterCleanupStrategy)


# The class below offers these under the same names as attributes, which hides the types in its scope.
_Strategies: TypeAlias = Strategies
_Strategy: TypeAlias = CleanupStrategy
_Incremental: TypeAlias = IncrementalCleanupStrategy
_Rocksdb: TypeAlias = RocksdbCompactFilterCleanupStrategy


class CleanupStrategies:
    """How expired state is removed beyond explicit reads (`docs/concepts/state-and-keys.md`)."""

    Strategies = Strategies
    CleanupStrategy = CleanupStrategy
    EmptyCleanupStrategy = EmptyCleanupStrategy
    IncrementalCleanupStrategy = IncrementalCleanupStrategy
    RocksdbCompactFilterCleanupStrategy = RocksdbCompactFilterCleanupStrategy

    EMPTY_STRATEGY = EmptyCleanupStrategy()

    __slots__ = ("_background", "_strategies")

    def __init__(self, strategies: Mapping[_Strategies, _Strategy], is_cleanup_in_background: bool) -> None:
        """Choose what was asked for explicitly, and whether the default background strategies are on."""
        self._strategies = dict(strategies)
        self._background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Whether the default background strategies are on."""
        return self._background

    def in_full_snapshot(self) -> bool:
        """Whether expired units are left out of full snapshots."""
        return Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> _Incremental | None:
        """The explicit strategy, else the background default, else None."""
        default = IncrementalCleanupStrategy() if self._background else None
        found = self._strategies.get(Strategies.INCREMENTAL_CLEANUP)
        return default if found is None else cast("_Incremental", found)

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> _Rocksdb | None:
        """The explicit strategy, else the background default, else None."""
        default = RocksdbCompactFilterCleanupStrategy() if self._background else None
        found = self._strategies.get(Strategies.ROCKSDB_COMPACTION_FILTER)
        return default if found is None else cast("_Rocksdb", found)
