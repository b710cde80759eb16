"""A job in Flink's JSON: what `/jobs`, `/jobs/overview`, `/jobs/:id` and `/plan` answer with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemark.web.facts import JobFacts, Shares, Times, VertexFacts

__all__ = [
    "details",
    "duration",
    "io_metrics",
    "overview_entry",
    "plan",
    "shares_of",
    "task_counts",
    "task_status",
]

_TASK_STATES = ("CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED")
_JOB_STATES = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)
_STATUS_OF_TASKS = {"RESTARTING": "SCHEDULED", "CANCELLING": "CANCELING", "FAILING": "CANCELING"}


def task_status(job: JobFacts) -> str:
    """The state of every subtask of a job: they start and end together."""
    return _STATUS_OF_TASKS.get(job.status, job.status)


def duration(job: JobFacts) -> int:
    """How long a job has run, or ran."""
    return max(0, (job.now if job.end_time is None else job.end_time) - job.start_time)


def task_counts(job: JobFacts, subtasks: int) -> dict[str, int]:
    """How many subtasks are in which state, by Flink's names in lower case."""
    status = task_status(job)
    return {state.lower(): subtasks if state == status else 0 for state in _TASK_STATES}


def overview_entry(job: JobFacts) -> dict[str, Any]:
    """A job in a list."""
    subtasks = sum(vertex.parallelism for vertex in job.vertices)
    return {
        "jid": job.job_id,
        "name": job.name,
        "start-time": job.start_time,
        "end-time": -1 if job.end_time is None else job.end_time,
        "duration": duration(job),
        "state": job.status,
        "last-modification": job.start_time if job.end_time is None else job.end_time,
        "tasks": {"total": subtasks, **task_counts(job, subtasks)},
    }


def details(job: JobFacts) -> dict[str, Any]:
    """A job with its vertices."""
    status = task_status(job)
    times = dict.fromkeys(_JOB_STATES, 0)
    times["CREATED"] = times["RUNNING"] = job.start_time
    if job.end_time is not None:
        times[job.status] = job.end_time
    counts = {state: len(job.vertices) if state == status else 0 for state in _TASK_STATES}
    return {
        "jid": job.job_id,
        "name": job.name,
        "isStoppable": not job.batch_mode,
        "state": job.status,
        "job-type": "BATCH" if job.batch_mode else "STREAMING",
        "start-time": job.start_time,
        "end-time": -1 if job.end_time is None else job.end_time,
        "duration": duration(job),
        "maxParallelism": -1 if job.max_parallelism is None else job.max_parallelism,
        "now": job.now,
        "timestamps": times,
        "vertices": [_vertex(job, vertex, status) for vertex in job.vertices],
        "status-counts": counts,
        "plan": plan(job),
        "attempt": job.attempt,
        "epoch": job.epoch,
        "records": job.records,
        "replayed-records": job.replayed,
        "records-per-second": job.records_in_per_second,
        "latency-ms": job.latency_ms,
        "execution-mode": job.mode,
        "execution-mode-reason": job.mode_reason,
        "restored-checkpoint": job.restored_from,
        "started-from": job.started_from,
        "restarts": job.restarts,
    }


def _vertex(job: JobFacts, vertex: VertexFacts, status: str) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "uid": vertex.uid,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": status,
        "start-time": job.start_time,
        "end-time": -1 if job.end_time is None else job.end_time,
        "duration": duration(job),
        "tasks": {state.upper(): count for state, count in task_counts(job, vertex.parallelism).items()},
        "metrics": _metrics(vertex),
        "runs-in": "slot" if vertex.in_slots else "task",
    }


def _metrics(vertex: VertexFacts) -> dict[str, Any]:
    """The figures of a vertex: Flink's, then ours."""
    return {
        **io_metrics(vertex.records_in, vertex.records_out, [s.times for s in vertex.subtasks if s.times]),
        "records-in-per-second": vertex.records_in_per_second,
        "records-out-per-second": vertex.records_out_per_second,
        "watermark": vertex.watermark,
        "state-bytes": vertex.state_bytes,
        **shares_of(vertex.shares),
    }


def io_metrics(
    records_in: int | None, records_out: int | None, times: Sequence[Times]
) -> dict[str, int | bool]:
    """Flink's figures of what came and went; what nobody counts is 0 and not `complete`."""
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": records_in or 0,
        "read-records-complete": records_in is not None,
        "write-records": records_out or 0,
        "write-records-complete": records_out is not None,
        "accumulated-busy-time": sum(one.busy for one in times),
        "accumulated-idle-time": sum(one.idle for one in times),
        "accumulated-backpressured-time": sum(one.backpressured for one in times),
    }


def shares_of(shares: Shares | None) -> dict[str, float | None]:
    """Where the time goes; None where nobody knows."""
    if shares is None:
        return {"busy": None, "backpressured": None, "idle": None}
    return {"busy": shares.busy, "backpressured": shares.backpressured, "idle": shares.idle}


def plan(job: JobFacts) -> dict[str, Any]:
    """The graph of a job."""
    return {
        "jid": job.job_id,
        "name": job.name,
        "type": "BATCH" if job.batch_mode else "STREAMING",
        "nodes": [
            {
                "id": vertex.id,
                "parallelism": vertex.parallelism,
                "operator": vertex.kind,
                "operator_strategy": "",
                "description": vertex.name,
                **(
                    {
                        "inputs": [
                            {
                                "num": number,
                                "id": edge.source,
                                "ship_strategy": edge.ship_strategy,
                                "exchange": "pipelined_bounded",
                            }
                            for number, edge in enumerate(vertex.inputs)
                        ]
                    }
                    if vertex.inputs
                    else {}
                ),
                "optimizer_properties": {},
            }
            for vertex in job.vertices
        ],
    }
