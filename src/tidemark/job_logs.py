"""Log files of jobs: one per driver and slot in `$TIDEMARK_HOME/logs/<job id>`, rotated, each line telling whose it is.

A driver may run several jobs: what a thread of a job logs (`bind_thread`) goes into that job's file, what threads of
nobody log into the files of all. The console is not disturbed: it sees what it would see without these files.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import ConfigError, JobNotFoundError
from tidemark.jobs import registry_directory
from tidemark.private_files import open_private, private_directory
from tidemark.redaction import without_secrets

__all__ = [
    "DRIVER_LOG",
    "JobLog",
    "LogOwner",
    "bind_thread",
    "bound_job",
    "find_logs",
    "list_logs",
    "prune_logs",
    "read_from",
    "read_tail",
    "slot_log",
]

DRIVER_LOG = "driver.log"
_ROOT = "tidemark"
_MAX_BYTES = 10 << 20
_BACKUPS = 3
_JOBS_KEPT = 50
_TAIL = 64 << 10

_thread = threading.local()
_lock = threading.Lock()
_open: list[JobLog] = []


def slot_log(slot: int) -> str:
    """The name of a slot's log file."""
    return f"slot-{slot}.log"


def bind_thread(job_id: str | None) -> None:
    """What this thread logs from now on belongs to that job."""
    _thread.job_id = job_id


def bound_job() -> str | None:
    """The job that this thread works for."""
    return getattr(_thread, "job_id", None)


@dataclass(frozen=True, slots=True)
class LogOwner:
    """Whose log it is."""

    job_id: str
    attempt: Callable[[], int] = lambda: 0
    slot: int | None = None

    @property
    def place(self) -> str:
        """`driver` or the number of the slot."""
        return "driver" if self.slot is None else str(self.slot)


class _Formatter(logging.Formatter):
    def __init__(self, owner: LogOwner, as_json: bool) -> None:
        super().__init__()
        self._owner = owner
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        owner = self._owner
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        when = f"{stamp}.{int(record.msecs):03d}"
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        text = without_secrets(text)
        attempt = owner.attempt()
        if self._json:
            return json.dumps(
                {
                    "time": when,
                    "level": record.levelname,
                    "logger": record.name,
                    "job": owner.job_id,
                    "attempt": attempt,
                    "slot": owner.place,
                    "message": text,
                }
            )
        head = (
            f"{when} {record.levelname} {record.name} job={owner.job_id} attempt={attempt} slot={owner.place}"
        )
        # Every line says whose it is, those of a traceback too.
        return "\n".join([f"{head}: {line}" for line in text.splitlines() or [""]])


class _Forward(logging.Handler):
    """Gives the root logger what it would have got without the files."""

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self._threshold = threshold

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < self._threshold and not _has_own_level(record.name):
            return
        # Whoever wants to see loggers that do not propagate has put his handler at both.
        mine = logging.getLogger(_ROOT).handlers
        outside = [handler for handler in logging.getLogger().handlers if handler not in mine]
        if not logging.getLogger().handlers and logging.lastResort is not None:
            outside.append(logging.lastResort)
        for handler in outside:
            if record.levelno >= handler.level:
                handler.handle(record)


