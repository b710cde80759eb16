"""A REST client for Flink, as PyPI has it, works unchanged."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from flink_rest_client import FlinkRestClient
from flink_rest_client.common import RestException
from tests.web.conftest import Site, until


@pytest.fixture
def flink(site: Site):
    return FlinkRestClient.get(host="127.0.0.1", port=int(site.address.rpartition(":")[2]))


def test_it_sees_the_cluster_and_the_jobs(flink, site: Site) -> None:
    assert flink.overview()["jobs-running"] == 1
    assert flink.config()["flink-version"]
    assert flink.jobs.job_ids() == [site.job_id]
    assert flink.jobs.overview()[0]["name"] == "counting"
    assert flink.jobs.get(site.job_id)["state"] == "RUNNING"
    assert flink.jobs.get_config(site.job_id)["execution-config"]["job-parallelism"] == 2
    assert len(flink.jobs.get_plan(site.job_id)["nodes"]) == 4
    assert flink.jobs.get_exceptions(site.job_id)["all-exceptions"] == []
    assert flink.jobs.get_execution_result(site.job_id)["status"]["id"] == "IN_PROGRESS"
    names = {entry["name"] for entry in flink.jobs.get_accumulators(site.job_id)["user-task-accumulators"]}
    assert "KEYED PROCESS.seen" in names


def test_it_reads_metrics_of_jobs_vertices_and_slots(flink, site: Site) -> None:
    assert int(flink.jobs.get_metrics(site.job_id)["numberOfCompletedCheckpoints"]) > 0
    assert flink.jobs.metrics()["lastCheckpointDuration"]["max"] >= 0
    vertex = flink.jobs.get_vertex(site.job_id, site.vertex("count")["id"])
    assert vertex.details()["parallelism"] == 2
    # As with Flink, the first look only begins to measure.
    until(lambda: vertex.backpressure()["status"] == "ok")
    assert vertex.subtasks.subtask_ids() == [0, 1]
    assert vertex.subtasks.metrics(["numRecordsIn"])["numRecordsIn"]["sum"] > 0
    assert vertex.subtasks.get(1)["subtask"] == 1
    assert len(vertex.subtasktimes()["subtasks"]) == 2
    assert len(vertex.taskmanagers()["taskmanagers"]) == 2
    assert isinstance(vertex.watermarks(), list)
    slots = flink.taskmanagers.taskmanager_ids()
    assert slots == [f"{site.job_id}-0", f"{site.job_id}-1"]
    assert flink.taskmanagers.metrics()["Status.JVM.Memory.Heap.Used"]["min"] > 0
    assert flink.jobmanager.config()["rest.port"] == "0"
    assert flink.jobmanager.metrics()["numRunningJobs"] == "1"
    log = flink.jobmanager.logs()[0]["name"]
    assert site.job_id in flink.jobmanager.get_log(log)


def test_it_reads_checkpoints_down_to_the_subtask(flink, site: Site) -> None:
    assert flink.jobs.get_checkpointing_configuration(site.job_id)["interval"] == 50
    counts = flink.jobs.get_checkpoints(site.job_id)["counts"]
    assert counts["completed"] > 0
    newest = flink.jobs.get_checkpoints(site.job_id)["latest"]["completed"]["id"]
    assert newest in flink.jobs.get_checkpoint_ids(site.job_id)
    details = flink.jobs.get_checkpoint_details(site.job_id, newest, show_subtasks=True)
    assert set(details["subtasks"]) == set(details["tasks"])


def test_it_takes_a_savepoint(flink, site: Site, tmp_path: Path) -> None:
    trigger = flink.jobs.create_savepoint(site.job_id, str(tmp_path / "by-client"))

    until(lambda: trigger.status["status"]["id"] == "COMPLETED")

    assert Path(trigger.status["operation"]["location"]).parent == tmp_path / "by-client"


def test_it_stops_a_job_and_hears_of_the_savepoint(flink, site: Site, tmp_path: Path) -> None:
    trigger = flink.jobs.stop(site.job_id, str(tmp_path / "by-client"))
    found = until(lambda: (s := trigger.status)["status"]["id"] == "COMPLETED" and s)

    assert Path(found["operation"]["location"]).is_dir()
    assert site.job.get_job_execution_result().exception() is None


def test_it_cancels_a_job(flink, site: Site) -> None:
    assert flink.jobs.terminate(site.job_id) is True

    assert "was cancelled" in str(site.job.get_job_execution_result().exception())


def test_it_is_told_what_is_wrong(flink, site: Site) -> None:
    with pytest.raises(RestException, match=r"404.*not found"):
        flink.jobs.get("f" * 32)
    with pytest.raises(RestException, match=r"400.*from 1 to 32768"):
        flink.jobs.rescale(site.job_id, 0)


def test_it_rescales_a_job(flink, site: Site) -> None:
    with contextlib.suppress(KeyError):
        # It looks for another name than the one that Flink documents, and answers with.
        flink.jobs.rescale(site.job_id, 3)
    until(lambda: 3 in {vertex["parallelism"] for vertex in site.of_job()["vertices"]})
