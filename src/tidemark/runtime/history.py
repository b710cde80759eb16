"""The last jobs that ended on this machine: a small file beside the registry of running ones.

One JSON object per line in `$TIDEMARK_HOME/history.jsonl`, oldest first, the newest `LIMIT` kept. Drivers
that end at the same time take turns by a lock file; a reader sees the old file or the new one. Links and files
of other users are refused, not followed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from tidemark.jobs import registry_directory
from tidemark.private_files import open_private, private_directory, replace_private

__all__ = ["LIMIT", "EndedJob", "read_history", "remember"]

LIMIT = 50
_FILE = "history.jsonl"


class EndedJob(msgspec.Struct, frozen=True):
    """What is left of a job on this machine."""

    job_id: str
    name: str
    status: str
    """Name of the last `JobStatus`."""
    start_time: int
    """Milliseconds since the epoch."""
    end_time: int
    pid: int
    application_id: str | None = None
    """Of the Spark application it ran in."""
    failure: str | None = None
    """Why it failed, if it did."""


def read_history() -> list[EndedJob]:
    """The ended jobs, oldest first. Lines that cannot be read are left out.

    Raises:
        ConfigError: The directory or the file is not this user's own.
    """
    path = _path()
    if not path.parent.is_dir():
        return []
    private_directory(path.parent)
    try:
        with open(open_private(path, os.O_RDONLY), "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    jobs = []
    for line in lines:
        try:
            jobs.append(msgspec.json.decode(line, type=EndedJob))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return jobs


def remember(job: EndedJob) -> set[str]:
    """Append a job and drop the oldest ones beyond the limit; returns the ids of those that are kept.

    Raises:
        OSError: The directory cannot be written.
        ConfigError: The directory or a file in it is not this user's own.
    """
    path = _path()
    private_directory(path.parent)
    with open(open_private(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [*read_history(), job][-LIMIT:]
        replace_private(path, b"".join([msgspec.json.encode(entry) + b"\n" for entry in kept]))
    return {entry.job_id for entry in kept}


def _path() -> Path:
    return registry_directory() / _FILE
