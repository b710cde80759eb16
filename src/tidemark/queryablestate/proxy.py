"""The proxy of the driver: clients talk to it, it knows which slot owns a key.

It finds out what is published by asking the slots themselves, once per attempt. An answer leaves the proxy
only if every slot read the attempt the proxy asked for, and if that attempt still runs once all have
answered. Otherwise the client is told to come again.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tidemark.queryablestate.endpoint import QueryEndpoint
from tidemark.queryablestate.protocol import (
    MAX_QUERY,
    QUERIES,
    Operation,
    Published,
    Refused,
    Request,
    Status,
    decode_parts,
    decode_published,
    encode,
)
from tidemark.rpc import DEFAULT_THREADS, Call, Incoming, Pool, ServerThreads
from tidemark.state.key_groups import stable_hash
from tidemark.wire import WireClosed

__all__ = ["JobRoute", "QueryableStateClientProxy"]

_log = logging.getLogger(__name__)

_RUNNING = "RUNNING"
_COMING = frozenset({"CREATED", "FAILING", "RESTARTING", "RECONCILING"})
"""Statuses after which the job may run (again)."""
_NIL = msgspec.Raw(encode(None))


@dataclass(frozen=True, slots=True)
class JobRoute:
    """What the driver knows about a job that matters to queries, at one moment."""

    job_id: str
    status: str
    """Name of the `JobStatus`."""
    attempt: int
    slots: tuple[str | None, ...]
    """Address of each slot's queryable-state server (`QueryableStateServer.address`); None: it is gone."""


@dataclass(frozen=True, slots=True)
class _Location:
    """Where a state is, in one attempt."""

    attempt: int
    slots: tuple[str, ...]
    max_parallelism: int
    owners: tuple[str | None, ...]
    """Address per key group; None: no slot has registered the state for that group yet."""
    complete: bool


