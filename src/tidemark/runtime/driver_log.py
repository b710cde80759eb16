"""The log files of a job's driver and slots, as the job's settings want them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError
from tidemark.job_logs import JobLog, LogOwner

if TYPE_CHECKING:
    from tidemark.runtime.execution import JobExecution

__all__ = ["SlotLogging", "open_driver_log"]

_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


@dataclass(frozen=True, slots=True)
class SlotLogging:
    """What goes into the log files of slots."""

    level: int = logging.INFO
    as_json: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> SlotLogging:
        """As the job is configured.

        Raises:
            ConfigError: The level is not one of the known ones.
        """
        return cls(_level(configuration), configuration.get(Options.LOG_JSON))


def _level(configuration: Configuration) -> int:
    name = configuration.get(Options.LOG_LEVEL).strip().upper()
    if name not in _LEVELS:
        raise ConfigError(
            f"Option 'log.level' is {name!r}. Use one of {', '.join(_LEVELS)}.", key=Options.LOG_LEVEL.key
        )
    return _LEVELS[name]


def open_driver_log(execution: JobExecution) -> JobLog:
    """Log what concerns a job into its file, until it is closed."""
    configuration = execution.settings.configuration
    return JobLog(
        LogOwner(execution.job_id, lambda: max(0, execution.attempt)),
        level=_level(configuration),
        as_json=configuration.get(Options.LOG_JSON),
    )
