"""`run`: a program in this process, or detached in one of its own."""

from __future__ import annotations

import os

import click

from tidemark.cli.settings import common_options, settings_of

__all__ = ["run"]


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-s", "--from-savepoint", metavar="PATH", help="Start from this savepoint or retained checkpoint."
)
@click.option(
    "-n", "--allow-non-restored-state", is_flag=True, help="Drop state of operators the program lacks."
)
@click.option(
    "-p", "--parallelism", type=click.IntRange(1), help="Parallelism, unless the program sets its own."
)
@click.option("-D", "defines", metavar="KEY=VALUE", multiple=True, help="A configuration key; repeatable.")
@click.option("-d", "--detached", is_flag=True, help="Run in the background; print the job id and return.")
@click.option(
    "--supervise", is_flag=True, help="Start the program again, after a growing pause, when its process dies."
)
@click.option("-v", "--verbose", is_flag=True, help="Let Spark say on the console what it has to say.")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@common_options
@click.pass_context
def run(
    context: click.Context,
    from_savepoint: str | None,
    allow_non_restored_state: bool,
    parallelism: int | None,
    defines: tuple[str, ...],
    detached: bool,
    supervise: bool,
    verbose: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run PROGRAM with ARGUMENTS and wait for its jobs.

    The options beat configuration file and environment variables; what the program itself sets beats them.
    Exits with an error if the program or one of its jobs fails. Ctrl-C cancels the jobs. With --supervise the program
    runs in a process of its own, and again if that is killed or cannot reach its storage; jobs go on where they were
    with high-availability.type: filesystem.
    """
    from tidemark.cli.program import ProgramSettings, run_attached

    if verbose:
        # The environment, because the program may run in a process of its own.
        os.environ.setdefault("TIDEMARK_SPARK_LOG_LEVEL", "WARN")
    settings = ProgramSettings.of(defines, from_savepoint, allow_non_restored_state, parallelism)
    output = settings_of(context).output
    if detached:
        from tidemark.cli.detached import run_detached

        with output.waiting("Starting"):
            started = run_detached(program, arguments, settings, supervise=supervise)
        if started.log_tail:
            output.failed_start(started.log, started.log_tail)
        else:
            output.submitted(started.job_id, started.pid, started.log)
        context.exit(started.exit_code)
    if supervise:
        from tidemark.cli.supervision import run_supervised

        context.exit(run_supervised(program, arguments, settings, output.driver_restarted))
    outcome = run_attached(program, arguments, settings, output.web_page)
    if outcome.message:
        output.program_failed(outcome.message)
    context.exit(outcome.exit_code)
