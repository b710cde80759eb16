from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from tidemark.checkpoint.restart import GiveUp, Restart, decide
from tidemark.config.restart import RestartStrategies
from tidemark.errors import (
    ConfigError,
    ExecutionError,
    SavepointNotFoundError,
    StateMigrationException,
    StorageError,
    UnmappedStateError,
)
from tidemark.protocol.failure import is_curable


def test_no_restart_gives_up_at_once() -> None:
    assert isinstance(decide(RestartStrategies.no_restart(), 5, [5]), GiveUp)


def test_a_fixed_delay_allows_so_many_restarts() -> None:
    strategy = RestartStrategies.fixed_delay_restart(2, 10_000)

    assert decide(strategy, 1, [1]) == Restart(10_000)
    assert decide(strategy, 2, [1, 2]) == Restart(10_000)
    verdict = decide(strategy, 3, [1, 2, 3])
    assert isinstance(verdict, GiveUp)
    assert "all 2 restart attempts" in verdict.reason


def test_a_failure_rate_looks_at_a_sliding_interval() -> None:
    strategy = RestartStrategies.failure_rate_restart(2, 100, 7)

    assert decide(strategy, 0, [0]) == Restart(7)
    assert decide(strategy, 50, [0, 50]) == Restart(7)
    assert decide(strategy, 101, [0, 50, 101]) == Restart(7)
    assert decide(strategy, 151, [0, 50, 101, 151]) == Restart(7)
    verdict = decide(strategy, 152, [0, 50, 101, 151, 152])
    assert isinstance(verdict, GiveUp)
    assert "3 failures within 100 ms, 2 are allowed" in verdict.reason


def test_a_failure_exactly_one_interval_ago_still_counts() -> None:
    strategy = RestartStrategies.failure_rate_restart(1, 100, 0)

    assert isinstance(decide(strategy, 100, [0, 100]), GiveUp)
    assert decide(strategy, 101, [0, 101]) == Restart(0)


def test_an_exponential_delay_grows_to_its_maximum_and_begins_anew_after_a_good_while() -> None:
    strategy = RestartStrategies.exponential_delay_restart(100, 300, 2.0, 10_000, 0.0)

    assert decide(strategy, 0, [0]) == Restart(100)
    assert decide(strategy, 150, [0, 150]) == Restart(200)
    assert decide(strategy, 400, [0, 150, 400]) == Restart(300)
    assert decide(strategy, 800, [0, 150, 400, 800]) == Restart(300)
    # The wait of 300 ms after the last failure does not count as time in which the job ran.
    assert decide(strategy, 11_000, [0, 150, 400, 800, 11_000]) == Restart(300)
    assert decide(strategy, 11_100, [0, 150, 400, 800, 11_100]) == Restart(100)


def test_jitter_spreads_restarts_around_the_backoff() -> None:
    strategy = RestartStrategies.exponential_delay_restart(1000, 1000, 1.0, 1, 0.1)

    assert decide(strategy, 0, [0], spread=-1) == Restart(900)
    assert decide(strategy, 0, [0], spread=1) == Restart(1100)


def test_attempts_of_an_exponential_delay_are_counted_until_it_begins_anew() -> None:
    strategy = replace(
        RestartStrategies.exponential_delay_restart(10, 10, 1.0, 100, 0.0), attempts_before_reset_backoff=2
    )

    assert decide(strategy, 20, [0, 20]) == Restart(10)
    assert isinstance(decide(strategy, 40, [0, 20, 40]), GiveUp)
    assert decide(strategy, 200, [0, 20, 200]) == Restart(10)


def test_a_fallback_has_to_be_resolved_before() -> None:
    with pytest.raises(ConfigError, match="resolve_restart_strategy"):
        decide(RestartStrategies.fall_back_restart(), 0, [0])


@pytest.mark.parametrize(
    "error",
    [
        StateMigrationException("x"),
        UnmappedStateError("x"),
        SavepointNotFoundError("x"),
        pickle.PicklingError("x"),
    ],
)
def test_some_errors_are_not_cured_by_trying_again(error: Exception) -> None:
    assert not is_curable(error)
    assert not is_curable(ExecutionError.from_cause("Operator failed", error))


def test_other_errors_may_be_cured() -> None:
    assert is_curable(StorageError("x"))
    assert is_curable(ExecutionError.from_cause("Operator failed", ValueError("x")))
