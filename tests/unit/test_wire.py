"""Framed sockets: what goes in comes out, and strangers get nothing."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.runtime import slot_manager
from tidemark.slot.server import LEASE_S
from tidemark.wire import PATIENCE_S, AuthenticationError, Connection, WireClosed, accept, connect, listen

TOKEN = b"t" * 32


@pytest.fixture(params=["unix", "tcp"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an echo server that knows TOKEN."""
    wanted = f"unix:{tmp_path}/s" if request.param == "unix" else "tcp:127.0.0.1:0"
    listener, address = listen(wanted)

    def serve(raw: socket.socket) -> None:
        try:
            connection = accept(raw, TOKEN)
            while True:
                connection.send(*connection.receive())
        except (AuthenticationError, WireClosed, TimeoutError):
            raw.close()

    def loop() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(raw,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    yield address
    listener.close()


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000])
def test_frames_of_any_size_come_back_unchanged(served, size):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    connection = connect(served, TOKEN)

    connection.send(["header", 1, None, -(2**63)], body)
    header, answer = connection.receive()

    assert header == ["header", 1, None, -(2**63)]
    assert bytes(answer) == body
    connection.close()


def unnamed_tls(purpose: int) -> ssl.SSLContext:
    """TLS without certificates: what matters here is the socket around the frames."""
    context = ssl.SSLContext(purpose)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_frames_travel_through_tls():
    listener, address = listen("tcp:127.0.0.1:0")

    def serve() -> None:
        connection = accept(listener.accept()[0], TOKEN, tls=unnamed_tls(ssl.PROTOCOL_TLS_SERVER))
        connection.send(*connection.receive())
        connection.close()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    connection = connect(address, TOKEN, tls=unnamed_tls(ssl.PROTOCOL_TLS_CLIENT))
    body = b"tide" * 50_000

    connection.send(["header"], body)
    header, answer = connection.receive()

    assert (header, bytes(answer)) == (["header"], body)
    connection.close()
    listener.close()
    server.join(60)
    assert not server.is_alive()


def test_a_client_without_the_token_gets_nothing(served):
    with pytest.raises((AuthenticationError, WireClosed)):
        connect(served, b"wrong" * 6)


def test_a_server_without_the_token_is_not_trusted():
    listener, address = listen("tcp:127.0.0.1:0")

    def pretend() -> None:
        raw, _ = listener.accept()
        raw.sendall(b"n" * 32)
        raw.recv(64)
        raw.sendall(b"d" * 32)

    threading.Thread(target=pretend, daemon=True).start()

    with pytest.raises(AuthenticationError, match="does not know the job's token"):
        connect(address, TOKEN)
    listener.close()


def test_an_address_nobody_listens_at_is_named(tmp_path):
    with pytest.raises(WireClosed, match=r"Cannot reach unix:.*nobody"):
        connect(f"unix:{tmp_path}/nobody", TOKEN)


def test_a_peer_that_goes_away_wakes_the_receiver():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    theirs.close()

    with pytest.raises(WireClosed, match="peer closed the connection"):
        connection.receive()


def test_bytes_that_are_no_frame_are_refused():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    theirs.sendall(b"\xff" * 64)

    with pytest.raises(WireClosed, match="not ours"):
        connection.receive()


def test_a_timeout_bounds_the_wait():
    ours, _theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    connection.set_timeout(0.01)

    with pytest.raises(TimeoutError):
        connection.receive()


def test_a_client_waits_for_the_handshake_as_long_as_it_was_told(monkeypatch):
    """A slot on a busy machine answers late; the processes of a job have more patience than a stranger gets."""
    monkeypatch.setattr("tidemark.wire.HANDSHAKE_TIMEOUT_S", 0.05)
    listener, address = listen("tcp:127.0.0.1:0")
    served = threading.Event()

    def serve() -> None:
        raw, _ = listener.accept()
        threading.Event().wait(0.3)
        accept(raw, TOKEN)
        served.set()

    threading.Thread(target=serve, daemon=True).start()

    connect(address, TOKEN, PATIENCE_S).close()

    assert served.wait(60)
    listener.close()


def test_tasks_are_more_patient_with_a_slot_than_its_heartbeat_is():
    """Otherwise a slot that lives fails the job, because its machine is busy."""
    assert PATIENCE_S > slot_manager._SILENCE_S + slot_manager._PING_S
    assert PATIENCE_S > LEASE_S
