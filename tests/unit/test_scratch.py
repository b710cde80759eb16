"""Scratch directories of dead processes are swept; those of the living, of others and of nobody stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.scratch import ScratchDirectory, sweep_scratch

PROGRAM = """
import sys
from tidemark.scratch import ScratchDirectory
made = ScratchDirectory("tidemark-query-", sys.argv[1])
print(made.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path):
    """Starts processes that own a scratch directory until their input ends."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_directory_of_a_killed_process_is_swept_and_of_a_living_one_is_not(tmp_path: Path, owner) -> None:
    dead, gone = owner()
    _living, kept = owner()
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    (gone / "deep").mkdir()
    (gone / "deep" / "file").write_text("x")

    assert sweep_scratch(str(tmp_path)) == [str(gone)]
    assert not gone.exists()
    assert kept.is_dir()


def test_a_process_that_ends_in_order_leaves_nothing(tmp_path: Path, owner) -> None:
    process, directory = owner()
    process.communicate("")

    assert not directory.exists()


def test_what_has_no_owner_or_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "tidemark-demo").mkdir()
    (tmp_path / "someone").mkdir()
    (tmp_path / "someone" / ".owner").write_text("")
    target = tmp_path / "target"
    target.mkdir()
    (target / ".owner").write_text("")
    (tmp_path / "tidemark-link").symlink_to(target)
    (tmp_path / "tidemark-half").mkdir()
    (tmp_path / "tidemark-half" / ".owner").symlink_to(target / ".owner")
    before = sorted(tmp_path.iterdir())

    assert sweep_scratch(str(tmp_path)) == []
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_directory_of_another_user_stays(tmp_path: Path) -> None:
    directory = tmp_path / "tidemark-query-x"
    directory.mkdir()
    (directory / ".owner").write_text("")
    os.chown(directory, 65534, 65534)

    assert sweep_scratch(str(tmp_path)) == []


def test_sweeping_a_place_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert sweep_scratch(str(tmp_path / "nowhere")) == []


def test_a_child_that_inherits_the_lock_keeps_the_directory_alive(tmp_path: Path) -> None:
    scratch = ScratchDirectory("tidemark-abcdef01-0-", str(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(scratch.fileno(),)
    )
    scratch.hand_over()
    try:
        scratch.cleanup()
        assert sweep_scratch(str(tmp_path)) == []
        assert Path(scratch.name).is_dir()
    finally:
        child.kill()
        child.communicate()
    assert sweep_scratch(str(tmp_path)) == [scratch.name]


def test_a_forked_child_does_not_remove_the_directory_of_its_parent(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom tidemark.scratch import ScratchDirectory\n"
        "made = ScratchDirectory('tidemark-x-', sys.argv[1])\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0); print(os.path.isdir(made.name))\n"
    ).replace("\\\n", "\n")
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "True"


def test_cleaning_up_twice_is_no_error(tmp_path: Path) -> None:
    scratch = ScratchDirectory("tidemark-x-", str(tmp_path))
    assert (Path(scratch.name).stat().st_mode & 0o777) == 0o700
    scratch.cleanup()
    scratch.cleanup()

    assert list(tmp_path.iterdir()) == []


def test_a_job_that_starts_sweeps_what_its_predecessor_left(
    tmp_path: Path, owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    from tidemark import Configuration, StreamExecutionEnvironment, Types

    dead, gone = owner()
    _living, kept = owner()
    dead.kill()
    dead.wait()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    env.from_collection([1], Types.LONG()).print()
    env.execute()

    assert not gone.exists()
    assert kept.is_dir()
