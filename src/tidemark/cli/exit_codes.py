"""What the command's exit code says: one number per family of errors."""

from __future__ import annotations

from enum import IntEnum

from tidemark.errors import (
    BackendError,
    CheckpointError,
    ConfigError,
    ExecutionError,
    FencedError,
    IllegalStateError,
    JobNotFoundError,
    QueryError,
    RestoreError,
    SparkLostError,
    StateError,
    StateMigrationException,
    StorageError,
    UnsupportedOperationException,
)
from tidemark.runtime.control_client import JobUnreachableError

__all__ = ["ExitCode", "exit_code_of"]


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    """The program or its job failed; `verify` found damage; `check` found incompatible state."""
    USAGE = 2
    """Wrong arguments or configuration."""
    NO_JOB = 3
    """No such job."""
    CHECKPOINT = 4
    """The savepoint failed; the job goes on."""
    SNAPSHOT = 5
    """A checkpoint or savepoint is missing, damaged or does not fit the job; storage failed."""
    QUERY = 6
    """A queryable-state request failed."""
    STATE = 7
    """Stored state cannot be read with the program's types."""
    UNREACHABLE = 8
    """The job does not answer, or the token is not its own."""
    REFUSED = 9
    """The job exists but cannot do that, or not now."""
    FENCED = 10
    """A newer driver runs the job, or owns one of its sinks."""
    SPARK_LOST = 11
    """The JVM of Spark's driver died under the program."""
    INTERRUPTED = 130
    """Ctrl-C."""


# The first match counts: some errors belong to two families.
_FAMILIES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (JobNotFoundError, ExitCode.NO_JOB),
    (JobUnreachableError, ExitCode.UNREACHABLE),
    (SparkLostError, ExitCode.SPARK_LOST),
    (ExecutionError, ExitCode.FAILED),
    (FencedError, ExitCode.FENCED),
    (CheckpointError, ExitCode.CHECKPOINT),
    (RestoreError, ExitCode.SNAPSHOT),
    (StorageError, ExitCode.SNAPSHOT),
    (BackendError, ExitCode.SNAPSHOT),
    (QueryError, ExitCode.QUERY),
    (StateError, ExitCode.STATE),
    (ConfigError, ExitCode.USAGE),
    (IllegalStateError, ExitCode.REFUSED),
    (UnsupportedOperationException, ExitCode.REFUSED),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
)


def exit_code_of(error: BaseException) -> ExitCode:
    """The code of an error's family; `FAILED` if it belongs to none.

    A job that failed because its snapshot cannot be restored or read, another storage failed, or another driver took
    over, counts to the family of that cause.
    """
    if isinstance(error, ExecutionError) and not isinstance(error, SparkLostError):
        error = _deeper_cause(error) or error
    return next((code for family, code in _FAMILIES if isinstance(error, family)), ExitCode.FAILED)


def _deeper_cause(error: BaseException) -> BaseException | None:
    cause = error.__cause__
    while cause is not None and not isinstance(
        cause, RestoreError | StateMigrationException | StorageError | FencedError
    ):
        cause = cause.__cause__
    return cause
