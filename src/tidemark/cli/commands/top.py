"""`top`: the running jobs of this machine and how fast they go, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from tidemark.cli.settings import common_options, settings_of
from tidemark.jobs import list_jobs
from tidemark.runtime.control_client import ControlClient, JobUnreachableError

__all__ = ["top"]

_ANSWER_S = 5.0


@click.command(short_help="Watch all running jobs, or some of them, live.")
@click.argument("job", required=False)
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option(
    "-n", "--looks", type=click.IntRange(1), help="Stop after so many looks; the default is Ctrl-C."
)
@common_options
@click.pass_context
def top(context: click.Context, job: str | None, interval: float, looks: int | None) -> None:
    """Watch all running jobs, or those whose id begins with JOB: records a second, watermark, checkpoints, state."""
    output = settings_of(context).output
    speeds = _Speeds(time.monotonic)
    # Where nobody watches two looks are enough to tell speeds.
    left = looks or (None if sys.stdout.isatty() else 2)
    with output.screen() as show:
        while True:
            show([speeds.of(facts) for facts in _progress(job or "")])
            left = None if left is None else left - 1
            if left == 0:
                return
            time.sleep(interval)


class _Speeds:
    """Turns counters into records a second, by what the last look saw."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def of(self, facts: dict[str, Any]) -> dict[str, Any]:
        now, records = self._clock(), facts.get("records")
        before = self._seen.get(facts["job_id"])
        speed = None
        if records is not None:
            if before is not None and now > before[0]:
                # Replayed records are taken back from the count when an attempt fails.
                speed = max(0.0, (records - before[1]) / (now - before[0]))
            self._seen[facts["job_id"]] = (now, records)
        return {**facts, "records_per_second": speed}


def _progress(prefix: str) -> list[dict[str, Any]]:
    jobs = []
    for record in sorted(list_jobs(), key=lambda record: (record.start_time, record.job_id)):
        if not record.job_id.startswith(prefix):
            continue
        row: dict[str, Any] = {"job_id": record.job_id, "name": record.name, "status": "UNREACHABLE"}
        try:
            with ControlClient.of_record(record, _ANSWER_S) as client:
                row.update(client.request("info")["progress"])
        except JobUnreachableError:
            pass
        jobs.append(row)
    return jobs
