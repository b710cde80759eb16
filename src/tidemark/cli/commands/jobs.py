"""`list`, `info` and `checkpoints`: what runs, what ran, and how it stands."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tidemark.cli.settings import Settings, job_options, settings_of
from tidemark.errors import JobNotFoundError
from tidemark.jobs import list_jobs
from tidemark.runtime.control_client import ControlClient, JobUnreachableError
from tidemark.runtime.history import EndedJob, read_history

__all__ = ["checkpoints", "info", "list_command"]

_ANSWER_S = 5.0
_SCHEDULED = frozenset({"CREATED"})


@click.command(name="list", short_help="List jobs of this machine, or the one at --address.")
@click.option("-r", "--running", is_flag=True, help="Running jobs; the default.")
@click.option("-s", "--scheduled", is_flag=True, help="Jobs that have not started yet.")
@click.option("-a", "--all", "everything", is_flag=True, help="Ended jobs too (the last 50).")
@click.option("-yid", "--application", metavar="APP", help="Only jobs of this Spark application.")
@job_options
@click.pass_context
def list_command(
    context: click.Context, running: bool, scheduled: bool, everything: bool, application: str | None
) -> None:
    """List jobs of this machine, or the job at --address: start time, id, name, status."""
    settings = settings_of(context)
    jobs = _remote_jobs(settings.address) if settings.address else _local_jobs()
    if everything:
        shown = ([] if settings.address else _ended_jobs({job["job_id"] for job in jobs})) + jobs
    else:
        wanted = {True} if scheduled else set()
        wanted |= {False} if running or not scheduled else set()
        shown = [job for job in jobs if (job["status"] in _SCHEDULED) in wanted]
    if application is not None:
        shown = [job for job in shown if job["application_id"] == application]
    settings.output.jobs(sorted(shown, key=lambda job: (job["start_time"], job["job_id"])))


def _remote_jobs(address: str) -> list[dict[str, Any]]:
    with ControlClient.at(address, _ANSWER_S) as client:
        return [client.request("summary")]


def _local_jobs() -> list[dict[str, Any]]:
    jobs = []
    for record in list_jobs():
        try:
            with ControlClient.of_record(record, _ANSWER_S) as client:
                jobs.append(client.request("summary"))
        except JobUnreachableError:
            jobs.append(
                {
                    "job_id": record.job_id,
                    "name": record.name,
                    "status": "UNREACHABLE",
                    "start_time": record.start_time,
                    "application_id": None,
                    "pid": record.pid,
                }
            )
    return jobs


def _ended_jobs(running: set[str]) -> list[dict[str, Any]]:
    return [_plain(job) for job in read_history() if job.job_id not in running]


def _plain(job: EndedJob) -> dict[str, Any]:
    return dict(msgspec.structs.asdict(job))


@click.command(short_help="Show a job: status, progress, operators, checkpoints.")
@click.argument("job")
@job_options
@click.pass_context
def info(context: click.Context, job: str) -> None:
    """Show a job: status, progress, plan, sinks with their guarantee, state, last failure."""
    settings = settings_of(context)
    settings.output.job(_facts(settings, job))


def _facts(settings: Settings, job: str) -> dict[str, Any]:
    try:
        with settings.connect(job) as client:
            return dict(client.request("info"))
    except JobNotFoundError:
        ended = [] if settings.address else [e for e in read_history() if job and e.job_id.startswith(job)]
        if len(ended) != 1:
            raise
        return _plain(ended[0])


@click.command(short_help="List the last checkpoints and savepoints of a job.")
@click.argument("job")
@job_options
@click.pass_context
def checkpoints(context: click.Context, job: str) -> None:
    """List the last checkpoints and savepoints of a running job, newest first."""
    settings = settings_of(context)
    with settings.connect(job) as client:
        settings.output.checkpoints(client.request("checkpoints"))
