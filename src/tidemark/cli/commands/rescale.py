"""`rescale`: another parallelism for a running job."""

from __future__ import annotations

import click

from tidemark.cli.settings import job_options, settings_of
from tidemark.config.options import MAX_PARALLELISM_LIMIT

__all__ = ["rescale"]


@click.command(short_help="Let JOB go on with another parallelism.")
@click.option(
    "-p",
    "--parallelism",
    type=click.IntRange(1, MAX_PARALLELISM_LIMIT),
    required=True,
    help="Of all operators that have none of their own.",
)
@click.argument("job")
@job_options
@click.pass_context
def rescale(context: click.Context, parallelism: int, job: str) -> None:
    """Let JOB go on with another parallelism, from a checkpoint it takes for that; returns when it runs."""
    settings = settings_of(context)
    with settings.connect(job) as client, settings.output.waiting("Rescaling"):
        client.request("rescale", parallelism=parallelism)
    settings.output.rescaled(job, parallelism)
