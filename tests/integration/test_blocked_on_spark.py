"""User code that blocks on Spark, and slots that hang: control goes on, and their processes are ended by pid.

Functions block until a file appears, which happens after the last assertion: nothing here depends on speed.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.test_jobs_on_spark import Discard, Endless, wait_for
from tests.integration.test_recovery_on_spark import committed, expected, numbers_job

from tidemark import (
    CheckpointedFunction,
    CheckpointListener,
    FsStateBackend,
    JobStatus,
    KeyedProcessFunction,
    MapFunction,
    Types,
)
from tidemark.errors import FailureReason
from tidemark.runtime.control_client import ControlClient

pytestmark = pytest.mark.spark

DEADLINE = 600


def block(directory: str) -> None:
    """Say that we are here, and wait for the file that lets us go."""
    Path(directory, "blocked").touch()
    while not Path(directory, "release").exists():
        time.sleep(0.02)
    Path(directory, "returned").touch()


class Blocks(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Passes values on, and blocks in the call it is told."""

    def __init__(self, directory: str, place: str) -> None:
        self.directory, self.place = directory, place

    def reach(self, place: str) -> None:
        if place == self.place:
            block(self.directory)

    def open(self, runtime_context: Any) -> None:
        self.reach("open")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.reach("process_element")
        yield value

    def initialize_state(self, context: Any) -> None:
        pass

    def snapshot_state(self, context: Any) -> None:
        self.reach("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.reach("notify_checkpoint_complete")


class BlocksInMap(MapFunction):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def map(self, value: Any) -> Any:
        block(self.directory)
        return value


@pytest.fixture
def submit(make_env, tmp_path):
    """Submits a job that blocks in a place, and lets it go after the test."""

    def submit(place: str, checkpoint_timeout: int = 600_000, **settings: str) -> Any:
        env = make_env(1, **settings)
        env.enable_checkpointing(100)
        env.get_checkpoint_config().set_checkpoint_timeout(checkpoint_timeout)
        env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(1000)
        stream = env.add_source(Endless(), type_info=Types.LONG())
        if place == "map":
            stream = stream.map(BlocksInMap(str(tmp_path)), Types.LONG())
        keyed = stream.key_by(lambda n: n % 3, Types.LONG())
        passed = keyed.process(Blocks(str(tmp_path), place), Types.LONG())
        if place == "foreach_batch":
            passed.foreach_batch(lambda frame, epoch: block(str(tmp_path)))
        else:
            passed.add_sink(Discard())
        client = env.execute_async("blocked")
        wait_for((tmp_path / "blocked").exists)
        return client

    yield submit
    (tmp_path / "release").touch()


@pytest.mark.parametrize("place", ["open", "process_element", "map", "snapshot_state", "foreach_batch"])
def test_info_and_cancel_are_served_and_slots_killed_while_user_code_blocks(submit, tmp_path, place):
    client = submit(place, task__cancellation__timeout="200 ms")
    slots = [psutil.Process(pid) for pid in client.get_progress()["slot_pids"].values()]

    with ControlClient.find(str(client.get_job_id()), timeout=DEADLINE) as control:
        assert control.request("info")["status"] == "RUNNING"
        control.request("cancel")

    assert client.get_job_status().result() is JobStatus.CANCELED
    psutil.wait_procs(slots, timeout=DEADLINE)
    assert not [slot for slot in slots if slot.is_running() and slot.status() != psutil.STATUS_ZOMBIE]
    assert not (tmp_path / "returned").exists()


@pytest.mark.parametrize("place", ["snapshot_state", "process_element"])
def test_a_checkpoint_expires_on_spark_while_user_code_blocks(submit, tmp_path, place):
    client = submit(place, checkpoint_timeout=200, task__cancellation__timeout="200 ms")
    records = client.runner.execution.coordinator.statistics.records

    wait_for(lambda: any(record.reason is FailureReason.EXPIRED for record in records()))

    assert not (tmp_path / "returned").exists()
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result(DEADLINE)


def test_a_stopped_slot_is_killed_and_the_job_recovers_exactly(make_env, checkpoints, tmp_path):
    limit = 10_000
    env = make_env(2, heartbeat__interval="100 ms", heartbeat__timeout="3 s")
    numbers_job(env, FsStateBackend(checkpoints), limit, tmp_path / "out", tmp_path / "go")
    client = env.execute_async("stopped slot")
    wait_for(lambda: client.get_progress()["checkpoints"] > 0)
    stopped = psutil.Process(client.get_progress()["slot_pids"][0])

    os.kill(stopped.pid, signal.SIGSTOP)
    (tmp_path / "go").touch()
    client.get_job_execution_result().result(DEADLINE)

    assert client.get_progress()["attempt"] >= 1
    assert committed(tmp_path / "out") == expected(limit)
    psutil.wait_procs([stopped], timeout=DEADLINE)
    assert not stopped.is_running() or stopped.status() == psutil.STATUS_ZOMBIE
