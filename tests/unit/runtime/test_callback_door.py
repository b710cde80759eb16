"""PySpark's callback server behind its door-keeper, without a JVM: strangers get nothing, and it outlives them.

The server is py4j's own, in a process of its own that a test may let run out of descriptors.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tidemark.runtime.sources.spark_callbacks import watch_door

DEADLINE_S = 60
_TOKEN = "sesame"
_SPARE = 12

_AS_NOBODY = """
import os, socket, sys
"loaded while it can be read".encode("idna")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(20):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), float(sys.argv[2])) as connection:
        try:
            connection.sendall(b"A\\nsesame\\ne\\n")
            print(len(connection.recv(100)))
        except ConnectionError:
            print(0)
"""


def main() -> None:
    """The server's process: says on which port it listens, and serves with few descriptors until its input ends."""
    from py4j.java_gateway import CallbackServer, CallbackServerParameters, PythonProxyPool

    parameters = CallbackServerParameters(
        port=0, auth_token=_TOKEN, daemonize=True, daemonize_connections=True
    )
    server = CallbackServer(PythonProxyPool(), None, callback_server_parameters=parameters)
    server.start()
    watch_door(server)
    used = psutil.Process().num_fds()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + _SPARE, used + _SPARE))
    print(server.get_listening_port(), flush=True)
    sys.stdin.read()
    server.shutdown()
    print("shut down", flush=True)


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.unit.runtime.test_callback_door import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with process:
        yield process
        process.stdin.close()
        assert process.stdout.read() == "shut down\n"


@pytest.fixture
def port(server: subprocess.Popen[str]) -> int:
    return int(server.stdout.readline())


def is_let_in(port: int) -> bool:
    """Whether somebody of this user who knows the token is answered."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(f"A\n{_TOKEN}\ne\n".encode())
        return connection.recv(100) == b"!yv\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_other_users_are_not_even_heard(port: int) -> None:
    asked = [sys.executable, "-c", _AS_NOBODY, str(port), str(DEADLINE_S)]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=DEADLINE_S)

    assert told.stdout.split() == ["0"] * 20, "the token alone does not do"
    assert is_let_in(port)


def test_the_server_outlives_the_lack_of_descriptors(server: subprocess.Popen[str], port: int) -> None:
    assert is_let_in(port)

    silent = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(3 * _SPARE)]
    process = psutil.Process(server.pid)
    while process.num_fds() < process.rlimit(psutil.RLIMIT_NOFILE)[0]:
        assert server.poll() is None
    for connection in silent:
        connection.close()

    assert is_let_in(port)
