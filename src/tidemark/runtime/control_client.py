"""Talking to a running job: the requests of `runtime.control`, from any process, without Spark.

A request has its arguments by name as payload. All of it is MessagePack: neither side unpickles what the other sent.
"""

from __future__ import annotations

import os
from typing import Any, Self

from tidemark import wire
from tidemark.errors import ConfigError, JobNotFoundError, StateNotServedError, TidemarkError
from tidemark.jobs import TOKEN_VARIABLE, JobRecord, find_job, token_bytes
from tidemark.rpc import MSGPACK, Client
from tidemark.rpc.job_tls import tls_towards
from tidemark.tls import TlsFiles, client_side

__all__ = ["MAX_MESSAGE", "ControlClient", "JobUnreachableError"]

_CONNECT_S = 10.0
MAX_MESSAGE = 1 << 24
"""Bytes of the largest request to a job and of its largest answer, which describe a job and carry none of its data."""


class JobUnreachableError(TidemarkError):
    """Nobody answers at the job's address, or the token is not the job's; check both."""

    code = "JOB_UNREACHABLE"


class ControlClient:
    """A connection to one job; a context manager."""

    def __init__(
        self, address: str, token: bytes, timeout: float | None = None, record: JobRecord | None = None
    ) -> None:
        """Connect.

        Args:
            address: `tcp:host:port` or `unix:path`.
            token: The job's token.
            timeout: Seconds an answer may take; None waits as long as it takes.
            record: What the registry knows of the job, if it is of this machine.

        Raises:
            JobUnreachableError: Nobody is there, or the token is refused.
            ConfigError: The files of TLS cannot be used.
        """
        self.address = address
        self.token = token
        self._timeout = timeout
        self._record = record
        context = client_side(self.tls() if address.startswith("tcp:") else None)
        try:
            connection = wire.connect(
                address, token, min(_CONNECT_S, timeout or _CONNECT_S), context, MAX_MESSAGE
            )
        except (wire.WireClosed, wire.AuthenticationError, OSError) as exc:
            raise JobUnreachableError(
                f"The job at {address.partition(':')[2]} cannot be reached or refuses the token: {exc}"
            ) from exc
        self._client = Client(connection, MSGPACK, name="job-control")

    @classmethod
    def of_record(cls, record: JobRecord, timeout: float | None = None) -> ControlClient:
        """Connect to a job of this machine.

        Raises:
            JobUnreachableError: It does not answer.
        """
        if not record.control_address:
            raise JobUnreachableError(f"Job {record.job_id} has no control address.")
        return cls(record.control_address, token_bytes(record.token), timeout, record)

    @classmethod
    def find(cls, job: str, remote: str | None = None, timeout: float | None = None) -> ControlClient:
        """Connect to a job by id, or by a unique beginning of it.

        Args:
            job: Its id.
            remote: `HOST:PORT` of a job on another machine, whose token is in `$TIDEMARK_TOKEN`; None: a
                job of this machine.
            timeout: As for the constructor.

        Raises:
            JobNotFoundError: No such job here, or another one at that address.
            JobUnreachableError: It does not answer.
            ConfigError: The address is malformed or the token is missing.
        """
        if remote is None:
            return cls.of_record(find_job(job), timeout)
        client = cls.at(remote, timeout)
        try:
            found = str(client.request("summary")["job_id"])
            if not job or not found.startswith(job):
                raise JobNotFoundError(f"At {remote} runs job {found}, not '{job}'.", job_id=job)
        except BaseException:
            client.close()
            raise
        return client

    @classmethod
    def at(cls, remote: str, timeout: float | None = None) -> ControlClient:
        """Connect to whichever job answers at `HOST:PORT`, with the token in `$TIDEMARK_TOKEN`.

        Raises:
            JobUnreachableError: It does not answer.
            ConfigError: The address is malformed or the token is missing.
        """
        host, _, port = remote.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"'{remote}' is not an address. Write HOST:PORT.")
        text = os.environ.get(TOKEN_VARIABLE)
        if not text:
            raise ConfigError(f"A job on another machine needs its token in ${TOKEN_VARIABLE}.")
        return cls(f"tcp:{host}:{port}", token_bytes(text), timeout)

    @property
    def host(self) -> str:
        """Host of the job's driver."""
        scheme, _, rest = self.address.partition(":")
        return "127.0.0.1" if scheme == "unix" else rest.rpartition(":")[0]

    def tls(self) -> TlsFiles | None:
        """What to encrypt connections to the TCP ports of the job with, those of queries among them.

        Raises:
            ConfigError: The configuration of this process cannot be.
        """
        return tls_towards(self._record)

    def query_facts(self, name: str) -> dict[str, Any]:
        """What `info` says of a job that serves queries, to ask for the state `name` at its `query_port`.

        Raises:
            StateNotServedError: The job serves no queries.
        """
        facts: dict[str, Any] = self.request("info")
        if facts["query_port"] is None:
            raise StateNotServedError.by_job(facts["job_id"], name)
        return facts

    def request(self, name: str, **arguments: Any) -> Any:
        """Ask and wait for the answer.

        Raises:
            TidemarkError: What the job answered with, by its own class.
            JobUnreachableError: The job went away, or took too long.
        """
        try:
            return self._client.request(name, arguments).result(self._timeout)
        except (wire.WireClosed, TimeoutError) as exc:
            why = str(exc) or f"no answer within {self._timeout:g} s"
            raise JobUnreachableError(f"The job went away before it answered: {why}") from exc

    def close(self) -> None:
        """Drop the connection."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
