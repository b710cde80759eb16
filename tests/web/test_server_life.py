"""When the server of a driver comes and goes, and what it leaves behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from tests.web import jobs
from tests.web.conftest import DEADLINE_S, Site, Start, until

from tidemark.errors import ConfigError
from tidemark.jobs import list_jobs
from tidemark.runtime import rest
from tidemark.runtime.control import live_jobs


def _ended(site: Site) -> None:
    site.job.cancel()
    site.job.get_job_execution_result().exception()
    until(lambda: not live_jobs())


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_the_end_of_the_last_job_frees_the_port_and_leaves_no_thread(start: Start) -> None:
    before = _threads()
    site = start()
    assert site.get("/jobs")["jobs"]
    assert "tidemark-web" in _threads()

    _ended(site)

    port = int(site.address.rpartition(":")[2])
    until(lambda: not {name for name in _threads() - before if "web" in name or "AnyIO" in name})
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_open_streams_of_events_do_not_hold_up_the_end(start: Start) -> None:
    site = start()
    with site.client.stream("GET", "/v1/events") as stream:
        next(stream.iter_lines())
        _ended(site)
    until(lambda: "tidemark-web" not in _threads())


def test_a_port_that_is_taken_leads_to_the_next_one(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        site = start({"rest.port": str(port)})

    assert port < int(site.address.rpartition(":")[2]) <= port + 100


def test_a_range_of_ports_is_kept_to(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, free = taken.getsockname()[1], other.getsockname()[1]
        other.close()

        site = start({"rest.bind-port": f"{port},{free}"})

        assert int(site.address.rpartition(":")[2]) == free
        with pytest.raises(ConfigError, match=r"rest\.bind-port"), rest.announcing(lambda _address: None):
            jobs.start(tmp_path / "second", {"rest.bind-port": str(port)})


def test_answers_in_two_pieces_do_not_wait_for_an_acknowledgement() -> None:
    from tidemark.web.server import ServerSettings

    with ServerSettings(port=0).listen() as listener:
        # What asyncio looks at before it switches Nagle's algorithm off.
        assert listener.proto == socket.IPPROTO_TCP


def test_jobs_of_one_process_share_a_server_that_also_shows_those_that_ended(start: Start) -> None:
    first, second = start(), start()

    assert first.address == second.address
    assert {job["id"] for job in first.get("/jobs")["jobs"]} == {first.job_id, second.job_id}
    first.job.cancel()
    first.job.get_job_execution_result().exception()
    until(lambda: second.get(f"/jobs/{first.job_id}")["state"] == "CANCELED")
    assert second.get(f"/jobs/{second.job_id}")["state"] == "RUNNING"


def test_a_local_job_gets_its_server_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "PATIENCE_S", 0.3)
    job = jobs.start(tmp_path)
    try:
        control = next(iter(live_jobs()))
        assert "tidemark-web" not in _threads()
        until(lambda: "tidemark-web" in _threads())
        assert control.execution.job_id == str(job.get_job_id())
    finally:
        job.cancel()
        job.get_job_execution_result().exception()
    until(lambda: not {"tidemark-web", "tidemark-web-start"} & _threads())


def test_a_short_job_opens_no_server(tmp_path: Path) -> None:
    job = jobs.start(tmp_path)
    job.cancel()
    job.get_job_execution_result().exception()

    until(lambda: not live_jobs())
    assert not {"tidemark-web", "tidemark-web-start"} & _threads()


def test_the_server_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "PATIENCE_S", 0.0)
    job = jobs.start(tmp_path, {"rest.enabled": "false"})
    until(lambda: live_jobs()[0].execution.progress.records)

    assert not {"tidemark-web", "tidemark-web-start"} & _threads()
    job.cancel()
    job.get_job_execution_result().exception()
    until(lambda: not live_jobs())


def test_a_job_whose_address_cannot_be_used_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    from tidemark.errors import ConfigError

    with pytest.raises(ConfigError, match="bind-address"), rest.announcing(lambda _address: None):
        jobs.start(tmp_path, {"rest.bind-address": "192.0.2.1", "rest.token": "x"})

    assert live_jobs() == []
    assert list_jobs() == []
    assert "tidemark-web" not in _threads()


def test_a_job_with_an_unknown_log_level_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    from tidemark.errors import ConfigError

    with pytest.raises(ConfigError, match=r"log\.level"):
        jobs.start(tmp_path, {"log.level": "LOUD"})

    assert live_jobs() == []
    assert list_jobs() == []


def test_importing_tidemark_imports_no_web_server() -> None:
    code = "import sys, tidemark; print([m for m in ('starlette', 'uvicorn', 'tidemark.web') if m in sys.modules])"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "[]"


def test_a_failed_attempt_shows_its_traceback_slot_and_operator(site: Site) -> None:
    jobs.BROKEN.set()

    told = until(lambda: (e := site.of_job("/exceptions"))["exceptionHistory"]["entries"] and e)

    [entry] = told["exceptionHistory"]["entries"]
    assert entry["exceptionName"] == "ValueError"
    assert "the number is broken" in entry["stacktrace"]
    assert "process_element" in entry["stacktrace"]
    assert (entry["attempt"], entry["taskName"]) == (0, "KEYED PROCESS")
    assert entry["slot"] in (0, 1)
    assert entry["taskManagerId"] == f"{site.job_id}-{entry['slot']}"
    assert told["root-exception"] == entry["stacktrace"]
    until(lambda: site.of_job()["attempt"] == 1)
    assert site.of_job()["restarts"] == 1


def test_requests_are_answered_while_user_code_blocks(start: Start, tmp_path: Path) -> None:
    site = start()
    until(lambda: site.of_job()["records"])
    runner = live_jobs()[0]
    held = runner.execution.engine.hosts[0]._lock  # type: ignore[attr-defined]

    with held:
        for path in ("", "/checkpoints", "/states", "/plan"):
            site.of_job(path)
        with httpx.Client(base_url=site.address, timeout=DEADLINE_S) as client:
            assert client.get("/metrics").status_code == 200
