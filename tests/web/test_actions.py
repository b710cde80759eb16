"""What the server can do to a job, and that nothing happens when it is asked wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Site, until


def test_a_savepoint_is_taken_and_another_job_can_be_started_from_it(site: Site, tmp_path: Path) -> None:
    request = site.post("/savepoints", {"target-directory": str(tmp_path / "chosen"), "cancel-job": False})

    location = Path(site.outcome("/savepoints", request["request-id"])["location"])

    assert location.parent == tmp_path / "chosen"
    assert (location / "_metadata").is_file()
    listed = site.of_job("/savepoints")["savepoints"]
    assert [entry["location"] for entry in listed] == [str(location)]
    assert listed[0]["status"] == "COMPLETED"
    assert site.of_job()["state"] == "RUNNING"


def test_a_savepoint_may_cancel_the_job_when_it_is_there(site: Site) -> None:
    request = site.post("/savepoints", {"cancel-job": True})

    location = site.outcome("/savepoints", request["request-id"])["location"]

    assert (Path(location) / "_metadata").is_file()
    assert site.job.get_job_execution_result().exception() is not None


def test_a_savepoint_that_cannot_be_written_tells_why(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    request = site.post("/savepoints", {"target-directory": str(tmp_path / "file" / "below")})

    cause = site.outcome("/savepoints", request["request-id"])["failure-cause"]
    assert cause["class"] == "CheckpointError"
    assert "file" in cause["stack-trace"]
    failed = site.of_job("/savepoints")["savepoints"]
    assert {entry["status"] for entry in failed} == {"FAILED"}


def test_a_checkpoint_is_taken_on_demand(site: Site) -> None:
    request = site.post("/checkpoints", {"checkpointType": "FULL", "triggerId": "abc123"})

    assert request == {"request-id": "abc123"}
    taken = site.outcome("/checkpoints", "abc123")["checkpointId"]
    assert site.of_job(f"/checkpoints/details/{taken}")["status"] == "COMPLETED"


def test_a_request_that_is_repeated_with_its_id_starts_nothing_new(site: Site, tmp_path: Path) -> None:
    body = {"triggerId": "abc123", "target-directory": str(tmp_path / "once")}

    assert [site.post("/savepoints", body) for _ in range(3)] == [{"request-id": "abc123"}] * 3

    site.outcome("/savepoints", "abc123")
    assert len(list((tmp_path / "once").iterdir())) == 1
    other = site.client.post(f"/v1/jobs/{site.job_id}/checkpoints", json={"triggerId": "abc123"})
    assert other.status_code == 409
    assert "another operation" in other.json()["errors"][0]


def test_a_stopped_job_has_a_savepoint_and_its_client_still_hears_of_it(site: Site, tmp_path: Path) -> None:
    request = site.post("/stop", {"targetDirectory": str(tmp_path / "last"), "drain": False})

    location = site.outcome("/savepoints", request["request-id"])["location"]

    assert (Path(location) / "_metadata").is_file()
    assert site.job.get_job_execution_result().exception() is None


def test_a_job_is_cancelled(site: Site) -> None:
    answer = site.client.patch(f"/v1/jobs/{site.job_id}", params={"mode": "cancel"})

    assert (answer.status_code, answer.json()) == (202, {})
    error = site.job.get_job_execution_result().exception()
    assert "was cancelled" in str(error)


def test_a_savepoint_is_disposed_of(site: Site) -> None:
    request = site.post("/savepoints")
    location = site.outcome("/savepoints", request["request-id"])["location"]

    answer = site.client.post("/v1/savepoint-disposal", json={"savepoint-path": location})

    request_id = answer.json()["request-id"]
    done = until(
        lambda: (s := site.get(f"/savepoint-disposal/{request_id}"))["status"]["id"] == "COMPLETED" and s
    )
    assert done["operation"] == {}
    assert not Path(location).exists()


def test_disposal_of_what_is_no_savepoint_fails_and_deletes_nothing(site: Site, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("mine")

    answer = site.client.post("/v1/savepoint-disposal", json={"savepoint-path": str(tmp_path / "precious")})

    request_id = answer.json()["request-id"]
    done = until(
        lambda: (s := site.get(f"/savepoint-disposal/{request_id}"))["status"]["id"] == "COMPLETED" and s
    )
    assert done["operation"]["failure-cause"]["class"] == "SavepointNotFoundError"
    assert (tmp_path / "precious" / "data").read_text() == "mine"


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_job_is_rescaled(site: Site, method: str) -> None:
    answer = site.client.request(method, f"/v1/jobs/{site.job_id}/rescaling", params={"parallelism": 3})

    assert answer.status_code == 200, answer.text
    assert site.outcome("/rescaling", answer.json()["request-id"]) == {}
    until(lambda: 3 in {vertex["parallelism"] for vertex in site.of_job()["vertices"]})


@pytest.mark.parametrize("parallelism", ["", "0", "-1", "x", "32769", "9" * 400])
def test_a_parallelism_that_is_none_is_refused(site: Site, parallelism: str) -> None:
    answer = site.client.post(f"/v1/jobs/{site.job_id}/rescaling", params={"parallelism": parallelism})

    assert answer.status_code == 400
    assert "'parallelism' must be a number from 1 to 32768" in answer.json()["errors"][0]


UNKNOWN = "f" * 32


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"/jobs/{UNKNOWN}", None, 404),
        ("GET", f"/jobs/{UNKNOWN}/checkpoints", None, 404),
        ("PATCH", f"/jobs/{UNKNOWN}", None, 404),
        ("POST", f"/jobs/{UNKNOWN}/savepoints", b"{}", 404),
        ("POST", f"/jobs/{UNKNOWN}/rescaling", b"{}", 404),
        ("GET", "/jobs/{job}/vertices/nothing", None, 404),
        ("GET", "/jobs/{job}/vertices/nothing/subtasks/metrics", None, 404),
        ("GET", "/jobs/{job}/vertices/{vertex}/subtasks/99", None, 404),
        ("GET", "/jobs/{job}/vertices/{vertex}/subtasks/-1", None, 400),
        ("GET", "/jobs/{job}/vertices/{vertex}/subtasks/0/attempts/7", None, 404),
        ("GET", "/jobs/{job}/checkpoints/details/999999", None, 404),
        ("GET", "/jobs/{job}/checkpoints/details/first", None, 400),
        ("GET", "/jobs/{job}/checkpoints/details/" + "9" * 400, None, 400),
        ("GET", "/jobs/{job}/checkpoints?limit=-1", None, 400),
        ("GET", "/jobs/{job}/checkpoints?offset=many", None, 400),
        ("GET", "/jobs/{job}/savepoints/unknown", None, 404),
        ("GET", "/jobs/{job}/vertices/{vertex}/subtasks/metrics?get=numRecordsIn&agg=median", None, 400),
        ("GET", "/taskmanagers/nobody", None, 404),
        ("GET", "/taskmanagers/{job}-7/logs", None, 404),
        ("GET", "/jobmanager/logs/{job}-..%2F..%2Fhistory.jsonl", None, 404),
        ("GET", "/savepoint-disposal/unknown", None, 404),
        ("GET", "/nothing", None, 404),
        ("DELETE", "/jobs/{job}", None, 405),
        ("PATCH", "/jobs/{job}?mode=explode", None, 400),
        ("POST", "/jobs/{job}/savepoints", b"{", 400),
        ("POST", "/jobs/{job}/savepoints", b"[]", 400),
        ("POST", "/jobs/{job}/savepoints", b'{"more": ' + b"[" * 200_000, 400),
        ("POST", "/jobs/{job}/savepoints", b'"\xff"', 400),
        ("POST", "/jobs/{job}/savepoints", b'{"target-directory": 7}', 400),
        ("POST", "/jobs/{job}/savepoints", b'{"directory": "/tmp"}', 400),
        ("POST", "/jobs/{job}/savepoints", b'{"triggerId": "../../x"}', 400),
        ("POST", "/jobs/{job}/stop", b"\xff\xfe", 400),
        ("POST", "/jobs/{job}/checkpoints", b'{"triggerId": 1}', 400),
        ("POST", "/savepoint-disposal", b"{}", 400),
        ("POST", "/jobs/{job}/savepoints", b'{"formatType": "native"}', 400),
        ("POST", "/jobs/{job}/savepoints", b'{"formatType": "NATIVE"}', 501),
        ("POST", "/jobs/{job}/stop", b'{"formatType": "NATIVE"}', 501),
        ("POST", "/jobs/{job}/checkpoints", b'{"checkpointType": "HALF"}', 400),
        ("POST", "/jobs/{job}/checkpoints", b'{"checkpointType": "INCREMENTAL"}', 501),
        ("POST", "/jobs/{job}/savepoints", b" " * (2 << 20), 413),
    ],
)
def test_bad_input_is_a_clear_error_and_changes_nothing(
    site: Site, method: str, path: str, body: bytes | None, status: int
) -> None:
    where = path.replace("{job}", site.job_id).replace("{vertex}", site.vertex("count")["id"])

    answer = site.client.request(method, "/v1" + where, content=body)

    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    errors = answer.json()["errors"]
    assert len(errors) == 1
    assert errors[0]
    assert "Traceback" not in errors[0]
    assert site.of_job()["state"] == "RUNNING"
    assert site.of_job("/savepoints")["savepoints"] == []


def test_a_body_without_a_length_is_not_read_to_its_end(site: Site) -> None:
    def endless() -> Any:
        for _ in range(64):
            yield b" " * (1 << 18)

    answer = site.client.post(f"/v1/jobs/{site.job_id}/savepoints", content=endless())

    assert answer.status_code == 413
    assert site.of_job()["state"] == "RUNNING"


def test_an_ended_job_cannot_be_acted_upon(site: Site, start: Any) -> None:
    other = start()
    site.client.patch(f"/v1/jobs/{site.job_id}")
    site.job.get_job_execution_result().exception()
    ended = until(lambda: (j := other.get(f"/jobs/{site.job_id}"))["state"] == "CANCELED" and j)

    for path, method in (("", "PATCH"), ("/savepoints", "POST"), ("/stop", "POST"), ("/checkpoints", "POST")):
        answer = other.client.request(method, f"/v1/jobs/{site.job_id}{path}", json={})

        assert answer.status_code == 409, answer.text
        assert "CANCELED" in answer.json()["errors"][0]
    assert ended["end-time"] >= ended["start-time"]
