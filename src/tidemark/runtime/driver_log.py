"""The log file of a job's driver, as the job's settings want it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError
from tidemark.job_logs import JobLog, LogOwner

if TYPE_CHECKING:
    from tidemark.runtime.execution import JobExecution

__all__ = ["log_level", "open_driver_log"]

_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


def log_level(configuration: Configuration) -> int:
    """The least level that goes into log files.

    Raises:
        ConfigError: It is not one of the known ones.
    """
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
        level=log_level(configuration),
        as_json=configuration.get(Options.LOG_JSON),
    )
