"""`doctor`: whether this machine can run jobs, and what to do where it cannot."""

from __future__ import annotations

import click

from tidemark.cli.exit_codes import ExitCode
from tidemark.cli.program import ProgramSettings
from tidemark.cli.settings import common_options, settings_of
from tidemark.config.loader import effective_configuration

__all__ = ["doctor"]


@click.command(short_help="See whether this machine can run jobs, and what to do if not.")
@click.option("-D", "defines", metavar="KEY=VALUE", multiple=True, help="A configuration key; repeatable.")
@common_options
@click.pass_context
def doctor(context: click.Context, defines: tuple[str, ...]) -> None:
    """Look at Python, Java, Spark, ports, storage, memory and clock; say what is wrong and what to do.

    The configuration is what a job would see: file, environment variables, and -D. Exits with 1 if jobs would not run.
    """
    from tidemark.runtime.doctor import Verdict, examine

    with ProgramSettings.of(defines).applied():
        found = examine(effective_configuration())
    settings_of(context).output.findings(found)
    if any(finding.verdict is Verdict.PROBLEM for finding in found):
        context.exit(ExitCode.FAILED)
