"""`/metrics`: readable by Prometheus, with Flink's names, and honest about work that is done twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.web import jobs
from tests.web.conftest import Site, Start, until

from tidemark.runtime.control import live_jobs

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(site: Site) -> Samples:
    answer = site.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_have_the_names_and_labels_of_flinks_reporter(site: Site) -> None:
    def have_records(found: Samples) -> bool:
        told = found.get("flink_taskmanager_job_task_numRecordsIn", [])
        busy = {(labels["task_name"], labels["subtask_index"]): value for labels, value in told if value > 0}
        return {("KEYED PROCESS", "0"), ("KEYED PROCESS", "1")} <= busy.keys()

    found = until(lambda: s if have_records(s := scraped(site)) else None)

    assert "flink_taskmanager_job_task_operator_seen" in found
    [(labels, completed)] = found["flink_jobmanager_job_numberOfCompletedCheckpoints"]
    assert labels["job_id"] == site.job_id
    assert labels["job_name"] == "counting"
    assert completed > 0
    for name in (
        "lastCheckpointDuration",
        "lastCheckpointSize",
        "uptime",
        "numRestarts",
        "numRecordsReplayed",
    ):
        assert f"flink_jobmanager_job_{name}" in found
    assert "flink_taskmanager_job_task_numRecordsInPerSecond" in found


def test_metrics_of_users_functions_are_there_by_subtask(site: Site) -> None:
    found = until(lambda: (s := scraped(site)) and "flink_taskmanager_job_task_operator_seen" in s and s)

    seen = found["flink_taskmanager_job_task_operator_seen"]
    assert {labels["subtask_index"] for labels, _value in seen} == {"0", "1"}
    assert {labels["operator_name"] for labels, _value in seen} == {"KEYED PROCESS"}
    assert found["flink_taskmanager_job_task_operator_sizes_max"][0][1] == 6


def test_no_metric_is_there_twice(site: Site) -> None:
    for name, samples in scraped(site).items():
        labels = [tuple(sorted(labels.items())) for labels, _value in samples]
        assert len(labels) == len(set(labels)), name


def test_the_prefix_is_an_option(start: Start) -> None:
    site = start({"metrics.prefix": "tide"})

    assert {name.partition("_")[0] for name in scraped(site)} == {"tide"}


def test_counters_do_not_go_back_within_an_attempt_and_replays_are_told(site: Site) -> None:
    def counters() -> dict[tuple[str, ...], float]:
        return {
            (labels["task_name"], labels["subtask_index"], labels["task_attempt_num"]): value
            for labels, value in scraped(site).get("flink_taskmanager_job_task_numRecordsIn", ())
        }

    def replayed() -> float:
        return scraped(site)["flink_jobmanager_job_numRecordsReplayed"][0][1]

    last: dict[tuple[str, ...], float] = {}

    def is_monotonic() -> bool:
        for place, value in counters().items():
            assert value >= last.get(place, 0), place
            last[place] = value
        return True

    until(lambda: is_monotonic() and max(last.values(), default=0) > 100)
    assert replayed() == 0
    jobs.BROKEN.set()
    until(lambda: is_monotonic() and {attempt for _name, _subtask, attempt in last} >= {"0", "1"})
    until(lambda: is_monotonic() and scraped(site)["flink_jobmanager_job_numRestarts"][0][1] == 1)

    records = site.of_job()["records"]
    assert 0 <= replayed() < records
    assert scraped(site)["flink_jobmanager_job_attempt"][0][1] == 1


DASHBOARD = Path(__file__).parents[2] / "examples" / "observability" / "grafana-dashboard.json"


def test_every_metric_of_the_dashboard_is_there(start: Start) -> None:
    site = start({"metrics.latency.interval": "1 ms", "execution.mode": "continuous"})
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    used = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"flink_\w+", target["expr"])
    }
    # The test's job has no event time.
    used.remove("flink_taskmanager_job_task_currentInputWatermark")

    assert len(used) > 10
    until(lambda: used <= scraped(site).keys())


def test_rocksdbs_figures_are_metrics_of_their_operator(start: Start) -> None:
    site = start({"state.backend": "rocksdb", "state.backend.rocksdb.metrics.estimate-num-keys": "true"})
    name = "flink_taskmanager_job_task_operator_rocksdb_estimate_num_keys"

    found = until(lambda: (s := scraped(site).get(name, ())) and sum(v for _, v in s) >= 10 and s)

    assert {labels["operator_name"] for labels, _value in found} == {"KEYED PROCESS"}
    assert {labels["subtask_index"] for labels, _value in found} == {"0", "1"}


def test_accesses_to_state_are_timed_if_that_is_asked_for(start: Start) -> None:
    site = start({"state.latency-track.keyed-state-enabled": "true"})
    name = "flink_taskmanager_job_task_operator_count_valueStateGetLatency_count"

    found = until(lambda: (s := scraped(site).get(name, ())) and sum(v for _, v in s) > 2 and s)

    assert {labels["operator_name"] for labels, _value in found} == {"KEYED PROCESS"}


def test_queries_are_counted_if_that_is_asked_for(start: Start) -> None:
    site = start({"queryable-state.enable-statistics": "true"})
    name = "flink_jobmanager_job_queryableState_numRequests"
    until(lambda: site.of_job()["records"] > 100)
    before = scraped(site)[name][0][1]

    site.of_job("/states/query", params={"name": "counts", "key": "3"})

    until(lambda: scraped(site)[name][0][1] > before)


@pytest.mark.parametrize("name", ['quoted " name', "back\\slash", "two\nlines", "ünïcode"])
def test_any_job_name_can_be_read_back(site: Site, name: str) -> None:
    from tidemark.runtime.archive import Archive, ArchivedJobView
    from tidemark.web.facts import JobFacts
    from tidemark.web.prometheus import exposition

    view = ArchivedJobView(Archive(JobFacts("a" * 32, name, "RUNNING", 0, now=5)))
    families = list(text_string_to_metric_families(exposition([view], "flink")))

    names = {
        sample.labels["job_name"] for f in families for sample in f.samples if "job_name" in sample.labels
    }
    assert names == {name}


def test_jobs_of_one_process_do_not_tell_the_same_thing_twice(start: Start) -> None:
    first, second = start(), start({"metrics.latency.interval": "1 ms"})
    assert first.address == second.address
    until(lambda: second.of_job()["records"])

    assert len(scraped(first)["flink_jobmanager_Status_JVM_Memory_Heap_Used"]) == 1
    test_no_metric_is_there_twice(first)


def test_names_that_prometheus_cannot_tell_apart_are_one_metric() -> None:
    from tidemark.runtime.archive import Archive, ArchivedJobView
    from tidemark.web.facts import JobFacts, VertexFacts
    from tidemark.web.prometheus import exposition

    vertex = VertexFacts("0" * 32, "u", "count", "operator", 1, 128, True)
    metrics = ((0, "count.a.b", 1), (0, "count.a_b", 2), (0, "count.a b", 3))
    facts = JobFacts("a" * 32, "job", "RUNNING", 0, now=5, vertices=(vertex,), user_metrics=metrics)

    text = exposition([ArchivedJobView(Archive(facts))], "flink")

    assert text.count("flink_taskmanager_job_task_operator_a_b{") == 1


def test_counters_of_a_former_attempt_are_not_told_as_those_of_the_next(site: Site) -> None:
    name = "flink_taskmanager_job_task_numRecordsIn"
    progress = live_jobs()[0].execution.progress
    until(lambda: scraped(site).get(name))

    # As between the start of an attempt and the first answer of its slots.
    progress.attempt += 1
    until(lambda: name not in scraped(site))
    progress.attempt -= 1

    until(lambda: {labels["task_attempt_num"] for labels, _value in scraped(site).get(name, ())} == {"0"})
