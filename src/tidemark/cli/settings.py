"""Options that may stand before or after a command's name: `--json`, `--debug`, and `--address` of a job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from tidemark.api.brief_errors import FULL_TRACEBACKS
from tidemark.cli.output import JsonRenderer, Renderer, TextRenderer
from tidemark.runtime.control_client import ControlClient

__all__ = ["Settings", "common_options", "job_options", "settings_of"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Settings:
    """What the shared options said."""

    json: bool = False
    debug: bool = False
    address: str | None = None

    @property
    def output(self) -> Renderer:
        """The renderer that was asked for."""
        return JsonRenderer() if self.json else TextRenderer()

    def connect(self, job: str, timeout: float | None = None) -> ControlClient:
        """Connect to a running job by id or unique prefix, here or at `--address`."""
        return ControlClient.find(job, self.address, timeout)


def settings_of(context: click.Context) -> Settings:
    """The settings of this run of the command."""
    return context.find_root().ensure_object(Settings)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    # An option left out after the command must not undo the same option given before it.
    if value and parameter.name is not None:
        setattr(settings_of(context), parameter.name, value)
    if value and parameter.name == "debug":
        logger = logging.getLogger(FULL_TRACEBACKS)
        logger.setLevel(logging.DEBUG)
        context.call_on_close(lambda: logger.setLevel(logging.NOTSET))


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_remember, expose_value=False, **attributes)


def common_options(command: F) -> F:
    """Add `--json` and `--debug`."""
    command = _option("--debug", is_flag=True, help="Show the traceback of an error.")(command)
    return _option("--json", is_flag=True, help="Write JSON instead of text.")(command)


def job_options(command: F) -> F:
    """Add the common options and `--address`."""
    command = common_options(command)
    return _option(
        "--address",
        metavar="HOST:PORT",
        help="Control address of a job on another machine; its token is read from TIDEMARK_TOKEN.",
    )(command)
