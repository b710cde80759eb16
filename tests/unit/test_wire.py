"""Framed sockets: what goes in comes out, and strangers get nothing."""

from __future__ import annotations

import contextlib
import hmac
import os
import resource
import socket
import ssl
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.rpc.strangers import until

from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.proof import Challenge, own_binding
from tidemark.rpc import Server
from tidemark.types.time import to_millis
from tidemark.wire import (
    PATIENCE_S,
    AuthenticationError,
    Connection,
    FrameTooLargeError,
    SharedConnection,
    WireClosed,
    connect,
    listen,
)

TOKEN = b"t" * 32


@pytest.fixture(params=["unix", "tcp"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an echo server that knows TOKEN."""
    wanted = f"unix:{tmp_path}/s" if request.param == "unix" else "tcp:127.0.0.1:0"
    listener, address = listen(wanted)
    server = Server([listener], TOKEN, echo, name="echo")
    yield address
    server.close()


def echo(connection: Connection, header: Any, body: bytearray) -> None:
    connection.send(header, body)


@pytest.mark.parametrize(
    ("family", "name", "binding"),
    [
        (socket.AF_INET, ("127.0.0.1", 9069), b"127.0.0.1:9069"),
        (socket.AF_INET6, ("::ffff:127.0.0.1", 9069, 0, 0), b"127.0.0.1:9069"),
        # An address on a network may be translated on the way.
        (socket.AF_INET, ("192.0.2.7", 9069), b""),
        (socket.AF_UNIX, "/tmp/s", b""),
    ],
)
def test_proofs_are_bound_to_loopback_addresses_only(family, name, binding):
    accepted: Any = SimpleNamespace(family=family, getsockname=lambda: name)

    assert own_binding(accepted) == binding


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000, 40_000_001])
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
    server = Server([listener], TOKEN, echo, name="echo", tls=unnamed_tls(ssl.PROTOCOL_TLS_SERVER))
    connection = connect(address, TOKEN, tls=unnamed_tls(ssl.PROTOCOL_TLS_CLIENT))
    body = b"tide" * 50_000

    connection.send(["header"], body)
    header, answer = connection.receive()

    assert (header, bytes(answer)) == (["header"], body)
    connection.close()
    server.close()


def test_the_first_free_port_of_a_range_is_taken():
    first, address = listen("tcp:127.0.0.1:0")
    taken = int(address.rpartition(":")[2])

    second, other = listen(f"tcp:127.0.0.1:{taken},0")

    assert other != address
    with pytest.raises(ConfigError, match=rf"No free port .* among {taken} .*with some\.option"):
        listen(f"tcp:127.0.0.1:{taken}", option="some.option")
    with pytest.raises(ConfigError, match="neither a port nor a range"):
        listen("tcp:127.0.0.1:many")
    first.close()
    second.close()


def test_a_client_without_the_token_gets_nothing(served):
    with pytest.raises((AuthenticationError, WireClosed)):
        connect(served, b"wrong" * 6)


def test_a_server_without_the_token_is_not_trusted():
    listener, address = listen("tcp:127.0.0.1:0")

    def pretend() -> None:
        raw, _ = listener.accept()
        raw.sendall(Challenge(b"another token").nonce)
        raw.recv(64)
        raw.sendall(b"d" * 32)

    threading.Thread(target=pretend, daemon=True).start()

    with pytest.raises(AuthenticationError, match="does not know the job's token"):
        connect(address, TOKEN)
    listener.close()


def test_a_server_of_another_version_is_told_from_one_that_does_not_know_us():
    listener, address = listen("tcp:127.0.0.1:0")

    def earlier_release() -> None:
        raw, _ = listener.accept()
        with raw:
            raw.sendall(b"n" * 32)

    threading.Thread(target=earlier_release, daemon=True).start()

    with pytest.raises(WireClosed, match=r"another version of tidemark.* install the same one"):
        connect(address, TOKEN)
    listener.close()


def test_a_client_of_another_version_is_refused_and_the_log_says_why(served, caplog):
    scheme, _, rest = served.partition(":")
    family = socket.AF_UNIX if scheme == "unix" else socket.AF_INET
    host, _, port = rest.rpartition(":")
    with socket.socket(family) as earlier_release:
        earlier_release.settimeout(60)
        earlier_release.connect(rest if scheme == "unix" else (host, int(port)))
        nonce = earlier_release.recv(32)
        earlier_release.sendall(b"n" * 32 + hmac.digest(TOKEN, b"client" + nonce, "sha256"))

        assert earlier_release.recv(32) == b""

    # The line is written after the connection is closed.
    until(lambda: "refused a connection: The client is of another version of tidemark" in caplog.text)


class Relay:
    """Another user of the machine: takes a port, passes the handshake on to the real server, then reads on.

    Attributes:
        heard: What the client said after the handshake.
    """

    def __init__(self, real: str, claim: bytes | None = None, host: str = "127.0.0.1") -> None:
        self._real = real
        self._claim = claim
        self.heard = b""
        self._listener, self.address = listen(f"tcp:{host}:0")
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        host, _, port = self._real.removeprefix("tcp:").rpartition(":")
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client, socket.create_connection((host, int(port)), timeout=60) as server:
                client.settimeout(60)
                nonce = server.recv(32)
                client.sendall(nonce if self._claim is None else nonce[:4] + self._claim + nonce[5:])
                server.sendall(client.recv(64))
                answer = server.recv(32)
                if answer:
                    client.sendall(answer)
                    self.heard = client.recv(1000)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("claim", [None, b"\x00", b"\x01", b"\x07"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_relay_on_the_same_machine_is_let_in_by_neither_end(claim, host, caplog):
    listener, address = listen("tcp:127.0.0.1:0")
    server = Server([listener], TOKEN, echo, name="echo")
    relay = Relay(address, claim, host)

    with pytest.raises((WireClosed, AuthenticationError), match=r"did not let us in|does not know"):
        connect(relay.address, TOKEN).send("secret")

    until(lambda: "or connected to another address and was relayed" in caplog.text)
    assert relay.heard == b""
    relay.close()
    server.close()


def test_a_server_that_is_not_bound_is_reached_through_a_tunnel(tmp_path):
    """As through `ssh -L 40123:<path of the socket>`: the client sees a TCP port, the server a unix socket."""
    listener, address = listen(f"unix:{tmp_path}/s")
    server = Server([listener], TOKEN, echo, name="echo")
    tunnel, outside = listen("tcp:127.0.0.1:0")

    def pass_on() -> None:
        client, _ = tunnel.accept()
        with client, socket.socket(socket.AF_UNIX) as inside:
            inside.connect(address.removeprefix("unix:"))
            client.sendall(inside.recv(32))
            inside.sendall(client.recv(64))
            client.sendall(inside.recv(32))

    threading.Thread(target=pass_on, daemon=True).start()

    connect(outside, TOKEN).close()

    tunnel.close()
    server.close()


def test_an_announced_length_alone_allocates_little():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    theirs.sendall(struct.pack(">IQ", 1, 1 << 32) + b"\xc0")
    theirs.close()

    tracemalloc.start()
    with pytest.raises(WireClosed):
        connection.receive()
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 25


def test_a_header_is_no_larger_than_a_body_may_be():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer", max_body=1000)
    theirs.sendall(struct.pack(">IQ", 1001, 0))
    theirs.close()

    with pytest.raises(WireClosed, match="not ours"):
        connection.receive()


def test_an_address_nobody_listens_at_is_named(tmp_path):
    with pytest.raises(WireClosed, match=r"Cannot reach unix:.*nobody"):
        connect(f"unix:{tmp_path}/nobody", TOKEN)


def test_a_peer_that_goes_away_wakes_the_receiver():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    theirs.close()

    with pytest.raises(WireClosed, match="peer closed the connection"):
        connection.receive()


def test_closing_a_connection_wakes_its_receiver():
    ours, _theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    ends: list[BaseException] = []

    def receive() -> None:
        with pytest.raises(WireClosed) as caught:
            connection.receive()
        ends.append(caught.value)

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    connection.close()
    receiver.join(60)

    assert len(ends) == 1


def test_a_peer_that_is_gone_is_told_to_the_sender():
    ours, theirs = socket.socketpair()
    theirs.close()

    with pytest.raises(WireClosed, match="peer is gone"):
        Connection(ours, "peer").send("hello")


def test_frames_of_several_threads_arrive_whole():
    """They are larger than what the kernel takes at once, so that all threads are amid a frame."""
    ours, theirs = socket.socketpair()
    shared = SharedConnection(Connection(ours, "receiver"))
    receiver = Connection(theirs, "sender")
    receiver.set_timeout(60)
    size, frames = 3 << 20, 4

    def send(sender: int) -> None:
        for _ in range(frames):
            shared.send(sender, bytes([sender]) * size)

    senders = [threading.Thread(target=send, args=(sender,), daemon=True) for sender in range(4)]
    for thread in senders:
        thread.start()
    received = [receiver.receive() for _ in range(frames * len(senders))]

    assert all(body == bytes([sender]) * size for sender, body in received)
    assert sorted(sender for sender, _ in received) == sorted([*range(4)] * frames)


def test_who_was_let_in_may_wait_for_longer_than_the_handshake(served):
    connection = connect(served, TOKEN, timeout=60)

    assert connection.socket.gettimeout() is None
    connection.close()


def test_bytes_that_are_no_frame_are_refused():
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    theirs.sendall(b"\xff" * 64)

    with pytest.raises(WireClosed, match="not ours"):
        connection.receive()


@pytest.mark.parametrize("header", [b"\xc1", b"\xa1\xff", b"\x91" * 20_000 + b"\xc0"])
def test_a_header_that_is_no_message_is_refused(header):
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer")
    theirs.sendall(struct.pack(">IQ", len(header), 0) + header)

    with pytest.raises(WireClosed, match="not ours"):
        connection.receive()


@pytest.mark.parametrize("lengths", [(1 << 26 | 1, 0), (1, 1 << 63), (1, 1001)])
def test_lengths_beyond_the_limits_are_refused_before_anything_is_allocated(lengths):
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer", max_body=1000)
    theirs.sendall(struct.pack(">IQ", *lengths) + b"\xc0")

    with pytest.raises(WireClosed, match="not ours"):
        connection.receive()


def test_a_body_of_the_limit_is_received_and_one_byte_more_is_not_even_sent():
    ours, theirs = socket.socketpair()
    sender, receiver = (
        Connection(ours, "receiver", max_body=1000),
        Connection(theirs, "sender", max_body=1000),
    )

    with pytest.raises(FrameTooLargeError, match="1001 bytes; 1000 is the limit"):
        sender.send(None, bytes(1001))
    sender.send("whole", bytes(1000))

    assert receiver.receive() == ("whole", bytes(1000))


def test_a_server_that_drips_its_handshake_is_given_up_at_the_deadline():
    listener, address = listen("tcp:127.0.0.1:0")
    gone = threading.Event()

    def drip() -> None:
        raw, _ = listener.accept()
        # Every byte comes in time, all of them together never would.
        with raw, contextlib.suppress(OSError):
            while True:
                raw.sendall(b"n")
                time.sleep(0.02)
        gone.set()

    threading.Thread(target=drip, daemon=True).start()

    with pytest.raises(WireClosed, match="did not let us in: timed out"):
        connect(address, TOKEN, timeout=0.3)
    assert gone.wait(60), "and the socket is closed"
    listener.close()


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
    servers: list[Server] = []

    def serve() -> None:
        servers.append(Server([listener], TOKEN, lambda header, body: (header, body), name="late"))

    starting = threading.Timer(0.3, serve)
    starting.start()

    connect(address, TOKEN, PATIENCE_S).close()

    starting.join(60)
    servers[0].close()


def test_tasks_are_more_patient_with_a_slot_than_its_heartbeat_is():
    """Otherwise a slot that lives fails the job, because its machine is busy."""
    silence = to_millis(Options.HEARTBEAT_TIMEOUT.default) + to_millis(Options.HEARTBEAT_INTERVAL.default)
    assert silence < PATIENCE_S * 1000


def test_a_connection_beyond_a_thousand_descriptors_can_be_looked_at():
    """`select` knows none above 1,023; a task has a connection per operator and slot."""
    pair = socket.socketpair()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = 1500
    if limits[0] <= high:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(high + 100, limits[1]), limits[1]))
    try:
        os.dup2(pair[0].fileno(), high)
        ours = Connection(socket.socket(fileno=high), "test")
        theirs = Connection(pair[1], "test")
        assert not ours.readable()
        theirs.send(["hello"])
        assert ours.readable()
        assert ours.receive()[0] == ["hello"]
        ours.close()
        theirs.close()
    finally:
        pair[0].close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("address", ["", "NaN", "tcp:", "tcp:127.0.0.1:99999999", "tcp:a..b:1", "unix:/a\0b"])
def test_what_is_no_address_cannot_be_reached(address: str) -> None:
    with pytest.raises(WireClosed, match="Cannot reach"):
        connect(address, b"token", 5)
