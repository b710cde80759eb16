"""Spare slots: interpreters that are up before a slot is lost, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.recovery.local_jobs import DEADLINE

from tidemark.errors import ConfigError
from tidemark.runtime.launch import SpareSlots, launch_slots_here
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager

pytestmark = pytest.mark.modes("epochs", reason="slots without a job")

JOB = "0" * 32
PATIENCE_S = 10.0


@pytest.fixture
def spares():
    return SpareSlots(JOB, 1)


@pytest.fixture
def manager(spares):
    """One slot, launched as a driver does it, and one to spare."""
    with tempfile.TemporaryDirectory() as directory:
        made = SlotManager(
            JOB,
            os.urandom(32),
            f"unix:{directory}/slots.sock",
            partial(launch_slots_here, spares=spares),
            "127.0.0.1",
            [0],
            SlotLimits(heartbeat_interval_s=0.5, heartbeat_timeout_s=PATIENCE_S),
            spares=spares,
        )
        made.ensure(1)
        made.keep_spares()
        yield made
        made.stop()


def lose(manager):
    process = psutil.Process(manager.pids()[0])
    process.kill()
    assert_gone(process)
    manager._slots[0].client.close()


def assert_gone(process):
    psutil.wait_procs([process], timeout=DEADLINE)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_lost_slot_is_replaced_by_the_spare_one(manager, spares):
    (spare,) = spares.pids()
    lose(manager)

    manager.ensure(1)

    assert manager.pids() == {0: spare}
    assert manager.request(0, "ping").result(DEADLINE) is True
    assert spares.pids() == []


def test_there_is_another_one_once_it_has_been_used(manager, spares):
    (first,) = spares.pids()
    lose(manager)
    manager.ensure(1)

    manager.keep_spares()

    (second,) = spares.pids()
    assert second != first


def test_no_more_are_kept_than_were_asked_for(manager, spares):
    before = spares.pids()

    manager.keep_spares()

    assert spares.pids() == before


def test_a_spare_that_has_died_is_not_used(manager, spares):
    dead = psutil.Process(spares.pids()[0])
    dead.kill()
    assert_gone(dead)
    lose(manager)

    manager.ensure(1)

    assert manager.pids()[0] != dead.pid


def test_a_spare_that_was_frozen_is_ended_and_another_process_used(manager, spares):
    frozen = psutil.Process(spares.pids()[0])
    scratch = Path(frozen.cwd())
    frozen.suspend()
    lose(manager)

    manager.ensure(1)

    assert manager.pids()[0] != frozen.pid
    assert manager.request(0, "ping").result(DEADLINE) is True
    assert_gone(frozen)
    assert not scratch.exists()


def test_a_job_does_without_spares_that_cannot_be_started(manager, spares, monkeypatch, caplog):
    dead = psutil.Process(spares.pids()[0])
    dead.kill()
    assert_gone(dead)
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    manager.keep_spares()

    assert spares.pids() == []
    assert "No spare slot could be started" in caplog.text


def test_a_slot_that_cannot_be_told_uses_no_spare_up(spares):
    spares.keep()
    try:
        waiting = spares.pids()
        files = {"key_prefix": "security.ssl.internal", "certificate": "/no/such/file.pem"}

        with pytest.raises(ConfigError):
            spares.become({"slot": 0, "job_id": JOB, "bind": "127.0.0.1", "tls": files})

        assert spares.pids() == waiting
    finally:
        spares.close()


def test_the_end_of_the_job_is_the_end_of_its_spares(manager, spares):
    spare = psutil.Process(spares.pids()[0])
    scratch = Path(spare.cwd())

    manager.stop()
    manager.keep_spares()

    assert_gone(spare)
    assert not scratch.exists()
    assert spares.pids() == []


def test_a_spare_ends_with_a_driver_that_was_killed():
    program = (
        "import time\n"
        "from tidemark.runtime.launch import SpareSlots\n"
        f"spares = SpareSlots({JOB!r}, 1)\n"
        "spares.keep()\n"
        "print(spares.pids()[0], flush=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as driver:
        spare = psutil.Process(int(driver.stdout.readline()))
        driver.send_signal(signal.SIGKILL)

    assert_gone(spare)
