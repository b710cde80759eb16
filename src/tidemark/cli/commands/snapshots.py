"""`inspect` and `verify`: look into any checkpoint or savepoint, without its job."""

from __future__ import annotations

import click

from tidemark.cli.exit_codes import ExitCode
from tidemark.cli.settings import common_options, settings_of

__all__ = ["inspect", "verify"]


@click.command(short_help="Show what a checkpoint or savepoint holds.")
@click.argument("path")
@common_options
@click.pass_context
def inspect(context: click.Context, path: str) -> None:
    """Show what the checkpoint or savepoint at PATH holds: operators, states, types, sizes, positions."""
    from tidemark.checkpoint.inspection import describe

    settings_of(context).output.snapshot(describe(path))


@click.command(short_help="Check every byte of a checkpoint or savepoint.")
@click.argument("path")
@common_options
@click.pass_context
def verify(context: click.Context, path: str) -> None:
    """Check every byte of the checkpoint or savepoint at PATH against its checksum."""
    from tidemark.checkpoint.inspection import verify as verify_snapshot

    output = settings_of(context).output
    with output.progress("Verifying") as advance:
        problems = verify_snapshot(path, on_progress=advance)
    output.verified(path, problems)
    if problems:
        context.exit(ExitCode.FAILED)
