"""Options of queryable state reach the servers of a job: threads and ports."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from tidemark import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.jobs import find_job
from tidemark.queryablestate import QueryableStateClient

DEADLINE = 60.0
SERVER, PROXY = "Queryable State Server", "Queryable State Proxy Server"


class Forever(SourceFunction):
    """One element, then silence until it is cancelled."""

    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: Any) -> None:
        ctx.collect(1)
        while self.running:
            time.sleep(0.01)

    def cancel(self) -> None:
        self.running = False


class Last(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("last", Types.LONG())
        descriptor.set_queryable("last")
        self.last = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.last.update(value)


class Nowhere(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass


def counted(before: list[threading.Thread]) -> tuple[int, int]:
    """How many new threads servers and proxy have."""
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    return names.count(SERVER), names.count(PROXY)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
@pytest.mark.parametrize(
    ("settings", "server_threads", "proxy_threads"),
    [
        ({}, 2 + 2, 2 + 2),
        ({"server.network-threads": "1", "server.query-threads": "3"}, 1 + 3, 2 + 2),
        ({"proxy.network-threads": "3", "proxy.query-threads": "5"}, 2 + 2, 3 + 5),
    ],
)
def test_a_job_has_the_threads_and_ports_it_was_given(
    backend: Any, settings: dict[str, str], server_threads: int, proxy_threads: int
) -> None:
    ports = free_ports(3)
    taken = socket.create_server(("127.0.0.1", ports[2]))
    configuration = Configuration.from_dict(
        {
            "execution.target": "local",
            "parallelism.default": "2",
            "queryable-state.enable": "true",
            "queryable-state.server.ports": f"{ports[2]},{ports[0]},{ports[1]}",
            "queryable-state.proxy.ports": "0",
            **{f"queryable-state.{key}": value for key, value in settings.items()},
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_state_backend(backend())
    keyed = env.add_source(Forever(), type_info=Types.LONG()).key_by(lambda n: n, Types.LONG())
    keyed.process(Last()).add_sink(Nowhere())
    before = threading.enumerate()

    job = env.execute_async()
    try:
        record = find_job(job.get_job_id())
        token = bytes.fromhex(record.token)
        with QueryableStateClient("127.0.0.1", record.query_port, timeout=DEADLINE, token=token) as client:
            descriptor = ValueStateDescriptor("any", Types.LONG())
            until = time.monotonic() + DEADLINE
            found: list[Any] = [None]
            while found == [None] and time.monotonic() < until:
                found = client.get_kv_states(job.get_job_id(), "last", [1], Types.LONG(), descriptor).result()
            assert found[0].value() == 1

            # Two servers, one per slot; each endpoint has one more thread, which accepts.
            expected = (2 * (server_threads + 1), proxy_threads + 1)
            # Those that hand a new connection over are gone in a moment.
            while counted(before) != expected and time.monotonic() < until:
                time.sleep(0.01)
            assert counted(before) == expected
        for port in ports[:2]:
            socket.create_connection(("127.0.0.1", port), DEADLINE).close()
    finally:
        job.cancel().result(DEADLINE)
        taken.close()
