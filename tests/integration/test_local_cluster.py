"""A cluster of real executor processes on this machine: tasks and slots do not share the driver's process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.integration.conftest import slot_processes
from tests.integration.test_jobs_on_spark import DEADLINE, wait_for
from tests.integration.test_recovery_on_spark import committed, expected, numbers_job

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests.integration.test_local_cluster import cluster_main
cluster_main({folder!r}, {limit}, {mode!r})
"""


def cluster_main(folder: str, limit: int, mode: str) -> None:
    """The program of the driver process."""
    from tidemark import Configuration, FsStateBackend, StreamExecutionEnvironment

    configuration = Configuration()
    configuration.set_string("spark.master", "local-cluster[2,1,1024]")
    configuration.set_string("execution.mode", mode)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    here = Path(folder)
    numbers_job(env, FsStateBackend(f"{folder}/checkpoints"), limit, here / "out", here / "go")
    env.execute("cluster")


def start(folder: Path, limit: int, mode: str) -> subprocess.Popen[bytes]:
    import pyspark

    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    program = PROGRAM.format(root=root, folder=str(folder), limit=limit, mode=mode)
    with (folder / "driver.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program], stdout=log, stderr=log, env=environment, cwd=folder
        )


def executors(driver: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()) and process.name() == "java":
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("mode", ["epochs", "continuous"])
def test_executors_killed_at_random_moments_lose_and_repeat_nothing(tmp_path, mode):
    """First an executor alone: its slot lives on, and whether the epoch notices depends on the moment.

    Then an executor and a slot together, as when a machine is lost: that has to end the attempt.
    """
    limit, rng = 40_000, random.Random(11)
    others = set(slot_processes())
    driver = start(tmp_path, limit, mode)
    try:
        for machine_lost in (False, True):
            before = set((tmp_path / "checkpoints").rglob("_metadata"))

            def new_checkpoint(before: set[Path] = before) -> bool:
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
                return bool(set((tmp_path / "checkpoints").rglob("_metadata")) - before)

            wait_for(new_checkpoint)
            time.sleep(rng.random() * 0.3)
            victims = executors(driver.pid)
            assert victims
            rng.choice(victims).kill()
            if machine_lost:
                own = sorted(set(slot_processes()) - others)
                assert own
                psutil.Process(rng.choice(own)).kill()

        (tmp_path / "go").touch()
        assert driver.wait(DEADLINE) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()

    assert committed(tmp_path / "out") == expected(limit)
    assert "is restarted" in (tmp_path / "driver.log").read_text(), (
        "a lost machine must have ended an attempt"
    )
