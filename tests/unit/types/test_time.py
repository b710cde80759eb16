from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from tidemark.types.time import Duration, Instant, Time, to_millis


@pytest.mark.parametrize(
    ("value", "millis"),
    [
        (5, 5),
        (Time.milliseconds(7), 7),
        (Time.seconds(2), 2_000),
        (Time.minutes(2), 120_000),
        (Time.hours(1), 3_600_000),
        (Time.days(1), 86_400_000),
        (Duration.of_millis(7), 7),
        (Duration.of_seconds(2), 2_000),
        (Duration.of_seconds(2, 1_500_000), 2_001),
        (Duration.of_minutes(2), 120_000),
        (Duration.of_hours(1), 3_600_000),
        (Duration.of_days(1), 86_400_000),
        (Duration.of_nanos(1_999_999), 1),
        (timedelta(seconds=1.5), 1_500),
    ],
)
def test_every_form_of_time_becomes_milliseconds(value: Any, millis: int) -> None:
    assert to_millis(value) == millis


@pytest.mark.parametrize("value", [True, 1.5, "5 s", None])
def test_other_types_are_refused_with_the_name_of_the_argument(value: Any) -> None:
    with pytest.raises(TypeError, match="the gap must be int milliseconds"):
        to_millis(value, "the gap")


@pytest.mark.parametrize("make", [Time.seconds, Time.milliseconds, Duration.of_seconds, Duration.of_nanos])
def test_lengths_need_whole_numbers(make: Any) -> None:
    with pytest.raises(TypeError, match="whole number"):
        make(1.5)


def test_lengths_compare_by_value_and_pickle() -> None:
    assert Time.seconds(1) == Time.milliseconds(1000)
    assert Duration.of_seconds(1) < Duration.of_minutes(1)
    assert pickle.loads(pickle.dumps(Duration.of_nanos(3))) == Duration.of_nanos(3)
    assert str(Time.seconds(1)) == str(Duration.of_seconds(1)) == "1000 ms"
    assert str(Duration.of_nanos(5)) == "5 ns"


@pytest.mark.parametrize("millis", [0, 1, 1_500, -1, -1_500])
def test_instant_and_epoch_milliseconds_agree(millis: int) -> None:
    instant = Instant.of_epoch_milli(millis)

    assert instant.to_epoch_milli() == millis
    assert 0 <= instant.nanos < 1_000_000_000


def test_instant_now_is_after_the_epoch() -> None:
    assert Instant.now() > Instant(0, 0)
    assert repr(Instant(1, 2)) == "Instant<1, 2>"
