"""Which doors a job on a local master opens: unix sockets, and TCP ports only where queries are asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from tests.integration.conftest import slot_processes
from tests.integration.test_jobs_on_spark import Discard, wait_for
from tests.integration.test_queryable_on_spark import QueryableCount
from tests.integration.test_recovery_on_spark import SlowNumbers

from tidemark import Types
from tidemark.cli.main import cli
from tidemark.jobs import find_job

pytestmark = pytest.mark.spark

Doors = Callable[[], list[tuple[int, str, int]]]


def listening(pid: int) -> set[tuple[int, str, int]]:
    """Process, address and port of every TCP socket a process listens on."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {(pid, c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


@pytest.fixture
def start(make_env: Callable[..., Any]) -> Iterator[Callable[[str], tuple[str, Doors]]]:
    """Starts a job with a stateful operator in two slots; gives its id, and the ports it has opened."""
    jobs = []

    def start(queryable: str) -> tuple[str, Doors]:
        # What Spark's own Python side listens on, and slots that another test is still ending.
        before, others = listening(os.getpid()), set(slot_processes())
        env = make_env(2, **{"queryable-state__enable": queryable, "rest__enabled": "false"})
        numbers = env.add_source(SlowNumbers(10_000_000)).key_by(lambda n: n % 10, Types.LONG())
        numbers.process(QueryableCount(), Types.LONG()).add_sink(Discard())
        job = env.execute_async("doors")
        jobs.append(job)
        wait_for(lambda: (job.get_progress().get("records") or 0) > 0)

        def doors() -> list[tuple[int, str, int]]:
            slots = set(slot_processes()) - others
            assert len(slots) == 2
            found = set().union(*map(listening, [os.getpid(), *slots]))
            return sorted(found - before)

        return job.get_job_id(), doors

    yield start
    for job in jobs:
        if not job.get_job_status().result(60).is_terminal_state():
            job.cancel().result(60)


def tide(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments))


def test_a_local_job_opens_no_port_and_is_seen_and_cancelled_through_its_unix_socket(start):
    job_id, doors = start("false")

    assert doors() == []
    listed, info = tide("list"), tide("info", job_id, "--json")
    cancelled = tide("cancel", job_id)

    assert f"{job_id} : doors (RUNNING)" in listed.stdout
    address = json.loads(info.stdout)["control_address"]
    assert address.startswith("unix:")
    assert cancelled.stdout == f"Job {job_id} was cancelled.\n"
    wait_for(lambda: not os.path.exists(os.path.dirname(address.removeprefix("unix:"))))


def test_only_queries_open_ports_and_on_the_loopback_interface(start):
    job_id, doors = start("true")

    opened = doors()

    assert {host for _pid, host, _port in opened} == {"127.0.0.1"}
    proxies = [port for pid, _host, port in opened if pid == os.getpid()]
    assert proxies == [find_job(job_id).query_port]
    assert len({pid for pid, _host, _port in opened}) == len(opened) == 3, "the proxy and a server per slot"
    assert tide("query", job_id, "counts", "3").exit_code == 0
