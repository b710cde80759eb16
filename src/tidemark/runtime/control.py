"""The control endpoint of a running job, in its driver: how other processes see, stop and cancel it.

`JobControl` opens an authenticated socket, registers the job in this machine's registry (`tidemark.jobs`)
and, if `queryable-state.enable` is on, runs the proxy that clients of queryable state talk to. All of it
ends with the job, which then appears in the history. Handlers run in threads of their own and only use
what `JobRunner` offers to any thread. Whoever asks uses `runtime.control_client`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark import wire
from tidemark.config import ConfigOption, Options
from tidemark.errors import ConfigError, IllegalStateError, StateNotServedError
from tidemark.futures import CompletableFuture
from tidemark.job_logs import JobLog
from tidemark.jobs import JobRecord, registry_directory, remove_record, write_record
from tidemark.ports import parse_port_range
from tidemark.private_files import private_directory
from tidemark.processes import process_started, this_machine
from tidemark.queryablestate.plain_values import query_plain
from tidemark.queryablestate.proxy import JobRoute, QueryableStateClientProxy
from tidemark.redaction import without_secrets
from tidemark.rpc import MSGPACK, Handlers, Limits, Server, ServerThreads
from tidemark.runtime.archive import ArchivedJobView, archive_of, write_archive
from tidemark.runtime.control_client import MAX_MESSAGE
from tidemark.runtime.driver_log import open_driver_log
from tidemark.runtime.erasure import erase_key
from tidemark.runtime.history import EndedJob, remember
from tidemark.runtime.job_facts import checkpoint_facts, job_facts, job_summary, operator_facts
from tidemark.runtime.job_view import LiveJobView
from tidemark.runtime.remote_view import answer_view
from tidemark.runtime.rest import RestAccess
from tidemark.tls import TlsContext, TlsFiles, client_side, server_side

if TYPE_CHECKING:
    from tidemark.api.executor import JobSettings
    from tidemark.runtime.runner import JobRunner

__all__ = [
    "Endpoint",
    "JobControl",
    "ended_jobs",
    "live_jobs",
    "ports_of",
    "server_threads_of",
]

_log = logging.getLogger(__name__)

_POLL_S = 0.2
_GRACE_S = 5.0
"""How long requests under way may still answer after the job has ended."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a job is reached, as its executor knows it."""

    token: bytes
    listen_at: str
    """Where the control endpoint listens, in the form of `tidemark.wire`."""
    host: str = "127.0.0.1"
    """Address of the driver that query clients can reach; the proxy binds to it."""
    application_id: str | None = None
    """Of the Spark application, if there is one."""
    tls: TlsFiles | None = None
    """What TCP connections are encrypted with."""
    query_addresses: Callable[[], Sequence[str | None]] = tuple
    """Address of each slot's queryable-state server, now; from any thread."""
    release: Callable[[], None] = lambda: None
    """Called once when the job has ended."""


