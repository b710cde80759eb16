"""`savepoint`, `cancel` and `stop`: take the state of a running job, and end it."""

from __future__ import annotations

import click

from tidemark.cli.settings import job_options, settings_of
from tidemark.paths import absolute

__all__ = ["cancel", "savepoint", "stop"]


@click.command(short_help="Take a savepoint of JOB, or delete one.")
@click.argument("job", required=False)
@click.argument("directory", required=False)
@click.option("-d", "--dispose", metavar="PATH", help="Delete the savepoint at PATH instead.")
@job_options
@click.pass_context
def savepoint(context: click.Context, job: str | None, directory: str | None, dispose: str | None) -> None:
    """Take a savepoint of JOB into DIRECTORY, or into its default directory; print the path.

    The job goes on, whether the savepoint succeeds or not.
    """
    output = settings_of(context).output
    if dispose is not None:
        if job is not None:
            raise click.UsageError("-d PATH deletes a savepoint and takes no JOB.")
        from tidemark.checkpoint.retention import dispose_savepoint
        from tidemark.checkpoint.storage.filesystem import FileSystemStorage

        output.disposed(dispose_savepoint(FileSystemStorage(), dispose))
        return
    if job is None:
        raise click.UsageError("Missing argument 'JOB'.")
    with settings_of(context).connect(job) as client, output.waiting("Taking a savepoint"):
        path = client.request("savepoint", directory=_absolute(directory))
    output.savepoint(path)


@click.command()
@click.option(
    "-s", "--with-savepoint", is_flag=True, help="Take a savepoint first; cancel only if it succeeds."
)
@click.argument("arguments", nargs=-1, required=True, metavar="[DIRECTORY] JOB")
@job_options
@click.pass_context
def cancel(context: click.Context, with_savepoint: bool, arguments: tuple[str, ...]) -> None:
    """Cancel JOB. With -s its state goes into DIRECTORY, or into its default directory, first."""
    *before, job = arguments
    if len(before) > (1 if with_savepoint else 0):
        raise click.UsageError("Too many arguments; the last one is the job id. DIRECTORY needs -s.")
    settings = settings_of(context)
    with settings.connect(job) as client, settings.output.waiting("Cancelling"):
        directory = _absolute(before[0] if before else None)
        answer = client.request("cancel", savepoint=with_savepoint, directory=directory)
    settings.output.cancelled(job, answer["savepoint"])


@click.command()
@click.option("-p", "--savepoint-path", "directory", metavar="DIR", help="Where the savepoint goes.")
@click.option("-d", "--drain", is_flag=True, help="Fire all event-time timers first (maximum watermark).")
@click.argument("job")
@job_options
@click.pass_context
def stop(context: click.Context, directory: str | None, drain: bool, job: str) -> None:
    """Stop JOB with a savepoint; it ends as FINISHED. Print the path of the savepoint."""
    settings = settings_of(context)
    with settings.connect(job) as client, settings.output.waiting("Stopping with a savepoint"):
        answer = client.request("stop", drain=drain, directory=_absolute(directory))
    settings.output.stopped(job, answer["savepoint"])


def _absolute(directory: str | None) -> str | None:
    return None if directory is None else absolute(directory)
