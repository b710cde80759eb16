"""Time-to-live of keyed state: the configuration users build. What it means is in `tidemark.state.expiry`."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any, TypeAlias, cast

from tidemark.errors import ConfigError
from tidemark.state.ttl_cleanup import CleanupStrategies, CleanupStrategy, Strategies
from tidemark.types.time import Time, TimeLike, to_millis

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

    def __init__(
        self,
        update_type: _Update,
        state_visibility: _Visibility,
        ttl_time_characteristic: _Characteristic,
        ttl: TimeLike,
        cleanup_strategies: _Cleanup,
    ) -> None:
        """Say everything at once; the builder has defaults.

        Raises:
            ConfigError: The time-to-live is not positive, or the clock is not one we have.
        """
        _check_clock(ttl_time_characteristic)
        self._ttl = _positive(ttl)
        self._update_type = update_type
        self._visibility = state_visibility
        self._cleanup = cleanup_strategies

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
            self._cleanup: dict[Strategies, CleanupStrategy] = {}
            self.set_ttl(ttl)

        def set_ttl(self, ttl: Any) -> StateTtlConfig.Builder:
            """Time-to-live; must be positive."""
            self._ttl = _positive(ttl)
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

        def set_state_visibility(self, state_visibility: _Visibility) -> StateTtlConfig.Builder:
            """Whether expired units may be returned."""
            self._visibility = state_visibility
            return self

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Shortcut for `StateVisibility.NeverReturnExpired`."""
            return self.set_state_visibility(StateVisibility.NeverReturnExpired)

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Shortcut for `StateVisibility.ReturnExpiredIfNotCleanedUp`."""
            return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: _Characteristic
        ) -> StateTtlConfig.Builder:
            """Accepts processing time, the only clock there is."""
            _check_clock(ttl_time_characteristic)
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Shortcut for processing time."""
            return self

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired units out of full snapshots."""
            self._cleanup[Strategies.FULL_STATE_SCAN_SNAPSHOT] = CleanupStrategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int = 5, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Heap: look at `cleanup_size` entries on each state access (and record, with the flag)."""
            if cleanup_size <= 0:
                raise ConfigError(f"cleanup_size must be positive, not {cleanup_size}.")
            strategy = CleanupStrategies.IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            self._cleanup[Strategies.INCREMENTAL_CLEANUP] = cast("Any", strategy)
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int = 1000, periodic_compaction_time: Any = None
        ) -> StateTtlConfig.Builder:
            """RocksDB: drop expired units during compaction, if the backend's filter is enabled at all."""
            periodic = None if periodic_compaction_time is None else to_millis(periodic_compaction_time)
            strategy = CleanupStrategies.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic
            )
            self._cleanup[Strategies.ROCKSDB_COMPACTION_FILTER] = cast("Any", strategy)
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
            return StateTtlConfig(
                self._update_type,
                self._visibility,
                TtlTimeCharacteristic.ProcessingTime,
                self._ttl,
                CleanupStrategies(self._cleanup, self._background),
            )


def _positive(ttl: TimeLike) -> int:
    millis = to_millis(ttl)
    if millis <= 0:
        raise ConfigError(f"The time-to-live must be positive, not {millis} ms.")
    return millis


def _check_clock(characteristic: TtlTimeCharacteristic) -> None:
    if characteristic is not TtlTimeCharacteristic.ProcessingTime:
        raise ConfigError(f"Unknown TTL time characteristic {characteristic!r}; use ProcessingTime.")
