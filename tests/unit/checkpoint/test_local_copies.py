"""Copies of jobs whose slots are all dead are swept; those of the living, of others and of nobody stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.checkpoint.local_copies import LocalCopies, sweep_copies

PROGRAM = """
import sys
from pathlib import Path
from tidemark.checkpoint.local_copies import LocalCopies
copies = LocalCopies(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
copies.directory(1).mkdir()
(copies.directory(1) / "part").write_text("state")
print("there", flush=True)
if sys.stdin.readline():
    copies.close()
"""


@pytest.fixture
def slot(tmp_path: Path):
    """Starts processes that keep copies until they are killed, or told to close."""
    started: list[subprocess.Popen[str]] = []

    def start(job: str, index: int = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), job, str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def place(tmp_path: Path, job: str) -> Path:
    return tmp_path / f"tidemark-copies-{os.geteuid()}" / job


def test_copies_of_a_killed_job_are_swept_and_those_of_a_living_one_are_not(tmp_path: Path, slot) -> None:
    dead, _living = slot("dead"), slot("living")
    kill(dead)

    assert sweep_copies(tmp_path) == [str(place(tmp_path, "dead"))]
    assert (place(tmp_path, "living") / "slot-0" / "chk-1" / "part").is_file()


def test_a_job_keeps_the_copies_of_a_killed_slot_while_another_one_lives(tmp_path: Path, slot) -> None:
    first, second = slot("job", 0), slot("job", 1)
    kill(first)

    assert sweep_copies(tmp_path) == []
    assert (place(tmp_path, "job") / "slot-0" / "chk-1" / "part").is_file()
    kill(second)
    assert sweep_copies(tmp_path) == [str(place(tmp_path, "job"))]


def test_the_next_slot_on_the_machine_sweeps_and_finds_its_own_copies(tmp_path: Path, slot) -> None:
    for process in [slot("other"), slot("mine")]:
        kill(process)

    copies = LocalCopies(tmp_path, "mine", 0)

    assert not place(tmp_path, "other").exists()
    assert (copies.directory(1) / "part").read_text() == "state"


def test_the_last_slot_that_closes_removes_the_directory_of_the_job(tmp_path: Path, slot) -> None:
    first, second = slot("job", 0), slot("job", 1)

    first.communicate("close\n")
    assert [path.name for path in place(tmp_path, "job").iterdir() if path.is_dir()] == ["slot-1"]
    second.communicate("close\n")
    assert not place(tmp_path, "job").exists()


def test_what_has_no_owner_stays(tmp_path: Path) -> None:
    LocalCopies(tmp_path, "job", 0)
    (place(tmp_path, "job") / ".owner").unlink()
    (place(tmp_path, "link")).symlink_to(place(tmp_path, "job"))

    assert sweep_copies(tmp_path) == []
    assert (place(tmp_path, "job") / "slot-0").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to somebody else")
def test_nothing_is_swept_in_a_directory_of_somebody_else(tmp_path: Path, slot) -> None:
    kill(slot("dead"))
    os.chown(place(tmp_path, "dead").parent, 65534, 65534)

    assert sweep_copies(tmp_path) == []
    assert place(tmp_path, "dead").is_dir()


def test_where_there_are_no_copies_no_directory_is_made(tmp_path: Path) -> None:
    assert sweep_copies(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
