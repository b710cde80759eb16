"""Requests, answers and events: both ends together, over real sockets."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.rpc.strangers import DEADLINE_S, TOKEN, until

from tidemark.errors import CheckpointError, ConfigError, FailureReason, TidemarkError
from tidemark.rpc import EVENT, MSGPACK, Client, Connections, Handlers, Pool, Server, Unreachable
from tidemark.rpc.codecs import restore_error
from tidemark.slot.control import SLOT_CONTROL
from tidemark.wire import Connection, FrameTooLargeError, WireClosed, connect, listen


def refuse(_payload: Any) -> None:
    raise CheckpointError("late", reason=FailureReason.EXPIRED, checkpoint_id=3)


@contextmanager
def served(respond: Callable[..., None]) -> Iterator[str]:
    listener, address = listen("tcp:127.0.0.1:0")
    server = Server([listener], TOKEN, respond, name="Served")
    try:
        yield address
    finally:
        server.close()


@contextmanager
def asking(respond: Callable[..., None], codec: Any = MSGPACK, **options: Any) -> Iterator[Client]:
    with served(respond) as address:
        client = Client(connect(address, TOKEN, DEADLINE_S), codec, name="Asking", **options)
        try:
            yield client
        finally:
            client.close()


@pytest.mark.parametrize("codec", [MSGPACK, SLOT_CONTROL])
def test_results_and_errors_come_back_to_the_request_they_belong_to(codec):
    handlers = Handlers(codec, double=lambda number: 2 * number, refuse=refuse)

    with asking(handlers, codec) as client:
        answers = [client.request("double", number) for number in range(100)]
        refused = client.request("refuse")

        assert [answer.result(DEADLINE_S) for answer in answers] == list(range(0, 200, 2))
        with pytest.raises(CheckpointError, match="late") as caught:
            refused.result(DEADLINE_S)
        assert (caught.value.reason, caught.value.checkpoint_id) == (FailureReason.EXPIRED, 3)


class Odd:
    """Nothing that plain data can say."""


def test_an_error_that_knows_more_than_plain_data_can_say_arrives_with_the_rest():
    def fail(_payload: Any) -> None:
        error = CheckpointError("late", reason=FailureReason.EXPIRED, checkpoint_id=3)
        error.culprit = Odd()
        raise error

    with asking(Handlers(MSGPACK, fail=fail)) as client:
        with pytest.raises(CheckpointError, match="late") as caught:
            client.request("fail").result(DEADLINE_S)

        assert (caught.value.reason, caught.value.checkpoint_id) == (FailureReason.EXPIRED, 3)


@pytest.mark.parametrize("name", ["Enum", "Any", "__name__", "_rebuild", "NoSuchError", None])
def test_an_error_is_of_no_class_but_ours_whatever_the_peer_says(name):
    error = restore_error({"type": name, "message": "lost"})

    assert type(error) is TidemarkError
    assert str(error) == "lost"


def test_an_unknown_request_is_an_error_with_a_remedy():
    with asking(Handlers(MSGPACK)) as client, pytest.raises(ConfigError, match="same version of tidemark"):
        client.request("dance").result(DEADLINE_S)


def test_a_result_that_cannot_be_sent_is_an_error_and_the_connection_lives():
    handlers = Handlers(MSGPACK, strange=lambda _: object(), fine=lambda _: True)

    with asking(handlers) as client:
        with pytest.raises(TidemarkError, match="TypeError"):
            client.request("strange").result(DEADLINE_S)
        assert client.request("fine").result(DEADLINE_S) is True


def test_a_pickle_is_not_read_where_plain_data_is_spoken():
    class Bomb:
        def __reduce__(self):
            return (threading.main_thread, ())

    handlers = Handlers(MSGPACK, echo=lambda payload: payload)
    with served(handlers) as address:
        pool = Pool(TOKEN, SLOT_CONTROL)

        # The answer to a pickle is an error in plain data, which the one who sent the pickle cannot read.
        with pytest.raises(WireClosed, match="no answer of ours"):
            pool.call(address, "echo", Bomb(), DEADLINE_S).result()
        pool.close()


def test_events_arrive_between_answers_in_their_order():
    events: list[Any] = []

    def respond(connection: Connection, header: Any, body: bytearray) -> None:
        connection.send([EVENT], MSGPACK.encode("before"))
        Handlers(MSGPACK, ask=lambda _: "answer")(connection, header, body)
        connection.send([EVENT], MSGPACK.encode("after"))

    with asking(respond, on_event=events.append) as client:
        assert client.request("ask").result(DEADLINE_S) == "answer"
        assert events[:1] == ["before"]
        until(lambda: events == ["before", "after"])


def test_closing_counts_as_loss_at_once_and_fails_what_waits():
    lost: list[str] = []
    waiting = threading.Event()

    with asking(Handlers(MSGPACK, wait=lambda _: waiting.wait(DEADLINE_S)), on_lost=lost.append) as client:
        future = client.request("wait")
        client.close()

        assert not client.alive
        assert len(lost) == 1
        for request in (future, client.request("wait")):
            with pytest.raises(WireClosed):
                request.result(0)
        waiting.set()


def test_an_answer_that_cannot_be_read_is_a_loss_and_nobody_waits_for_ever():
    def respond(connection: Connection, _header: Any, _body: bytearray) -> None:
        connection.send({"no": "answer"})

    lost: list[str] = []
    with asking(respond, on_lost=lost.append) as client:
        with pytest.raises(WireClosed, match="cannot be read"):
            client.request("ask").result(DEADLINE_S)
        until(lambda: len(lost) == 1)


def test_a_pool_uses_a_connection_again_after_results_and_errors_but_not_after_a_time_out():
    answer = threading.Event()
    connections: set[int] = set()

    def respond(connection: Connection, header: Any, body: bytearray) -> None:
        connections.add(id(connection))
        Handlers(MSGPACK, echo=lambda x: x, refuse=refuse, wait=lambda _: answer.wait(DEADLINE_S))(
            connection, header, body
        )

    with served(respond) as address:
        pool = Pool(TOKEN, MSGPACK)
        assert pool.call(address, "echo", 1, DEADLINE_S).result() == 1
        with pytest.raises(CheckpointError):
            pool.call(address, "refuse", None, DEADLINE_S).result()
        assert len(connections) == 1

        with pytest.raises(TimeoutError):
            pool.call(address, "wait", None, 0.05).result()
        assert pool.call(address, "echo", 2, DEADLINE_S).result() == 2
        assert len(connections) == 2

        answer.set()
        pool.close()
        with pytest.raises(Unreachable):
            pool.call(address, "echo", 3, DEADLINE_S)


def test_a_pool_uses_a_connection_again_after_a_request_that_was_too_large_to_send():
    connections: set[int] = set()

    def respond(connection: Connection, header: Any, body: bytearray) -> None:
        connections.add(id(connection))
        Handlers(MSGPACK, echo=lambda x: x)(connection, header, body)

    with served(respond) as address:
        pool = Pool(TOKEN, MSGPACK, max_body=100)
        assert pool.call(address, "echo", 1, DEADLINE_S).result() == 1
        with pytest.raises(FrameTooLargeError):
            pool.call(address, "echo", "x" * 101, DEADLINE_S)

        assert pool.call(address, "echo", 2, DEADLINE_S).result() == 2
        assert len(connections) == 1
        pool.close()


@pytest.mark.parametrize(
    ("answers", "patience_s", "error", "message"),
    [(True, DEADLINE_S, WireClosed, "no answer of ours"), (False, 0.05, TimeoutError, "timed out")],
    ids=["one that is not ours", "none in time"],
)
def test_a_pool_closes_a_connection_whose_answer_did_not_come(answers, patience_s, error, message):
    heard: list[str] = []

    def respond(connection: Connection, header: Any, body: bytearray) -> None:
        if answers:
            connection.send("no answer of ours")
        try:
            connection.receive()
        except WireClosed:
            heard.append("closed")
            raise

    with served(respond) as address:
        pool = Pool(TOKEN, MSGPACK)
        with pytest.raises(error, match=message):
            pool.call(address, "echo", 1, patience_s).result()

        until(lambda: heard == ["closed"], "the other end hears of it while the pool is open")
        pool.close()


def test_a_discarded_connection_is_closed_and_one_given_back_is_taken_again():
    with served(Handlers(MSGPACK)) as address:
        connections = Connections(TOKEN)
        kept, left = connections.take(address), connections.take(address)
        connections.give_back(kept)

        connections.discard(left)

        with pytest.raises(WireClosed):
            left.send("too late")
        assert connections.take(address) is kept
        connections.close()
        with pytest.raises(WireClosed):
            kept.send("too late")


def test_a_connection_is_waited_for_as_long_as_the_caller_says():
    listener, address = listen("tcp:127.0.0.1:0")
    connections = Connections(TOKEN, connect_s=0.001)
    taken: list[Connection] = []
    client = threading.Thread(target=lambda: taken.append(connections.take(address, DEADLINE_S)))
    client.start()
    # It is in the backlog, as behind a flood, for longer than those who name no timeout would wait.
    select.select([listener], [], [], DEADLINE_S)
    with pytest.raises(Unreachable):
        connections.take(address)

    server = Server([listener], TOKEN, lambda connection, header, body: None, name="late")
    client.join(DEADLINE_S)

    assert len(taken) == 1
    connections.close()
    server.close()
