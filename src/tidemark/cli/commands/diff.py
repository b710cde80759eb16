"""`diff`: which keys of which states two snapshots differ in."""

from __future__ import annotations

import click

from tidemark.cli.settings import common_options, settings_of

__all__ = ["diff"]


@click.command(short_help="Show how the keys of two snapshots differ.")
@click.argument("a")
@click.argument("b")
@click.option(
    "--samples", type=click.IntRange(0), default=5, show_default=True, help="Keys to show per state."
)
@common_options
@click.pass_context
def diff(context: click.Context, a: str, b: str, samples: int) -> None:
    """Show which keys of which states snapshot B has added, removed or changed, compared with A.

    Nothing a snapshot holds is run: values without a declared type are compared as data where they are plain
    (numbers, text, tuples, lists, dictionaries, sets), else by their pickled bytes, which may differ for equal objects.
    """
    from tidemark.state_processor.diff import diff as compare

    output = settings_of(context).output
    with output.waiting("Comparing"):
        states = compare(a, b, samples)
    output.difference(states)
