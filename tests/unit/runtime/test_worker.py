"""Waiting for user code without being blocked by it, and leaving it behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tidemark.config import Configuration
from tidemark.errors import ConfigError
from tidemark.processes import kill_process, process_started
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.worker import Abandoned, Worker

DEADLINE = 60


class Enough(Exception):
    """What somebody raises who waits no longer."""


def test_a_call_gives_its_result_and_its_error():
    worker = Worker("test")

    assert worker.call(int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        worker.call(int, "seven")
    worker.close()


def test_whoever_waits_looks_up_and_may_leave_while_the_call_goes_on():
    worker, release, done = Worker("test"), threading.Event(), threading.Event()

    def work() -> None:
        assert release.wait(DEADLINE)
        done.set()

    def enough() -> None:
        raise Enough

    worker.while_waiting = enough
    with pytest.raises(Enough):
        worker.call(work)
    assert not done.is_set()
    release.set()
    assert done.wait(DEADLINE)
    worker.close()


def test_calls_posted_behind_a_blocked_one_run_in_order():
    worker, release, order = Worker("test"), threading.Event(), []
    worker.post(release.wait, DEADLINE)
    posted = [worker.post(order.append, number) for number in range(5)]

    release.set()

    for future in posted:
        future.result(DEADLINE)
    assert order == [0, 1, 2, 3, 4]
    worker.close()


def test_an_abandoned_call_is_unwound_and_nothing_behind_it_runs():
    worker, release, after = Worker("test"), threading.Event(), []
    unwound = threading.Event()
    started = threading.Event()

    def work() -> None:
        started.set()
        try:
            release.wait(DEADLINE)
            after.append("the rest of the call")
        except Abandoned:
            unwound.set()
            raise

    worker.post(work)
    worker.post(after.append, "the next call")
    assert started.wait(DEADLINE)
    worker.abandon()
    assert worker.call(int, "7") == 7, "others go on in a new thread"
    release.set()

    assert unwound.wait(DEADLINE)
    assert after == []
    worker.close()


def test_patience_ends_after_the_timeout_and_complains_every_interval():
    worker, release, complaints = Worker("test"), threading.Event(), []
    blocked = worker.post(release.wait, DEADLINE)

    assert not Cancellation(0.5, 0.1).settled([blocked], lambda: None, complaints.append)
    assert complaints
    release.set()
    assert Cancellation(0.0, 0.0).settled([blocked], lambda: None, complaints.append), "0 waits for ever"
    worker.close()


def test_a_process_is_killed_by_pid_only_if_it_is_still_the_same():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    started = process_started(child.pid)
    try:
        assert not kill_process(child.pid, started - 3600), "the pid belongs to another process now"
        assert child.poll() is None
        assert kill_process(child.pid, started)
        assert child.wait(DEADLINE) != 0
    finally:
        child.kill()
        child.wait()
    assert not kill_process(child.pid, started)
    assert process_started() == process_started(os.getpid()) > process_started(1)


def test_a_heartbeat_timeout_that_is_not_longer_than_its_interval_is_refused():
    with pytest.raises(ConfigError, match=r"heartbeat\.timeout"):
        SlotLimits.of(Configuration.from_dict({"heartbeat.timeout": "1 s", "heartbeat.interval": "1 s"}))
    assert SlotLimits.of(Configuration()) == SlotLimits()


def test_what_runs_in_the_worker_may_call_it_again():
    worker = Worker("test")

    assert worker.call(lambda: worker.call(lambda: threading.current_thread().name)) == "test"

    worker.close()
