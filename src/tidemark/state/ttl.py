"""Time-to-live of keyed state: the configuration users build. What it means is in `tidemark.state.expiry`."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any, TypeAlias, cast

from tidemark.errors import ConfigError
from tidemark.state.expired_state import OnExpiry
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
    """Clock the stamps are taken from.

    Event time stamps a unit with the timestamp of the record that accesses it (of a late record, and of one without a
    timestamp: with the watermark), and the watermark of the operator says what is expired. While an event-time timer
    fires it is the timer's time. At the end of input, behind all timers, everything expires. Beyond Flink, which has
    processing time only.
    """

    ProcessingTime = 0
    EventTime = 1
    PROCESSING_TIME = 0
    EVENT_TIME = 1


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

    __slots__ = ("_characteristic", "_cleanup", "_on_expiry", "_ttl", "_update_type", "_visibility")

    def __init__(
        self,
        update_type: _Update,
        state_visibility: _Visibility,
        ttl_time_characteristic: _Characteristic,
        ttl: TimeLike,
        cleanup_strategies: _Cleanup,
        on_expiry: OnExpiry | None = None,
    ) -> None:
        """Say everything at once; the builder has defaults.

        Raises:
            ConfigError: The time-to-live is not positive, the clock is not one we have, or expired state would be
                returned or left out of snapshots although its expiry is to be reported.
        """
        _check_clock(ttl_time_characteristic)
        if on_expiry is not None:
            _check_report(on_expiry, state_visibility, cleanup_strategies)
        self._on_expiry = on_expiry
        self._ttl = _positive(ttl)
        self._characteristic = ttl_time_characteristic
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

    @property
    def on_expiry(self) -> OnExpiry | None:
        """What is called with each unit that has expired."""
        return self._on_expiry

    def get_update_type(self) -> _Update:
        """Which accesses renew the stamp."""
        return self._update_type

    def get_state_visibility(self) -> _Visibility:
        """Whether expired units may be returned."""
        return self._visibility

    def get_ttl_time_characteristic(self) -> _Characteristic:
        """Whether processing time or event time passes."""
        return self._characteristic

    def is_enabled(self) -> bool:
        """False only for `UpdateType.Disabled`."""
        return self._update_type is not UpdateType.Disabled

    def get_cleanup_strategies(self) -> _Cleanup:
        """How expired state is removed."""
        return self._cleanup

    def __repr__(self) -> str:
        facts = (self._update_type.name, self._visibility.name, self._characteristic.name)
        return f"StateTtlConfig(ttl={self._ttl} ms, {', '.join(facts)})"

    class Builder:
        """Collects the settings of a `StateTtlConfig`; every method returns the builder."""

        def __init__(self, ttl: Any) -> None:
            self._update_type = UpdateType.OnCreateAndWrite
            self._visibility = StateVisibility.NeverReturnExpired
            self._characteristic = TtlTimeCharacteristic.ProcessingTime
            self._on_expiry: OnExpiry | None = None
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
            """Which time has to pass; see `TtlTimeCharacteristic`."""
            _check_clock(ttl_time_characteristic)
            self._characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Shortcut for `TtlTimeCharacteristic.ProcessingTime`."""
            return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

        def use_event_time(self) -> StateTtlConfig.Builder:
            """Shortcut for `TtlTimeCharacteristic.EventTime`. Beyond Flink."""
            return self.set_ttl_time_characteristic(TtlTimeCharacteristic.EventTime)

        def on_expiry(self, callback: OnExpiry) -> StateTtlConfig.Builder:
            """Call `callback(expired)` once for each unit (an `ExpiredState`) that expires. Beyond Flink.

            It runs in the operator behind the batch, timer or watermark in which the unit was found, with its key
            current, so it may use the operator's other states; what it returns or yields is emitted, side outputs
            included, in event time with the timestamp `expired_at`. Found are units that are touched, overwritten or
            cleared, and by the background clean-up all others, some at a time; on RocksDB without its option, too. At
            the end of input all that lives by event time is told of, if clean-up in the background is on. Like every
            effect it is rolled back and happens again if the job falls back to a checkpoint.
            """
            self._on_expiry = callback
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
            if periodic_compaction_time:
                to_millis(periodic_compaction_time)
            strategy = CleanupStrategies.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time or None
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
                self._characteristic,
                self._ttl,
                CleanupStrategies(self._cleanup, self._background),
                self._on_expiry,
            )


def _positive(ttl: TimeLike) -> int:
    millis = to_millis(ttl)
    if millis <= 0:
        raise ConfigError(f"The time-to-live must be positive, not {millis} ms.")
    return millis


def _check_report(callback: OnExpiry, visibility: StateVisibility, cleanup: CleanupStrategies) -> None:
    if not callable(callback):
        raise ConfigError(f"on_expiry needs a callable of one argument, not {callback!r}.")
    if visibility is not StateVisibility.NeverReturnExpired:
        raise ConfigError("State whose expiry is reported never returns expired values: drop the visibility.")
    if cleanup.in_full_snapshot():
        raise ConfigError(
            "cleanup_full_snapshot would drop expired state on restore without a report: drop it, or on_expiry."
        )


def _check_clock(characteristic: TtlTimeCharacteristic) -> None:
    if not isinstance(characteristic, TtlTimeCharacteristic):
        raise ConfigError(
            f"Unknown TTL time characteristic {characteristic!r}; there are TtlTimeCharacteristic.ProcessingTime and "
            "TtlTimeCharacteristic.EventTime."
        )
