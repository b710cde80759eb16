"""`doctor`, `new`, `top` and `logs`: what a person meets first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import DEADLINE_S, Command, process_environment

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


def verdicts(output: str) -> dict[str, str]:
    return {finding["subject"]: finding["verdict"] for finding in json.loads(output)}


def test_the_doctor_finds_a_healthy_machine_healthy_and_leaves_nothing(tide: Command, tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"

    result = tide("--json", "doctor", "-D", f"state.checkpoints.dir={place}", "-D", "rest.port=0")

    found = verdicts(result.stdout)
    assert found["Python"] == found["state.checkpoints.dir"] == found["Web page"] == found["Home"] == "ok"
    assert list(place.iterdir()) == []


def test_the_doctor_names_what_is_wrong_and_what_to_do(
    tide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("TIDEMARK_PROPERTIES", "state.backnd: rocksdb")

    result = tide("doctor", "-D", "state.checkpoints.dir=/dev/null/x")

    assert result.exit_code == 1
    assert "problem  Java" in result.stdout
    assert "openjdk-17" in result.stdout
    assert "/dev/null/x" in result.stdout
    assert "Did you mean 'state.backend'?" in result.stdout


@pytest.mark.parametrize(
    ("backend", "said"),
    [("rockdb", "Unknown state backend 'rockdb'"), ("rocksdb", "no checkpoint directory")],
)
def test_the_doctor_knows_backends_that_a_job_would_be_refused_for(
    tide: Command, backend: str, said: str
) -> None:
    result = tide("doctor", "-D", f"state.backend={backend}", "-D", "execution.checkpointing.interval=10 s")

    assert result.exit_code == 1
    assert said in result.stdout


def test_the_doctor_refuses_a_home_that_is_a_link(tide: Command, home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    home.symlink_to(tmp_path / "elsewhere")

    result = tide("doctor")

    assert "problem  Home" in result.stdout
    assert "TIDEMARK_HOME" in result.stdout


def test_a_new_project_names_a_command_that_can_be_typed(
    tide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(sys.executable).with_name("tidemark")
    next_step = {}
    for where, folders in (("active", [script.parent, "/usr/bin"]), ("not active", ["/usr/bin"])):
        monkeypatch.setenv("PATH", os.pathsep.join([str(folder) for folder in folders]))
        next_step[where] = tide("new", tmp_path / where.replace(" ", "-")).stderr

    assert "&& tidemark run job.py" in next_step["active"]
    assert f"&& {script} run job.py" in next_step["not active"]


def test_a_new_project_runs_and_its_test_passes(tide: Command, tmp_path: Path) -> None:
    project = tmp_path / "shop"
    # A project inside of another one, as that of the tutorial in a clone of ours, is a project of its own.
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n'
    )

    written = json.loads(tide("--json", "new", project).stdout)

    environment = {
        **process_environment(),
        "TIDEMARK_EXECUTION_TARGET": "local",
        "TIDEMARK_REST_ENABLED": "false",
    }
    job, test = (
        subprocess.run(
            [sys.executable, *arguments],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        for arguments in (["job.py"], ["-m", "pytest", "-q", "-p", "no:cacheprovider"])
    )
    assert sorted(os.path.basename(path) for path in written["files"]) == [
        "README.md",
        "job.py",
        "pytest.ini",
        "test_job.py",
        "tidemark-conf.yaml",
    ]
    assert "(tide,2)" in job.stdout, job.stderr
    assert "1 passed" in test.stdout, test.stdout


def test_a_new_project_overwrites_nothing(tide: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")

    result = tide("new", tmp_path)

    assert result.exit_code == 2
    assert "not an empty directory" in result.stderr


def test_top_tells_how_fast_jobs_go(tide: Command, running_job: str) -> None:
    table = tide("top", "-i", "0.2").stdout
    documents = tide("--json", "top", running_job[:6], "-n", "1").stdout

    assert "RECORDS/S" in table
    assert running_job[:8] in table
    assert "RUNNING" in table
    assert json.loads(documents)[0]["job_id"] == running_job


def test_logs_of_a_job_are_shown_after_its_end(tide: Command, program: Callable[..., Path]) -> None:
    path = program(sink="add_sink(Nowhere())")
    assert tide("run", "-D", "execution.target=local", "-D", "rest.enabled=false", path, "100").exit_code == 0
    (ended,) = json.loads(tide("--json", "list", "-a").stdout)

    names = tide("logs", "--list", ended["job_id"][:8]).stdout
    shown = tide("logs", ended["job_id"][:8], "-n", "3")
    followed = tide("logs", ended["job_id"], "-f")

    assert "driver.log" in names
    assert shown.exit_code == 0
    assert all(f"job={ended['job_id']}" in line for line in shown.stdout.splitlines())
    assert len(shown.stdout.splitlines()) <= 3
    assert followed.exit_code == 0
    assert tide("logs", "nobody").exit_code == 3
    assert "has no slot-77.log" in tide("logs", ended["job_id"], "--slot", "77").stderr
