"""Which jobs run on this machine for this user: one small file per job in the registry directory.

The directory is `$TIDEMARK_HOME`, by default `~/.tidemark`. A driver writes `<job id>.json` when its job
starts and removes it when the job ends; the command line and query clients read it. Files hold the job's
token, so only their owner may read them, and nothing is believed that others could have put there. A file
whose driver is gone counts as absent and is removed by whoever notices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidemark.errors import ConfigError, JobNotFoundError
from tidemark.private_files import open_private, private_directory, replace_private
from tidemark.processes import is_process_alive, this_machine
from tidemark.tls import TlsFiles

__all__ = [
    "TOKEN_VARIABLE",
    "JobRecord",
    "find_job",
    "list_jobs",
    "registry_directory",
    "remove_record",
    "token_bytes",
    "write_record",
]

TOKEN_VARIABLE = "TIDEMARK_TOKEN"
"""Environment variable with the token of the job to talk to, as text (see `token_bytes`)."""
_HOME_VARIABLE = "TIDEMARK_HOME"
_MAX_RECORD = 1 << 20
"""Bytes of the largest file that is read as a record."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Where a running job can be reached, and with which token."""

    job_id: str
    name: str
    pid: int
    """The driver's process."""
    control_address: str
    """Address of the driver's control server in the form of `tidemark.wire`; empty if there is none."""
    token: str
    """The job's token as text; `token_bytes` gives what goes on the wire."""
    query_port: int | None
    """Port of the queryable-state proxy; None if queries are off."""
    start_time: int
    """Milliseconds since the epoch."""
    started: float = 0.0
    """What `process_started` says of the driver."""
    machine: str = ""
    """Where it runs (`this_machine`); a registry may lie in a home directory that several share."""
    tls: TlsFiles | None = None
    """What its TCP connections are encrypted with, without the password of the key; None: with nothing."""


def token_bytes(text: str) -> bytes:
    """The token behind its text: hexadecimal digits in pairs, or else the text itself."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()


def registry_directory() -> Path:
    """Directory of the records; it may not exist yet."""
    home = os.environ.get(_HOME_VARIABLE)
    return Path(home) if home else Path.home() / ".tidemark"


def write_record(record: JobRecord) -> Path:
    """Publish a job, replacing an older record of the same id; returns the file.

    Raises:
        ConfigError: The directory is not this user's own.
    """
    directory = private_directory(registry_directory())
    path = directory / f"{record.job_id}.json"
    replace_private(path, msgspec.json.encode(record))
    return path


def remove_record(job_id: str) -> None:
    """Withdraw a job of this process; nothing happens if it is not there, or another driver runs it by now."""
    path = registry_directory() / f"{job_id}.json"
    record = _read(path)
    if record is None or record.pid == os.getpid():
        path.unlink(missing_ok=True)


def list_jobs() -> list[JobRecord]:
    """Records of all jobs that run on this machine, oldest first; those of others are left alone.

    Raises:
        ConfigError: The directory is not this user's own, so its records may be anybody's.
    """
    directory, here = registry_directory(), this_machine()
    records = []
    for path in sorted(private_directory(directory).glob("*.json")) if directory.is_dir() else ():
        record = _read(path)
        if record is None or record.machine not in ("", here):
            continue
        if is_process_alive(record.pid, record.start_time, record.started):
            records.append(record)
        else:
            path.unlink(missing_ok=True)
    return sorted(records, key=lambda record: (record.start_time, record.job_id))


def find_job(prefix_or_id: str) -> JobRecord:
    """The running job with that id, or the only one whose id starts like that.

    Raises:
        JobNotFoundError: There is none, or several.
    """
    records = list_jobs()
    found = [record for record in records if record.job_id == prefix_or_id]
    found = found or [record for record in records if prefix_or_id and record.job_id.startswith(prefix_or_id)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join([record.job_id for record in found])
        raise JobNotFoundError(
            f"'{prefix_or_id}' is the start of several job ids ({ids}). Give more characters.",
            job_id=prefix_or_id,
        )
    raise JobNotFoundError(
        f"No job '{prefix_or_id}' runs on this machine for this user (registry: {registry_directory()}). "
        "'tidemark list' shows the running ones.",
        job_id=prefix_or_id,
    )


def _read(path: Path) -> JobRecord | None:
    try:
        with open(open_private(path, os.O_RDONLY), "rb") as file:
            return msgspec.json.decode(file.read(_MAX_RECORD), type=JobRecord)
    except (OSError, ConfigError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Gone since the listing, or not ours.
        return None
