"""Strangers cost little and get nothing; whoever knows the token gets in whatever they do."""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import selectors
import socket
import ssl
import threading
import time

import pytest
from tests.unit.rpc.strangers import (
    DEADLINE_S,
    GARBAGE,
    TOKEN,
    descriptors,
    echo,
    echoing,
    gets_through,
    is_dropped,
    stranger,
    until,
)
from tests.unit.test_wire import unnamed_tls

from tidemark.proof import Response
from tidemark.rpc import Limits, Server
from tidemark.rpc.handshake import Handshake
from tidemark.rpc.refusals import Refusals
from tidemark.wire import PREFIX, WireClosed, connect, listen


def test_one_server_listens_on_several_addresses(tmp_path):
    listeners = [listen(f"unix:{tmp_path}/s"), listen("tcp:127.0.0.1:0")]
    server = Server([sock for sock, _address in listeners], TOKEN, echo, name="Echo")

    assert all([gets_through(address) for _sock, address in listeners])
    server.close()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_answered_with_a_challenge_and_nothing_more(garbage):
    with echoing() as address, stranger(address) as sock:
        sock.sendall(garbage)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(1000):
                received += data

        assert len(received) == 32
        assert gets_through(address)


def test_refused_connections_leave_no_socket_behind(tmp_path):
    with echoing(f"unix:{tmp_path}/s") as address:
        before = descriptors()

        for _ in range(20):
            with pytest.raises(WireClosed):
                connect(address, b"guess")
            with stranger(address) as closes_at_once:
                closes_at_once.sendall(b"half a proof")
            with stranger(address) as half_open:
                half_open.shutdown(socket.SHUT_WR)
                until(lambda sock=half_open: is_dropped(sock))

        until(lambda: descriptors() == before, "closing what was refused")
        assert gets_through(address)


def test_a_client_that_drips_its_proof_is_dropped_at_the_deadline_while_others_get_in():
    with echoing(limits=Limits(handshake_s=2.0)) as address, stranger(address) as loris:
        sent = 0
        while not is_dropped(loris):
            # The 64th byte would complete the proof, long after the deadline.
            assert sent < 63, "every byte got the slow client more time"
            with contextlib.suppress(OSError):
                loris.sendall(b"x")
            sent += 1
            assert gets_through(address)
            select.select([loris], [], [], 0.4)

        assert gets_through(address)


def test_strangers_beyond_the_limit_wait_in_the_backlog(tmp_path):
    with echoing(
        f"unix:{tmp_path}/s", limits=Limits(handshakes=3, handshake_s=3600, crowded_s=3600)
    ) as address:
        strangers = [stranger(address) for _ in range(8)]
        challenged = set()
        while len(challenged) < 3:
            challenged |= set(select.select(strangers, [], [], DEADLINE_S)[0])

        # The rest would have been challenged by the same thread in the same moment.
        assert len(select.select(strangers, [], [], 0)[0]) == 3
        for sock in challenged:
            sock.close()
        until(lambda: len(select.select(list(set(strangers) - challenged), [], [], 0)[0]) == 3)
        for sock in strangers:
            sock.close()
        assert gets_through(address)


def test_idlers_on_all_places_are_hurried_when_others_wait(caplog):
    with echoing(limits=Limits(handshakes=4, handshake_s=3600)) as address:
        idlers = [stranger(address) for _ in range(16)]
        for sock in idlers[::2]:
            sock.sendall(b"half a proof")

        assert gets_through(address)

        for sock in idlers:
            sock.close()
    assert "did not prove itself within 1.0 s" in caplog.text


def test_a_crowd_of_idlers_that_come_back_does_not_keep_an_honest_client_out():
    stop = threading.Event()

    def hold_on(address):
        while not stop.is_set():
            with contextlib.suppress(OSError), stranger(address) as sock:
                sock.settimeout(0.2)
                while not stop.is_set():
                    with contextlib.suppress(TimeoutError):
                        if not sock.recv(32):
                            break

    def let_in(address):
        # On a slow machine its second may be over before it has answered; it comes again, as query clients do.
        with contextlib.suppress(WireClosed):
            return gets_through(address)
        return False

    with echoing(limits=Limits(handshakes=8, handshake_s=3600)) as address:
        crowd = [threading.Thread(target=hold_on, args=(address,)) for _ in range(40)]
        for thread in crowd:
            thread.start()
        try:
            until(lambda: let_in(address), "letting an honest client in")
        finally:
            stop.set()
            for thread in crowd:
                thread.join(DEADLINE_S)


