"""Slots, which Flink's tools know as task managers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemark.web.calls import ApiError, Call, Route, Text
from tidemark.web.facts import JobFacts, SlotFacts, slot_id
from tidemark.web.metric_values import aggregated, listed, slot_metrics
from tidemark.web.view import JobView

__all__ = ["ROUTES"]


def _slots(call: Call) -> Iterator[tuple[JobView, JobFacts, SlotFacts]]:
    for view in call.jobs.all():
        facts = view.facts()
        if facts.end_time is None:
            for slot in facts.slots:
                yield view, facts, slot


def _found(call: Call) -> tuple[JobView, JobFacts, SlotFacts]:
    job_id, _, number = call.path["taskmanagerid"].rpartition("-")
    view = call.jobs.find(job_id)
    facts = None if view is None else view.facts()
    for slot in () if facts is None else facts.slots:
        if str(slot.index) == number and view is not None and facts is not None:
            return view, facts, slot
    raise ApiError(404, f"There is no slot '{call.path['taskmanagerid']}'. GET /v1/taskmanagers lists them.")


def _entry(job: JobFacts, slot: SlotFacts) -> dict[str, Any]:
    return {
        "id": slot_id(job.job_id, slot.index),
        "path": f"{slot.host}:{slot.pid}",
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": job.now - slot.age_ms,
        "slotsNumber": 1,
        "freeSlots": 0,
        "hardware": {
            "cpuCores": 1,
            "physicalMemory": slot.rss,
            "freeMemory": 0,
            "managedMemory": 0,
        },
        "job": job.job_id,
        "job-name": job.name,
        "slot": slot.index,
        "host": slot.host,
        "pid": slot.pid,
        "memory": slot.rss,
        "cpu-seconds": slot.cpu_s,
        "age-ms": slot.age_ms,
        "key-groups": {
            vertex.name: slot.key_groups[vertex.uid]
            for vertex in job.vertices
            if vertex.uid in slot.key_groups
        },
    }


def _all(call: Call) -> dict[str, Any]:
    return {"taskmanagers": [_entry(job, slot) for _view, job, slot in _slots(call)]}


def _one(call: Call) -> dict[str, Any]:
    _view, job, slot = _found(call)
    return {**_entry(job, slot), "metrics": slot_metrics(slot)}


def _metrics(call: Call) -> list[dict[str, Any]]:
    _view, _job, slot = _found(call)
    return listed(slot_metrics(slot), call.query.get("get"))


def _all_metrics(call: Call) -> list[dict[str, Any]]:
    chosen = call.query.get("taskmanagers")
    wanted = None if not chosen else set(chosen.split(","))
    found = [
        slot_metrics(slot)
        for _view, job, slot in _slots(call)
        if wanted is None or slot_id(job.job_id, slot.index) in wanted
    ]
    return aggregated(found, call.query.get("get"), call.query.get("agg"))


def _logs(call: Call) -> dict[str, Any]:
    view, _job, slot = _found(call)
    prefix = f"slot-{slot.index}.log"
    return {"logs": [{"name": n, "size": size} for n, size in view.logs().items() if n.startswith(prefix)]}


def _log(call: Call) -> Text:
    view, _job, slot = _found(call)
    name = call.path["name"]
    text = view.log(name) if name.startswith(f"slot-{slot.index}.log") else None
    if text is None:
        raise ApiError(404, f"The slot has no log '{name}' that can be read from here.")
    return Text(text)


_SLOT = "/taskmanagers/{taskmanagerid}"

ROUTES = (
    Route("GET", "/taskmanagers", _all, "The slots of all running jobs"),
    Route(
        "GET",
        "/taskmanagers/metrics",
        _all_metrics,
        "Metrics of slots, aggregated",
        ("get", "agg", "taskmanagers"),
    ),
    Route("GET", _SLOT, _one, "One slot"),
    Route("GET", f"{_SLOT}/metrics", _metrics, "Metrics of a slot", ("get",)),
    Route("GET", f"{_SLOT}/logs", _logs, "Log files of a slot"),
    Route("GET", f"{_SLOT}/logs/{{name}}", _log, "The end of a slot's log file"),
)