def _has_own_level(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger.name != _ROOT:
        if logger.level != logging.NOTSET:
            return True
        logger = logger.parent
    return False


class JobLog:
    """The log file of one driver or slot, from construction to `close`.

    A place that cannot be written costs the log, not the job.
    """

    _forward: _Forward | None = None
    _before: tuple[int, bool] = (logging.NOTSET, True)

    def __init__(self, owner: LogOwner, *, level: int = logging.INFO, as_json: bool = False) -> None:
        """Log into the file of that owner."""
        self._handler: logging.Handler | None = None
        name = DRIVER_LOG if owner.slot is None else slot_log(owner.slot)
        try:
            directory = _directory(owner.job_id)
            os.close(open_private(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
            handler = logging.handlers.RotatingFileHandler(
                directory / name, maxBytes=_MAX_BYTES, backupCount=_BACKUPS, delay=True, encoding="utf-8"
            )
        except (OSError, ConfigError):
            return
        handler.setLevel(level)
        handler.setFormatter(_Formatter(owner, as_json))
        handler.addFilter(lambda _record: bound_job() in (None, owner.job_id))
        self._handler = handler
        with _lock:
            if not _open:
                _divert(level)
            _open.append(self)
            logging.getLogger(_ROOT).addHandler(handler)

    def close(self) -> None:
        """End the file. Idempotent."""
        handler, self._handler = self._handler, None
        if handler is None:
            return
        with _lock:
            logging.getLogger(_ROOT).removeHandler(handler)
            _open.remove(self)
            if not _open:
                _restore()
        handler.close()


def _divert(level: int) -> None:
    logger = logging.getLogger(_ROOT)
    JobLog._before = (logger.level, logger.propagate)
    if logger.propagate:
        JobLog._forward = _Forward(logger.getEffectiveLevel())
        logger.addHandler(JobLog._forward)
        logger.propagate = False
    if logger.getEffectiveLevel() > level:
        logger.setLevel(level)


def _restore() -> None:
    logger = logging.getLogger(_ROOT)
    if JobLog._forward is not None:
        logger.removeHandler(JobLog._forward)
        JobLog._forward = None
    level, logger.propagate = JobLog._before
    logger.setLevel(level)


def _directory(job_id: str) -> Path:
    private_directory(registry_directory())
    logs = private_directory(registry_directory() / "logs")
    known = logs / job_id
    if not known.is_dir():
        prune_logs()
    return private_directory(known)


def prune_logs(alive: Collection[str] = ()) -> list[str]:
    """Remove all logs but those of the newest 50 jobs, and of detached programs; returns their paths. Never raises.

    Args:
        alive: Ids of jobs whose logs stay, however old they are.
    """
    logs = registry_directory() / "logs"
    removed: list[str] = []
    with suppress(OSError, ConfigError):
        if not logs.is_dir():
            return []
        for directories in (True, False):
            found = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                for entry in os.scandir(private_directory(logs))
                if entry.is_dir(follow_symlinks=False) is directories and entry.name not in alive
            ]
            removed += [path for _age, path in sorted(found)[: max(0, len(found) - _JOBS_KEPT)]]
        for path in removed:
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
    return removed


def list_logs(job_id: str) -> dict[str, int]:
    """Name -> size of the log files of a job on this machine."""
    directory = registry_directory() / "logs" / job_id
    if not job_id.isalnum() or not directory.is_dir():
        return {}
    return {path.name: path.stat().st_size for path in sorted(directory.iterdir()) if path.is_file()}


def find_logs(prefix: str) -> str:
    """The id of the only job of this machine, running or ended, that has logs and whose id begins so.

    Raises:
        JobNotFoundError: There is none, or several.
    """
    directory = registry_directory() / "logs"
    found = (
        sorted(entry.name for entry in directory.iterdir() if entry.is_dir()) if directory.is_dir() else []
    )
    matching = [job_id for job_id in found if prefix and job_id.startswith(prefix)]
    if len(matching) != 1:
        what = "begins with" if not matching else f"is told from {len(matching)} others by"
        raise JobNotFoundError(
            f"No job with logs in {directory} {what} '{prefix}'. 'tidemark list -a' shows the ids.",
            job_id=prefix,
        )
    return matching[0]


def read_from(job_id: str, name: str, at: int | None) -> tuple[str, int]:
    """What a log file holds from a position on, its end if that is None, and the position behind that.

    A file that became shorter was rotated: it is read from its beginning.

    Raises:
        OSError: The file cannot be read.
    """
    path = registry_directory() / "logs" / job_id / name
    with open(open_private(path, os.O_RDONLY), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL) if at is None else at if at <= size else 0
        file.seek(start)
        content = file.read()
    return content.decode(errors="replace"), start + len(content)


def read_tail(job_id: str, name: str) -> str | None:
    """The end of a log file of a job, None if it has none of that name."""
    if name not in list_logs(job_id):
        return None
    with suppress(OSError, ConfigError):
        return read_from(job_id, name, None)[0]
    return None