def test_one_stranger_is_not_hurried_while_there_are_places():
    with echoing(limits=Limits(handshakes=3, crowded_s=0.0)) as address, stranger(address) as slow:
        assert gets_through(address)

        assert not is_dropped(slow)


def test_many_honest_clients_at_once_all_get_in(tmp_path):
    results: list[bool] = []
    with echoing(f"unix:{tmp_path}/s", limits=Limits(handshakes=4)) as address:
        threads = [threading.Thread(target=lambda: results.append(gets_through(address))) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)

    assert results == [True] * 40


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01", b"not TLS at all\r\n\r\n"])
def test_the_deadline_covers_the_tls_handshake(sent):
    options = {"tls": unnamed_tls(ssl.PROTOCOL_TLS_SERVER), "limits": Limits(handshake_s=2.0)}
    with echoing(**options) as address, stranger(address) as sock:
        sock.sendall(sent)

        assert gets_through(address, tls=unnamed_tls(ssl.PROTOCOL_TLS_CLIENT))
        until(lambda: is_dropped(sock), "dropping a stalled TLS handshake")


def test_a_client_need_not_wait_for_the_answer_to_its_proof():
    with echoing() as address, stranger(address) as hasty:
        proof = Response(TOKEN, hasty.recv(32), hasty).proof
        hasty.sendall(proof + PREFIX.pack(1, 4) + b"\x07" + b"tide")

        received = b""
        while len(received) < 32 + PREFIX.size + 5 and (data := hasty.recv(1000)):
            received += data
        assert received.endswith(b"\x07tide")


def test_what_a_client_sends_behind_its_proof_is_left_in_the_socket():
    here, there = socket.socketpair()
    handshake = Handshake(here, TOKEN, None)
    with here, there:
        assert handshake.advance() == selectors.EVENT_READ
        proof = Response(TOKEN, there.recv(32), there).proof
        there.sendall(proof[:10])
        assert handshake.advance() == selectors.EVENT_READ

        there.sendall(proof[10:] + b"tide")
        assert handshake.advance() == 0
        assert here.recv(1000) == b"tide"


class Reluctant(socket.socket):
    """Takes and gives a byte at a time, and says in front of each what it has to wait for, as sockets of TLS do."""

    MOODS = (
        (BlockingIOError(), None),
        (ssl.SSLWantReadError(), selectors.EVENT_READ),
        (ssl.SSLWantWriteError(), selectors.EVENT_WRITE),
    )
    calls = 0

    def send(self, data, flags=0):
        self.hesitate(selectors.EVENT_WRITE)
        return super().send(data[:1], flags)

    def recv(self, size, flags=0):
        self.hesitate(selectors.EVENT_READ)
        return super().recv(1, flags)

    def hesitate(self, otherwise):
        mood, event = self.MOODS[self.calls // 2 % 3]
        self.calls += 1
        if self.calls % 2:
            self.waits_for = event or otherwise
            raise mood


def test_a_handshake_waits_for_what_its_socket_waits_for():
    here, there = socket.socketpair()
    handshake = Handshake(Reluctant(fileno=here.detach()), TOKEN, None)
    proof = None
    while event := handshake.advance():
        assert event == handshake.socket.waits_for
        if proof is None and handshake.socket.calls == 2 * 32 + 1:
            nonce = there.recv(100)
            proof = Response(TOKEN, nonce, there)
            there.sendall(proof.proof)

    assert proof is not None
    assert proof.accepts(there.recv(100))
    handshake.close()
    there.close()


def test_a_socket_that_cannot_be_taken_over_is_closed():
    no_stream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with pytest.raises(OSError, match="not available"):
        Handshake(no_stream, TOKEN, None)

    assert no_stream.fileno() == -1


class Offering(socket.socket):
    """A listener whose first newcomers are no streams: like those that are gone already, they cannot be taken over."""

    def accept(self):
        if self.useless:
            self.useless -= 1
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM), None
        return super().accept()


def test_newcomers_that_cannot_be_taken_over_keep_nobody_waiting():
    listener, address = listen("tcp:127.0.0.1:0")
    offering = Offering(fileno=listener.detach())
    offering.useless = 100
    server = Server([offering], TOKEN, echo, name="Echo")

    # A pause of a second for each of them would be longer than an honest client waits.
    assert gets_through(address)
    assert not offering.useless
    server.close()


