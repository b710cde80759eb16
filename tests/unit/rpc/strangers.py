"""What both ends of the tests here need: a server that echoes, raw connections to it, and waiting on conditions."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from tidemark.rpc import Server
from tidemark.wire import Connection, connect, listen

TOKEN = b"t" * 32
DEADLINE_S = 60.0
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3,
    "zeros": bytes(64),
    "noise": bytes(range(256)) * 400,
    "a hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
}


def echo(connection: Connection, header: Any, body: bytearray) -> None:
    connection.send(header, body)


@contextlib.contextmanager
def echoing(address: str = "tcp:127.0.0.1:0", **options: Any) -> Iterator[str]:
    """The address of a server that knows TOKEN and sends back what it gets."""
    listener, address = listen(address)
    server = Server([listener], TOKEN, echo, name="Echo", **options)
    try:
        yield address
    finally:
        server.close()


def stranger(address: str) -> socket.socket:
    """A connection that has proved nothing yet."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(DEADLINE_S)
        sock.connect(rest)
        return sock
    host, _, port = rest.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def is_dropped(sock: socket.socket) -> bool:
    """Whether the other end has closed, as seen now."""
    sock.setblocking(False)
    try:
        while sock.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        sock.settimeout(DEADLINE_S)


def gets_through(address: str, token: bytes = TOKEN, **options: Any) -> bool:
    """Whether an honest client is answered; fails with what `connect` raises."""
    connection = connect(address, token, DEADLINE_S, **options)
    connection.set_timeout(DEADLINE_S)
    connection.send(["hello"], b"tide")
    answer = connection.receive()
    connection.close()
    return answer == (["hello"], b"tide")


def descriptors() -> int:
    """Open file descriptors of this process."""
    return psutil.Process().num_fds()


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait for something another thread or process does."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.01)
