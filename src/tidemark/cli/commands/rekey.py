"""`rekey`: a new savepoint with another maximum parallelism."""

from __future__ import annotations

import click

from tidemark.cli.settings import common_options, settings_of

__all__ = ["rekey"]


@click.command(short_help="Write a snapshot anew with another number of key groups.")
@click.argument("path")
@click.option("--max-parallelism", required=True, type=int, metavar="N", help="The new number of key groups.")
@click.option(
    "--uid", "uids", multiple=True, help="Operator to change; again for more. Default: all keyed ones."
)
@click.option(
    "-o", "--output", "target", required=True, metavar="NEW", help="Directory of the new savepoint."
)
@common_options
@click.pass_context
def rekey(
    context: click.Context, path: str, max_parallelism: int, uids: tuple[str, ...], target: str
) -> None:
    """Write the snapshot at PATH anew with N key groups, more or fewer; print the new path."""
    from tidemark.state_processor.rewrite import rekey as rewrite

    output = settings_of(context).output
    with output.waiting("Rewriting"):
        written = rewrite(path, max_parallelism, target, uids)
    output.savepoint(written)
