"""The driver is killed: a new job goes on from the newest retained checkpoint, exactly once. No JVM."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.recovery.killed_driver import TOTAL

PROGRAM = str(Path(__file__).with_name("killed_driver.py"))


def newest_checkpoint(directory):
    found = list((directory / "checkpoints").glob("*/chk-*/_metadata"))
    if not found:
        return None
    return str(max(found, key=lambda path: int(path.parent.name[4:])).parent)


def run_until(directory, backend, checkpoint, completions):
    """Run the program; kill it after that many completed checkpoints. Returns whether it finished."""
    command = [sys.executable, PROGRAM, str(directory), backend, *([checkpoint] if checkpoint else [])]
    # Whoever is killed cannot remove its scratch directory; the next driver does.
    scratch = {**os.environ, "TMPDIR": str(directory)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=scratch) as process:
        assert process.stdout is not None
        for line in process.stdout:
            completions -= line.startswith("complete")
            if completions == 0:
                process.kill()
            if line.startswith("finished"):
                return True
    assert process.returncode == -9
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "source"), [("incremental-heap", "function"), ("rocksdb", "function"), ("heap", "splits")]
)
def test_a_killed_driver_costs_neither_an_element_nor_a_line(tmp_path, backend, source):
    rng = random.Random(backend)
    if source == "splits":
        (tmp_path / "splits").touch()
    (tmp_path / "hold").touch()
    assert not run_until(tmp_path, backend, None, 1)
    (tmp_path / "hold").unlink()
    finished = False
    for _ in range(3):
        # On a slow machine the rest of the stream may fit between few checkpoints.
        finished = finished or run_until(tmp_path, backend, newest_checkpoint(tmp_path), rng.randint(1, 12))
    assert finished or run_until(tmp_path, backend, newest_checkpoint(tmp_path), -1)
    assert not list(tmp_path.glob("tidemark-*")), "scratch directories of the dead are swept"
    visible = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    lines = sorted(line for path in visible for line in path.read_text().splitlines())
    assert lines == sorted(f"{key} {count}" for key in range(50) for count in range(1, TOTAL // 50 + 1))
