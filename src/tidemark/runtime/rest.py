"""The web servers of this process: opened with the first job that wants one, closed with the last.

Jobs with the same `rest.*` settings share a server, as they would share Flink's job manager. Opening one costs some
hundred milliseconds of imports once and a thread for as long as it is open, so a job of the local executor gets its
server only when it has run for `PATIENCE_S`, unless somebody waits to be told the address (`announcing`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from tidemark.config import Configuration, Options
from tidemark.config.tls import rest_tls
from tidemark.errors import ConfigError
from tidemark.ports import parse_port_range
from tidemark.runtime.archive import ArchivedJobView
from tidemark.runtime.job_view import LiveJobView
from tidemark.runtime.web_jobs import DriverJobs
from tidemark.web.security import Guard
from tidemark.web.server import ServerSettings, WebServer

__all__ = ["PATIENCE_S", "RestAccess", "announcing", "server_settings"]

_log = logging.getLogger(__name__)

PATIENCE_S = 2.0

_lock = threading.RLock()
_servers: dict[ServerSettings, tuple[WebServer, DriverJobs]] = {}
_announcers: list[Callable[[str], None]] = []


@contextlib.contextmanager
def announcing(tell: Callable[[str], None]) -> Iterator[None]:
    """Have servers open at once inside the block, and be told the address of every job that starts there."""
    _announcers.append(tell)
    try:
        yield
    finally:
        _announcers.remove(tell)


def server_settings(configuration: Configuration) -> ServerSettings:
    """How the web server is to be.

    Raises:
        ConfigError: Other machines could reach it, and there is no token; or TLS lacks a file.
    """
    ports = configuration.get(Options.REST_BIND_PORT)
    settings = ServerSettings(
        configuration.get(Options.REST_BIND_ADDRESS),
        configuration.get(Options.REST_PORT),
        () if ports is None else tuple(parse_port_range(ports)),
        configuration.get(Options.REST_TOKEN),
        configuration.get(Options.METRICS_PREFIX),
        rest_tls(configuration),
        configuration.get(Options.SSL_REST_AUTHENTICATION_ENABLED),
    )
    Guard(settings.bind, settings.token)
    return settings


class RestAccess:
    """How one job is reached over HTTP, from `open` to `close`."""

    def __init__(self, configuration: Configuration, *, at_once: bool) -> None:
        """Nothing is open yet.

        Raises:
            ConfigError: Other machines could reach the server, and there is no token.
        """
        self._configuration = configuration
        self._settings = server_settings(configuration) if configuration.get(Options.REST_ENABLED) else None
        self._at_once = at_once
        self._timer: threading.Timer | None = None
        self._view: LiveJobView | None = None
        self.address: str | None = None
        """Where the server is, once it is open."""

    def open(self, view: LiveJobView) -> None:
        """Show the job, now or when it has run for a while.

        Raises:
            ConfigError: No port is free, or the address or certificate cannot be used; only if it opens now.
        """
        if self._settings is None:
            return
        with _lock:
            self._view = view
            if self._at_once or _announcers or self._settings in _servers:
                self._show()
                return
            self._timer = threading.Timer(PATIENCE_S, self._show_late)
            self._timer.daemon = True
            self._timer.name = "tidemark-web-start"
            self._timer.start()

    def close(self, archived: ArchivedJobView | None) -> None:
        """The job has ended: it is shown as ended while other jobs keep the server open. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        with _lock:
            view, self._view = self._view, None
            if view is None or self._settings is None or self._settings not in _servers:
                return
            server, jobs = _servers[self._settings]
        # Whoever started an operation is still to be told how it went; requests are answered meanwhile.
        server.settle(view.job_id)
        with _lock:
            if not jobs.end(view.job_id, archived):
                return
            _servers.pop(self._settings, None)
        server.close()

    def _show_late(self) -> None:
        try:
            with _lock:
                self._show()
        except ConfigError as exc:
            _log.warning("The job has no web page: %s", exc)

    def _show(self) -> None:
        if self._view is None or self._settings is None:
            return
        known = _servers.get(self._settings)
        if known is None:
            jobs = DriverJobs(self._configuration.to_dict())
            jobs.add(self._view)
            known = _servers[self._settings] = (WebServer(jobs, self._settings), jobs)
        known[1].add(self._view)
        self.address = known[0].address
        _log.info("The web page is at %s", self.address)
        for tell in _announcers:
            tell(self.address)
