"""Vertices and their subtasks: details, watermarks, back-pressure, times."""

from __future__ import annotations

from typing import Any

from tidemark.web import job_json
from tidemark.web.calls import ApiError, Call, Route
from tidemark.web.facts import JobFacts, SubtaskFacts, VertexFacts, slot_id

__all__ = ["ROUTES"]

_LOW, _HIGH = 0.1, 0.5
"""Up to which share of waiting Flink calls back-pressure ok, and low."""


def _subtasks(vertex: VertexFacts) -> list[SubtaskFacts]:
    """One for every index; of those that run in tasks, or have said nothing yet, only the index is known."""
    known = {subtask.index: subtask for subtask in vertex.subtasks}
    return [known.get(index, SubtaskFacts(index)) for index in range(vertex.parallelism)]


def _subtask(job: JobFacts, vertex: VertexFacts, subtask: SubtaskFacts) -> dict[str, Any]:
    return {
        "subtask": subtask.index,
        "status": job_json.task_status(job),
        "attempt": job.attempt,
        "host": subtask.host or job.host,
        "endpoint": subtask.host or job.host,
        "start-time": job.start_time,
        "start_time": job.start_time,
        "end-time": -1 if job.end_time is None else job.end_time,
        "duration": job_json.duration(job),
        "taskmanager-id": slot_id(job.job_id, subtask.index) if vertex.in_slots else "(tasks)",
        "metrics": {
            **job_json.io_metrics(
                subtask.records_in, subtask.records_out, [subtask.times] if subtask.times else []
            ),
            **job_json.shares_of(subtask.shares),
            "watermark": subtask.watermark,
        },
    }


def _vertex(call: Call) -> dict[str, Any]:
    vertex, job = call.vertex(), call.job().facts()
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": job.now,
        "subtasks": [_subtask(job, vertex, subtask) for subtask in _subtasks(vertex)],
    }


def _one_subtask(call: Call) -> dict[str, Any]:
    vertex, index = call.vertex(), call.number("subtask")
    if index >= vertex.parallelism:
        raise ApiError(
            404, f"Vertex {vertex.id} has no subtask {index}; its parallelism is {vertex.parallelism}."
        )
    return _subtask(call.job().facts(), vertex, _subtasks(vertex)[index])


def _attempt(call: Call) -> dict[str, Any]:
    found = _one_subtask(call)
    attempt = call.number("attempt")
    if attempt != found["attempt"]:
        raise ApiError(404, f"Only the current attempt {found['attempt']} is known, not {attempt}.")
    return found


def _watermarks(call: Call) -> list[dict[str, Any]]:
    return [
        {"id": f"{subtask.index}.currentInputWatermark", "value": str(subtask.watermark)}
        for subtask in call.vertex().subtasks
        if subtask.watermark is not None
    ]


def _level(ratio: float) -> str:
    """Flink's words."""
    return "ok" if ratio <= _LOW else "low" if ratio <= _HIGH else "high"


def _backpressure(call: Call) -> dict[str, Any]:
    vertex = call.vertex()
    known = {subtask.index: subtask.shares for subtask in vertex.subtasks if subtask.shares is not None}
    if not known:
        # Flink's word for "nobody knows".
        return {"status": "deprecated", "subtasks": []}
    worst = _level(max(shares.backpressured for shares in known.values()))
    return {
        "status": "ok",
        "backpressureLevel": worst,
        "backpressure-level": worst,
        "end-timestamp": call.job().facts().now,
        "subtasks": [
            {
                "subtask": index,
                "backpressureLevel": _level(shares.backpressured),
                "backpressure-level": _level(shares.backpressured),
                "ratio": shares.backpressured,
                "busyRatio": shares.busy,
                "idleRatio": shares.idle,
            }
            for index, shares in sorted(known.items())
        ],
    }


def _times(call: Call) -> dict[str, Any]:
    vertex, job = call.vertex(), call.job().facts()
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": job.now,
        "subtasks": [
            {
                "subtask": subtask.index,
                "host": subtask.host or job.host,
                "duration": job_json.duration(job),
                "timestamps": {job_json.task_status(job): job.start_time},
            }
            for subtask in _subtasks(vertex)
        ],
    }


def _taskmanagers(call: Call) -> dict[str, Any]:
    vertex, job = call.vertex(), call.job().facts()
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": job.now,
        "taskmanagers": [
            {
                **{key: shown[key] for key in ("host", "endpoint", "start-time", "end-time", "duration")},
                "status": shown["status"],
                "taskmanager-id": shown["taskmanager-id"],
                "status-counts": job_json.task_counts(job, 1),
                "metrics": shown["metrics"],
            }
            for shown in [_subtask(job, vertex, subtask) for subtask in _subtasks(vertex)]
        ],
    }


def _accumulators(call: Call) -> dict[str, Any]:
    vertex = call.vertex()
    values = {name: value for _slot, name, value in _user_metrics(call, vertex)}
    return {"id": vertex.id, "user-accumulators": _listed(values)}


def _subtask_accumulators(call: Call) -> dict[str, Any]:
    vertex, job = call.vertex(), call.job().facts()
    found = _user_metrics(call, vertex)
    return {
        "id": vertex.id,
        "parallelism": vertex.parallelism,
        "subtasks": [
            {
                "subtask": subtask.index,
                "attempt": job.attempt,
                "host": subtask.host or job.host,
                "user-accumulators": _listed(
                    {name: value for slot, name, value in found if slot == subtask.index}
                ),
            }
            for subtask in _subtasks(vertex)
        ],
    }


def _user_metrics(call: Call, vertex: VertexFacts) -> list[tuple[int | None, str, Any]]:
    prefix = vertex.name + "."
    return [
        (slot, path.removeprefix(prefix), value)
        for slot, path, value in call.job().facts().user_metrics
        if path.startswith(prefix)
    ]


def _listed(values: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"name": name, "type": type(value).__name__, "value": str(value)} for name, value in values.items()
    ]


_VERTEX = "/jobs/{jobid}/vertices/{vertexid}"

ROUTES = (
    Route("GET", _VERTEX, _vertex, "A vertex with its subtasks"),
    Route("GET", f"{_VERTEX}/watermarks", _watermarks, "Watermark of each subtask"),
    Route("GET", f"{_VERTEX}/backpressure", _backpressure, "Where the time of each subtask goes"),
    Route("GET", f"{_VERTEX}/accumulators", _accumulators, "Metrics of the vertex's function"),
    Route("GET", f"{_VERTEX}/subtasktimes", _times, "Since when each subtask runs"),
    Route("GET", f"{_VERTEX}/taskmanagers", _taskmanagers, "The slots a vertex runs in"),
    Route(
        "GET", f"{_VERTEX}/subtasks/accumulators", _subtask_accumulators, "Metrics of each subtask's function"
    ),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}", _one_subtask, "One subtask"),
    Route(
        "GET", f"{_VERTEX}/subtasks/{{subtask}}/attempts/{{attempt}}", _attempt, "One attempt of a subtask"
    ),
)