class QueryableStateClientProxy(QueryEndpoint):
    """Forwards queries to the slots and merges their answers."""

    title = "Queryable State Proxy Server"
    option = "queryable-state.proxy.ports"

    def __init__(
        self,
        ports: Sequence[int],
        token: bytes,
        routes: Callable[[str], JobRoute | None],
        bind: str = "127.0.0.1",
        *,
        threads: ServerThreads = DEFAULT_THREADS,
        tls: ssl.SSLContext | None = None,
        slot_tls: ssl.SSLContext | None = None,
    ) -> None:
        """Listen on the first free port.

        Args:
            ports: Ports to try in this order; 0 takes any.
            token: The job's token, for clients and for the slots.
            routes: Job id -> route as of now, None for an unknown job; called twice per request, so it
                must be quick, from any thread.
            bind: Interface to listen on.
            threads: How many receive requests, how many forward them.
            tls: Server side of TLS, towards clients.
            slot_tls: Client side of TLS, towards slots.

        Raises:
            ConfigError: None of the ports is free.
        """
        self._routes = routes
        self._pool = Pool(token, QUERIES, slot_tls, MAX_QUERY)
        self._locations: dict[tuple[str, str], _Location] = {}
        super().__init__(ports, token, bind, threads=threads, tls=tls)
        if self.port not in ports and ports[0]:
            _log.warning(
                "Port %d for queries of state is taken by another process, which may be a job or anything else. This "
                "job answers on port %d instead: connect to that one (`tidemark info` shows it), or choose "
                "ports with %s.",
                ports[0],
                self.port,
                self.option,
            )

    def close(self) -> None:
        """Stop listening and drop every connection, to clients and to slots."""
        super().close()
        self._pool.close()

    def _answer(self, operation: Operation, request: Request, query: Incoming) -> int:
        route, slots = self._route(request)
        request = msgspec.structs.replace(request, attempt=route.attempt)
        merged: Sequence[msgspec.Raw | Published]
        if operation is Operation.LOOKUP:
            merged = self._look_up(request, slots)
        elif operation is Operation.SCAN:
            merged = self._scan(request, slots)
        elif operation is Operation.KEYS:
            merged = self._keys(request, slots)
        else:
            merged = _distinct(self._published(request, slots))
        self._check_still_running(request)
        query.reply(merged)
        return len(request.keys)

    def _route(self, request: Request) -> tuple[JobRoute, tuple[str, ...]]:
        route = self._routes(request.job_id)
        if route is None:
            raise Refused(Status.NOT_SERVED, f"No job '{request.job_id}' runs here.")
        if route.status in _COMING:
            raise Refused(Status.RETRY, f"Job {request.job_id} is {route.status}.")
        if route.status != _RUNNING:
            raise Refused(Status.NOT_SERVED, f"Job {request.job_id} is not running: it is {route.status}.")
        slots = tuple([slot for slot in route.slots if slot is not None])
        if not slots or len(slots) < len(route.slots):
            raise Refused(Status.RETRY, f"Job {request.job_id} has lost a slot and will restart.")
        return route, slots

    def _check_still_running(self, request: Request) -> None:
        route, _slots = self._route(request)
        if route.attempt != request.attempt:
            raise Refused(Status.RETRY, f"Job {request.job_id} was restarted while the state was read.")

    def _look_up(self, request: Request, slots: tuple[str, ...]) -> list[msgspec.Raw]:
        location, keys = self._locate(request, slots), request.keys
        groups, owners = location.max_parallelism, location.owners
        parts: dict[str, list[int]] = {}
        for position, key in enumerate(keys):
            owner = owners[stable_hash(key) % groups]
            if owner is not None:
                parts.setdefault(owner, []).append(position)
        asked = {address: [keys[i] for i in positions] for address, positions in parts.items()}
        answers = self._exchange(Operation.LOOKUP, request, asked)
        merged = [_NIL] * len(keys)
        for positions, answer in zip(parts.values(), answers, strict=True):
            for position, entry in zip(positions, decode_parts(answer), strict=True):
                merged[position] = entry
        return merged

    def _scan(self, request: Request, slots: tuple[str, ...]) -> list[msgspec.Raw]:
        location = self._locate(request, slots)
        publishers = sorted({owner for owner in location.owners if owner is not None})
        answers = self._exchange(Operation.SCAN, request, dict.fromkeys(publishers, ()))
        found = [part for answer in answers for part in decode_parts(answer)]
        return found[: max(request.limit, 0)]

    def _keys(self, request: Request, slots: tuple[str, ...]) -> list[msgspec.Raw]:
        first, last = request.groups
        owners = self._locate(request, slots).owners[max(first, 0) : last + 1]
        asked = sorted({owner for owner in owners if owner is not None})
        answers = self._exchange(Operation.KEYS, request, dict.fromkeys(asked, ()))
        return [part for answer in answers for part in decode_parts(answer)]

    def _locate(self, request: Request, slots: tuple[str, ...]) -> _Location:
        at = (request.job_id, request.name)
        known = self._locations.get(at)
        # A slot that had not registered the state when we asked may have done so since.
        if known is not None and known.complete and (known.attempt, known.slots) == (request.attempt, slots):
            return known
        located = _locate(request, slots, self._published(request, slots))
        self._locations[at] = located
        return located

    def _published(self, request: Request, slots: tuple[str, ...]) -> list[tuple[str, list[Published]]]:
        answers = self._exchange(Operation.LIST, request, dict.fromkeys(slots, ()))
        return [(slot, decode_published(answer)) for slot, answer in zip(slots, answers, strict=True)]

    def _exchange(
        self, operation: Operation, request: Request, keys: Mapping[str, Sequence[bytes]]
    ) -> list[bytearray]:
        """Ask several slots at the same time, each for its keys; the answers come in the order of `keys`."""
        timeout = max(request.timeout_ms / 1000, 0.001)
        calls: list[Call] = []
        answers: list[bytearray] = []
        try:
            for address, part in keys.items():
                asked = msgspec.structs.replace(request, keys=list(part))
                calls.append(self._pool.call(address, operation, asked, timeout))
            while calls:
                answers.append(calls.pop(0).result())
        except WireClosed as exc:
            for address in keys:
                self._pool.forget(address)
            raise Refused(Status.RETRY, f"A slot is gone: {exc}") from exc
        except TimeoutError as exc:
            raise Refused(Status.RETRY, f"A slot did not answer within {timeout:.1f} s.") from exc
        finally:
            for call in calls:
                call.abandon()
        return answers


def _locate(
    request: Request, slots: tuple[str, ...], published: list[tuple[str, list[Published]]]
) -> _Location:
    groups = 0
    ranges: list[tuple[int, int, str]] = []
    for slot, states in published:
        for state in states:
            if state.name == request.name:
                groups = state.max_parallelism
                ranges.append((state.first_group, state.last_group, slot))
    if not ranges:
        names = ", ".join(sorted({state.name for _slot, states in published for state in states})) or "none"
        raise Refused(
            Status.NOT_SERVED,
            f"Job {request.job_id} publishes no state as '{request.name}' (published: {names}). The name is "
            "the one given to set_queryable or as_queryable_state.",
        )
    owners: list[str | None] = [None] * groups
    for first, last, slot in ranges:
        owners[first : last + 1] = [slot] * (last + 1 - first)
    return _Location(request.attempt, slots, groups, tuple(owners), None not in owners)


def _distinct(published: list[tuple[str, list[Published]]]) -> list[Published]:
    states = {state.name: state for _slot, states in published for state in states}
    return [states[name] for name in sorted(states)]
