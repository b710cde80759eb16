"""Two drivers of one lineage on Spark: one publishes, the other one stops and says why. The sink is exact."""

from __future__ import annotations

import signal

import pytest
from tests.integration.test_jobs_on_spark import wait_for
from tests.integration.test_recovery_on_spark import committed, expected, numbers_job, start_driver
from tests.watching import completed_checkpoints

from tidemark import ExternalizedCheckpointRetention, FsStateBackend, JobStatus
from tidemark.errors import FencedError

pytestmark = pytest.mark.spark

PATIENCE = 600
"""Seconds for a whole program on a slow machine."""


def test_a_frozen_driver_that_wakes_up_after_the_takeover_stops_and_publishes_nothing(tmp_path):
    limit, out, checkpoints = 20_000, tmp_path / "out", tmp_path / "checkpoints"
    frozen = start_driver(tmp_path, None, limit)
    drivers = [frozen]
    try:
        wait_for(lambda: completed_checkpoints(checkpoints) and sum(committed(out).values()) > 500)
        frozen.send_signal(signal.SIGSTOP)
        newest = completed_checkpoints(checkpoints)[-1]
        drivers.append(successor := start_driver(tmp_path, str(newest), limit))
        wait_for(lambda: len({path.parent for path in completed_checkpoints(checkpoints)}) == 2)

        frozen.send_signal(signal.SIGCONT)
        (tmp_path / "go").touch()

        assert frozen.wait(PATIENCE) != 0
        assert "FencedError" in (tmp_path / "driver-start.log").read_text()
        assert successor.wait(PATIENCE) == 0, (tmp_path / "driver-again.log").read_text()
        assert committed(out) == expected(limit)
    finally:
        for driver in drivers:
            driver.send_signal(signal.SIGCONT)
            driver.kill()
            driver.wait()


def test_the_second_of_two_drivers_from_one_checkpoint_is_refused_once_the_first_has_published(
    make_env, checkpoints, tmp_path
):
    limit, out = 20_000, tmp_path / "out"

    def start(savepoint=None):
        env = make_env(2, **({} if savepoint is None else {"execution__savepoint__path": savepoint}))
        numbers_job(env, FsStateBackend(checkpoints), limit, out, tmp_path / "go")
        retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
        return env.execute_async("fenced")

    first = start()
    wait_for(lambda: first.get_progress()["checkpoints"] >= 1)
    first.cancel().result(PATIENCE)
    retained = str(completed_checkpoints(tmp_path / "checkpoints")[-1])

    second = start(retained)
    wait_for(lambda: second.get_progress()["checkpoints"] >= 1)
    third = start(retained)

    error = third.get_job_execution_result().exception(PATIENCE)
    assert isinstance(error.__cause__, FencedError)
    assert third.get_job_status().result() is JobStatus.FAILED
    (tmp_path / "go").touch()
    second.get_job_execution_result().result(PATIENCE)
    assert committed(out) == expected(limit)
