"""A consumer is waited for beside sockets: one message is taken, in order, and only when it was asked for."""

from __future__ import annotations

import queue
import select
import threading
import time
from collections.abc import Iterator

import pytest

from tidemark.runtime.sources.kafka_watch import Watch

PATIENCE_S = 60.0


class Client:
    """Gives what was put into it."""

    def __init__(self) -> None:
        self.messages: queue.Queue[object] = queue.Queue()
        self.asked = threading.Event()

    def poll(self, timeout_s: float) -> object | None:
        self.asked.set()
        try:
            found = self.messages.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def watch(client: Client) -> Iterator[Watch]:
    made = Watch(client.poll)
    yield made
    made.close()


def is_readable(fd: int, timeout_s: float = 0.0) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])


def test_takes_one_message_and_says_so(client: Client, watch: Watch) -> None:
    fd = watch.begin()
    assert client.asked.wait(PATIENCE_S)
    assert not is_readable(fd)
    assert watch.take(0.0) == []
    assert watch.pending
    for message in ("first", "second"):
        client.messages.put(message)
    assert is_readable(fd, PATIENCE_S)
    assert watch.take(0.0) == ["first"]
    assert not watch.pending
    assert not is_readable(fd)
    assert client.messages.qsize() == 1  # The second is for whoever reads on.


def test_nothing_is_taken_unasked(client: Client, watch: Watch) -> None:
    client.messages.put("first")
    assert watch.take(0.0) == []
    assert watch.stop() == []
    assert not client.asked.is_set()
    assert client.messages.qsize() == 1


def test_asked_twice_it_waits_once(client: Client, watch: Watch) -> None:
    assert watch.begin() == watch.begin()
    client.messages.put("first")
    client.messages.put("second")
    assert watch.take(PATIENCE_S) == ["first"]
    assert watch.take(0.0) == []
    assert client.messages.qsize() == 1


def test_stopping_gives_what_has_come(client: Client, watch: Watch) -> None:
    watch.begin()
    assert watch.stop() == []
    assert not watch.pending
    client.messages.put("first")
    watch.begin()
    # Not when its descriptor is readable: that may still be of the time before.
    deadline = time.monotonic() + PATIENCE_S
    while client.messages.qsize() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert watch.stop() == ["first"]


def test_an_error_reaches_the_reader(client: Client, watch: Watch) -> None:
    watch.begin()
    client.messages.put(RuntimeError("closed"))
    with pytest.raises(RuntimeError, match="closed"):
        watch.take(PATIENCE_S)
    assert not watch.pending


def test_rings_without_a_message(watch: Watch) -> None:
    fd = watch.ring()
    assert is_readable(fd)
    assert watch.take(0.0) == []
    assert not is_readable(fd)


def test_closes_while_it_waits(client: Client) -> None:
    made = Watch(client.poll)
    made.begin()
    made.close()
    assert not [
        each for each in threading.enumerate() if each.name == "tidemark-kafka-watch" and each.is_alive()
    ]
