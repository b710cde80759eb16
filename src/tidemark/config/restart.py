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
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FallbackRestart",
    "FixedDelayRestart",
    "NoRestart",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "resolve_restart_strategy",
]

UNLIMITED_ATTEMPTS = 2147483647


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


@dataclass(frozen=True, slots=True)
class ExponentialDelayRestart(RestartStrategyConfiguration):
    """Restarts that come slower while the job keeps failing, and as fast as at first once it has run for a while."""

    initial_backoff_ms: int
    max_backoff_ms: int
    backoff_multiplier: float
    reset_backoff_threshold_ms: int
    jitter_factor: float
    attempts_before_reset_backoff: int = UNLIMITED_ATTEMPTS

    def get_initial_backoff(self) -> timedelta:
        """Return the wait before the first restart."""
        return timedelta(milliseconds=self.initial_backoff_ms)

    def get_max_backoff(self) -> timedelta:
        """Return the longest wait."""
        return timedelta(milliseconds=self.max_backoff_ms)

    def get_backoff_multiplier(self) -> float:
        """Return how much longer each wait is than the one before it."""
        return self.backoff_multiplier

    def get_reset_backoff_threshold(self) -> timedelta:
        """Return how long the job has to run before waits begin anew."""
        return timedelta(milliseconds=self.reset_backoff_threshold_ms)

    def get_jitter_factor(self) -> float:
        """Return the share of a wait by which it may be longer or shorter."""
        return self.jitter_factor

    def get_description(self) -> str:
        """Return the strategy in words."""
        return (
            f"Restart with exponential delay: initial backoff {self.initial_backoff_ms} ms, maximum "
            f"{self.max_backoff_ms} ms, multiplier {self.backoff_multiplier}, reset after "
            f"{self.reset_backoff_threshold_ms} ms, jitter {self.jitter_factor}."
        )


class RestartStrategies:
    """Factories for restart strategies."""

    NoRestartStrategyConfiguration = NoRestart
    FixedDelayRestartStrategyConfiguration = FixedDelayRestart
    FailureRateRestartStrategyConfiguration = FailureRateRestart
    FallbackRestartStrategyConfiguration = FallbackRestart
    ExponentialDelayRestartStrategyConfiguration = ExponentialDelayRestart

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

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: TimeLike,
        max_backoff: TimeLike,
        backoff_multiplier: float,
        reset_backoff_threshold: TimeLike,
        jitter_factor: float,
    ) -> ExponentialDelayRestart:
        """Restart without limit, each time after a longer wait.

        Raises:
            TypeError: A time that is none, or a number that is none.
            ConfigError: A wait below 1 ms, a maximum below the first wait, a multiplier below 1, or a jitter
                outside 0 to 1.
        """
        return _checked_backoff(
            ExponentialDelayRestart(
                _delay(initial_backoff, "The initial backoff"),
                _delay(max_backoff, "The maximum backoff"),
                float(backoff_multiplier),
                _delay(reset_backoff_threshold, "The reset threshold of the backoff"),
                float(jitter_factor),
            )
        )


def _checked_backoff(strategy: ExponentialDelayRestart) -> ExponentialDelayRestart:
    if strategy.initial_backoff_ms < 1:
        raise ConfigError("The initial backoff must be at least 1 ms.")
    if strategy.max_backoff_ms < strategy.initial_backoff_ms:
        raise ConfigError(
            f"The maximum backoff, {strategy.max_backoff_ms} ms, is below the initial one, "
            f"{strategy.initial_backoff_ms} ms."
        )
    if not strategy.backoff_multiplier >= 1:
        raise ConfigError(f"The backoff multiplier must be at least 1, got {strategy.backoff_multiplier}.")
    if not 0 <= strategy.jitter_factor <= 1:
        raise ConfigError(f"The jitter factor must be between 0 and 1, got {strategy.jitter_factor}.")
    return strategy


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
            restarts without limit, with exponential delay.

    Raises:
        ConfigError: `restart-strategy` names no known strategy.
    """
    if programmed is not None and not isinstance(programmed, FallbackRestart):
        return programmed
    named = configuration.get(Options.RESTART_STRATEGY)
    if named is None:
        named = "exponential-delay" if checkpointing_enabled else "none"
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
    if name in ("exponential-delay", "exponentialdelay"):
        return _checked_backoff(
            ExponentialDelayRestart(
                configuration.get(Options.RESTART_EXPONENTIAL_INITIAL),
                configuration.get(Options.RESTART_EXPONENTIAL_MAX),
                configuration.get(Options.RESTART_EXPONENTIAL_MULTIPLIER),
                configuration.get(Options.RESTART_EXPONENTIAL_RESET),
                configuration.get(Options.RESTART_EXPONENTIAL_JITTER),
                configuration.get(Options.RESTART_EXPONENTIAL_ATTEMPTS),
            )
        )
    raise ConfigError(
        f"Unknown restart strategy {named!r}. Use none, fixed-delay, failure-rate or exponential-delay.",
        key=Options.RESTART_STRATEGY.key,
    )
