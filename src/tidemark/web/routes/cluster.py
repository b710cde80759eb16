"""The server itself, which Flink calls the cluster: overview, configuration, the driver as job manager."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tidemark.web.calls import ApiError, Call, Route, Text
from tidemark.web.metric_values import listed
from tidemark.web.version import REVISION, VERSION

__all__ = ["ROUTES"]


def _config(_call: Call) -> dict[str, Any]:
    return {
        "refresh-interval": 1000,
        "timezone-name": time.tzname[0],
        "timezone-offset": -time.timezone * 1000,
        "flink-version": VERSION,
        "flink-revision": REVISION,
        "features": {"web-submit": False, "web-cancel": True, "web-rescale": False, "web-history": False},
    }


def _overview(call: Call) -> dict[str, Any]:
    facts = [view.facts() for view in call.jobs.all()]
    counts = Counter(["RUNNING" if job.is_live else job.status for job in facts])
    slots = sum(len(job.slots) for job in facts if job.is_live)
    return {
        "taskmanagers": slots,
        "slots-total": slots,
        "slots-available": 0,
        "jobs-running": counts["RUNNING"],
        "jobs-finished": counts["FINISHED"],
        "jobs-cancelled": counts["CANCELED"],
        "jobs-failed": counts["FAILED"],
        "flink-version": VERSION,
        "flink-commit": REVISION,
    }


def _jobmanager_config(call: Call) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in sorted(call.jobs.configuration().items())]


def _jobmanager_metrics(call: Call) -> list[dict[str, Any]]:
    """Flink's names for what is known of the drivers' processes, each of which may have several jobs."""
    jobs = [facts for view in call.jobs.all() if (facts := view.facts()).is_live]
    drivers = {(job.host, job.pid): job for job in jobs}.values()
    slots = sum(len(job.slots) for job in jobs)
    found = {
        "Status.JVM.Memory.Heap.Used": sum(driver.rss for driver in drivers),
        "Status.JVM.CPU.Time": round(sum(driver.cpu_s for driver in drivers) * 1e9),
        "numRunningJobs": len(jobs),
        "numRegisteredTaskManagers": slots,
        "taskSlotsTotal": slots,
        "taskSlotsAvailable": 0,
    }
    return listed(found, call.query.get("get"))


def _jobmanager_logs(call: Call) -> dict[str, Any]:
    return {
        "logs": [
            {"name": f"{view.job_id}-{name}", "size": size}
            for view in call.jobs.all()
            for name, size in view.logs().items()
            if name.startswith("driver")
        ]
    }


def _jobmanager_log(call: Call) -> Text:
    job_id, _, name = call.path["name"].partition("-")
    view = call.jobs.find(job_id)
    text = view.log(name) if view is not None and name.startswith("driver") else None
    if text is None:
        raise ApiError(404, f"There is no log '{call.path['name']}'. GET /v1/jobmanager/logs lists them.")
    return Text(text)


ROUTES = (
    Route("GET", "/config", _config, "What the page needs to know about the server"),
    Route("GET", "/overview", _overview, "Numbers of jobs and slots"),
    Route("GET", "/jobmanager/config", _jobmanager_config, "Configuration of the server"),
    Route("GET", "/jobmanager/metrics", _jobmanager_metrics, "Metrics of the driver's process", ("get",)),
    Route("GET", "/jobmanager/logs", _jobmanager_logs, "Log files of the drivers"),
    Route("GET", "/jobmanager/logs/{name}", _jobmanager_log, "The end of a driver's log file"),
)
