"""One Spark session for all integration tests of a run, and environments on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.watching import living

SECRET_SETTING = {"spark.hadoop.fs.s3a.secret.key": "nobody-may-read-this"}


def shared_session() -> Any:
    """The session of every test on Spark, as the library itself would create it, with cores for tasks that last."""
    from tidemark.runtime.session import find_or_create_session

    settings = {"spark.master": "local[4]", "spark.app.name": "tidemark tests", **SECRET_SETTING}
    session, _new = find_or_create_session(settings)
    return session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The shared session."""
    session = shared_session()
    yield session
    session.stop()


@pytest.fixture
def make_env(spark: Any, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Factory of environments on the shared session: `make_env(parallelism=2, **configuration)`.

    Jobs run in epochs, or as the parameter `mode` of the test says.
    """
    from tidemark import Configuration, StreamExecutionEnvironment

    def make(parallelism: int = 2, target: str = "spark", **settings: str) -> Any:
        configuration = Configuration()
        configuration.set_string("execution.target", target)
        callspec = getattr(request.node, "callspec", None)
        mode = callspec.params.get("mode") if callspec else None
        configuration.set_string("execution.mode", mode if isinstance(mode, str) else "epochs")
        for key, value in settings.items():
            configuration.set_string(key.replace("__", "."), value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        return env

    return make


@pytest.fixture
def checkpoints(tmp_path: Path) -> str:
    """A directory for checkpoints."""
    return f"file://{tmp_path}/checkpoints"


def slot_processes() -> list[int]:
    """Pids of the slot processes of this test run: those that inherited its registry of jobs."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "tidemark.slot.server" not in " ".join(process.info["cmdline"] or ()):
            continue
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TIDEMARK_HOME") == os.environ["TIDEMARK_HOME"]:
                found.append(process.pid)
    return found


@pytest.fixture(autouse=True)
def no_slot_survives() -> Iterator[None]:
    """Every test leaves as many slot processes behind as it found."""
    before = set(slot_processes())
    yield
    left = set(slot_processes()) - before
    _gone, alive = psutil.wait_procs(living(left), timeout=120)
    assert not alive, f"slot processes survived the test: {alive}"
