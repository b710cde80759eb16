"""`web`: one page for all jobs of this machine, running and ended."""

from __future__ import annotations

import threading

import click

from tidemark.cli.settings import common_options, settings_of
from tidemark.config import Options

__all__ = ["web"]


@click.command(short_help="Serve the page and REST of all jobs of this machine.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="First port to be tried; the default is rest.port."
)
@click.option("--history", metavar="DIR", help="Also show the ended jobs in this directory (history.dir).")
@click.option("-D", "defines", metavar="KEY=VALUE", multiple=True, help="A configuration key; repeatable.")
@common_options
@click.pass_context
def web(context: click.Context, port: int | None, history: str | None, defines: tuple[str, ...]) -> None:
    """Serve the page and REST of all jobs of this machine, running and ended, until Ctrl-C.

    Address, port, token and certificate are those of the rest.* keys.
    """
    from tidemark.cli.program import ProgramSettings
    from tidemark.config import effective_configuration
    from tidemark.runtime.rest import server_settings
    from tidemark.runtime.web_jobs import MachineJobs
    from tidemark.web.server import WebServer

    given = dict(ProgramSettings.of(defines).values)
    if port is not None:
        given[Options.REST_PORT.key] = str(port)
    if history is not None:
        given[Options.HISTORY_DIR.key] = history
    configuration = effective_configuration(given)
    jobs = MachineJobs(configuration.to_dict(), configuration.get(Options.HISTORY_DIR))
    server = WebServer(jobs, server_settings(configuration))
    try:
        settings_of(context).output.web_page(server.address)
        while server.is_serving:
            threading.Event().wait(1.0)
    finally:
        server.close()
