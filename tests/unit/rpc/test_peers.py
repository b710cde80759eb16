"""Whose the other end of a loopback connection is, by the kernel's word."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidemark.rpc import peers
from tidemark.rpc.peers import is_own_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")

_AS_NOBODY = """
import os, socket, sys
"loaded while it can be read".encode("idna")
os.setgid(65534); os.setuid(65534)
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


@pytest.fixture(params=["asked", "read"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to know: the kernel asked for one socket, and its table, where it does not answer."""
    if request.param == "read":
        monkeypatch.setattr(peers, "_SOCK_DIAG", 31)


def test_own_connections_are_known(way: None, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()):
        accepted, client = listener.accept()
        with accepted:
            assert is_own_user(client, accepted.getsockname())
            assert not is_own_user(("127.0.0.1", 1), accepted.getsockname())


def test_one_that_is_closed_is_nobodys(way: None, listener: socket.socket) -> None:
    socket.create_connection(listener.getsockname()).close()
    accepted, client = listener.accept()
    with accepted:
        assert not is_own_user(client, accepted.getsockname())


def test_one_that_listens_at_a_port_does_not_stand_for_a_connection_from_there(
    way: None, listener: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        assert not is_own_user(ours.getsockname(), listener.getsockname())


def test_an_ipv6_socket_that_speaks_ipv4_is_known(way: None, listener: socket.socket) -> None:
    try:
        client = socket.create_connection(("::ffff:127.0.0.1", listener.getsockname()[1]))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with client:
        accepted, address = listener.accept()
        with accepted:
            assert is_own_user(address, accepted.getsockname())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_those_of_another_user_are_not_ours(way: None, listener: socket.socket) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _AS_NOBODY, str(listener.getsockname()[1])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        accepted, client = listener.accept()
        with accepted:
            assert not is_own_user(client, accepted.getsockname())


def test_the_table_that_others_can_make_long_is_not_read(listener: socket.socket) -> None:
    opened: list[str] = []
    _watched.append(opened)
    try:
        with socket.create_connection(listener.getsockname()):
            accepted, client = listener.accept()
            with accepted:
                assert is_own_user(client, accepted.getsockname())
    finally:
        _watched.clear()
    assert opened == []


_watched: list[list[str]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watched and event == "open" and str(arguments[0]).startswith("/proc/net/"):
        _watched[0].append(str(arguments[0]))


# Such a hook cannot be taken away again; it only looks while a test wants it to.
sys.addaudithook(_hook)
