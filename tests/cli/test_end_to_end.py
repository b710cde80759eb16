"""The upgrade procedure with real processes: run -d, list, savepoint, stop, run -s. Nothing lost, nothing twice."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import until_processed

Shell = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

LOCAL = ("-D", "execution.target=local")


def test_a_job_goes_on_exactly_where_it_was_stopped(shell: Shell, program: Write, tmp_path: Path) -> None:
    path = program()
    default = ("-D", f"state.savepoints.dir={tmp_path / 'sp'}")

    started = shell("run", "-d", "-p", "2", *LOCAL, *default, path)
    job = re.search("[0-9a-f]{32}", started.stdout)
    assert job is not None, started.stderr
    until_processed(job[0], 200)
    listed = shell("list", "-r")
    first = shell("savepoint", job[0])
    stopped = shell("stop", job[0][:8])
    written = Path(re.search("log (.*)", started.stderr)[1]).read_text()  # type: ignore[index]
    log = re.sub("Web page: .*\n", "", written)
    processed = len(log.split())
    resumed = shell("run", "-s", stopped.stdout.strip(), "-p", "3", *LOCAL, path, processed + 1000)

    assert started.returncode == first.returncode == stopped.returncode == 0
    assert f"{job[0]} : counting (RUNNING)" in listed.stdout
    assert Path(first.stdout.strip()).parent == tmp_path / "sp"
    assert resumed.returncode == 0, resumed.stderr
    lines = [line.rpartition("> ")[2] for line in (log + resumed.stdout).splitlines()]
    expected = [f"{n % 10},{n // 10 + 1}" for n in range(processed + 1000)]
    assert sorted(lines) == sorted(expected)


def test_a_detached_program_that_fails_before_its_job_shows_its_log(shell: Shell, program: Write) -> None:
    result = shell("run", "-d", program("raise ValueError('no luck')\n"))

    assert result.returncode == 1
    assert "ValueError: no luck" in result.stderr
    assert result.stdout == ""


def test_a_detached_job_shorter_than_our_look_is_found_in_the_history(shell: Shell, program: Write) -> None:
    text = "from tidemark import *\nenv = StreamExecutionEnvironment.get_execution_environment()\n"
    path = program(text + "env.from_collection([1]).print()\nenv.execute('short')\n")

    result = shell("--json", "run", "-d", *LOCAL, path)

    answer = json.loads(result.stdout)
    assert result.returncode == 0
    assert re.fullmatch("[0-9a-f]{32}", answer["job_id"])
    assert Path(answer["log"]).is_file()
