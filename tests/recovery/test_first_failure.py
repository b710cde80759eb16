"""The error a user gets is the one that came first: it names the operator, shows its traceback and chains the cause."""

from __future__ import annotations

import random

import pytest
from tests.recovery.local_jobs import local_env

from tidemark import CoFlatMapFunction, CoMapFunction, MapFunction, RestartStrategies, Types
from tidemark.errors import JobExecutionException
from tidemark.protocol.failure import FailureInfo, FailureKind, first_failure


class Both(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value

    def flat_map2(self, value):
        yield value


class Fails(CoMapFunction):
    def map1(self, value):
        raise ValueError("the cause")

    def map2(self, value):
        raise ValueError("the cause")


class FailsAlone(MapFunction):
    def map(self, value):
        raise ValueError("the cause")


def failure_of(env):
    env.set_restart_strategy(RestartStrategies.no_restart())
    with pytest.raises(JobExecutionException) as caught:
        env.execute("failing")
    return caught.value


def assert_names_the_cause(error, operator):
    assert f"Operator '{operator}'" in str(error)
    assert "raise ValueError" in str(error), "the traceback shows the line"
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "the cause"


def test_a_failure_behind_two_connected_streams_names_its_operator(capfd):
    env = local_env()
    one = env.from_collection([1, 2, 3], Types.LONG())
    two = one.map(lambda n: n + 1, Types.LONG())
    joined = one.connect(two).flat_map(Both(), Types.LONG())
    joined.connect(two).map(Fails(), Types.LONG()).name("culprit").print()

    assert_names_the_cause(failure_of(env), "culprit")


@pytest.mark.parametrize("seed", range(25))
def test_in_any_graph_the_error_names_the_operator_that_failed(seed):
    rng = random.Random(seed)
    env = local_env(parallelism=rng.choice([1, 2, 3]))
    streams = [env.from_collection(list(range(rng.randrange(1, 50))), Types.LONG())]
    culprit = rng.randrange(1, 6)
    for at in range(1, 6):
        left, right = rng.choice(streams), rng.choice(streams)
        fails = at == culprit
        match rng.choice(["map", "keyed map", "connect", "keyed connect"]):
            case "map":
                made = left.map(FailsAlone() if fails else lambda n: n, Types.LONG())
            case "keyed map":
                keyed = left.key_by(lambda n: n % 5, Types.LONG())
                made = keyed.map(FailsAlone() if fails else lambda n: n, Types.LONG())
            case "connect":
                made = left.connect(right).map(Fails(), Types.LONG()) if fails else _both(left.connect(right))
            case _:
                pair = left.connect(right).key_by(lambda n: n % 5, lambda n: n % 5, Types.LONG())
                made = pair.map(Fails(), Types.LONG()) if fails else _both(pair)
        streams.append(made.name(f"operator-{at}"))
    for stream in streams:
        stream.print()

    assert_names_the_cause(failure_of(env), f"operator-{culprit}")


def _both(connected):
    return connected.flat_map(Both(), Types.LONG())


def info(kind, at, summary="it"):
    return FailureInfo(summary, "", kind=kind, at=at)


def test_what_is_nearest_to_the_cause_wins_and_of_those_the_earliest():
    refused = info(FailureKind.REFUSED, 1.0)
    lost = info(FailureKind.SLOT_LOST, 2.0)
    later, earlier = info(FailureKind.OPERATOR, 4.0), info(FailureKind.OPERATOR, 3.0)

    assert first_failure([refused, lost]) is lost
    assert first_failure([refused, later, lost, earlier]) is earlier
