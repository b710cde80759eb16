"""Whether and when a failed job runs again: pure decisions of the restart strategies."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.config.restart import (
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategyConfiguration,
)
from tidemark.errors import (
    ConfigError,
    FencedError,
    RestoreError,
    StateMigrationException,
    StorageError,
    StorageVerdict,
)

__all__ = ["GiveUp", "Restart", "decide", "is_curable"]

_INCURABLE = (ConfigError, FencedError, StateMigrationException, RestoreError, pickle.PicklingError)


@dataclass(frozen=True, slots=True)
class Restart:
    """Run again after waiting."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed."""

    reason: str


def decide(strategy: RestartStrategyConfiguration, now: int, failures: Sequence[int]) -> Restart | GiveUp:
    """What to do after a failure.

    Args:
        strategy: A resolved strategy, not a fallback.
        now: The current time in ms.
        failures: Times of all failures of the job so far, the one just seen included.

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
    raise ConfigError(
        f"{strategy!r} does not say what to do; resolve it with resolve_restart_strategy first."
    )


def is_curable(error: BaseException) -> bool:
    """Whether trying again can help; state or a set-up that does not fit the job never fits by itself."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _INCURABLE):
            return False
        if isinstance(seen, StorageError):
            # What lies behind it was judged when it was raised.
            return seen.verdict is not StorageVerdict.UNUSABLE
        seen = seen.__cause__
    return True
