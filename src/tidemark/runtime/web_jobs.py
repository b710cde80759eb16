"""Which jobs a server shows: those of a driver's process, or all of this machine, running and ended."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from tidemark.errors import StorageError
from tidemark.jobs import list_jobs
from tidemark.redaction import shown_value
from tidemark.runtime.archive import Archive, ArchivedJobView, local_archive, read_archives
from tidemark.runtime.control_client import JobUnreachableError
from tidemark.runtime.history import read_history
from tidemark.runtime.job_view import LiveJobView
from tidemark.runtime.remote_view import RemoteJobView
from tidemark.web.facts import JobFacts
from tidemark.web.view import JobView

__all__ = ["DriverJobs", "MachineJobs"]

_log = logging.getLogger(__name__)

_ENDED_KEPT = 20
_LISTING_S = 5.0
_ASKED_AT_ONCE = 8
_SILENCE_S = 10.0
"""How long a job that did not answer is not asked again."""


class DriverJobs:
    """The jobs of this process that share a server. Thread-safe."""

    def __init__(self, configuration: Mapping[str, str]) -> None:
        """There are none; `configuration` is that of the job that opened the server."""
        self._configuration = {key: shown_value(key, value) for key, value in configuration.items()}
        self._lock = threading.Lock()
        self._live: dict[str, LiveJobView] = {}
        self._ended: OrderedDict[str, ArchivedJobView] = OrderedDict()

    def add(self, view: LiveJobView) -> None:
        """A job has started."""
        with self._lock:
            self._live[view.job_id] = view

    def end(self, job_id: str, archived: ArchivedJobView | None) -> bool:
        """A job has ended; tells whether it was the last one."""
        with self._lock:
            self._live.pop(job_id, None)
            if archived is not None:
                self._ended[job_id] = archived
                while len(self._ended) > _ENDED_KEPT:
                    self._ended.popitem(last=False)
            return not self._live

    def all(self) -> Sequence[JobView]:
        """Running ones, then ended ones, newest first."""
        with self._lock:
            return [*reversed(self._live.values()), *reversed(self._ended.values())]

    def find(self, job_id: str) -> JobView | None:
        """The job of that id."""
        with self._lock:
            return self._live.get(job_id) or self._ended.get(job_id)

    def configuration(self) -> dict[str, str]:
        """Of the first job."""
        return dict(self._configuration)

    def sample(self) -> None:
        """Let the curves of running jobs grow."""
        with self._lock:
            views = list(self._live.values())
        for view in views:
            view.sample()

    def look(self) -> None:
        """Ask the slots of running jobs."""
        with self._lock:
            views = list(self._live.values())
        for view in views:
            view.facts()


class _RegisteredJob(RemoteJobView):
    """A job of the registry; of one that does not answer it tells what its record says."""

    _silent_until = 0.0

    def facts(self) -> JobFacts:
        if time.monotonic() >= self._silent_until:
            try:
                return super().facts()
            except JobUnreachableError:
                # One that hangs must not make everybody wait for it again and again.
                self._silent_until = time.monotonic() + _SILENCE_S
        record = self._record
        now = round(time.time() * 1000)
        return JobFacts(record.job_id, record.name, "RECONCILING", record.start_time, now=now)


class MachineJobs:
    """The jobs of this machine and user: running ones of the registry, ended ones of the histories. Thread-safe."""

    def __init__(self, configuration: Mapping[str, str], history_directory: str | None = None) -> None:
        """Look into the registry, and into a history directory."""
        self._configuration = {key: shown_value(key, value) for key, value in configuration.items()}
        self._directory = history_directory
        self._lock = threading.Lock()
        self._remote: dict[str, _RegisteredJob] = {}
        self._archived: dict[str, ArchivedJobView] = {}
        self._shared: dict[str, Archive] = {}
        self._listed_at = -_LISTING_S
        self._askers = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="web-jobs")

    def all(self) -> Sequence[JobView]:
        """Running ones, then ended ones, newest first."""
        with self._lock:
            running = self._running()
            # At once: each keeps what it has said for a moment, and one that is slow holds no other up.
            told = [self._askers.submit(view.facts) for view in running.values()]
            ended = [view for job_id, view in self._ended().items() if job_id not in running]
        wait(told)
        started = sorted(ended, key=lambda view: -view.facts().start_time)
        return [*reversed(running.values()), *started]

    def find(self, job_id: str) -> JobView | None:
        """The job of that id."""
        with self._lock:
            return self._running().get(job_id) or self._ended().get(job_id)

    def configuration(self) -> dict[str, str]:
        """Of this process."""
        return dict(self._configuration)

    def sample(self) -> None:
        """Drivers keep the curves of their jobs."""

    def look(self) -> None:
        """Drivers do that."""

    def _running(self) -> dict[str, _RegisteredJob]:
        records = {record.job_id: record for record in list_jobs()}
        self._remote = {
            job_id: self._remote.get(job_id) or _RegisteredJob(record) for job_id, record in records.items()
        }
        return self._remote

    def _ended(self) -> dict[str, ArchivedJobView]:
        found: dict[str, ArchivedJobView] = {}
        for job_id, archive in self._shared_archives().items():
            found[job_id] = self._archived.get(job_id) or ArchivedJobView(archive)
        read = read_history()
        for job in read:
            known = self._archived.get(job.job_id)
            if known is None and (archive := local_archive(job.job_id)) is not None:
                known = ArchivedJobView(archive)
            if known is not None:
                found[job.job_id] = known
        self._archived = found
        # Of those whose file is gone, or about to be written, only the line is known; it is not kept.
        bare = [job for job in read if job.job_id not in found]
        return {**found, **{job.job_id: ArchivedJobView.of_ended(job) for job in bare}}

    def _shared_archives(self) -> dict[str, Any]:
        if self._directory is not None and time.monotonic() - self._listed_at > _LISTING_S:
            self._listed_at = time.monotonic()
            try:
                self._shared = read_archives(self._directory, self._shared)
            except StorageError as exc:
                _log.warning("The history directory %s cannot be read: %s", self._directory, exc)
        return self._shared
