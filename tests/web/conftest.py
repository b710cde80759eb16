"""A server over a real job of this process, and ways to ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web import jobs

from tidemark import JobClient
from tidemark.runtime.control import live_jobs
from tidemark.runtime.rest import announcing

DEADLINE_S = 60.0


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something another thread does; gives what the condition gave."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


@dataclass
class Site:
    """A running job and its server."""

    job_id: str
    address: str
    client: httpx.Client
    job: JobClient

    def get(self, path: str, **options: Any) -> Any:
        """The JSON at a path below `/v1`; the status must be good."""
        answer = self.client.get(f"/v1{path}", **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def of_job(self, path: str = "", **options: Any) -> Any:
        """The JSON of something of the job."""
        return self.get(f"/jobs/{self.job_id}{path}", **options)

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON of an action that was accepted."""
        answer = self.client.post(f"/v1/jobs/{self.job_id}{path}", json={} if body is None else body)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def outcome(self, path: str, request_id: str) -> Any:
        """The operation of a request, once it is complete."""

        def done() -> Any:
            answer = self.of_job(f"{path}/{request_id}")
            return answer if answer["status"]["id"] == "COMPLETED" else None

        return until(done)["operation"]

    def vertex(self, uid: str) -> Any:
        """The vertex of that uid in the job's details."""
        return next(vertex for vertex in self.of_job()["vertices"] if vertex["uid"] == uid)


Start = Callable[..., Site]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    monkeypatch.setenv("TIDEMARK_HOME", str(directory))
    return directory


@pytest.fixture
def start(run: Start) -> Start:
    """Starts the job that counts; see `run`."""
    return partial(run, jobs.start)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Start]:
    """Starts jobs, each with a server, and ends them after the test."""
    sites: list[Site] = []

    def run_job(
        begin: Callable[[Path, dict[str, str]], JobClient],
        settings: dict[str, str] | None = None,
        **headers: str,
    ) -> Site:
        addresses: list[str] = []
        with announcing(addresses.append):
            job = begin(tmp_path, settings or {})
        client = httpx.Client(base_url=addresses[0] if addresses else "", headers=headers, timeout=DEADLINE_S)
        site = Site(str(job.get_job_id()), addresses[0], client, job)
        sites.append(site)
        return site

    jobs.BROKEN.clear()
    yield run_job
    for site in sites:
        site.client.close()
        site.job.cancel()
        site.job.get_job_execution_result().exception()
    until(lambda: not live_jobs())


@pytest.fixture
def site(start: Start) -> Site:
    """A job that has completed a checkpoint."""
    running = start()
    until(lambda: running.of_job("/checkpoints")["counts"]["completed"])
    return running
