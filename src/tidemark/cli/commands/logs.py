"""`logs`: the log files of a job of this machine, running or ended."""

from __future__ import annotations

import time

import click

from tidemark.cli.settings import common_options, settings_of
from tidemark.errors import JobNotFoundError
from tidemark.job_logs import DRIVER_LOG, find_logs, list_logs, read_from, slot_log
from tidemark.jobs import list_jobs

__all__ = ["logs"]

_LOOK_S = 0.5


@click.command(short_help="Show the end of a log of JOB, running or ended.")
@click.argument("job")
@click.option("--slot", type=click.IntRange(0), help="The log of this slot instead of the driver's.")
@click.option("--list", "names", is_flag=True, help="Only list the files of the job.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, show_default=True, help="How many lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until the job ends or Ctrl-C.")
@common_options
@click.pass_context
def logs(context: click.Context, job: str, slot: int | None, names: bool, lines: int, follow: bool) -> None:
    """Show the end of a log of JOB, whose id may be that of an ended job; logs of the last 50 jobs are kept."""
    job_id = find_logs(job)
    output = settings_of(context).output
    if names:
        output.log_files(list_logs(job_id))
        return
    name = DRIVER_LOG if slot is None else slot_log(slot)
    if name not in list_logs(job_id):
        raise JobNotFoundError(
            f"Job {job_id} has no {name} on this machine; 'tidemark logs --list {job_id}' shows what it has.",
            job_id=job_id,
        )
    text, at = read_from(job_id, name, None)
    output.log_text("\n".join(text.splitlines()[-lines:] if lines else []))
    while follow:
        over = not any(record.job_id == job_id for record in list_jobs())
        added, at = read_from(job_id, name, at)
        if added:
            output.log_text(added.removesuffix("\n"))
        elif over:
            return
        time.sleep(_LOOK_S)
