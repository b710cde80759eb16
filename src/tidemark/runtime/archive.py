"""What is left of ended jobs for displays: a JSON file per job, and the view of one.

The files of the last jobs of this machine lie in `$TIDEMARK_HOME/history`; with `history.dir` every job also writes
one there, where other machines may read it. A file is written under another name and then renamed, so a reader sees all
of it or nothing. They are input like any other: what does not fit is left out.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ConfigError, IllegalStateError, StateNotServedError, StorageError
from tidemark.futures import CompletableFuture
from tidemark.job_logs import list_logs, read_tail
from tidemark.jobs import registry_directory
from tidemark.paths import absolute
from tidemark.private_files import open_private, private_directory, replace_private
from tidemark.runtime.history import EndedJob
from tidemark.web.facts import CheckpointFacts, CheckpointHistory, JobFacts, OperatorStates, Series
from tidemark.web.view import JobView

__all__ = ["Archive", "ArchivedJobView", "archive_of", "local_archive", "read_archives", "write_archive"]

_log = logging.getLogger(__name__)

_DETAILED = 100
"""Snapshots whose subtasks are kept."""
_MAX_BYTES = 64 << 20
_SUFFIX = ".json"


class Archive(msgspec.Struct, frozen=True):
    """An ended job."""

    facts: JobFacts
    checkpoints: CheckpointHistory = CheckpointHistory()
    """The newest ones with their subtasks."""
    states: tuple[OperatorStates, ...] = ()
    series: Series = Series()
    version: int = 1


def archive_of(view: JobView) -> Archive:
    """What a view knows now."""
    history = view.checkpoints()
    detailed = [view.checkpoint(record.checkpoint_id) or record for record in history.records[:_DETAILED]]
    records = (*detailed, *history.records[_DETAILED:])
    return Archive(
        view.facts(),
        msgspec.structs.replace(history, records=records),
        tuple(view.states()),
        view.series(),
    )


class ArchivedJobView:
    """The `JobView` of a job that has ended."""

    def __init__(self, archive: Archive) -> None:
        """Show what was kept."""
        self._archive = archive
        self._by_id = {record.checkpoint_id: record for record in archive.checkpoints.records}
        bare = [msgspec.structs.replace(record, operators={}) for record in archive.checkpoints.records]
        self._history = msgspec.structs.replace(archive.checkpoints, records=tuple(bare))

    @classmethod
    def of_ended(cls, job: EndedJob) -> ArchivedJobView:
        """Of a job of which only the line in the history is left."""
        return cls(
            Archive(JobFacts(job.job_id, job.name, job.status, job.start_time, job.end_time, job.end_time))
        )

    @property
    def job_id(self) -> str:
        """Its id."""
        return self._archive.facts.job_id

    def facts(self) -> JobFacts:
        """Everything but its checkpoints, as it was at the end."""
        return self._archive.facts

    def checkpoints(self) -> CheckpointHistory:
        """Its snapshots."""
        return self._history

    def checkpoint(self, checkpoint_id: int) -> CheckpointFacts | None:
        """One snapshot with its subtasks, as far as they were kept."""
        return self._by_id.get(checkpoint_id)

    def states(self) -> Sequence[OperatorStates]:
        """The states of its operators."""
        return self._archive.states

    def query(self, name: str, key: Any) -> Any:
        """Nothing can be looked up any more."""
        raise StateNotServedError(
            f"Job {self.job_id} has ended; its state '{name}' can only be read from a savepoint.",
            job_id=self.job_id,
            name=name,
        )

    def series(self) -> Series:
        """Its last curves."""
        return self._archive.series

    def logs(self) -> dict[str, int]:
        """Its log files on this machine."""
        return list_logs(self.job_id)

    def log(self, name: str) -> str | None:
        """The end of a log file."""
        return read_tail(self.job_id, name)

    def savepoint(self, directory: str | None) -> CompletableFuture[str]:
        """Too late."""
        self._refuse()

    def checkpoint_now(self) -> CompletableFuture[str]:
        """Too late."""
        self._refuse()

    def stop(self, drain: bool, directory: str | None) -> CompletableFuture[str]:
        """Too late."""
        self._refuse()

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        """Too late."""
        self._refuse()

    def cancel(self) -> None:
        """Too late."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise IllegalStateError(f"Job {self.job_id} has ended: it is {self.facts().status}.")


def write_archive(archive: Archive, directory: str | None, kept: set[str]) -> None:
    """Write the file of an ended job, here and in `directory`; here, drop those of jobs that are not in `kept`.

    Raises:
        OSError: The registry cannot be written.
        ConfigError: The registry is not this user's own.
    """
    data = msgspec.json.encode(archive)
    name = archive.facts.job_id + _SUFFIX
    own = _local_directory()
    replace_private(own / name, data)
    for path in own.glob(f"*{_SUFFIX}"):
        if path.stem not in kept and path.name != name:
            path.unlink(missing_ok=True)
    if directory is not None:
        try:
            FileSystemStorage().write(f"{absolute(directory)}/{name}", data)
        except StorageError as exc:
            _log.warning(
                "The history of job %s was not written to %s: %s", archive.facts.job_id, directory, exc
            )


def local_archive(job_id: str) -> Archive | None:
    """What is left of an ended job of this machine."""
    if not job_id.isalnum():
        return None
    try:
        with open(open_private(_local_directory() / (job_id + _SUFFIX), os.O_RDONLY), "rb") as file:
            return _decoded(file.read(_MAX_BYTES))
    except (OSError, ConfigError):
        return None


def read_archives(directory: str, known: dict[str, Archive]) -> dict[str, Archive]:
    """Job -> archive of every file in a history directory; what is in `known` is not read again.

    Others may write there: links are not followed, and files larger than any of ours are left out.

    Raises:
        StorageError: The directory cannot be listed.
    """
    root = absolute(directory)
    storage = FileSystemStorage(roots=[root])
    found: dict[str, Archive] = {}
    for name in storage.list(root):
        job_id = name.removesuffix(_SUFFIX)
        if name == job_id or not job_id.isalnum():
            continue
        archive = known.get(job_id)
        if archive is None:
            with contextlib.suppress(StorageError):
                path = f"{root}/{name}"
                if storage.size(path) <= _MAX_BYTES:
                    archive = _decoded(storage.read(path))
        if archive is not None and archive.facts.job_id == job_id:
            found[job_id] = archive
    return found


def _decoded(data: bytes) -> Archive | None:
    try:
        return msgspec.json.decode(data, type=Archive)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _local_directory() -> Path:
    private_directory(registry_directory())
    return private_directory(registry_directory() / "history")
