"""Checkpoints and savepoints: history, summary, configuration, details down to the subtask."""

from __future__ import annotations

from typing import Any

from tidemark.web import checkpoint_json
from tidemark.web.calls import ApiError, Call, Route
from tidemark.web.facts import CheckpointFacts, CheckpointHistory
from tidemark.web.view import JobView

__all__ = ["ROUTES", "history_of"]

_summaries: dict[str, tuple[int, dict[str, Any]]] = {}
"""Job -> the last summary, and of which state of its history; a page asks for it every second."""
_SUMMARIES_KEPT = 64


def _summary(job_id: str, found: CheckpointHistory) -> dict[str, Any]:
    known = _summaries.get(job_id)
    if known is not None and known[0] == found.changes:
        return known[1]
    made = checkpoint_json.summary(found.records)
    if len(_summaries) >= _SUMMARIES_KEPT:
        _summaries.clear()
    _summaries[job_id] = (found.changes, made)
    return made


def history_of(view: JobView, offset: int, limit: int) -> dict[str, Any]:
    """A part of the history of a job, newest first, with counts and summary of all of it."""
    found = view.checkpoints()
    return checkpoint_json.history(found, _summary(view.job_id, found), offset, limit)


def _checkpoints(call: Call) -> dict[str, Any]:
    return history_of(call.job(), call.limit("offset", 0), call.limit("limit", 100))


def _config(call: Call) -> dict[str, Any]:
    return checkpoint_json.configuration(call.job().facts())


def _checkpoint(call: Call) -> CheckpointFacts:
    wanted = call.number("checkpointid")
    found = call.job().checkpoint(wanted)
    if found is None:
        raise ApiError(
            404, f"Job {call.path['jobid']} knows no checkpoint {wanted}: it is too old, or never was."
        )
    return found


def _details(call: Call) -> dict[str, Any]:
    with_state = {vertex.id: vertex.parallelism for vertex in call.job().facts().vertices if vertex.in_slots}
    return checkpoint_json.details(_checkpoint(call), with_state)


def _subtasks(call: Call) -> dict[str, Any]:
    vertex = call.vertex()
    return checkpoint_json.subtask_details(_checkpoint(call), vertex.id, vertex.parallelism)


_CHECKPOINTS = "/jobs/{jobid}/checkpoints"
_DETAILS = _CHECKPOINTS + "/details/{checkpointid}"

ROUTES = (
    Route(
        "GET", _CHECKPOINTS, _checkpoints, "Counts, summary and history, newest first", ("offset", "limit")
    ),
    Route("GET", f"{_CHECKPOINTS}/config", _config, "How checkpoints were asked for"),
    Route("GET", _DETAILS, _details, "One checkpoint with its operators"),
    Route("GET", f"{_DETAILS}/subtasks/{{vertexid}}", _subtasks, "One operator of a checkpoint by subtask"),
)
