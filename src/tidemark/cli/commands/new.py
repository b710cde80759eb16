"""`new`: a small project that runs at once."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import click

from tidemark.cli.settings import common_options, settings_of
from tidemark.errors import ConfigError

__all__ = ["new"]


@click.command(short_help="Write a project that runs: job, test, configuration.")
@click.argument("path", type=click.Path(path_type=Path))
@common_options
@click.pass_context
def new(context: click.Context, path: Path) -> None:
    """Write a project into the directory PATH: a job, its test and a configuration.

    The directory is made if it is not there; one that holds something is left alone.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} is there already and not an empty directory. Name another one.")
    template = importlib.resources.files("tidemark.cli") / "template"
    written = []
    for source in sorted(template.iterdir(), key=lambda entry: entry.name):
        # `conf~tidemark-conf.yaml.txt` becomes `conf/tidemark-conf.yaml`: files of a package have plain names.
        target = path.joinpath(*source.name.removesuffix(".txt").split("~"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            source.read_text(encoding="utf-8").replace("{name}", path.resolve().name), encoding="utf-8"
        )
        written.append(str(target))
    settings_of(context).output.project(str(path), written)
