"""What continuous execution adds: how the job runs, where it waits, how long records take, how far time is."""

from __future__ import annotations

import pytest
from tests.web.conftest import Site, Start, until


@pytest.fixture
def site(start: Start) -> Site:
    running = start({"execution.mode": "continuous", "metrics.latency.interval": "1 ms"})
    until(lambda: running.of_job("/checkpoints")["counts"]["completed"])
    return running


def test_a_job_says_how_it_runs_and_why(site: Site, start: Start) -> None:
    epochs = start({"execution.mode": "epochs"})

    assert site.of_job()["execution-mode"] == "continuous"
    assert "every source and sink can" in site.of_job()["execution-mode-reason"]
    assert epochs.of_job()["execution-mode"] == "epochs"
    assert "EPOCHS" in epochs.of_job()["execution-mode-reason"]


def test_records_are_followed_to_their_end(site: Site) -> None:
    until(lambda: site.of_job()["latency-ms"])

    metrics = until(lambda: (m := site.of_job("/metrics", params={"get": "latency_p50,latency_max"})) and m)
    assert {one["id"] for one in metrics} == {"latency_p50", "latency_max"}
    assert all(float(one["value"]) > 0 for one in metrics)
    assert until(lambda: [point for point in site.of_job("/series")["latency-ms"] if point])


def test_time_goes_into_work_waiting_and_nothing(site: Site) -> None:
    vertex = site.vertex("numbers")["id"]

    told = until(lambda: (b := site.of_job(f"/vertices/{vertex}/backpressure"))["subtasks"] and b)

    for subtask in told["subtasks"]:
        assert subtask["ratio"] + subtask["busyRatio"] + subtask["idleRatio"] == pytest.approx(1, abs=0.001)
    metrics = site.vertex("numbers")["metrics"]
    assert metrics["busy"] + metrics["backpressured"] + metrics["idle"] == pytest.approx(1, abs=0.001)


def test_details_of_a_checkpoint_say_how_its_barriers_came(site: Site) -> None:
    vertex = site.vertex("count")["id"]
    newest = site.of_job("/checkpoints")["latest"]["completed"]

    told = site.of_job(f"/checkpoints/details/{newest['id']}/subtasks/{vertex}")

    for subtask in told["subtasks"]:
        assert 0 <= subtask["start_delay"] <= subtask["end_to_end_duration"]
        assert 0 <= subtask["alignment"]["duration"] <= newest["alignment_duration"]
    assert told["summary"]["start_delay"]["max"] == max(one["start_delay"] for one in told["subtasks"])
    wanted = {"get": "checkpointStartDelayNanos,checkpointAlignmentTime"}
    metrics = site.of_job(f"/vertices/{vertex}/subtasks/metrics", params=wanted)
    assert len(metrics) == 2
