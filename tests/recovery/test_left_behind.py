"""What a killed driver leaves goes with the next job on the machine, or `tidemark clean`, and nothing else. No JVM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.recovery.killed_driver import TOTAL
from tests.recovery.test_driver_loss import newest_checkpoint, run_until
from tests.watching import files_below

from tidemark.cli.main import cli

pytestmark = pytest.mark.slow

PROGRAM = str(Path(__file__).with_name("killed_driver.py"))
PATIENCE = 120


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "home"


def staged(directory: Path) -> set[str]:
    return {path.name for path in files_below(directory / "out", "*.inprogress")}


def clean() -> tuple[list[str], str]:
    answer = CliRunner().invoke(cli, ["clean"])
    assert answer.exit_code == 0, answer.output
    return answer.stdout.splitlines(), answer.stderr


@pytest.mark.modes("epochs", reason="what is left on the disk, and by whom")
def test_clean_removes_what_the_dead_left_and_nothing_else(home: Path, tmp_path: Path) -> None:
    living = tmp_path / "living"
    living.mkdir()
    (living / "hold").touch()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, PROGRAM, str(living), "heap"], stdout=subprocess.DEVNULL, env=environment
    )
    try:
        until(lambda: list((living / "checkpoints").glob("*/chk-*/_metadata")))
        dead = tmp_path / "dead"
        dead.mkdir()
        assert not run_until(dead, "rocksdb", None, 3)
        area = next((dead / "out").glob(".tidemark-*/.area-*"))
        (area / ".part-nobody-lists-this.inprogress").write_text("lost")
        scratch = [*dead.glob("tidemark-*"), *tmp_path.glob("tidemark-*")]
        assert scratch
        checkpoint = newest_checkpoint(dead)
        assert checkpoint is not None
        before = staged(living)
        # As after the clock was set forward: the system says that the living one began later than it wrote this.
        [note] = [path for path in (home / "places").glob("*.json") if str(living) in path.read_text()]
        seen = json.loads(note.read_text())
        note.write_text(json.dumps({**seen, "since": seen["since"] - 3_600_000}))

        removed, said = clean()

        assert seen["job_id"] not in said

        assert str(area / ".part-nobody-lists-this.inprogress") in removed
        assert "can be started again from checkpoint" in said
        assert Path(checkpoint, "_metadata").exists()
        assert process.poll() is None
        assert staged(living) >= before - published_since(living)
        # What a checkpoint lists is still there for who goes on from it.
        assert run_until(dead, "rocksdb", checkpoint, -1)
        lines = [line for path in (dead / "out").glob("part-*") for line in path.read_text().splitlines()]
        assert sorted(lines) == sorted(f"{k} {c}" for k in range(50) for c in range(1, TOTAL // 50 + 1))
        (living / "hold").unlink()
        assert process.wait(PATIENCE) == 0
        shutil.rmtree(dead / "checkpoints")
        clean()
        assert not list((home / "places").iterdir())
        assert clean() == ([], "")
    finally:
        process.kill()
        process.wait()


@pytest.mark.modes("epochs", reason="what is left on the disk, and by whom")
def test_the_next_job_removes_output_that_nobody_will_publish(home: Path, tmp_path: Path) -> None:
    dead, other = tmp_path / "dead", tmp_path / "other"
    for directory in (dead, other):
        directory.mkdir()
    assert not run_until(dead, "heap", None, 3)
    for checkpoint in (dead / "checkpoints").glob("*/chk-*/_metadata"):
        # The user does not want to go on with it.
        checkpoint.unlink()
    (next((dead / "out").glob(".tidemark-*/.area-*")) / ".part-x.inprogress").write_text("lost")

    assert run_until(other, "heap", None, -1)

    assert not staged(dead)
    assert list((dead / "out").glob("part-*")), "what was published stays"
    assert not list((home / "places").iterdir())


def published_since(directory: Path) -> set[str]:
    return {f".{path.name}.inprogress" for path in (directory / "out").glob("part-*")}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
