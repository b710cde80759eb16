"""A server with a fixed number of threads: all connections are served, by no more threads than asked for."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tidemark import wire
from tidemark.rpc import Limits, PooledServer, ServerThreads

TOKEN = b"t" * 32
DEADLINE = 60.0
NAME = "pooled-under-test"
_numbers = itertools.count()


class Desk:
    """Answers when it is told to; counts who is being answered."""

    def __init__(self) -> None:
        self.name = f"{NAME}-{next(_numbers)}"
        self.changed = threading.Condition()
        self.inside = self.most = 0
        self.opened = False

    def respond(self, connection: wire.Connection, header: Any, body: bytearray) -> None:
        if header == "raise":
            raise ValueError("as the client wished")
        with self.changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.changed.notify_all()
            assert header != "wait" or self.changed.wait_for(lambda: self.opened, DEADLINE)
            self.inside -= 1
            self.changed.notify_all()
        connection.send(header, body)

    def wait_inside(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.inside == count, DEADLINE)

    def open(self) -> None:
        with self.changed:
            self.opened = True
            self.changed.notify_all()


@pytest.fixture
def desk() -> Desk:
    return Desk()


Serve = Callable[[int, int], Callable[[], wire.Connection]]


@pytest.fixture
def serve(desk: Desk) -> Iterator[Serve]:
    """Start a server with so many threads; what it gives connects to it."""
    with ExitStack() as stack:

        def start(network: int, query: int) -> Callable[[], wire.Connection]:
            listener, address = wire.listen("tcp:127.0.0.1:0")
            server = PooledServer(
                [listener],
                TOKEN,
                desk.respond,
                name=desk.name,
                threads=ServerThreads(network, query),
                limits=Limits(body=1 << 25),
            )
            stack.callback(server.close)

            def connect() -> wire.Connection:
                connection = wire.connect(address, TOKEN, DEADLINE)
                connection.set_timeout(DEADLINE)
                stack.callback(connection.close)
                return connection

            return connect

        yield start
        desk.open()


@pytest.mark.parametrize(("network", "query"), [(1, 1), (2, 3)])
def test_many_connections_are_served_by_as_many_threads_as_asked_for(
    serve: Serve, desk: Desk, network: int, query: int
) -> None:
    connect = serve(network, query)
    threads = [thread for thread in threading.enumerate() if thread.name == desk.name]
    connections = [connect() for _ in range(20)]

    for round_ in range(3):
        for at, connection in enumerate(connections):
            connection.send([round_, at], bytes(at))
        for at, connection in enumerate(connections):
            assert connection.receive() == ([round_, at], bytes(at))

    # One more accepts; those that only hand a new connection over are gone in a moment.
    for thread in threading.enumerate():
        if thread.name == desk.name and thread not in threads:
            thread.join(DEADLINE)
    assert [thread for thread in threading.enumerate() if thread.name == desk.name] == threads
    assert len(threads) == network + query + 1


@pytest.mark.parametrize("query", [1, 3])
def test_no_more_requests_are_answered_at_the_same_time_than_there_are_query_threads(
    serve: Serve, desk: Desk, query: int
) -> None:
    connect = serve(2, query)
    connections = [connect() for _ in range(8)]
    for connection in connections:
        connection.send("wait")
    desk.wait_inside(query)

    desk.open()

    assert [connection.receive()[0] for connection in connections] == ["wait"] * 8
    assert desk.most == query


def test_other_connections_are_served_while_one_sends_slowly(serve: Serve) -> None:
    connect = serve(1, 1)
    slow, quick = connect(), connect()
    frame = wire.PREFIX.pack(5, 3) + b"\xa4slow" + b"abc"
    for at in range(0, len(frame) - 1):
        slow.socket.sendall(frame[at : at + 1])
        quick.send(at)
        assert quick.receive()[0] == at

    slow.socket.sendall(frame[-1:])

    assert slow.receive() == ("slow", b"abc")


def test_bodies_larger_than_every_buffer_go_both_ways(serve: Serve) -> None:
    connection = serve(1, 1)()
    body = bytes(range(256)) * (1 << 16)
    sender = threading.Thread(target=connection.send, args=("large", body))
    sender.start()

    assert connection.receive() == ("large", body)
    sender.join(DEADLINE)


@pytest.mark.parametrize("rude", ["leaves", "is no frame", "too long", "raises"])
def test_a_connection_that_goes_wrong_is_dropped_and_others_stay(serve: Serve, rude: str) -> None:
    connect = serve(1, 1)
    bad, good = connect(), connect()
    if rude == "leaves":
        bad.socket.sendall(b"\0\0")
        bad.socket.shutdown(socket.SHUT_WR)
    elif rude == "is no frame":
        bad.socket.sendall(wire.PREFIX.pack(1, 0) + b"\xc1")
    elif rude == "too long":
        bad.socket.sendall(wire.PREFIX.pack(1, 1 << 40))
    else:
        bad.send("raise")

    with pytest.raises(wire.WireClosed):
        bad.receive()
    good.send("still there")
    assert good.receive()[0] == "still there"


def test_close_drops_connections_and_ends_the_threads(desk: Desk) -> None:
    before = set(threading.enumerate())
    listener, address = wire.listen("tcp:127.0.0.1:0")
    server = PooledServer([listener], TOKEN, desk.respond, name=NAME, threads=ServerThreads(2, 2))
    connection = wire.connect(address, TOKEN, DEADLINE)
    connection.set_timeout(DEADLINE)
    connection.send(1)
    assert connection.receive()[0] == 1
    own = set(threading.enumerate()) - before

    server.close()
    server.close()

    assert server.closed
    with pytest.raises(wire.WireClosed):
        connection.receive()
    connection.close()
    for thread in own:
        thread.join(DEADLINE)
        assert not thread.is_alive()
