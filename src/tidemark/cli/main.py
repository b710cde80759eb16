"""The `tidemark` command: its sub-commands, and what happens to errors."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click

from tidemark.cli.commands.check import check
from tidemark.cli.commands.clean import clean
from tidemark.cli.commands.diff import diff
from tidemark.cli.commands.doctor import doctor
from tidemark.cli.commands.erase import erase
from tidemark.cli.commands.jobs import checkpoints, info, list_command
from tidemark.cli.commands.logs import logs
from tidemark.cli.commands.new import new
from tidemark.cli.commands.query import query
from tidemark.cli.commands.rekey import rekey
from tidemark.cli.commands.rescale import rescale
from tidemark.cli.commands.run import run
from tidemark.cli.commands.savepoints import cancel, savepoint, stop
from tidemark.cli.commands.security import security
from tidemark.cli.commands.snapshots import inspect, verify
from tidemark.cli.commands.top import top
from tidemark.cli.commands.web import web
from tidemark.cli.exit_codes import ExitCode, exit_code_of
from tidemark.cli.settings import job_options, settings_of
from tidemark.errors import TidemarkError
from tidemark.paths import Options, use_file_systems

__all__ = ["cli", "main"]


class _Commands(click.Group):
    """Turns errors into a message on standard error and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command."""
        try:
            return super().invoke(ctx)
        except (TidemarkError, OSError) as exc:
            if isinstance(exc, BrokenPipeError):
                raise
            settings = settings_of(ctx)
            settings.output.error(exc)
            if settings.debug:
                traceback.print_exc()
            ctx.exit(exit_code_of(exc))
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark", prog_name="tidemark")
@job_options
def cli() -> None:
    """Run stateful streaming jobs, look at them and their snapshots, stop and upgrade them.

    JOB is the id of a running job or a unique beginning of it; 'tidemark list' shows the ids.
    """
    use_file_systems(_configured_file_systems)


def _configured_file_systems() -> Options:
    from tidemark.config.file_systems import file_system_options
    from tidemark.config.loader import effective_configuration

    return file_system_options(effective_configuration())


for _command in (
    run,
    list_command,
    info,
    savepoint,
    cancel,
    stop,
    rescale,
    checkpoints,
    inspect,
    verify,
    query,
    check,
    diff,
    erase,
    rekey,
    clean,
    web,
    top,
    logs,
    doctor,
    new,
    security,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the `tidemark` script."""
    try:
        cli(prog_name="tidemark")
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again when it flushes.
        sys.stdout = None
        sys.exit(ExitCode.OK)


if __name__ == "__main__":
    main()
