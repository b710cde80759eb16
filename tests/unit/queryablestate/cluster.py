"""A job without a runtime: slots over heap backends, their servers, and a proxy, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tidemark.backends.heap.backend import HeapKeyedStateBackend
from tidemark.clock import ManualClock
from tidemark.queryablestate.proxy import JobRoute, QueryableStateClientProxy
from tidemark.queryablestate.server import QueryableStateServer
from tidemark.state.backend import BackendParameters
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.key_groups import (
    assign_to_key_group,
    compute_key_group_range_for_operator_index,
    compute_operator_index_for_key_group,
)
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

JOB = "0123456789abcdef0123456789abcdef"
TOKEN = b"the token of the job"
GROUPS = 128


class Slot:
    """A host that runs questions and changes one at a time."""

    def __init__(self) -> None:
        self.queryable: dict[str, Any] = {}
        self.attempt = -1
        self.lock = threading.RLock()

    def ask(self, question: Callable[[], Any]) -> Any:
        with self.lock:
            return question()

    def deploy(
        self, attempt: int, backend: HeapKeyedStateBackend, descriptors: Iterable[StateDescriptor]
    ) -> None:
        with self.lock:
            self.attempt = attempt
            self.backend = backend
            self.handles = {descriptor.name: backend.state(descriptor) for descriptor in descriptors}
            self.queryable = {
                descriptor.get_queryable_state_name(): (descriptor, backend, "operator")
                for descriptor in descriptors
                if descriptor.is_queryable()
            }

    def server(self, **options: Any) -> QueryableStateServer:
        return QueryableStateServer(self, [0], TOKEN, attempt=lambda: self.attempt, **options)


class Cluster:
    """One job of `parallelism` slots with the given states."""

    def __init__(
        self, descriptors: list[StateDescriptor], key_type: Any = None, parallelism: int = 2, **proxy: Any
    ) -> None:
        self.key = serializer_for(key_type or Types.LONG())
        self.descriptors = descriptors
        self.parallelism = parallelism
        self.slots = [Slot() for _ in range(parallelism)]
        self.servers = [slot.server() for slot in self.slots]
        self.status = "RUNNING"
        self.attempt = -1
        self.deploy(0)
        self.proxy = QueryableStateClientProxy([0], TOKEN, self.route, **proxy)

    def deploy(self, attempt: int) -> None:
        for index, slot in enumerate(self.slots):
            groups = compute_key_group_range_for_operator_index(GROUPS, self.parallelism, index)
            backend = HeapKeyedStateBackend(BackendParameters(self.key, GROUPS, groups, ManualClock()))
            slot.deploy(attempt, backend, self.descriptors)
        self.attempt = attempt

    def route(self, job_id: str) -> JobRoute | None:
        if job_id != JOB:
            return None
        addresses = tuple(None if server.closed else server.address for server in self.servers)
        return JobRoute(JOB, self.status, self.attempt, addresses)

    def change(self, key: Any, name: str, function: Callable[[Any], Any]) -> None:
        """Let `function` change the state of a key, as an operator would while processing a record."""
        data = self.key.key_bytes(key)
        group = assign_to_key_group(data, GROUPS)
        slot = self.slots[compute_operator_index_for_key_group(GROUPS, self.parallelism, group)]
        token = self.key.from_bytes(data) if self.key.identity_key else data
        with slot.lock:
            slot.backend.start_batch([token])
            slot.backend.context.token = token
            function(slot.handles[name])
            slot.backend.end_batch()

    def close(self) -> None:
        self.proxy.close()
        for server in self.servers:
            server.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def queryable(descriptor: Any, name: str | None = None) -> Any:
    descriptor.set_queryable(name or descriptor.name)
    return descriptor
