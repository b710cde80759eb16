"""`run`: settings that reach the program, and how its end becomes an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Command, process_environment, until, until_processed
from tests.cli.programs import FAILING_JOB, SETTINGS

from tidemark import Configuration, StreamExecutionEnvironment
from tidemark.cli.detached import run_command
from tidemark.cli.program import ProgramSettings
from tidemark.errors import ConfigError
from tidemark.jobs import list_jobs
from tidemark.runtime.history import read_history

Write = Callable[..., Path]


def test_settings_beat_file_and_environment(
    tide: Command, program: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flink-conf.yaml").write_text("parallelism.default: 7\nexecution.target: spark\n")
    monkeypatch.setenv("TIDEMARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_STATE_BACKEND_TYPE", "hashmap")
    before = dict(os.environ)

    result = tide(
        *("run", "-s", "/sp/x", "-p", "3", "-D", "state.backend=rocksdb", "-D", "execution.target=local"),
        *("-D", "spark.app.name=a: b # c", program(SETTINGS), "-p", "--flag", "last"),
    )

    seen = json.loads(result.stdout)
    assert result.exit_code == 0
    assert seen["argv"][1:] == ["-p", "--flag", "last"]
    assert (seen["name"], seen["main"]) == ("__main__", True)
    assert seen["parallelism"] == 3
    assert seen["state.backend"] == "rocksdb"
    assert seen["execution.target"] == "local"
    assert seen["execution.savepoint.path"] == "/sp/x"
    assert seen["spark.app.name"] == "a: b # c"
    assert dict(os.environ) == before


def test_verbose_lets_spark_speak_and_leaves_a_level_of_the_users_own(
    tide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_SPARK_LOG_LEVEL", "INFO")
    path = tmp_path / "level.py"
    path.write_text("import os; print(os.environ.get('TIDEMARK_SPARK_LOG_LEVEL'))")

    said = [tide("run", "-v", path).stdout.strip()]
    for options in ((), ("-v",)):
        monkeypatch.delenv("TIDEMARK_SPARK_LOG_LEVEL", raising=False)
        said.append(tide("run", *options, path).stdout.strip())

    assert said == ["INFO", "None", "WARN"]


def test_the_address_of_the_web_page_is_told_once_beside_the_output(tide: Command, program: Write) -> None:
    path = program(
        sink="add_sink(Nowhere())", afterwards='env.from_collection([1]).print(); env.execute("second")'
    )

    options = ("run", "-D", "execution.target=local", "-D", "rest.port=0", path, "100")
    plain, as_json = tide(*options), tide("--json", *options)
    silent = tide("run", "-D", "rest.enabled=false", *options[1:])

    assert plain.exit_code == 0, plain.stderr
    told = [line for line in plain.stderr.splitlines() if line.startswith("Web page: http://127.0.0.1:")]
    assert len(told) == len(set(told)) >= 1
    assert "Web page" not in plain.stdout
    assert as_json.stderr == ""
    assert "Web page" not in silent.stderr


@pytest.mark.parametrize("define", ["nonsense", "=1", "parallelism.default=many"])
def test_a_definition_that_makes_no_sense_is_refused(tide: Command, program: Write, define: str) -> None:
    result = tide("run", "-D", define, program(SETTINGS))

    assert result.exit_code == 2
    assert result.stdout == ""
    with pytest.raises(ConfigError):
        ProgramSettings.of([define])


def test_a_program_that_is_not_there_is_a_usage_error(tide: Command) -> None:
    assert tide("run", "missing.py").exit_code == 2


def test_an_exception_of_the_program_is_shown_from_its_own_first_line(tide: Command, program: Write) -> None:
    result = tide("run", program("def f():\n    raise KeyError('x')\n\nf()\n"))

    assert result.exit_code == 1
    assert "KeyError: 'x'" in result.stderr
    assert "program.py" in result.stderr
    assert "tidemark/cli" not in result.stderr


@pytest.mark.parametrize(
    ("statement", "code"), [("sys.exit()", 0), ("sys.exit(5)", 5), ("sys.exit('no')", 1)]
)
def test_the_exit_code_of_the_program_is_ours(
    tide: Command, program: Write, statement: str, code: int
) -> None:
    assert tide("run", program(f"import sys\n{statement}\n")).exit_code == code


def test_a_program_that_python_cannot_read_is_shown_without_our_lines(tide: Command, program: Write) -> None:
    result = tide("run", program("print(\n"))

    assert result.exit_code == 1
    assert "SyntaxError: '(' was never closed" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_keeps_every_line_of_a_traceback(tide: Command, program: Write) -> None:
    failing = program(FAILING_JOB, run="env.execute()")

    assert "runner.py" not in tide("run", "-D", "execution.target=local", failing).stderr
    assert "runner.py" in tide("run", "--debug", "-D", "execution.target=local", failing).stderr


def test_a_failed_job_is_an_error_without_our_traceback(tide: Command, program: Write) -> None:
    result = tide("run", "-D", "execution.target=local", program(FAILING_JOB, run="env.execute()"))

    assert result.exit_code == 1
    assert "ValueError: boom" in result.stderr
    assert [job.status for job in read_history()] == ["FAILED"]


def test_a_job_that_fails_unnoticed_by_the_program_is_an_error_too(tide: Command, program: Write) -> None:
    path = program(FAILING_JOB, run="env.execute_async()")

    result = tide("run", "-D", "execution.target=local", path)

    assert result.exit_code == 1
    assert "ValueError: boom" in result.stderr


def test_a_job_submitted_asynchronously_runs_to_its_end(tide: Command, program: Write) -> None:
    path = program(execute="env.execute_async")

    result = tide("run", "-D", "execution.target=local", "-p", "1", path, "20")

    assert result.exit_code == 0
    assert sorted(result.stdout.split()) == sorted(f"{key},{count}" for key in range(10) for count in (1, 2))


def test_a_savepoint_that_is_missing_or_does_not_fit_is_told_without_a_traceback(
    tide: Command, program: Write, running_job: str, tmp_path: Path
) -> None:
    until_processed(running_job, 50)
    path = tide("stop", "-p", tmp_path / "sp", running_job).stdout.strip()
    local = ("run", "-D", "execution.target=local", "-p", "2")

    missing = tide(*local, "-s", tmp_path / "nowhere", program(), "10")
    other_uid = tide(*local, "-s", path, program(uid="renamed"), "10")
    dropped = tide(*local, "-n", "-s", path, program(uid="renamed"), "10")

    assert missing.exit_code == 5
    assert other_uid.exit_code == 5
    assert "'count'" in other_uid.stderr
    assert "Traceback" not in missing.stderr + other_uid.stderr
    assert dropped.exit_code == 0


LOCAL = ("-D", "execution.target=local")


@pytest.mark.parametrize(
    ("command", "number", "code", "history"),
    [
        (("-m", "tidemark.cli", "run", *LOCAL), signal.SIGINT, 130, ["CANCELED"]),
        (("-m", "tidemark.cli", "run", *LOCAL), signal.SIGTERM, 143, ["CANCELED"]),
        ((), signal.SIGTERM, -signal.SIGTERM, []),
    ],
    ids=["run-int", "run-term", "alone-term"],
)
def test_a_signal_ends_the_job_and_leaves_no_directory(
    program: Write,
    tmp_path: Path,
    command: tuple[str, ...],
    number: signal.Signals,
    code: int,
    history: list[str],
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, *command, str(program())],
        stdout=subprocess.DEVNULL,
        env=process_environment() | {"TMPDIR": str(temporary), "TIDEMARK_EXECUTION_TARGET": "local"},
        # A suite that runs in the background of a shell ignores SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until(lambda: bool(list_jobs()))
    until_processed(list_jobs()[0].job_id)
    assert list(temporary.glob("tidemark-local-*"))

    process.send_signal(number)

    assert process.wait(60) == code
    assert [job.status for job in read_history()] == history
    assert list_jobs() == []
    until(lambda: not list(temporary.iterdir()))


def test_a_background_process_imports_nothing_of_the_current_directory(tmp_path: Path) -> None:
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    shared.mkdir()
    mine.mkdir()
    for name in ("click", "json", "neighbour"):
        (shared / f"{name}.py").write_text("raise SystemExit('theirs')")
    (mine / "neighbour.py").write_text("WORD = 'ours'")
    (mine / "job.py").write_text("import sys, neighbour; print(neighbour.WORD, *sys.argv[1:])")

    command = run_command(str(mine / "job.py"), ["--flag"], ProgramSettings(()))
    run = subprocess.run(command, cwd=shared, env=process_environment(), capture_output=True, text=True)

    assert "theirs" not in run.stderr
    assert run.stdout.splitlines()[:1] == ["ours --flag"]


def test_a_misspelt_key_is_refused_before_the_program_runs(tide: Command, program: Write) -> None:
    result = tide("run", "-D", "state.backnd=rocksdb", program(SETTINGS))

    assert result.exit_code == 2
    assert "no option is called 'state.backnd'. Did you mean 'state.backend'?" in result.stderr
    assert result.stdout == ""


def test_a_program_that_forgets_execute_fails_and_says_so(tide: Command, tmp_path: Path) -> None:
    path = tmp_path / "forgetful.py"
    path.write_text(
        "from tidemark import StreamExecutionEnvironment\n"
        "StreamExecutionEnvironment.get_execution_environment().from_collection([1]).print()\n"
    )

    result = tide("run", str(path))

    assert result.exit_code == 1
    assert "ended without running a job. Call execute()" in result.stderr


def test_a_program_that_shows_its_plan_need_not_run_it(tide: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.py"
    path.write_text(
        "from tidemark import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "print(env.get_execution_plan())\n"
    )

    result = tide("run", str(path))

    assert result.exit_code == 0
    assert result.stderr == ""


def test_a_misspelt_key_in_a_program_is_told_at_submission(caplog: pytest.LogCaptureFixture) -> None:
    configuration = (
        Configuration().set_string("state.backnd", "rocksdb").set_string("execution.target", "local")
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).print()

    env.execute()

    assert (
        "No option is called 'state.backnd'; it changes nothing. Did you mean 'state.backend'?" in caplog.text
    )
