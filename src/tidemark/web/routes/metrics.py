"""Metrics by name, in the form of Flink's REST; Prometheus gets them all at `/metrics`."""

from __future__ import annotations

from typing import Any

from tidemark.web.calls import Call, Route
from tidemark.web.metric_values import aggregated, job_metrics, listed, subtask_metrics, vertex_subtasks
from tidemark.web.view import JobView

__all__ = ["ROUTES"]


def _values(view: JobView) -> dict[str, Any]:
    return job_metrics(view.facts(), view.checkpoints())


def _job(call: Call) -> list[dict[str, Any]]:
    return listed(_values(call.job()), call.query.get("get"))


def _all_jobs(call: Call) -> list[dict[str, Any]]:
    chosen = call.query.get("jobs")
    views = [view for view in call.jobs.all() if not chosen or view.job_id in chosen.split(",")]
    return aggregated([_values(view) for view in views], call.query.get("get"), call.query.get("agg"))


def _vertex(call: Call) -> list[dict[str, Any]]:
    vertex = call.vertex()
    values = {
        f"{subtask.index}.{name}": value
        for subtask in vertex_subtasks(vertex)
        for name, value in subtask_metrics(subtask).items()
    }
    return listed(values, call.query.get("get"))


def _subtasks(call: Call) -> list[dict[str, Any]]:
    vertex, chosen = call.vertex(), call.query.get("subtasks")
    values = [
        subtask_metrics(subtask)
        for subtask in vertex_subtasks(vertex)
        if not chosen or str(subtask.index) in chosen.split(",")
    ]
    return aggregated(values, call.query.get("get"), call.query.get("agg"))


_VERTEX = "/jobs/{jobid}/vertices/{vertexid}"

ROUTES = (
    Route("GET", "/jobs/metrics", _all_jobs, "Metrics of jobs, aggregated", ("get", "agg", "jobs")),
    Route("GET", "/jobs/{jobid}/metrics", _job, "Metrics of a job", ("get",)),
    Route("GET", f"{_VERTEX}/metrics", _vertex, "Metrics of each subtask of a vertex", ("get",)),
    Route(
        "GET",
        f"{_VERTEX}/subtasks/metrics",
        _subtasks,
        "Metrics of the subtasks of a vertex, aggregated",
        ("get", "agg", "subtasks"),
    ),
)
