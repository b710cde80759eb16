"""Time-to-live of keyed state: the configuration users build. What it means is in `tidemark.state.expiry`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from tidemark.errors import ConfigError
from tidemark.types.time import Time, to_millis

__all__ = ["StateTtlConfig"]


class UpdateType(Enum):
    """Which accesses renew the stamp of a stored unit; `Disabled` means no time-to-live at all."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class StateVisibility(Enum):
    """Whether a read may return an expired unit that has not been removed yet."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(Enum):
    """Clock the stamps are taken from; processing time is the only one."""

    ProcessingTime = 0


class IncrementalCleanupStrategy(NamedTuple):
    """Heap clean-up that advances a lazy iterator on state access; equals `(size, every_record)`."""

    cleanup_size: int = 5
    every_record: bool = False

    def get_cleanup_size(self) -> int:
        """Entries looked at per step."""
        return self.cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Whether each processed record advances the iterator too."""
        return self.every_record


class RocksdbCompactFilterCleanupStrategy(NamedTuple):
    """RocksDB clean-up during compaction."""

    query_time_after_num_entries: int = 1000
    periodic_compaction_time: int | None = None

    def get_query_time_after_num_entries(self) -> int:
        """Entries between two looks at the clock."""
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> int | None:
        """Upper bound in ms after which a file is compacted anyway, or None."""
        return self.periodic_compaction_time


@dataclass(frozen=True, slots=True)
class CleanupStrategies:
    """How expired state is removed beyond explicit reads (`docs/concepts/state-and-keys.md`)."""

    background: bool = True
    full_snapshot: bool = False
    incremental: IncrementalCleanupStrategy | None = None
    rocksdb: RocksdbCompactFilterCleanupStrategy | None = None

    def is_cleanup_in_background(self) -> bool:
        """Whether the default background strategies are on."""
        return self.background

    def in_full_snapshot(self) -> bool:
        """Whether expired units are left out of full snapshots."""
        return self.full_snapshot

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """The explicit strategy, else the background default, else None."""
        if self.incremental is not None:
            return self.incremental
        return IncrementalCleanupStrategy() if self.background else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """The explicit strategy, else the background default, else None."""
        if self.rocksdb is not None:
            return self.rocksdb
        return RocksdbCompactFilterCleanupStrategy() if self.background else None


# The class below offers these under the same names as attributes, which hides the types in its scope.
_Update: TypeAlias = UpdateType
_Visibility: TypeAlias = StateVisibility
_Characteristic: TypeAlias = TtlTimeCharacteristic
_Cleanup: TypeAlias = CleanupStrategies


class StateTtlConfig:
    """Time-to-live of one state. Built with `StateTtlConfig.new_builder(ttl)…build()`."""

    UpdateType = UpdateType
    StateVisibility = StateVisibility
    TtlTimeCharacteristic = TtlTimeCharacteristic
    CleanupStrategies = CleanupStrategies

    __slots__ = ("_cleanup", "_ttl", "_update_type", "_visibility")

    def __init__(self, ttl: int, update_type: _Update, visibility: _Visibility, cleanup: _Cleanup) -> None:
        self._ttl = ttl
        self._update_type = update_type
        self._visibility = visibility
        self._cleanup = cleanup

    @staticmethod
    def new_builder(ttl: int | Time | timedelta | Any) -> StateTtlConfig.Builder:
        """Start building; `ttl` is int ms, `Time`, `Duration` or `timedelta` and must be positive."""
        return StateTtlConfig.Builder(ttl)

    @property
    def ttl_ms(self) -> int:
        """Time-to-live in milliseconds."""
        return self._ttl

    def get_ttl(self) -> Time:
        """Time-to-live."""
        return Time.milliseconds(self._ttl)

    def get_update_type(self) -> _Update:
        """Which accesses renew the stamp."""
        return self._update_type

    def get_state_visibility(self) -> _Visibility:
        """Whether expired units may be returned."""
        return self._visibility

    def get_ttl_time_characteristic(self) -> _Characteristic:
        """Always processing time."""
        return TtlTimeCharacteristic.ProcessingTime

    def is_enabled(self) -> bool:
        """False only for `UpdateType.Disabled`."""
        return self._update_type is not UpdateType.Disabled

    def get_cleanup_strategies(self) -> _Cleanup:
        """How expired state is removed."""
        return self._cleanup

    def __repr__(self) -> str:
        return f"StateTtlConfig(ttl={self._ttl} ms, {self._update_type.name}, {self._visibility.name})"

    class Builder:
        """Collects the settings of a `StateTtlConfig`; every method returns the builder."""

        def __init__(self, ttl: Any) -> None:
            self._update_type = UpdateType.OnCreateAndWrite
            self._visibility = StateVisibility.NeverReturnExpired
            self._background = True
            self._full_snapshot = False
            self._incremental: IncrementalCleanupStrategy | None = None
            self._rocksdb: RocksdbCompactFilterCleanupStrategy | None = None
            self.set_ttl(ttl)

        def set_ttl(self, ttl: Any) -> StateTtlConfig.Builder:
            """Time-to-live; must be positive."""
            millis = to_millis(ttl)
            if millis <= 0:
                raise ConfigError(f"The time-to-live must be positive, not {millis} ms.")
            self._ttl = millis
            return self

        def set_update_type(self, update_type: _Update) -> StateTtlConfig.Builder:
            """Which accesses renew the stamp."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Shortcut for `UpdateType.OnCreateAndWrite`."""
            return self.set_update_type(UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Shortcut for `UpdateType.OnReadAndWrite`."""
            return self.set_update_type(UpdateType.OnReadAndWrite)

        def set_state_visibility(self, visibility: _Visibility) -> StateTtlConfig.Builder:
            """Whether expired units may be returned."""
            self._visibility = visibility
            return self

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Shortcut for `StateVisibility.NeverReturnExpired`."""
            return self.set_state_visibility(StateVisibility.NeverReturnExpired)

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Shortcut for `StateVisibility.ReturnExpiredIfNotCleanedUp`."""
            return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

        def set_ttl_time_characteristic(self, characteristic: _Characteristic) -> StateTtlConfig.Builder:
            """Accepts processing time, the only clock there is."""
            if characteristic is not TtlTimeCharacteristic.ProcessingTime:
                raise ConfigError(f"Unknown TTL time characteristic {characteristic!r}; use ProcessingTime.")
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Shortcut for processing time."""
            return self

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired units out of full snapshots."""
            self._full_snapshot = True
            return self

        def cleanup_incrementally(
            self, cleanup_size: int = 5, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Heap: look at `cleanup_size` entries on each state access (and record, with the flag)."""
            if cleanup_size <= 0:
                raise ConfigError(f"cleanup_size must be positive, not {cleanup_size}.")
            self._incremental = IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int = 1000, periodic_compaction_time: Any = None
        ) -> StateTtlConfig.Builder:
            """RocksDB: drop expired units during compaction, if the backend's filter is enabled at all."""
            periodic = None if periodic_compaction_time is None else to_millis(periodic_compaction_time)
            self._rocksdb = RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic)
            return self

        def cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Turn the default background strategies on (they are on by default)."""
            self._background = True
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Turn the default background strategies off; explicit ones stay."""
            self._background = False
            return self

        def build(self) -> StateTtlConfig:
            """The finished, immutable configuration."""
            cleanup = CleanupStrategies(
                self._background, self._full_snapshot, self._incremental, self._rocksdb
            )
            return StateTtlConfig(self._ttl, self._update_type, self._visibility, cleanup)
