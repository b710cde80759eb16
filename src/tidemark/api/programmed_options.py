"""What a backend or restart strategy set in the program looks like as configuration keys."""

from __future__ import annotations

from tidemark.api.state_backends import (
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    StateBackend,
)
from tidemark.config import Configuration, Options, RestartStrategyConfiguration
from tidemark.config.restart import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart

__all__ = ["options_of"]

_BACKEND_NAMES: dict[type[StateBackend], str] = {
    MemoryStateBackend: "jobmanager",
    FsStateBackend: "filesystem",
    HashMapStateBackend: "hashmap",
    EmbeddedRocksDBStateBackend: "rocksdb",
}


def options_of(
    backend: StateBackend | None, restart_strategy: RestartStrategyConfiguration | None
) -> Configuration:
    """The keys that say the same; nothing for None and for classes of the user's."""
    options = Configuration()
    for kind, name in _BACKEND_NAMES.items():
        if isinstance(backend, kind):
            options.set(Options.STATE_BACKEND, name)
    if isinstance(restart_strategy, NoRestart):
        options.set(Options.RESTART_STRATEGY, "none")
    elif isinstance(restart_strategy, FixedDelayRestart):
        options.set(Options.RESTART_STRATEGY, "fixed-delay")
        options.set(Options.RESTART_FIXED_DELAY_ATTEMPTS, restart_strategy.restart_attempts)
        options.set(Options.RESTART_FIXED_DELAY_DELAY, restart_strategy.delay_ms)
    elif isinstance(restart_strategy, FailureRateRestart):
        options.set(Options.RESTART_STRATEGY, "failure-rate")
        options.set(Options.RESTART_FAILURE_RATE_MAX, restart_strategy.max_failure_rate)
        options.set(Options.RESTART_FAILURE_RATE_INTERVAL, restart_strategy.failure_interval_ms)
        options.set(Options.RESTART_FAILURE_RATE_DELAY, restart_strategy.delay_ms)
    elif isinstance(restart_strategy, ExponentialDelayRestart):
        options.set(Options.RESTART_STRATEGY, "exponential-delay")
        options.set(Options.RESTART_EXPONENTIAL_INITIAL, restart_strategy.initial_backoff_ms)
        options.set(Options.RESTART_EXPONENTIAL_MAX, restart_strategy.max_backoff_ms)
        options.set(Options.RESTART_EXPONENTIAL_MULTIPLIER, restart_strategy.backoff_multiplier)
        options.set(Options.RESTART_EXPONENTIAL_RESET, restart_strategy.reset_backoff_threshold_ms)
        options.set(Options.RESTART_EXPONENTIAL_JITTER, restart_strategy.jitter_factor)
        options.set(Options.RESTART_EXPONENTIAL_ATTEMPTS, restart_strategy.attempts_before_reset_backoff)
    return options
