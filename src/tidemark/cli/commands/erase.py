"""`erase`: a new savepoint that knows nothing of one key, or a running job that has forgotten it."""

from __future__ import annotations

import click

from tidemark.cli.settings import job_options, settings_of

__all__ = ["erase"]


@click.command(short_help="Forget a key: in a new savepoint, or in a running job.")
@click.argument("path", required=False)
@click.option(
    "--uid", "uids", multiple=True, help="Operator to forget the key in; again for more. Default: all."
)
@click.option(
    "--key",
    required=True,
    help="The key: text, a number, JSON or a Python literal, as the keys' type wants it.",
)
@click.option("-o", "--output", "target", metavar="NEW", help="Directory of the new savepoint.")
@click.option("--job", help="Forget the key in this running job and the checkpoints it retains, instead.")
@click.option("--proof", metavar="FILE", help="With --job: where to write what was done and found.")
@job_options
@click.pass_context
def erase(
    context: click.Context,
    path: str | None,
    uids: tuple[str, ...],
    key: str,
    target: str | None,
    job: str | None,
    proof: str | None,
) -> None:
    """Write the snapshot at PATH anew, without one key in any keyed state or timer; print the new path.

    The snapshot at PATH stays as it is, and so do older ones: delete them too where the key must be gone.

    With --job the running job forgets the key, new checkpoints replace those that had it, and the proof tells what they
    were found to hold. Exit code 1 if a checkpoint with the key may be left.
    """
    settings = settings_of(context)
    if job is not None:
        if path is not None or target is not None or proof is None:
            raise click.UsageError("--job wants --proof, and neither PATH nor --output.")
        from tidemark.state_processor.erasure import erase_from_job

        with settings.output.waiting("Erasing"):
            made = erase_from_job(job, key, proof, uids, address=settings.address)
        settings.output.erased_from_job(made, proof)
        if not made.complete:
            context.exit(1)
        return
    if path is None or target is None or proof is not None:
        raise click.UsageError("A snapshot wants PATH and --output, a running job --job and --proof.")
    from tidemark.state_processor.rewrite import erase_key

    with settings.output.waiting("Erasing"):
        result = erase_key(path, key, target, uids, parse=True)
    settings.output.erased(result)
