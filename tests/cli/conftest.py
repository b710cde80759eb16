"""What tests of the command line share: a registry of their own, programs, and ways to run the command."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.programs import COUNTING, NAMES

import tidemark
from tidemark.cli.main import cli
from tidemark.runtime.control import live_jobs
from tidemark.runtime.control_client import ControlClient

Command = Callable[..., Result]
Forward = Callable[[str], str]

DEADLINE_S = 600


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    monkeypatch.setenv("TIDEMARK_HOME", str(directory))
    return directory


@pytest.fixture
def tide() -> Command:
    """Runs the command in this process."""

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(cli, list(map(str, arguments)), **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def shell(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a process of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tidemark.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=process_environment(),
            check=False,
        )

    return run


def process_environment() -> dict[str, str]:
    root = str(Path(tidemark.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    """Writes a program; names in braces are replaced."""

    def write(text: str = COUNTING, name: str = "program.py", **replaced: str) -> Path:
        for key, value in {**NAMES, **replaced}.items():
            text = text.replace("{" + key + "}", value)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def running_job(program: Callable[..., Path]) -> Iterator[str]:
    """Id of a job that counts in this process until somebody ends it."""
    from tidemark.cli.program import ProgramSettings, execute_program

    settings = ProgramSettings.of(["execution.target=local", "queryable-state.enable=true"], parallelism=2)
    # Not print(): it would write into whatever a test captures.
    path = program(execute="env.execute_async", sink="add_sink(Nowhere())")
    with settings.applied(), execute_program(str(path), []):
        runner = live_jobs()[-1]
        yield runner.execution.job_id
        runner.cancel()
        runner.result.exception()
        runner.join()
    until(lambda: runner not in live_jobs())


@pytest.fixture
def forward() -> Iterator[Forward]:
    """Makes a unix socket reachable as `HOST:PORT`."""
    with contextlib.ExitStack() as listeners:

        def listen(path: str) -> str:
            listener = listeners.enter_context(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=accept, args=(listener, path), daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        def accept(listener: socket.socket, path: str) -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _peer = listener.accept()
                    far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    far.connect(path)
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=copy, args=ends, daemon=True).start()

        def copy(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    target.sendall(data)
                target.shutdown(socket.SHUT_RDWR)

        yield listen


def until(condition: Callable[[], bool]) -> None:
    """Wait for something another thread or process does."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def until_processed(job_id: str, records: int = 1) -> None:
    """Wait until a running job has processed records."""
    with ControlClient.find(job_id) as client:
        until(lambda: (client.request("info")["progress"].get("records") or 0) >= records)
