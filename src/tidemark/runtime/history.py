"""The last jobs that ended on this machine: a small file beside the registry of running ones.

One JSON object per line in `$TIDEMARK_HOME/history.jsonl`, oldest first, the newest `LIMIT` kept. Drivers
that end at the same time take turns by a lock file; a reader sees the old file or the new one.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import msgspec

from tidemark.jobs import registry_directory

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
    """The ended jobs, oldest first. Lines that cannot be read are left out."""
    try:
        lines = _path().read_bytes().splitlines()
    except OSError:
        return []
    jobs = []
    for line in lines:
        try:
            jobs.append(msgspec.json.decode(line, type=EndedJob))
        except msgspec.MsgspecError:
            continue
    return jobs


def remember(job: EndedJob) -> None:
    """Append a job and drop the oldest ones beyond the limit.

    Raises:
        OSError: The directory cannot be written.
    """
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [*read_history(), job][-LIMIT:]
        handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(b"".join([msgspec.json.encode(entry) + b"\n" for entry in kept]))
        os.replace(temporary, path)


def _path() -> Path:
    return registry_directory() / _FILE
