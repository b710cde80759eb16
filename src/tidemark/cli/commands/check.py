"""`check`: would this program start from that snapshot? Nothing is run and nothing is written."""

from __future__ import annotations

import click

from tidemark.cli.exit_codes import ExitCode
from tidemark.cli.settings import common_options, settings_of

__all__ = ["check"]


@click.command(short_help="Say what PROGRAM would do with each state of a snapshot.")
@click.option(
    "-s", "--from-savepoint", metavar="PATH", required=True, help="Savepoint or retained checkpoint."
)
@click.option(
    "-n", "--allow-non-restored-state", is_flag=True, help="State of missing operators may be dropped."
)
@click.option(
    "-p", "--parallelism", type=click.IntRange(1), help="Parallelism, unless the program sets its own."
)
@click.option("-D", "defines", metavar="KEY=VALUE", multiple=True, help="A configuration key; repeatable.")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@common_options
@click.pass_context
def check(
    context: click.Context,
    from_savepoint: str,
    allow_non_restored_state: bool,
    parallelism: int | None,
    defines: tuple[str, ...],
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Say for every state of a snapshot what PROGRAM would do with it.

    Verdicts: unchanged, migrated, dropped, new, incompatible. The program runs up to each execute(), its
    functions up to open(), where states are registered; no element is processed. Arguments of the program
    that begin with a dash go after --.
    """
    from tidemark.cli.program import ProgramSettings, check_program

    settings = ProgramSettings.of(defines, from_savepoint, allow_non_restored_state, parallelism)
    report = check_program(program, arguments, settings, from_savepoint, allow_non_restored_state)
    settings_of(context).output.check_report(report)
    context.exit(ExitCode.OK if report.compatible else ExitCode.FAILED)
