"""`erase`: a new savepoint that knows nothing of one key."""

from __future__ import annotations

import click

from tidemark.cli.settings import common_options, settings_of

__all__ = ["erase"]


@click.command()
@click.argument("path")
@click.option(
    "--uid", "uids", multiple=True, help="Operator to forget the key in; again for more. Default: all."
)
@click.option(
    "--key",
    required=True,
    help="The key: text, a number, JSON or a Python literal, as the keys' type wants it.",
)
@click.option(
    "-o", "--output", "target", required=True, metavar="NEW", help="Directory of the new savepoint."
)
@common_options
@click.pass_context
def erase(context: click.Context, path: str, uids: tuple[str, ...], key: str, target: str) -> None:
    """Write the snapshot at PATH anew, without one key in any keyed state or timer; print the new path.

    The snapshot at PATH stays as it is, and so do older ones: delete them too where the key must be gone.
    """
    from tidemark.state_processor.rewrite import erase_key

    output = settings_of(context).output
    with output.waiting("Erasing"):
        result = erase_key(path, key, target, uids, parse=True)
    output.erased(result)
