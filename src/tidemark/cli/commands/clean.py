"""`clean`: remove what killed jobs left on this machine."""

from __future__ import annotations

import click

from tidemark.cli.settings import common_options, settings_of

__all__ = ["clean"]


@click.command(short_help="Remove what dead jobs of this user left on this machine.")
@common_options
@click.pass_context
def clean(context: click.Context) -> None:
    """Remove what dead jobs of this user left: temporary directories, sockets, staged output, old logs.

    Checkpoints, savepoints and output that one of them may still publish stay. Every start of a job does the same for
    what is on this machine's disks.
    """
    from tidemark.config.loader import effective_configuration
    from tidemark.runtime.left_behind import clean_machine

    cleaned = clean_machine(effective_configuration())
    settings_of(context).output.cleaned(list(cleaned.removed), list(cleaned.kept))
