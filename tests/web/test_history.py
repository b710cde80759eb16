"""Ended jobs: the histories of this machine and of a shared directory, and `tidemark web` over all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.web import jobs
from tests.web.conftest import DEADLINE_S, Site, Start, until

from tidemark.runtime import remote_view
from tidemark.runtime.archive import Archive
from tidemark.runtime.control import live_jobs
from tidemark.runtime.history import LIMIT
from tidemark.runtime.web_jobs import MachineJobs
from tidemark.web.facts import JobFacts


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[httpx.Client]:
    """`tidemark web` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemark.cli", "web", "--port", "0", "--history", str(tmp_path / "shared")],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    assert told.startswith("Web page: http://127.0.0.1:"), told
    with httpx.Client(base_url=told.split()[-1], timeout=DEADLINE_S) as client:
        yield client
    process.terminate()
    process.wait(DEADLINE_S)
    process.stderr.close()


def _end(site: Site) -> None:
    site.job.cancel()
    site.job.get_job_execution_result().exception()
    until(lambda: not live_jobs())


def test_one_page_shows_running_and_ended_jobs_and_acts_on_them(
    start: Start, machine: httpx.Client, tmp_path: Path
) -> None:
    ended, site = start(), start()
    until(lambda: ended.of_job("/checkpoints")["counts"]["completed"])
    until(lambda: ended.of_job("/states")["operators"])
    ended.job.cancel()
    ended.job.get_job_execution_result().exception()
    until(lambda: len(live_jobs()) == 1)

    listed = {job["jid"]: job for job in machine.get("/v1/jobs/overview").json()["jobs"]}

    assert listed[site.job_id]["state"] == "RUNNING"
    assert listed[ended.job_id]["state"] == "CANCELED"
    history = machine.get(f"/v1/jobs/{ended.job_id}/checkpoints").json()
    assert history["counts"]["completed"] > 0
    newest = history["latest"]["completed"]["id"]
    details = machine.get(f"/v1/jobs/{ended.job_id}/checkpoints/details/{newest}").json()
    assert any(task["num_acknowledged_subtasks"] for task in details["tasks"].values())
    assert machine.get(f"/v1/jobs/{ended.job_id}/states").json()["operators"]

    where = f"/v1/jobs/{site.job_id}/states/query"
    until(lambda: machine.get(where, params={"name": "counts", "key": "3"}).json().get("value", 0) > 0)
    assert machine.get(f"/v1/jobs/{site.job_id}/series").status_code == 200
    body = {"target-directory": str(tmp_path / "from-machine")}
    request = machine.post(f"/v1/jobs/{site.job_id}/savepoints", json=body).json()["request-id"]
    path = f"/v1/jobs/{site.job_id}/savepoints/{request}"
    done = until(lambda: (s := machine.get(path).json())["status"]["id"] == "COMPLETED" and s)
    assert Path(done["operation"]["location"]).is_dir()
    assert f'job_id="{site.job_id}"' in machine.get("/metrics").text
    machine.patch(f"/v1/jobs/{site.job_id}")
    until(lambda: machine.get(f"/v1/jobs/{site.job_id}").json()["state"] == "CANCELED")


def test_a_history_directory_is_read_by_others(start: Start, tmp_path: Path, home: Path) -> None:
    shared = tmp_path / "shared"
    site = start({"history.dir": str(shared)})
    until(lambda: site.of_job("/checkpoints")["counts"]["completed"])
    _end(site)
    for path in [home / "history.jsonl", *(home / "history").iterdir()]:
        path.unlink()

    [view] = MachineJobs({}, str(shared)).all()

    assert view.job_id == site.job_id
    assert view.facts().status == "CANCELED"
    assert view.checkpoints().completed > 0


def test_garbage_in_a_history_directory_is_left_out(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / f"{'a' * 32}.json").write_text("{")
    (shared / f"{'b' * 32}.json").write_text(json.dumps({"facts": {"job_id": "c" * 32}}))
    (shared / f"{'d' * 32}.json").write_text('{"more": ' + "[" * 200_000)
    (shared / f"{'e' * 32}.json").write_bytes(b'"\xff"')
    (shared / "notes.txt").write_text("hello")
    os.mkfifo(shared / f"{'f' * 32}.json")

    assert list(MachineJobs({}, str(shared)).all()) == []


def test_links_and_huge_files_in_a_history_directory_are_not_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    ours, linked, huge = [
        msgspec.json.encode(Archive(JobFacts(name * 32, "job", "FINISHED", 1, 2, 2))) for name in "abc"
    ]
    (shared / f"{'a' * 32}.json").write_bytes(ours)
    (tmp_path / "elsewhere.json").write_bytes(linked)
    (shared / f"{'b' * 32}.json").symlink_to(tmp_path / "elsewhere.json")
    (shared / f"{'c' * 32}.json").write_bytes(huge + b" " * (64 << 20))

    assert [view.job_id for view in MachineJobs({}, str(shared)).all()] == ["a" * 32]


def test_a_failed_job_keeps_its_traceback(start: Start) -> None:
    site = start({"restart-strategy": "none"})
    until(lambda: site.of_job()["records"])
    jobs.BROKEN.set()
    site.job.get_job_execution_result().exception()
    until(lambda: not live_jobs())

    [view] = MachineJobs({}).all()

    assert view.facts().status == "FAILED"
    assert "the number is broken" in view.facts().failures[0].trace


def test_only_the_last_jobs_of_a_machine_are_kept(home: Path, start: Start) -> None:
    from tidemark.runtime.archive import Archive, write_archive
    from tidemark.runtime.history import EndedJob, remember
    from tidemark.web.facts import JobFacts

    for number in range(LIMIT + 5):
        job_id = f"{number:032x}"
        kept = remember(EndedJob(job_id, "job", "FINISHED", number, number, 1))
        write_archive(Archive(JobFacts(job_id, "job", "FINISHED", number, number)), None, kept)

    assert len(list((home / "history").iterdir())) == LIMIT
    assert len(MachineJobs({}).all()) == LIMIT


def test_a_job_that_hangs_is_shown_as_lost_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_view, "_ANSWER_S", 0.5)
    program = f"from tests.web import jobs; from pathlib import Path; jobs.start(Path({str(tmp_path)!r}))"
    wait = "; import threading; threading.Event().wait()"
    process = subprocess.Popen([sys.executable, "-c", program + wait], cwd=Path(__file__).parents[2])
    try:
        jobs_here = MachineJobs({})
        until(lambda: [view.facts().status for view in jobs_here.all()] == ["RUNNING"])
        process.send_signal(signal.SIGSTOP)
        until(lambda: [view.facts().status for view in jobs_here.all()] == ["RECONCILING"])

        asked = time.monotonic()
        for _ in range(100):
            assert [view.facts().name for view in jobs_here.all()] == ["counting"]
        assert time.monotonic() - asked < 100 * 0.5
    finally:
        process.kill()
        process.wait()
