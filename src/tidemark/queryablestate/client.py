"""The client: asynchronous reads of a running job's state, without Spark and without a JVM.

A request is sent to the proxy in the job's driver again and again until it has a definite answer or the
deadline has passed. A job that restarts therefore costs time, not an error, and what is answered is always
state of the attempt that runs.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Self

import msgspec

from tidemark import wire
from tidemark.errors import (
    ConfigError,
    IllegalStateError,
    QueryError,
    UnknownKeyOrNamespaceException,
    UnknownKvStateError,
)
from tidemark.futures import CompletableFuture
from tidemark.jobs import TOKEN_VARIABLE, JobRecord, list_jobs, token_bytes
from tidemark.ports import check_port
from tidemark.queryablestate.codec import StateCodec
from tidemark.queryablestate.describe import StateDescription
from tidemark.queryablestate.protocol import (
    MAX_QUERY,
    QUERIES,
    Operation,
    Refused,
    Request,
    Signature,
    Status,
    decode_entries,
    decode_keys,
    decode_published,
    decode_scan,
)
from tidemark.queryablestate.results import result_state
from tidemark.queryablestate.stats import QueryStatistics
from tidemark.rpc import Pool, Unreachable
from tidemark.rpc.job_tls import tls_towards
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.primitives import State
from tidemark.state.serializers.registry import serializer_for
from tidemark.tls import client_side
from tidemark.types.time import Duration, Time, to_millis

__all__ = ["QueryableStateClient"]

_THREADS = 16
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
_GRACE_S = 2.0
"""How long a proxy that cannot be reached at all is tried; it does not come and go with restarts."""


class QueryableStateClient:
    """Reads queryable state. Thread-safe; one client serves any number of jobs and threads.

    Every method that returns a `CompletableFuture` returns at once. Futures fail with

    * `UnknownKvStateError`: no such job or name, the job is not running, there is no proxy, or the deadline
      passed while the job was restarting;
    * `UnknownKeyOrNamespaceException`: the key holds no value (`get_kv_state`);
    * `QueryError`: kind or types are not those of the job, or reading failed.

    Attributes:
        statistics: Figures of the queries, repeated requests included; off unless asked for.
    """

    def __init__(
        self,
        hostname: str,
        proxy_port: int,
        *,
        timeout: float | Time | Duration | timedelta = 10.0,
        token: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare a client; nothing is connected yet.

        Args:
            hostname: Host of the job's driver.
            proxy_port: Port of its proxy.
            timeout: Deadline of each query in seconds, or a `Time`, `Duration` or `timedelta`.
            token: The job's token. Without it, `$TIDEMARK_TOKEN` or what the registry of this
                machine's running jobs knows.
            tls: Client side of TLS. Without it, as `security.ssl.internal.*` of this process say, else with the files
                that a job of this machine uses.

        Raises:
            ConfigError: The port is not in 0..65535, the host is empty or the timeout is not positive.
        """
        if not isinstance(hostname, str) or not hostname:
            raise ConfigError(f"The host name must be a non-empty str, not {hostname!r}.")
        self._address = f"tcp:{hostname}:{check_port(proxy_port, 'proxy port')}"
        self._port = proxy_port
        self._timeout = _seconds(timeout)
        self._token = token_bytes(token) if isinstance(token, str) else token
        self._tls = tls
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pools: dict[bytes, Pool] = {}
        self._tokens: dict[str, bytes] = {}
        self._adapted: dict[tuple[str, str, Signature], StateCodec] = {}
        self.statistics = QueryStatistics()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidemark-query-client")

    def get_kv_state(
        self,
        job_id: str,
        queryable_state_name: str,
        key: Any,
        key_type_info: Any,
        state_descriptor: StateDescriptor,
    ) -> CompletableFuture[Any]:
        """Read the state of one key.

        Args:
            job_id: Id of the job.
            queryable_state_name: The name given to `set_queryable` or `as_queryable_state`.
            key: The key.
            key_type_info: Type of the job's keys; None if the job declared none.
            state_descriptor: Kind and type of the job's state; its own name does not matter.

        Returns:
            A future of a read-only state object that holds the value at the time of the query.
        """
        request = Request(str(job_id), queryable_state_name)

        def read(deadline: float) -> State:
            (found,) = self._look_up(request, [key], key_type_info, state_descriptor, deadline)
            if found is None:
                raise UnknownKeyOrNamespaceException(
                    f"State '{queryable_state_name}' of job {job_id} holds no value for key {key!r}.",
                    job_id=request.job_id,
                    name=request.name,
                )
            return found

        return self._submit(read, lambda _: 1)

    def get_kv_states(
        self,
        job_id: str,
        queryable_state_name: str,
        keys: Sequence[Any],
        key_type_info: Any,
        state_descriptor: StateDescriptor,
    ) -> CompletableFuture[list[Any]]:
        """Read the states of many keys in one message; arguments as in `get_kv_state`.

        Returns:
            A future of a list in the order of `keys`: a state object, or None for a key without a value.
        """
        request, wanted = Request(str(job_id), queryable_state_name), list(keys)
        return self._submit(
            lambda deadline: self._look_up(request, wanted, key_type_info, state_descriptor, deadline)
        )

    def scan(
        self,
        job_id: str,
        queryable_state_name: str,
        key_type_info: Any,
        state_descriptor: StateDescriptor,
        limit: int = 100,
    ) -> CompletableFuture[list[tuple[Any, Any]]]:
        """Read at most `limit` keys of a state, whichever come first.

        Returns:
            A future of pairs of key and state object.
        """
        request = Request(str(job_id), queryable_state_name, limit=limit)

        def read(deadline: float) -> list[tuple[Any, Any]]:
            codec = _codec(key_type_info, state_descriptor)
            codec, body = self._typed(Operation.SCAN, request, [], codec, deadline)
            return [
                (codec.key.from_bytes(key), result_state(state_descriptor, codec.decode(entry)))
                for key, entry in decode_scan(body)
            ]

        return self._submit(read)

    def keys(
        self,
        job_id: str,
        queryable_state_name: str,
        key_type_info: Any,
        state_descriptor: StateDescriptor,
        key_groups: tuple[int, int],
    ) -> CompletableFuture[list[Any]]:
        """The keys that hold a value, of a range of key groups (both ends included), in no order.

        Returns:
            A future of a list of keys. What they hold may have changed when it is read.
        """
        request = Request(str(job_id), queryable_state_name, groups=key_groups)

        def read(deadline: float) -> list[Any]:
            codec = _codec(key_type_info, state_descriptor)
            codec, body = self._typed(Operation.KEYS, request, [], codec, deadline)
            return list(map(codec.key.from_bytes, decode_keys(body)))

        return self._submit(read)

    def list_states(self, job_id: str) -> CompletableFuture[list[StateDescription]]:
        """What a job publishes: names, kinds and types, ordered by name."""

        def read(deadline: float) -> list[StateDescription]:
            answer = self._call(Operation.LIST, Request(str(job_id)), deadline)
            return [StateDescription.of(state) for state in decode_published(answer)]

        return self._submit(read, lambda _: 0)

    def shutdown(self) -> None:
        """Release threads and connections; queries under way and later ones fail. Idempotent."""
        with self._lock:
            self._closed.set()
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()
        self._threads.shutdown(wait=False)

    def shutdown_and_wait(self) -> None:
        """The same, and return when everything is released."""
        self.shutdown()
        self._threads.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown_and_wait()

    def _submit(
        self, read: Callable[[float], Any], count: Callable[[Any], int] = len
    ) -> CompletableFuture[Any]:
        """Read in another thread; `count` says how many keys a result is of."""
        deadline = time.monotonic() + self._timeout

        def counted() -> Any:
            started = time.perf_counter()
            try:
                found = read(deadline)
            except BaseException:
                self.statistics.record(time.perf_counter() - started, 0, failed=True)
                raise
            self.statistics.record(time.perf_counter() - started, count(found))
            return found

        try:
            return CompletableFuture.wrap(self._threads.submit(counted))
        except RuntimeError:
            return CompletableFuture.failed(_shut_down())

    def _look_up(
        self, request: Request, keys: list[Any], key_type: Any, descriptor: StateDescriptor, deadline: float
    ) -> list[State | None]:
        codec = _codec(key_type, descriptor)
        codec, body = self._typed(Operation.LOOKUP, request, keys, codec, deadline)
        decode = codec.decode
        return [
            None if entry is None else result_state(descriptor, decode(entry))
            for entry in decode_entries(body)
        ]

    def _typed(
        self, operation: Operation, request: Request, keys: list[Any], codec: StateCodec, deadline: float
    ) -> tuple[StateCodec, bytearray]:
        """Ask with the client's types, and once more if the job merely declared none for keys that are looked up."""
        original, asked = codec, codec.signature()
        known = (request.job_id, request.name, asked)
        # Keys of a lookup are only written. Those of a scan are read, with no other type than the client's own.
        writes_keys = operation is Operation.LOOKUP
        if writes_keys:
            codec = self._adapted.get(known, codec)
        while True:
            key_bytes = list(map(codec.key.key_bytes, keys))
            request = msgspec.structs.replace(request, signature=codec.signature(), keys=key_bytes)
            try:
                return codec, self._call(operation, request, deadline)
            except Refused as exc:
                job = exc.signature
                assert job is not None
                adapted = original.with_keys_of(job) if writes_keys else None
                if adapted is None:
                    raise QueryError(
                        _difference(request.name, asked, job), job_id=request.job_id, name=request.name
                    ) from None
                self._adapted[known] = codec = adapted

    def _call(self, operation: Operation, request: Request, deadline: float) -> bytearray:
        """Repeat a request until it has an answer that is not "try again".

        Raises:
            Refused: The types are not the job's; its `signature` holds those.
            QueryError: Reading failed, or nobody answers.
        """
        job_id, name = request.job_id, request.name
        pause, reason = _FIRST_PAUSE_S, "there was no time to ask"
        waited = f"within the deadline of {self._timeout:g} s"
        grace = min(time.monotonic() + _GRACE_S, deadline)
        while (left := deadline - time.monotonic()) > 0:
            if self._closed.is_set():
                raise _shut_down()
            timed = msgspec.structs.replace(request, timeout_ms=int(left * 1000) + 1)
            try:
                answer: bytearray = self._pool(job_id).call(self._address, operation, timed, left).result()
                return answer
            except Refused as exc:
                if exc.signature is not None:
                    raise
                if exc.status is not Status.RETRY:
                    raise _error(exc, job_id, name) from None
                reason = str(exc)
            except Unreachable as exc:
                reason = f"{exc} (no proxy there, or the token is not the job's)"
                self._tokens.pop(job_id, None)
                if deadline > time.monotonic() > grace:
                    waited = f"after {time.monotonic() - deadline + self._timeout:.0f} s of trying"
                    break
            except wire.FrameTooLargeError as exc:
                raise QueryError(f"{exc} Ask for fewer keys at a time.", job_id=job_id, name=name) from exc
            except (wire.WireClosed, TimeoutError) as exc:
                reason = str(exc) or "no answer came"
            self._closed.wait(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        if self._closed.is_set():
            raise _shut_down()
        raise UnknownKvStateError(
            f"No answer about '{name}' of job {job_id} from {self._address.removeprefix('tcp:')} {waited}: {reason}",
            job_id=job_id,
            name=name,
        )

    def _pool(self, job_id: str) -> Pool:
        token = self._token or self._tokens.get(job_id)
        if token is None:
            token = self._tokens[job_id] = self._find_token(job_id)
        with self._lock:
            pool = self._pools.get(token)
            if pool is None:
                pool = self._pools[token] = Pool(token, QUERIES, self._tls_of(job_id), MAX_QUERY)
                if self._closed.is_set():
                    pool.close()
            return pool

    def _find_token(self, job_id: str) -> bytes:
        text = os.environ.get(TOKEN_VARIABLE)
        if text:
            return token_bytes(text)
        record = self._find_record(job_id)
        if record is not None:
            return token_bytes(record.token)
        raise Unreachable(
            f"no token is known for job {job_id}: it does not run on this machine; give one with token= or "
            f"${TOKEN_VARIABLE}"
        )

    def _find_record(self, job_id: str) -> JobRecord | None:
        # A job of that port may be another one, which is then the one to say that it does not know the job.
        for record in sorted(list_jobs(), key=lambda record: record.job_id != job_id):
            if record.job_id == job_id or record.query_port == self._port:
                return record
        return None

    def _tls_of(self, job_id: str) -> ssl.SSLContext | None:
        if self._tls is not None:
            return self._tls
        try:
            record = self._find_record(job_id)
        except (ConfigError, OSError):
            # The token came from elsewhere, and the registry need not be readable.
            record = None
        return client_side(tls_towards(record))


def _codec(key_type: Any, descriptor: StateDescriptor) -> StateCodec:
    return StateCodec.of(descriptor, None if key_type is None else serializer_for(key_type))


def _seconds(timeout: Any) -> float:
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        seconds = float(timeout)
    else:
        seconds = to_millis(timeout, "timeout") / 1000
    if not seconds > 0:
        raise ConfigError(f"The timeout must be positive, not {timeout!r}.")
    return seconds


def _error(refused: Refused, job_id: str, name: str) -> QueryError:
    if refused.status is Status.NOT_SERVED:
        return UnknownKvStateError(str(refused), job_id=job_id, name=name)
    return QueryError(f"Reading '{name}' of job {job_id} failed: {refused}", job_id=job_id, name=name)


def _difference(name: str, asked: Signature, job: Signature) -> str:
    pairs = [
        ("the state is of kind", asked.kind, job.kind),
        ("keys are", asked.key, job.key),
        ("map keys are", asked.map_key, job.map_key),
        ("values are", asked.value, job.value),
    ]
    differences = [
        f"{what} {theirs} but was asked for as {ours}" for what, ours, theirs in pairs if ours != theirs
    ]
    return (
        f"'{name}' does not have the types the query names: in the job {'; '.join(differences)}. "
        "Use the key type and the descriptor of the job; for what it declared no type, None and "
        "Types.PICKLED_BYTE_ARRAY(), which unpickles what the job sends."
    )


def _shut_down() -> IllegalStateError:
    return IllegalStateError("This QueryableStateClient was shut down. Create a new one.")
