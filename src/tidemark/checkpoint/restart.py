"""Whether and when a failed job runs again: pure decisions of the restart strategies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.config.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategyConfiguration,
)
from tidemark.errors import ConfigError

__all__ = ["GiveUp", "Restart", "decide"]


@dataclass(frozen=True, slots=True)
class Restart:
    """Run again after waiting."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed."""

    reason: str


def decide(
    strategy: RestartStrategyConfiguration, now: int, failures: Sequence[int], spread: float = 0.0
) -> Restart | GiveUp:
    """What to do after a failure.

    Args:
        strategy: A resolved strategy, not a fallback.
        now: The current time in ms.
        failures: Times of all failures of the job so far, the one just seen included.
        spread: Which way a wait with jitter goes: -1 shortest, 1 longest.

    Raises:
        ConfigError: The strategy was not resolved.
    """
    match strategy:
        case NoRestart():
            return GiveUp("the restart strategy is: no restart")
        case FixedDelayRestart():
            if len(failures) <= strategy.restart_attempts:
                return Restart(strategy.delay_ms)
            return GiveUp(f"all {strategy.restart_attempts} restart attempts are used up")
        case FailureRateRestart():
            recent = sum(1 for at in failures if now - at <= strategy.failure_interval_ms)
            if recent <= strategy.max_failure_rate:
                return Restart(strategy.delay_ms)
            return GiveUp(
                f"{recent} failures within {strategy.failure_interval_ms} ms, "
                f"{strategy.max_failure_rate} are allowed"
            )
        case ExponentialDelayRestart():
            return _back_off(strategy, failures, spread)
    raise ConfigError(
        f"{strategy!r} does not say what to do; resolve it with resolve_restart_strategy first."
    )


def _back_off(strategy: ExponentialDelayRestart, failures: Sequence[int], spread: float) -> Restart | GiveUp:
    backoff = float(strategy.initial_backoff_ms)
    attempts = 1
    for before, at in itertools.pairwise(failures):
        # The wait after the failure before is no time in which the job ran.
        if at - before >= backoff + strategy.reset_backoff_threshold_ms:
            backoff, attempts = float(strategy.initial_backoff_ms), 1
        else:
            backoff = min(backoff * strategy.backoff_multiplier, float(strategy.max_backoff_ms))
            attempts += 1
    if attempts > strategy.attempts_before_reset_backoff:
        return GiveUp(f"all {strategy.attempts_before_reset_backoff} restart attempts are used up")
    return Restart(round(backoff * (1 + strategy.jitter_factor * spread)))
