"""The measuring of the soak, on a job of seconds in the local engine; the hour on Spark is `make soak`."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.soak.campaign import Soak
from tests.soak.job import SPLITS, Timing
from tests.soak.trend import BLOCKS, trend
from tests.watching import files_below

LOCAL = {"execution.target": "local", "rest.enabled": "false"}
PATIENCE_S = 120.0


def hour(figure: Callable[[float], float]) -> tuple[list[float], list[float]]:
    times = [5.0 * n for n in range(720)]
    return times, [figure(at) for at in times]


def test_a_sawtooth_with_noise_is_flat() -> None:
    noise = random.Random(1)

    found = trend(*hour(lambda at: 400 + at % 97 + noise.gauss(0, 20)))

    assert not found.grows, found


@pytest.mark.parametrize("per_hour", [40.0, 400.0])
def test_a_leak_smaller_than_the_noise_is_found(per_hour: float) -> None:
    noise = random.Random(2)

    found = trend(*hour(lambda at: 400 + at % 97 + noise.gauss(0, 20) + per_hour * at / 3600))

    assert found.grows, found
    assert found.per_hour == pytest.approx(per_hour, abs=12)


def test_a_single_thread_that_comes_late_is_flat_and_one_each_ten_minutes_is_not() -> None:
    assert not trend(*hour(lambda at: 12 + (at > 3000)), grain=3.0).grows
    assert trend(*hour(lambda at: 12 + math.floor(at / 600)), grain=3.0).grows


def test_what_shrinks_or_never_changes_is_flat() -> None:
    assert not trend(*hour(lambda at: 400 - at / 36)).grows
    assert not trend(*hour(lambda at: 7.0)).grows


def test_what_has_found_its_size_is_flat() -> None:
    noise = random.Random(3)

    assert not trend(*hour(lambda at: 350 + min(at, 1800) / 90 + noise.gauss(0, 3))).grows


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few"):
        trend([float(n) for n in range(BLOCKS - 1)], [1.0] * (BLOCKS - 1))


@pytest.mark.parametrize("leak", [0, 10_000])
def test_a_planted_leak_is_found_in_a_real_job_and_the_job_is_exact(tmp_path: Path, leak: int) -> None:
    soak = Soak("short", tmp_path / "job", "heap", Timing(400 / SPLITS, 0.2), LOCAL, leak)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(soak.samples) < 3 * BLOCKS:
            soak.look()
            if not list(files_below(soak.folder / "out", "part-*")):
                # It has not begun to give results: all of this is starting.
                soak.samples.clear()
                soak.times.clear()
            assert time.monotonic() < deadline, soak.log()[-3000:]
            time.sleep(0.1)
        records = soak.finish()
    finally:
        soak.close()
    found = soak.trends(soak.times[0])

    assert records > 0
    assert found["driver.descriptors"].grows == bool(leak), found["driver.descriptors"]
    assert not found["driver.threads"].grows, found["driver.threads"]
    assert not found["files.checkpoints"].grows, found["files.checkpoints"]
    if leak:
        assert found["driver.own"].grows, found["driver.own"]
