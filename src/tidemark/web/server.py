"""A web server in a thread of its own, on the first free port."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import socket
import threading
from dataclasses import dataclass

from tidemark.errors import ConfigError
from tidemark.tls import TlsFiles
from tidemark.web.security import Guard
from tidemark.web.triggers import Triggers
from tidemark.web.view import Jobs

__all__ = ["ServerSettings", "WebServer"]

_log = logging.getLogger(__name__)

_PORTS_TRIED = 100
_BACKLOG = 128
_SAMPLE_S = 1.0
_LOOK_EVERY = 10
"""Seconds after which slots are asked though nobody looks."""
_STOP_S = 10.0
_TELL_S = 5.0
"""How long a server outlives its last job if an operation of that job was started here and not asked for since."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where and how a server listens; jobs of one process with the same settings share a server."""

    bind: str = "127.0.0.1"
    port: int = 8081
    """The first to be tried; 0 takes any."""
    ports: tuple[int, ...] = ()
    """Those to be tried instead, and no others."""
    token: str | None = None
    metric_prefix: str = "flink"
    tls: TlsFiles | None = None
    """With it, the server speaks HTTPS only."""
    mutual: bool = False
    """Whether only those are let in who have a certificate, too."""

    def listen(self) -> socket.socket:
        """A listening socket at the first free port.

        Raises:
            ConfigError: The address is not one of this machine, or no port is free.
        """
        family = socket.AF_INET6 if ":" in self.bind else socket.AF_INET
        ports = self.ports or (
            [0] if self.port == 0 else range(self.port, min(self.port + _PORTS_TRIED, 65536))
        )
        for port in ports:
            # By name: asyncio switches Nagle's algorithm off only where it is told that it is TCP, and an answer in
            # two pieces would wait 40 ms for the acknowledgement of the first one.
            listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((self.bind, port))
                listener.listen(_BACKLOG)
            except OSError as exc:
                listener.close()
                if exc.errno in (errno.EADDRINUSE, errno.EACCES):
                    continue
                raise ConfigError(
                    f"rest.bind-address {self.bind} cannot be used: {exc}.", key="rest.bind-address"
                ) from exc
            return listener
        if self.ports:
            raise ConfigError(
                "None of the ports of rest.bind-port is free for the web server. Give a wider range.",
                key="rest.bind-port",
            )
        raise ConfigError(f"No port from {self.port} on is free for the web server.", key="rest.port")


class WebServer:
    """Serves some jobs from construction to `close`."""

    def __init__(self, jobs: Jobs, settings: ServerSettings) -> None:
        """Listen and serve.

        Raises:
            ConfigError: The address cannot be used, needs a token, or the files of TLS cannot be used.
        """
        # Here and not above: importing these takes a while, and most jobs that end soon never need them.
        import uvicorn

        from tidemark.web.application import WebSettings, create_application
        from tidemark.web.connections import LimitedProtocol
        from tidemark.web.tls_gate import TlsGate

        guard = Guard(settings.bind, settings.token)
        self._jobs = jobs
        self._settings = settings
        self._closing = threading.Event()
        self._triggers = Triggers()
        application = create_application(
            jobs, WebSettings(guard, settings.metric_prefix, self._closing.is_set), self._triggers
        )
        tls = settings.tls
        protocol = LimitedProtocol if tls is None else TlsGate(tls.server(mutual=settings.mutual))
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            # Any callable will do that makes protocols from the same arguments.
            http=protocol,  # type: ignore[arg-type]
            # So many are accepted at once, before the first of them is counted.
            backlog=_BACKLOG,
            # What strangers send is not worth a line on the job's console.
            log_level="error",
            timeout_graceful_shutdown=2,
            server_header=False,
            # Whose a connection is says its address, so that must be the kernel's word, not the caller's.
            proxy_headers=False,
        )
        config.load()
        self._listener = settings.listen()
        self.port = int(self._listener.getsockname()[1])
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="tidemark-web", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        scheme = "http" if self._settings.tls is None else "https"
        bind = self._settings.bind
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(bind, bind)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def is_serving(self) -> bool:
        """Whether it still answers."""
        return self._thread.is_alive()

    def settle(self, job_id: str) -> None:
        """Wait a little until those who started operations of a job have heard how they went."""
        self._triggers.settle(job_id, _TELL_S)

    def close(self) -> None:
        """Answer what is under way, then free the port. Idempotent."""
        self._closing.set()
        self._server.should_exit = True
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_S)
        self._listener.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            _log.warning("The web server ended", exc_info=True)

    async def _serve(self) -> None:
        sampling = asyncio.create_task(self._sample())
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling

    async def _sample(self) -> None:
        from starlette.concurrency import run_in_threadpool

        for number in itertools.count():
            try:
                self._jobs.sample()
                if number % _LOOK_EVERY == 1:
                    await run_in_threadpool(self._jobs.look)
            except Exception:
                _log.debug("A sample of the jobs failed", exc_info=True)
            await asyncio.sleep(_SAMPLE_S)
