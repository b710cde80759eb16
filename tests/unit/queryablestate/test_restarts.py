from __future__ import annotations

import threading

import pytest
from tests.unit.queryablestate.cluster import JOB, TOKEN, Cluster, queryable

from tidemark.errors import IllegalStateError, UnknownKvStateError
from tidemark.queryablestate import QueryableStateClient
from tidemark.queryablestate.proxy import JobRoute
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.types.typeinfo import Types

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
KEYS = range(40)


@pytest.fixture
def cluster():
    with Cluster([queryable(ValueStateDescriptor("v", PAIR))]) as cluster:
        fill(cluster, 0)
        yield cluster


@pytest.fixture
def client(cluster):
    with QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN, timeout=60) as client:
        yield client


def fill(cluster, number):
    for key in KEYS:
        cluster.change(key, "v", lambda s: s.update((number, number)))


def ask(client, key=1):
    return client.get_kv_state(JOB, "v", key, Types.LONG(), ValueStateDescriptor("v", PAIR))


def test_a_query_during_a_restart_waits_and_is_answered_from_the_new_attempt(cluster, client):
    assert ask(client).get(60).value() == (0, 0)
    cluster.status = "RESTARTING"
    future = ask(client)
    for slot, server in zip(cluster.slots, list(cluster.servers), strict=True):
        server.close()
        cluster.servers[cluster.slots.index(slot)] = slot.server()
    cluster.deploy(1)
    fill(cluster, 7)
    assert not future.done()
    cluster.status = "RUNNING"
    assert future.get(60).value() == (7, 7)


def test_a_slot_of_another_attempt_is_not_believed(cluster, client):
    assert ask(client).get(60).value() == (0, 0)
    cluster.attempt = 1
    future = ask(client)
    with pytest.raises(TimeoutError):
        future.get(0.3)
    cluster.status = "RESTARTING"
    cluster.deploy(1)
    fill(cluster, 8)
    cluster.status = "RUNNING"
    assert future.get(60).value() == (8, 8)


def test_an_answer_read_before_a_restart_is_thrown_away(cluster, client):
    """The slot has read attempt 0 when the job restarts; the proxy must not pass it on."""
    genuine = cluster.route
    calls = iter(range(10**6))

    def route(job_id):
        if next(calls) == 1:
            cluster.deploy(1)
            for key in KEYS:
                cluster.change(key, "v", lambda s: s.update((9, 9)))
        return genuine(job_id)

    cluster.proxy._routes = route
    assert ask(client).get(60).value() == (9, 9)


def test_a_lost_slot_means_trying_again(cluster, client):
    cluster.servers[0].close()
    future = client.get_kv_states(JOB, "v", KEYS, Types.LONG(), ValueStateDescriptor("v", PAIR))
    with pytest.raises(TimeoutError):
        future.get(0.3)
    cluster.servers[0] = cluster.slots[0].server()
    assert {state.value() for state in future.get(60)} == {(0, 0)}


def test_a_slot_that_dies_without_notice_means_trying_again(cluster, client):
    assert ask(client).get(60).value() == (0, 0)
    dead = [server.address for server in cluster.servers]
    for server in cluster.servers:
        server.close()
    genuine = cluster.route
    cluster.proxy._routes = lambda _job_id: JobRoute(JOB, "RUNNING", 0, tuple(dead))
    future = ask(client)
    with pytest.raises(TimeoutError):
        future.get(0.3)
    cluster.servers = [slot.server() for slot in cluster.slots]
    cluster.proxy._routes = genuine
    assert future.get(60).value() == (0, 0)


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "CANCELED", "CANCELLING", "SUSPENDED"])
def test_a_job_that_is_over_is_an_error_at_once(cluster, client, status):
    cluster.status = status
    with pytest.raises(UnknownKvStateError, match=f"not running: it is {status}"):
        ask(client).get(60)


def test_a_deadline_that_passes_is_an_error_that_names_the_reason(cluster):
    cluster.status = "RESTARTING"
    with (
        QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN, timeout=0.2) as client,
        pytest.raises(UnknownKvStateError, match=r"deadline of 0\.2 s: Job .* is RESTARTING"),
    ):
        ask(client).get(60)


def test_a_slot_that_is_busy_beyond_the_deadline_is_an_error(cluster):
    with QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN, timeout=0.2) as client:
        ask(client).exception(60)
        with (
            cluster.slots[0].lock,
            cluster.slots[1].lock,
            pytest.raises(UnknownKvStateError, match=r"deadline of 0\.2 s"),
        ):
            ask(client).get(60)


def test_shutting_down_ends_queries_under_way(cluster):
    cluster.status = "RESTARTING"
    client = QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN, timeout=60)
    futures = [ask(client) for _ in range(30)]
    client.shutdown_and_wait()
    for future in futures:
        with pytest.raises(IllegalStateError, match="shut down"):
            future.get(60)


def test_readers_see_whole_values_of_living_attempts_through_restarts(cluster, client):
    """Eight readers, one writer, three restarts that roll back to the last "checkpoint"."""
    durable = [0]
    stop = threading.Event()
    problems: list[str] = []
    reads = [0] * 8

    def hammer(number):
        while not stop.is_set():
            floor = durable[0]
            try:
                if number % 2:
                    found = [ask(client, number).get(30)]
                else:
                    found = client.get_kv_states(
                        JOB, "v", KEYS, Types.LONG(), ValueStateDescriptor("v", PAIR)
                    ).get(30)
                values = [state.value() for state in found]
            except Exception as exc:
                problems.append(repr(exc))
                return
            reads[number] += 1
            for first, second in values:
                if first != second:
                    problems.append(f"torn: {first} {second}")
                if first < floor:
                    problems.append(f"{first} is older than the checkpoint {floor}")

    def add(count):
        for key in KEYS:
            cluster.change(key, "v", lambda s: s.update((s.value()[0] + count, s.value()[0] + count)))

    threads = [threading.Thread(target=hammer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    written = 0
    for attempt in (1, 2, 3):
        for _ in range(10):
            add(1)
            written += 1
        durable[0] = written
        add(5)
        cluster.status = "RESTARTING"
        for index, slot in enumerate(cluster.slots):
            cluster.servers[index].close()
            cluster.servers[index] = slot.server()
        cluster.deploy(attempt)
        fill(cluster, written)
        cluster.status = "RUNNING"
        before = list(reads)
        while not problems and any(now <= then for now, then in zip(reads, before, strict=True)):
            stop.wait(0.01)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert all(reads)