class Exhausted(socket.socket):
    """A listener of a process that has no descriptor left, until it is told otherwise."""

    def accept(self):
        self.refused += 1
        if self.exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_descriptors_the_acceptor_asks_now_and_then_and_goes_on_when_there_are_some():
    listener, address = listen("tcp:127.0.0.1:0")
    exhausted = Exhausted(fileno=listener.detach())
    exhausted.refused, exhausted.exhausted = 0, True
    server = Server([exhausted], TOKEN, echo, name="Exhausted")
    with stranger(address) as waiting:
        until(lambda: exhausted.refused > 2)
        assert not select.select([waiting], [], [], 1.0)[0]
        assert exhausted.refused < 20, "it waits ever longer, up to a second"

        exhausted.exhausted = False
        assert len(waiting.recv(32)) == 32
    assert gets_through(address)
    server.close()


def test_waiting_for_an_idle_stranger_costs_no_processor_time():
    listener, address = listen("tcp:127.0.0.1:0")
    server = Server([listener], TOKEN, echo, name="Waiting for an idler")
    with stranger(address) as idler:
        assert len(idler.recv(32)) == 32
        [acceptor] = [thread for thread in threading.enumerate() if thread.name == "Waiting for an idler"]
        clock = time.pthread_getcpuclockid(acceptor.ident)
        before = time.clock_gettime(clock)

        assert not select.select([idler], [], [], 1.0)[0], "it is given more time than that"

        assert time.clock_gettime(clock) - before < 0.02
    server.close()


def test_small_frames_leave_at_once_in_both_directions():
    options: list[int] = []

    def note(connection, header, body):
        options.append(connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        connection.send(header, body)

    listener, address = listen("tcp:127.0.0.1:0")
    server = Server([listener], TOKEN, note, name="Note")
    client = connect(address, TOKEN)
    client.send(1)
    client.receive()
    options.append(client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    client.close()
    server.close()

    assert all(options)


def test_strangers_cost_no_threads():
    with echoing() as address:
        before = threading.active_count()
        strangers = [stranger(address) for _ in range(50)]
        for sock in strangers:
            assert len(sock.recv(32)) == 32

        # Threads that other tests have left behind may end meanwhile.
        assert threading.active_count() <= before
        for sock in strangers:
            sock.close()


def test_closing_drops_strangers_and_clients_and_frees_everything(tmp_path):
    gets_nothing = descriptors()
    listener, address = listen(f"unix:{tmp_path}/s")
    server = Server([listener], TOKEN, echo, name="Echo")
    client, idler = connect(address, TOKEN), stranger(address)
    idler.recv(32)

    server.close()
    server.close()

    with pytest.raises(WireClosed):
        client.receive()
    assert is_dropped(idler)
    with pytest.raises(WireClosed, match="Cannot reach"):
        connect(address, TOKEN)
    client.close()
    idler.close()
    until(lambda: descriptors() == gets_nothing, "closing every socket")


def test_requests_under_way_may_answer_within_the_grace_of_which_no_more_is_used_than_they_need():
    asked, answer = threading.Event(), threading.Event()

    def slowly(connection, header, body):
        asked.set()
        answer.wait(DEADLINE_S)
        connection.send("done")

    listener, address = listen("tcp:127.0.0.1:0")
    server = Server([listener], TOKEN, slowly, name="Slow")
    client = connect(address, TOKEN)
    client.send("do")
    asked.wait(DEADLINE_S)
    threading.Timer(0.05, answer.set).start()

    closing = threading.Thread(target=server.close, args=(10 * DEADLINE_S,), daemon=True)
    closing.start()

    assert client.receive() == ("done", b"")
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    client.close()


def test_a_request_that_raises_costs_its_connection_only(caplog):
    def fussy(connection, header, body):
        if header == "bad":
            raise ValueError("no such thing")
        connection.send(header, body)

    listener, address = listen("tcp:127.0.0.1:0")
    server = Server([listener], TOKEN, fussy, name="Fussy")
    client = connect(address, TOKEN)
    client.send("bad")

    with pytest.raises(WireClosed):
        client.receive()
    assert gets_through(address)
    server.close()
    client.close()
    assert "Fussy dropped a connection" in caplog.text


def test_a_body_beyond_the_servers_limit_drops_the_client():
    with echoing(limits=Limits(body=100)) as address:
        client = connect(address, TOKEN)
        client.send("large", bytes(101))

        with pytest.raises(WireClosed):
            client.receive()
        assert gets_through(address)
        client.close()


def test_a_flood_of_refusals_is_a_line_now_and_then(caplog):
    now = [0.0]
    refusals = Refusals("Door", lambda: now[0])

    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            refusals.add(f"stranger {number}")
        now[0] = 10.0
        refusals.flush()
        refusals.flush()

    assert [record.getMessage() for record in caplog.records] == [
        "Door refused a connection: stranger 0",
        "Door refused 999 connections; the last one: stranger 999",
    ]
    assert refusals.due_in is None
