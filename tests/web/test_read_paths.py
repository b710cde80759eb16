"""What the server tells of a running job: Flink's paths and names, and ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.web.conftest import Site, Start, until

from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.runtime.control import live_jobs
from tidemark.web.application import ROUTES


def test_every_path_answers_with_and_without_the_version(site: Site) -> None:
    vertex = site.vertex("count")["id"]
    slot = site.get("/taskmanagers")["taskmanagers"][0]["id"]
    newest = site.of_job("/checkpoints")["latest"]["completed"]["id"]
    names = {
        "jobid": site.job_id,
        "vertexid": vertex,
        "taskmanagerid": slot,
        "checkpointid": newest,
        "subtask": 0,
        "attempt": 0,
        "name": f"{site.job_id}-driver.log",
    }
    asked = 0
    for route in ROUTES:
        if (
            route.method != "GET"
            or "triggerid" in route.path
            or route.path.endswith(("/query", "/logs/{name}"))
        ):
            continue
        path = route.path.format(**names)
        for prefix in ("", "/v1"):
            answer = site.client.get(prefix + path)
            assert answer.status_code == 200, f"{prefix}{path}: {answer.text}"
            answer.json()
            asked += 1
    assert asked > 70


def test_records_of_a_running_job_grow(site: Site) -> None:
    before = site.vertex("count")["metrics"]["read-records"]

    until(lambda: site.vertex("count")["metrics"]["read-records"] > before)


def test_a_vertex_has_read_what_those_before_it_wrote_to_it(site: Site) -> None:
    details = until(lambda: _quiet(site))

    metrics = {vertex["uid"]: vertex["metrics"] for vertex in details["vertices"]}
    assert metrics["count"]["read-records"] == metrics["numbers"]["write-records"] == details["records"]
    assert metrics["all"]["read-records"] == metrics["count"]["read-records"]
    assert metrics["odd"]["read-records"] == metrics["count"]["read-records"] // 2
    assert (
        metrics["count"]["write-records"] == metrics["all"]["read-records"] + metrics["odd"]["read-records"]
    )


def _quiet(site: Site) -> dict:
    """Details that were not made amid an epoch: the numbers of its vertices are read one after the other."""
    found = site.of_job()
    metrics = {vertex["uid"]: vertex["metrics"] for vertex in found["vertices"]}
    same = metrics["count"]["read-records"] == metrics["numbers"]["write-records"] == found["records"]
    return found if same and metrics["odd"]["read-records"] else {}


def test_the_plan_says_how_records_travel(site: Site) -> None:
    nodes = {node["id"]: node for node in site.of_job("/plan")["plan"]["nodes"]}

    count = nodes[site.vertex("count")["id"]]
    assert count["inputs"][0]["id"] == site.vertex("numbers")["id"]
    assert count["inputs"][0]["ship_strategy"] == "HASH"
    assert "inputs" not in nodes[site.vertex("numbers")["id"]]


def test_the_details_of_a_checkpoint_are_those_of_its_metadata(start: Start) -> None:
    site = start({"state.checkpoints.num-retained": "1000"})
    taken = until(lambda: site.of_job("/checkpoints")["latest"]["completed"])
    metadata = read_metadata(FileSystemStorage(), taken["external_path"])

    details = site.of_job(f"/checkpoints/details/{taken['id']}")
    vertex = site.vertex("count")["id"]
    subtasks = site.of_job(f"/checkpoints/details/{taken['id']}/subtasks/{vertex}")

    assert details["state_size"] == metadata.state_size
    assert details["checkpointed_size"] == metadata.written_size
    operator = metadata.operator("count")
    assert operator is not None
    assert details["tasks"][vertex]["state_size"] == operator.state_size
    assert [s["state_size"] for s in subtasks["subtasks"]] == [s.state_size for s in operator.subtasks]
    assert [s["checkpoint"]["sync"] for s in subtasks["subtasks"]] == [s.sync_ms for s in operator.subtasks]
    assert {s["status"] for s in subtasks["subtasks"]} == {"completed"}


def test_the_history_of_checkpoints_comes_in_pages_newest_first(site: Site) -> None:
    until(lambda: site.of_job("/checkpoints")["counts"]["completed"] >= 4)

    first = site.of_job("/checkpoints", params={"offset": 0, "limit": 2})["history"]
    second = site.of_job("/checkpoints", params={"offset": 2, "limit": 1})["history"]

    assert [len(first), len(second)] == [2, 1]
    assert first[0]["id"] == first[1]["id"] + 1
    assert second[0]["id"] < first[0]["id"]


def test_states_have_type_entries_and_bytes(site: Site) -> None:
    found = until(lambda: [s for s in _states(site, "count") if s["entries"] == 10 and s["bytes"]])

    assert found[0]["name"] == "count"
    assert found[0]["kind"] == "value"
    assert found[0]["queryable-name"] == "counts"
    assert found[0]["ttl-ms"] is None


def test_operator_state_is_listed_too(site: Site) -> None:
    found = until(lambda: [s for s in _states(site, "numbers") if s["bytes"]])

    assert [(s["name"], s["kind"], s["type"], s["entries"]) for s in found] == [
        ("offset", "operator list", "Long", 1)
    ]


def _states(site: Site, uid: str) -> list[dict]:
    operators = {operator["uid"]: operator for operator in site.of_job("/states")["operators"]}
    return operators.get(uid, {"states": []})["states"]


def test_a_key_of_a_queryable_state_is_looked_up(site: Site) -> None:
    answer = site.of_job("/states/query", params={"name": "counts", "key": "3"})

    assert answer["key"] == 3
    assert answer["value"] > 0


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"name": "counts", "key": "77"}, 404),
        ({"name": "nothing", "key": "3"}, 404),
        ({"name": "counts", "key": '"three"'}, 400),
        ({"name": "counts", "key": "three"}, 400),
        ({"name": "counts"}, 400),
    ],
)
def test_a_wrong_query_is_refused(site: Site, query: dict[str, str], status: int) -> None:
    answer = site.client.get(f"/v1/jobs/{site.job_id}/states/query", params=query)

    assert answer.status_code == status
    assert answer.json()["errors"]


def test_settings_say_which_layer_set_them_and_hide_secrets(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_STATE_CHECKPOINTS_NUM_RETAINED", "3")
    site = start({"my.password": "hunter2", "execution.checkpointing.unaligned.enabled": "true"})

    settings = {setting["key"]: setting for setting in site.of_job("/settings")["settings"]}

    assert settings["state.checkpoints.num-retained"]["layer"] == "environment"
    assert settings["execution.target"]["layer"] == "configuration"
    assert settings["heartbeat.timeout"]["layer"] == "default"
    assert settings["my.password"]["value"] == "******"
    idle = settings["execution.checkpointing.unaligned"]
    assert (idle["effect"], idle["value"]) == (False, "true")
    assert idle["reason"]
    assert "hunter2" not in site.client.get("/v1/jobmanager/config").text


def test_curves_have_a_point_a_second(site: Site) -> None:
    series = until(lambda: (s := site.of_job("/series")) and len(s["timestamps"]) > 1 and s)

    assert {len(values) for name, values in series.items() if name != "step-ms"} == {
        len(series["timestamps"])
    }
    assert series["step-ms"] == 1000


def test_slots_are_task_managers_with_key_groups(site: Site) -> None:
    slots = site.get("/taskmanagers")["taskmanagers"]

    assert [slot["slot"] for slot in slots] == [0, 1]
    assert [slot["key-groups"]["KEYED PROCESS"] for slot in slots] == [[0, 63], [64, 127]]
    assert site.get(f"/taskmanagers/{slots[1]['id']}")["pid"] == slots[1]["pid"]


def test_events_tell_the_overview_the_job_and_its_checkpoints(site: Site) -> None:
    seen: dict[str, dict] = {}
    with site.client.stream("GET", "/v1/events", params={"job": site.job_id}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                seen[name] = json.loads(line.removeprefix("data: "))
            if len(seen) == 3:
                break

    assert seen["overview"]["jobs"][0]["jid"] == site.job_id
    assert seen["job"]["jid"] == site.job_id
    assert seen["checkpoints"]["counts"]["completed"]


def test_the_drivers_log_names_job_attempt_and_slot_in_every_line(site: Site, home: Path) -> None:
    logs = site.get("/jobmanager/logs")["logs"]
    text = site.client.get(f"/v1/jobmanager/logs/{logs[0]['name']}").text

    assert text
    for line in text.splitlines():
        assert f"job={site.job_id} attempt=0 slot=driver: " in line
    assert (home / "logs" / site.job_id / "driver.log").stat().st_mode & 0o077 == 0


def test_a_slot_whose_log_is_on_another_machine_is_asked_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = f"/v1/taskmanagers/{site.job_id}-1/logs"
    assert site.client.get(slot).json() == {"logs": []}
    assert site.client.get(f"{slot}/slot-1.log").status_code == 404

    engine = live_jobs()[0].execution.engine
    figures, log = type(engine).figures, type(engine).slot_log
    assert log(engine, 1, 0.0) is None, "slots of this engine log with the driver"
    monkeypatch.setattr(
        engine, "figures", lambda timeout: [{**one, "host": "afar"} for one in figures(engine, timeout)]
    )
    monkeypatch.setattr(engine, "slot_log", lambda slot, _timeout: f"slot {slot} says hello")

    until(lambda: site.client.get(slot).json() == {"logs": [{"name": "slot-1.log", "size": 0}]})
    assert site.client.get(f"{slot}/slot-1.log").text == "slot 1 says hello"
    assert site.client.get(f"{slot}/slot-0.log").status_code == 404
