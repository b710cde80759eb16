"""Real slot processes without Spark: whatever user code does in them, they answer, and they end when they must."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
from tests.recovery.local_jobs import DEADLINE, local_env

from tidemark import MapFunction, Types
from tidemark.errors import SlotLostError
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.events import SlotLost
from tidemark.runtime.cancellation import Cancellation
from tidemark.runtime.launch import launch_slots, launch_slots_here
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.runtime.slot_manager import SlotManager, _Ping

pytestmark = pytest.mark.modes("epochs", reason="slots without a job")

JOB = "0" * 32


class BlocksInOpen(MapFunction):
    """Never returns from `open` before a file appears."""

    def __init__(self, directory):
        self.directory = directory

    def open(self, runtime_context):
        Path(self.directory, "blocked").touch()
        while not Path(self.directory, "release").exists():
            time.sleep(0.02)

    def map(self, value):
        return value


def manager_of(limits, launch=lambda settings: list(launch_slots(iter(settings))), at="tcp:127.0.0.1:0"):
    return SlotManager(JOB, os.urandom(32), at, launch, "127.0.0.1", [0], limits)


def one_slot(limits):
    made = manager_of(limits)
    made.ensure(1)
    return made


@pytest.fixture
def manager():
    """One slot in a process of its own; a quick heartbeat, little patience with user code."""
    made = one_slot(SlotLimits(0.05, 5.0, Cancellation(0.2, 0.05)))
    yield made
    made.stop()


def process_of(manager):
    return psutil.Process(manager.pids()[0])


def assert_gone(process):
    psutil.wait_procs([process], timeout=DEADLINE)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def deployment_of(function):
    env = local_env()
    stream = env.from_collection([1], Types.LONG()).key_by(lambda n: n, Types.LONG())
    stream.map(function, Types.LONG()).name("the blocked one").print()
    graph, settings, _ = env._prepared("job")
    plan = build_plan(graph, settings, JOB)
    return Deployment(JOB, 0, 0, dump_functions(plan.in_slots()))


@pytest.fixture
def blocked(manager, tmp_path):
    """The same slot, blocked in the `open` of its operator."""
    manager.send_all("deploy", [deployment_of(BlocksInOpen(str(tmp_path)))])
    deadline = time.monotonic() + DEADLINE
    while not (tmp_path / "blocked").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return manager


class Launcher:
    """Launches slots as a driver does, and remembers them."""

    def __init__(self):
        self.launched = []

    def __call__(self, settings):
        launched = launch_slots_here(settings)
        self.launched += launched
        return launched


@pytest.fixture
def ahead():
    """A manager, and what launches its slots."""
    launch = Launcher()
    with tempfile.TemporaryDirectory() as directory:
        made = manager_of(SlotLimits(), launch, f"unix:{directory}/slots.sock")
        yield made, launch
        made.stop()


def test_slots_that_were_launched_ahead_are_waited_for_and_not_launched_again(ahead):
    manager, launch = ahead

    manager.launch_ahead(1)
    manager.ensure(2)

    assert manager.pids() == {slot: pid for slot, pid, _log in launch.launched}
    assert [slot for slot, _pid, _log in launch.launched] == [0, 1]


def test_one_that_ends_before_it_registers_is_told_and_then_replaced(ahead):
    manager, launch = ahead
    manager.launch_ahead(1)
    # Its interpreter needs far longer to come up than it takes to kill it.
    os.kill(launch.launched[0][1], signal.SIGKILL)

    with pytest.raises(SlotLostError, match="ended before they registered"):
        manager.ensure(1)
    manager.ensure(1)

    assert manager.pids() == {0: launch.launched[1][1]}


def test_a_job_that_does_not_get_its_session_leaves_no_slot_behind(ahead):
    manager, launch = ahead
    manager.launch_ahead(1)
    _slot, pid, log = launch.launched[0]
    process = psutil.Process(pid)

    manager.stop()

    assert_gone(process)
    assert not Path(log).parent.exists()


def test_a_blocked_slot_answers_what_needs_no_operator_and_tells_where_it_hangs(blocked):
    assert blocked.request(0, "ping").result(DEADLINE) is True
    stacks = blocked.request(0, "stacks").result(DEADLINE)

    assert "operator 'the blocked one'" in stacks
    assert "in open" in stacks
    assert isinstance(blocked.ask_all("stats", 0.05, DEADLINE)[0], TimeoutError)


def test_a_blocked_slot_is_killed_by_its_pid_when_patience_ends(blocked, caplog):
    process = process_of(blocked)

    blocked.settle()

    assert_gone(process)
    assert f"process {process.pid}" in caplog.text
    blocked.ensure(1)
    assert process_of(blocked) != process


def test_a_blocked_slot_that_is_let_go_ends_itself(blocked):
    process = process_of(blocked)

    blocked._slots[0].client.close()

    assert_gone(process)


@pytest.mark.modes("epochs", reason="arithmetic of the heartbeat")
@pytest.mark.parametrize(
    ("heard", "sent", "given_up"),
    [(100.0, 100.0, 130.0), (100.0, 105.0, 130.0), (100.0, 500.0, 525.0)],
    ids=["asked at once", "asked an interval later", "the driver was asleep"],
)
def test_silence_counts_from_the_last_answer(heard, sent, given_up):
    ping = _Ping(None, Future(), sent, heard)

    assert ping.silence(given_up, 5.0) == 30.0


def test_a_stopped_slot_is_killed_after_the_heartbeat_timeout(manager):
    process = process_of(manager)
    silent = []
    manager.on_silent = lambda: silent.append(True)

    os.kill(process.pid, signal.SIGSTOP)

    assert_gone(process)
    deadline = time.monotonic() + DEADLINE
    while not silent:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert {event.slot for event in manager.events() if isinstance(event, SlotLost)} == {0}


class ClosesSlowly(MapFunction):
    """Takes longer to close than a slot lives without a word from its driver."""

    def __init__(self, directory):
        self.directory = directory

    def open(self, runtime_context):
        pass

    def map(self, value):
        return value

    def close(self):
        time.sleep(9)
        Path(self.directory, "closed").touch()


def test_a_slot_that_closes_slowly_does_not_lose_its_lease_meanwhile(tmp_path):
    manager = one_slot(SlotLimits(0.05, 4.0, Cancellation(DEADLINE, 0)))
    manager.request_all("deploy", [deployment_of(ClosesSlowly(str(tmp_path)))])

    manager.stop()

    assert (tmp_path / "closed").exists()
