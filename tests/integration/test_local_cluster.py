"""A cluster of real executor processes on this machine: tasks and slots do not share the driver's process.

Its links are TCP, encrypted with certificates on both sides; without them `make chaos-spark` kills executors.
"""

from __future__ import annotations

import json
import os
import random
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from tests.integration.conftest import slot_processes
from tests.integration.test_jobs_on_spark import DEADLINE, RunningCount, wait_for
from tests.integration.test_recovery_on_spark import committed, expected, numbers_job
from tests.integration.test_session_on_spark import RPC_RESPONSE, answer_to_a_stranger, doors_of_jvm
from tests.watching import completed_checkpoints

from tidemark import wire
from tidemark.cli.main import cli
from tidemark.jobs import list_jobs, token_bytes

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests.integration.test_local_cluster import cluster_main
cluster_main({folder!r}, {limit}, {mode!r})
"""


class CountOverTcp(RunningCount):
    """In a slot whose unix socket tasks do not find, as if they were on another machine."""

    def open(self, runtime_context: Any) -> None:
        assert Path.cwd().name.startswith("tidemark-")
        Path("slot.sock").unlink(missing_ok=True)
        super().open(runtime_context)


def cluster_main(folder: str, limit: int, mode: str) -> None:
    """The program of the driver process."""
    from tidemark import Configuration, FsStateBackend, StreamExecutionEnvironment
    from tidemark.tls.making import make_certificates

    configuration = Configuration.from_dict(make_certificates(f"{folder}/tls"))
    configuration.set_string("queryable-state.enable", "true")
    configuration.set_string("spark.master", "local-cluster[2,1,1024]")
    configuration.set_string("execution.mode", mode)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    here = Path(folder)
    numbers_job(
        env, FsStateBackend(f"{folder}/checkpoints"), limit, here / "out", here / "go", count=CountOverTcp
    )
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


def doors_of(slots: set[int]) -> set[int]:
    """The TCP ports of slots, and the one of their driver at which they have registered."""
    doors = set()
    for slot in slots:
        for connection in psutil.Process(slot).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                doors.add(connection.laddr.port)
    for slot in slots:
        for connection in psutil.Process(slot).net_connections("tcp"):
            if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port not in doors:
                doors.add(connection.raddr.port)
    return doors


def assert_closed_to_strangers(driver: int, slots: set[int]) -> None:
    """Whoever knows the token and has no certificate gets nothing, anywhere; with one, the command line does."""
    record = next(record for record in list_jobs() if record.pid == driver)
    assert record.tls is not None
    assert record.control_address.startswith("tcp:")
    assert record.query_port is not None
    told = CliRunner().invoke(cli, ["info", record.job_id, "--json"])
    assert json.loads(told.stdout)["status"] == "RUNNING", told.output
    doors = doors_of(slots) | {record.query_port, int(record.control_address.rpartition(":")[2])}
    assert len(doors) >= 2 * 1 + 1 + 2, "records of two slots, their registration, queries and control"
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    for port in doors:
        with pytest.raises(wire.WireClosed, match="certificate"):
            wire.connect(f"tcp:127.0.0.1:{port}", token_bytes(record.token), DEADLINE, anybody)


def assert_spark_tells_strangers_nothing(driver: int) -> None:
    """Its ports are on the loopback interface, and give the closures of tasks, which hold the token, to nobody."""
    jvms = [p for p in psutil.Process(driver).children(recursive=True) if p.name() == "java"]
    assert len(jvms) == 1 + 2, "the driver, with master and workers in it, and the executors"
    doors = set().union(*map(doors_of_jvm, jvms))
    assert {host for host, _port in doors} == {"127.0.0.1"}
    asked = [(door, f"broadcast_{number}_piece0") for door in doors for number in range(4)]
    answers = {question: answer_to_a_stranger(question[0], "app", question[1]) for question in asked}
    assert RPC_RESPONSE not in answers.values(), answers
    assert not [jvm for jvm in jvms if "authenticate.secret" in " ".join(jvm.cmdline())]


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
            before = set(completed_checkpoints(tmp_path / "checkpoints"))

            def new_checkpoint(before: set[Path] = before) -> bool:
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
                return bool(set(completed_checkpoints(tmp_path / "checkpoints")) - before)

            wait_for(new_checkpoint)
            time.sleep(rng.random() * 0.3)
            if not machine_lost:
                assert_closed_to_strangers(driver.pid, set(slot_processes()) - others)
                assert_spark_tells_strangers_nothing(driver.pid)
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