class JobControl:
    """The endpoint of one job, from `open` to `close`."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Prepare; nothing listens yet."""
        self._endpoint = endpoint
        self._runner: JobRunner | None = None
        self._server: Server | None = None
        self._server_tls: TlsContext | None = None
        self._proxy: QueryableStateClientProxy | None = None
        self._view: LiveJobView | None = None
        self._rest: RestAccess | None = None
        self._job_log: JobLog | None = None
        self._withdrawn = threading.Event()
        self._closed = threading.Event()
        self._handlers = Handlers(
            MSGPACK,
            summary=lambda _: job_summary(self._job, endpoint.application_id),
            info=self._info,
            checkpoints=lambda _: checkpoint_facts(self._job),
            savepoint=lambda arguments: self._wait(self._job.savepoint(arguments.get("directory"))),
            checkpoint=lambda _: self._wait(self._job.checkpoint()),
            erase=lambda arguments: erase_key(
                self._job,
                str(arguments["key"]),
                [str(uid) for uid in arguments.get("uids") or ()],
                self._wait,
            ),
            stop=self._stop,
            rescale=lambda arguments: self._wait(self._job.rescale(int(arguments["parallelism"]))),
            cancel=self._cancel,
            view=lambda arguments: answer_view(self._shown, arguments),
        )
        self.address = ""

    @property
    def _job(self) -> JobRunner:
        assert self._runner is not None
        return self._runner

    @property
    def _shown(self) -> LiveJobView:
        assert self._view is not None
        return self._view

    @property
    def web_address(self) -> str | None:
        """Where the job's page is, None while there is none."""
        return None if self._rest is None else self._rest.address

    @property
    def query_port(self) -> int | None:
        """Port of the queryable-state proxy, None if queries are off."""
        return None if self._proxy is None else self._proxy.port

    def open(self, runner: JobRunner) -> None:
        """Listen and register the job; call it before the runner starts.

        A registry that cannot be written costs a warning, not the job.

        Raises:
            ConfigError: No port is free for the queryable-state proxy, the registry is somebody else's, or the files
                of TLS cannot be used.
        """
        with contextlib.suppress(OSError):
            # Refused before anything listens; a place that cannot be written is only a warning, below.
            private_directory(registry_directory())
        self._runner = runner
        settings = runner.execution.settings
        tls = self._endpoint.tls
        self._server_tls = server_side(tls)
        rest = RestAccess(settings.configuration, at_once=self._endpoint.application_id is not None)
        listener, self.address = wire.listen(self._endpoint.listen_at, option=Options.DRIVER_PORTS.key)
        try:
            if settings.configuration.get(Options.QUERYABLE_STATE_ENABLE):
                self._proxy = self._open_proxy(settings)
        except BaseException:
            listener.close()
            raise
        self._server = Server(
            [listener],
            self._endpoint.token,
            self._handlers,
            name="tidemark-control",
            tls=self._server_tls,
            limits=Limits(body=MAX_MESSAGE),
        )
        summary = job_summary(runner)
        try:
            write_record(
                JobRecord(
                    job_id=runner.execution.job_id,
                    name=settings.job_name,
                    pid=os.getpid(),
                    control_address=self.address,
                    token=self._endpoint.token.hex(),
                    query_port=self.query_port,
                    start_time=summary["start_time"],
                    started=process_started(),
                    machine=this_machine(),
                    tls=None if tls is None else tls.absolute().without_password(),
                )
            )
        except OSError as exc:
            _log.warning("Job %s cannot be found by other processes: %s", runner.execution.job_id, exc)
        _live[runner.execution.job_id] = self
        self._view = LiveJobView(runner, self._query, self._query_statistics)
        self._rest = rest
        try:
            self._job_log = open_driver_log(runner.execution)
            rest.open(self._view)
        except BaseException:
            self._withdraw()
            raise

    def _withdraw(self) -> None:
        """The job is not going to be: undo what `open` did."""
        with contextlib.suppress(OSError):
            remove_record(self._job.execution.job_id)
        _live.pop(self._job.execution.job_id, None)
        self._close_sockets()
        if self._job_log is not None:
            self._job_log.close()

    def close(self) -> None:
        """Withdraw the job: no more requests, no record, an entry in the history. Idempotent."""
        if self._runner is None or self._closed.is_set():
            return
        runner = self._runner
        ended = _ended_job(runner, self._endpoint.application_id)
        # First: a job that is neither running nor ended would be unknown to whoever looks meanwhile, or for ever if
        # the driver dies here.
        archived = self._archive(ended)
        with contextlib.suppress(OSError):
            remove_record(ended.job_id)
        self._withdrawn.set()
        if self._rest is not None:
            self._rest.close(archived)
        self._close_sockets()
        self._endpoint.release()
        if self._job_log is not None:
            self._job_log.close()
        _ended.append(ended)
        _live.pop(ended.job_id, None)
        self._closed.set()

    def _archive(self, ended: EndedJob) -> ArchivedJobView | None:
        """Remember the job on this machine, and where `history.dir` says."""
        if self._view is None:
            return None
        try:
            self._view.ended(ended.end_time)
            archive = archive_of(self._view)
            kept = remember(ended)
            write_archive(archive, self._job.execution.settings.configuration.get(Options.HISTORY_DIR), kept)
        except (OSError, ConfigError) as exc:
            _log.warning("The history of jobs was not written: %s", exc)
            return None
        return ArchivedJobView(archive)

    def settle(self) -> bool:
        """Let a job that has ended finish `close`; False if it has not ended."""
        return self._job.status.is_terminal_state() and self._closed.wait(_GRACE_S)

    def _close_sockets(self) -> None:
        if self._server is not None:
            # Whoever asked for the end of the job is still to be told that it came.
            self._server.close(_GRACE_S)
        if self._proxy is not None:
            self._proxy.close()

    # Requests

    def _info(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        facts = job_facts(self._job, self._endpoint.application_id)
        return {
            **facts,
            "operators": operator_facts(self._shown.facts()),
            "control_address": self.address,
            "query_port": self.query_port,
            "web_address": self.web_address,
        }

    def _stop(self, arguments: dict[str, Any]) -> dict[str, Any]:
        path = self._wait(self._job.stop(bool(arguments.get("drain")), arguments.get("directory")))
        self._wait_for_end()
        return {"savepoint": path}

    def _cancel(self, arguments: dict[str, Any]) -> dict[str, Any]:
        path = None
        if arguments.get("savepoint"):
            path = self._wait(self._job.savepoint(arguments.get("directory")))
        self._job.cancel()
        self._wait_for_end()
        return {"savepoint": path}

    def _wait_for_end(self) -> None:
        """Until the job has released everything and no list shows it as running."""
        self._job.join()
        self._withdrawn.wait(_GRACE_S)

    def _wait(self, future: CompletableFuture[str]) -> str:
        """The result, also when the job ends before anybody completes the future."""
        ended_at: float | None = None
        while not future.done():
            with contextlib.suppress(TimeoutError):
                future.exception(_POLL_S)
            if self._job.status.is_terminal_state() and not future.done():
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > 2 * _POLL_S:
                    raise IllegalStateError(f"The job ended ({self._job.status.name}) before it answered.")
        return future.result()

    # Queryable state

    def _open_proxy(self, settings: JobSettings) -> QueryableStateClientProxy:
        configuration = settings.configuration
        proxy = QueryableStateClientProxy(
            ports_of(settings, Options.QUERYABLE_PROXY_PORTS),
            self._endpoint.token,
            self._route,
            self._endpoint.host,
            threads=threads_of(
                settings, Options.QUERYABLE_PROXY_NETWORK_THREADS, Options.QUERYABLE_PROXY_QUERY_THREADS
            ),
            tls=self._server_tls,
            slot_tls=client_side(self._endpoint.tls),
        )
        if configuration.get(Options.QUERYABLE_STATISTICS):
            proxy.statistics.enable()
        return proxy

    def _query(self, name: str, key: Any) -> Any:
        """Look a key of a queryable state up, as `tidemark query` does."""
        if self.query_port is None:
            raise StateNotServedError.by_job(self._job.execution.job_id, name)
        return query_plain(
            self._endpoint.host,
            self.query_port,
            self._endpoint.token,
            self._job.execution.job_id,
            name,
            key,
            client_side(self._endpoint.tls),
        )

    def _query_statistics(self) -> dict[str, float]:
        return {} if self._proxy is None else self._proxy.statistics.figures()

    def _route(self, job_id: str) -> JobRoute | None:
        runner = self._job
        if job_id != runner.execution.job_id:
            return None
        # The attempt is read first: addresses of a later one would only be refused there and asked again.
        attempt = runner.execution.attempt
        return JobRoute(job_id, runner.status.name, attempt, tuple(self._endpoint.query_addresses()))


_live: dict[str, JobControl] = {}
_ended: deque[EndedJob] = deque(maxlen=1000)


def live_jobs() -> list[JobRunner]:
    """The jobs that run in this process."""
    return [control._job for control in list(_live.values())]


def ended_jobs() -> list[EndedJob]:
    """The jobs that ended in this process, oldest first; all whose result is known are among them."""
    for control in list(_live.values()):
        control.settle()
    return list(_ended)


def ports_of(settings: JobSettings, option: ConfigOption[str]) -> list[int]:
    """The ports a port option names; after those of its default, which nobody chose, any free one.

    Raises:
        ConfigError: The option does not parse.
    """
    text = str(settings.configuration.get(option))
    ports = parse_port_range(text)
    return [*ports, 0] if text == option.default_text and 0 not in ports else ports


def threads_of(settings: JobSettings, network: ConfigOption[int], query: ConfigOption[int]) -> ServerThreads:
    """The threads that two options ask for; 0 means as many as the job has slots."""
    configuration = settings.configuration
    return ServerThreads(
        configuration.get(network) or settings.parallelism, configuration.get(query) or settings.parallelism
    )


def server_threads_of(settings: JobSettings) -> ServerThreads:
    """The threads of the queryable-state server of each slot."""
    return threads_of(
        settings, Options.QUERYABLE_SERVER_NETWORK_THREADS, Options.QUERYABLE_SERVER_QUERY_THREADS
    )


def _ended_job(runner: JobRunner, application_id: str | None) -> EndedJob:
    summary = job_summary(runner, application_id)
    error = runner.result.exception() if runner.status.name == "FAILED" else None
    failure = None if error is None else without_secrets(str(error))
    return EndedJob(**summary, end_time=round(time.time() * 1000), failure=failure)


@atexit.register
def _leave() -> None:
    """The interpreter exits, and with it every job that still runs."""
    for job_id, control in list(_live.items()):
        if not control.settle():
            with contextlib.suppress(OSError):
                remove_record(job_id)
