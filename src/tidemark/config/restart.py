"""What to do when a job fails, as plain settings; counting failures and waiting is the runtime's work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from tidemark.config.configuration import Configuration
from tidemark.config.layered import require_whole
from tidemark.config.options import Options
from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis

__all__ = [
    "FailureRateRestart",
    "FallbackRestart",
    "FixedDelayRestart",
    "NoRestart",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "resolve_restart_strategy",
]

_UNLIMITED = 2147483647
_DEFAULT_DELAY_MS = 1000


@dataclass(frozen=True, slots=True)
class RestartStrategyConfiguration(ABC):
    """A restart strategy; compare by content. `RestartStrategies` makes them."""

    @abstractmethod
    def get_description(self) -> str:
        """Return the strategy in words."""


@dataclass(frozen=True, slots=True)
class NoRestart(RestartStrategyConfiguration):
    """The first failure fails the job."""

    def get_description(self) -> str:
        """Return the strategy in words."""
        return "Restart deactivated."


@dataclass(frozen=True, slots=True)
class FallbackRestart(RestartStrategyConfiguration):
    """Whatever the configuration says."""

    def get_description(self) -> str:
        """Return the strategy in words."""
        return "Cluster level default restart strategy"


@dataclass(frozen=True, slots=True)
class FixedDelayRestart(RestartStrategyConfiguration):
    """At most so many restarts, with a wait before each."""

    restart_attempts: int
    delay_ms: int

    def get_restart_attempts(self) -> int:
        """Return the number of restarts."""
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        """Return the wait before each restart."""
        return timedelta(milliseconds=self.delay_ms)

    def get_description(self) -> str:
        """Return the strategy in words."""
        return f"Restart with fixed delay ({self.delay_ms} ms). #{self.restart_attempts} restart attempts."


@dataclass(frozen=True, slots=True)
class FailureRateRestart(RestartStrategyConfiguration):
    """Restarts as long as failures stay rare, with a wait before each."""

    max_failure_rate: int
    failure_interval_ms: int
    delay_ms: int

    def get_max_failure_rate(self) -> int:
        """Return the restarts allowed inside any interval."""
        return self.max_failure_rate

    def get_failure_interval(self) -> timedelta:
        """Return the length of the sliding interval."""
        return timedelta(milliseconds=self.failure_interval_ms)

    def get_delay_between_attempts_interval(self) -> timedelta:
        """Return the wait before each restart."""
        return timedelta(milliseconds=self.delay_ms)

    def get_description(self) -> str:
        """Return the strategy in words."""
        return (
            f"Failure rate restart with maximum of {self.max_failure_rate} failures within interval "
            f"{self.failure_interval_ms} ms and fixed delay {self.delay_ms} ms."
        )


class RestartStrategies:
    """Factories for restart strategies."""

    NoRestartStrategyConfiguration = NoRestart
    FixedDelayRestartStrategyConfiguration = FixedDelayRestart
    FailureRateRestartStrategyConfiguration = FailureRateRestart
    FallbackRestartStrategyConfiguration = FallbackRestart

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Fail the job on its first failure."""
        return NoRestart()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Use the configured strategy."""
        return FallbackRestart()

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: TimeLike) -> FixedDelayRestart:
        """Restart at most `restart_attempts` times.

        Raises:
            TypeError: A delay that is no time, or attempts that are no int.
            ConfigError: A negative number.
        """
        require_whole(restart_attempts, "The number of restart attempts", 0)
        return FixedDelayRestart(restart_attempts, _delay(delay_between_attempts, "The restart delay"))

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: TimeLike, delay_interval: TimeLike
    ) -> FailureRateRestart:
        """Restart unless more than `failure_rate` failures fall inside one `failure_interval`.

        Raises:
            TypeError: An interval that is no time, or a rate that is no int.
            ConfigError: A rate or interval below 1, or a negative delay.
        """
        require_whole(failure_rate, "The failure rate", 1)
        interval = _delay(failure_interval, "The failure interval")
        if interval < 1:
            raise ConfigError("The failure interval must be at least 1 ms.")
        return FailureRateRestart(failure_rate, interval, _delay(delay_interval, "The restart delay"))


def _delay(value: TimeLike, what: str) -> int:
    millis = to_millis(value, what)
    if millis < 0:
        raise ConfigError(f"{what} must not be negative, got {millis} ms.")
    return millis


def resolve_restart_strategy(
    programmed: RestartStrategyConfiguration | None,
    configuration: Configuration,
    checkpointing_enabled: bool,
) -> RestartStrategyConfiguration:
    """Return the strategy a job runs with; never a fallback.

    Args:
        programmed: What `set_restart_strategy` was given; `None` or fallback: the configuration decides.
        configuration: The effective configuration.
        checkpointing_enabled: Decides when nothing is configured: no restart without checkpoints, else
            restarts without limit, a second apart.

    Raises:
        ConfigError: `restart-strategy` names no known strategy.
    """
    if programmed is not None and not isinstance(programmed, FallbackRestart):
        return programmed
    named = configuration.get(Options.RESTART_STRATEGY)
    if named is None:
        return FixedDelayRestart(_UNLIMITED, _DEFAULT_DELAY_MS) if checkpointing_enabled else NoRestart()
    name = named.strip().lower()
    if name in ("none", "off", "disable"):
        return NoRestart()
    if name in ("fixed-delay", "fixeddelay"):
        return FixedDelayRestart(
            configuration.get(Options.RESTART_FIXED_DELAY_ATTEMPTS),
            configuration.get(Options.RESTART_FIXED_DELAY_DELAY),
        )
    if name in ("failure-rate", "failurerate"):
        return FailureRateRestart(
            configuration.get(Options.RESTART_FAILURE_RATE_MAX),
            configuration.get(Options.RESTART_FAILURE_RATE_INTERVAL),
            configuration.get(Options.RESTART_FAILURE_RATE_DELAY),
        )
    raise ConfigError(
        f"Unknown restart strategy {named!r}. Use none, fixed-delay or failure-rate.",
        key=Options.RESTART_STRATEGY.key,
    )
