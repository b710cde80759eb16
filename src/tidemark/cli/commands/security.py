"""`security`: certificates for trying TLS out."""

from __future__ import annotations

import click

from tidemark.cli.settings import common_options, settings_of

__all__ = ["security"]


@click.group()
def security() -> None:
    """Encrypted connections."""


@security.command("init")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Another name or address of the web server."
)
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long certificates hold."
)
@common_options
@click.pass_context
def init(context: click.Context, directory: str, hosts: tuple[str, ...], days: int) -> None:
    """Make certificates in DIRECTORY, and say what to put into the configuration.

    Needs the command 'openssl'. Keys are for this user only; copy the files of a job to the same path on every machine.
    """
    from tidemark.tls.making import make_certificates

    settings_of(context).output.certificates(make_certificates(directory, hosts, days))
