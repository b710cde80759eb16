"""Jobs: lists, details, plan, configuration, exceptions, accumulators."""

from __future__ import annotations

from typing import Any

from tidemark.web import job_json
from tidemark.web.calls import Call, Route
from tidemark.web.facts import Failure, JobFacts, slot_id

__all__ = ["ROUTES", "overview"]


def _jobs(call: Call) -> dict[str, Any]:
    return {"jobs": [{"id": job.job_id, "status": job.facts().status} for job in call.jobs.all()]}


def overview(call: Call) -> dict[str, Any]:
    """All jobs, running ones first."""
    return {"jobs": [job_json.overview_entry(job.facts()) for job in call.jobs.all()]}


def _job(call: Call) -> dict[str, Any]:
    return job_json.details(call.job().facts())


def _plan(call: Call) -> dict[str, Any]:
    return {"plan": job_json.plan(call.job().facts())}


def _config(call: Call) -> dict[str, Any]:
    job = call.job().facts()
    return {
        "jid": job.job_id,
        "name": job.name,
        "execution-config": {
            "execution-mode": "BATCH" if job.batch_mode else "PIPELINED",
            "restart-strategy": job.restart_strategy,
            "job-parallelism": job.parallelism,
            "object-reuse-mode": False,
            "user-config": job.job_parameters,
        },
    }


def _exceptions(call: Call) -> dict[str, Any]:
    job = call.job().facts()
    shown = job.failures[: call.limit("maxExceptions", 20)]
    newest = job.failures[0] if job.failures else None
    truncated = len(shown) < len(job.failures)
    return {
        "root-exception": None if newest is None else newest.trace,
        "timestamp": None if newest is None else newest.timestamp,
        "all-exceptions": [
            {
                "exception": failure.trace,
                "task": _name(job, failure.operator),
                "location": _location(failure),
                "timestamp": failure.timestamp,
            }
            for failure in shown
        ],
        "truncated": truncated,
        "exceptionHistory": {
            "entries": [_entry(job, failure) for failure in shown],
            "truncated": truncated,
        },
    }


def _entry(job: JobFacts, failure: Failure) -> dict[str, Any]:
    return {
        "exceptionName": failure.name,
        "stacktrace": failure.trace,
        "timestamp": failure.timestamp,
        "taskName": _name(job, failure.operator),
        "location": _location(failure),
        "taskManagerId": None if failure.slot is None else slot_id(job.job_id, failure.slot),
        "failureLabels": {},
        "concurrentExceptions": [],
        "message": failure.message,
        "attempt": failure.attempt,
        "slot": failure.slot,
    }


def _name(job: JobFacts, uid: str | None) -> str | None:
    return next((vertex.name for vertex in job.vertices if vertex.uid == uid), uid)


def _location(failure: Failure) -> str:
    return "driver" if failure.slot is None else f"slot {failure.slot}"


def _accumulators(call: Call) -> dict[str, Any]:
    metrics = call.job().facts().metrics
    return {
        "job-accumulators": [],
        "user-task-accumulators": [
            {"name": name, "type": type(value).__name__, "value": str(value)}
            for name, value in sorted(metrics.items())
        ],
        "serialized-user-task-accumulators": {},
    }


def _result(call: Call) -> dict[str, Any]:
    job = call.job().facts()
    if job.end_time is None:
        return {"status": {"id": "IN_PROGRESS"}}
    result: dict[str, Any] = {
        "id": job.job_id,
        "application-status": {"FINISHED": "SUCCEEDED"}.get(job.status, job.status),
        "net-runtime": job_json.duration(job),
        "accumulator-results": {},
    }
    if job.status == "FAILED" and job.failures:
        failure = job.failures[0]
        result["failure-cause"] = {"class": failure.name, "stack-trace": failure.trace}
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


ROUTES = (
    Route("GET", "/jobs", _jobs, "Ids and status of all jobs"),
    Route("GET", "/jobs/overview", overview, "All jobs, running ones first"),
    Route("GET", "/jobs/{jobid}", _job, "A job with its vertices and its plan"),
    Route("GET", "/jobs/{jobid}/plan", _plan, "The graph of a job"),
    Route("GET", "/jobs/{jobid}/config", _config, "Execution settings of a job"),
    Route(
        "GET", "/jobs/{jobid}/exceptions", _exceptions, "Why attempts ended, newest first", ("maxExceptions",)
    ),
    Route("GET", "/jobs/{jobid}/accumulators", _accumulators, "Metrics of the job's functions"),
    Route("GET", "/jobs/{jobid}/execution-result", _result, "How a job ended"),
)
