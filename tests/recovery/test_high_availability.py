"""Drivers of one job that are killed, frozen, asked to go: the next one goes on by itself, exactly once. No JVM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.recovery.killed_driver import TOTAL
from tests.watching import files_below

from tidemark.jobs import list_jobs

PROGRAM = str(Path(__file__).with_name("killed_driver.py"))
JOB = "0123456789abcdef" * 2
PATIENCE = 600
"""Seconds for a whole program on a slow machine."""
EXACT = Counter(f"{key} {count}" for key in range(50) for count in range(1, TOTAL // 50 + 1))
OPTIONS = {
    "high-availability.type": "filesystem",
    "high-availability.lease-duration": "2 s",
    "execution.job-id": JOB,
    "rest.enabled": "false",
}


class Driver:
    """`tidemark run` as a process of its own."""

    def __init__(self, directory: Path, *flags: str, backend: str = "heap") -> None:
        options = {**OPTIONS, "high-availability.storageDir": str(directory / "ha")}
        defines = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
        command = [sys.executable, "-m", "tidemark.cli", "run", *flags, *defines, PROGRAM]
        self.log = directory / f"driver-{len(list(directory.glob('driver-*')))}.log"
        environment = {**os.environ, "TMPDIR": str(directory), "TIDEMARK_HOME": str(directory / "home")}
        with self.log.open("w") as log:
            # Whoever runs the tests in the background may have them ignore Ctrl-C, which children inherit.
            self.process = subprocess.Popen(
                [*command, str(directory), backend],
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.log.read_text().count(text) < times:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.005)

    def end(self) -> str:
        self.process.wait(PATIENCE)
        return self.log.read_text()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Driver]]:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    with contextlib.ExitStack() as drivers:

        def new(*flags: str, backend: str = "heap") -> Driver:
            driver = Driver(tmp_path, *flags, backend=backend)
            drivers.callback(driver.kill)
            return driver

        yield new
        for record in list_jobs():
            # Of a supervisor that a failing test has killed.
            os.kill(record.pid, signal.SIGKILL)


def published(directory: Path) -> Counter[str]:
    visible = [path for path in files_below(directory / "out", "*") if path.name[0] != "."]
    return Counter(line for path in visible for line in path.read_text().splitlines())


def staged_in(directory: Path) -> list[Path]:
    return [path for path in files_below(directory / "out", "*") if path.parent.name.startswith(".area-")]


def left_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["rocksdb"])
def test_a_supervised_driver_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, start: Callable[..., Driver], backend: str
) -> None:
    (tmp_path / "hold").touch()
    supervisor = start("--supervise", backend=backend)
    for killed in range(1, 3):
        supervisor.wait_for("complete", 3 * killed)
        (record,) = list_jobs()
        assert record.job_id == JOB
        os.kill(record.pid, signal.SIGKILL)
        supervisor.wait_for("was killed by signal 9", killed)
        # It completes more, so it has begun where the last one was.
        supervisor.wait_for("complete", 3 * killed + 1)
    (tmp_path / "hold").unlink()

    assert "finished" in supervisor.end()

    assert supervisor.process.returncode == 0
    assert published(tmp_path) == EXACT
    assert left_in(tmp_path / "ha") == [JOB, f"{JOB}/ended"]
    assert not (tmp_path / "checkpoints" / JOB).exists()
    again = start()
    assert "it is FINISHED, and is not started again" in again.end()
    assert again.process.returncode == 9
    assert published(tmp_path) == EXACT


@pytest.mark.slow
def test_a_driver_that_is_killed_before_its_first_checkpoint_begins_again(
    tmp_path: Path, start: Callable[..., Driver]
) -> None:
    uncovered = tmp_path / "uncovered"
    uncovered.touch()
    killed = start()
    deadline = time.monotonic() + PATIENCE
    # It has noted that nothing is published, and staged something.
    while not {".frontier", "files"} <= {
        ".frontier" if path.name == ".frontier" else "files" for path in staged_in(tmp_path)
    }:
        assert killed.process.poll() is None, killed.log.read_text()
        assert time.monotonic() < deadline, killed.log.read_text()
        time.sleep(0.01)
    killed.kill()
    uncovered.unlink()

    successor = start()

    assert "finished" in successor.end()
    assert successor.process.returncode == 0
    assert published(tmp_path) == EXACT
    assert staged_in(tmp_path) == []


@pytest.mark.slow
def test_a_frozen_driver_that_wakes_up_late_completes_and_commits_nothing(
    tmp_path: Path, start: Callable[..., Driver]
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    frozen = start()
    frozen.wait_for("complete", 3)
    frozen.process.send_signal(signal.SIGSTOP)
    of_frozen = left_in(tmp_path / "checkpoints" / JOB)
    # It waits for the lease, and needs no -s.
    successor = start()
    successor.wait_for("complete", 2)

    frozen.process.send_signal(signal.SIGCONT)

    assert "does not own it any more" in frozen.end()
    assert frozen.process.returncode == 10
    hold.unlink()
    assert "finished" in successor.end()
    assert published(tmp_path) == EXACT
    assert of_frozen, "the frozen one had checkpoints"


@pytest.mark.slow
@pytest.mark.modes("epochs", reason="how a driver is asked to end, which no engine sees")
def test_sigterm_hands_a_job_over_and_cancel_ends_it(tmp_path: Path, start: Callable[..., Driver]) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    first = start()
    first.wait_for("complete", 2)
    standby = start()
    standby.wait_for("waits for its turn")

    first.process.send_signal(signal.SIGTERM)

    first.end()
    assert first.process.returncode == 128 + signal.SIGTERM
    standby.wait_for("complete")
    assert f"Job {JOB} goes on from" in standby.log.read_text()
    standby.process.send_signal(signal.SIGINT)
    standby.end()
    third = start()
    assert "it is CANCELED, and is not started again" in third.end()
    assert third.process.returncode == 9
