"""Those who open connections and say nothing, and other users of the machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import httpx
import pytest
from tests.web.conftest import DEADLINE_S, Site, Start, until

from tidemark.rpc.peers import peer_uid
from tidemark.web import connections
from tidemark.web.connections import MOST_CONNECTIONS

_AS_NOBODY = """
import os, socket, sys
"loaded while it can be read".encode("idna")
os.setgid(65534); os.setuid(65534)
_, port, job, *extra = sys.argv
head = "Host: 127.0.0.1\\r\\nConnection: close\\r\\n" + "".join(extra)
paths = [("GET", path) for path in ("/v1/jobs", "/metrics", "/v1/events", "/login", "/static/js/main.js")]
for method, path in [*paths, ("PATCH", job)]:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.sendall(f"{method} {path} HTTP/1.1\\r\\n{head}\\r\\n".encode())
    print(connection.makefile("rb").readline().decode().split()[1])
"""


def _port(site: Site) -> int:
    return int(site.address.rpartition(":")[2])


def _is_closed(connection: socket.socket) -> bool:
    """Whether the server has let go of it; it never answers here."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nt",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_whoever_says_nothing_takes_no_place_from_others(site: Site, said: bytes) -> None:
    silent = []
    for _ in range(2 * MOST_CONNECTIONS):
        silent.append(socket.create_connection(("127.0.0.1", _port(site)), DEADLINE_S))
        silent[-1].sendall(said)

    newcomer = httpx.get(f"{site.address}/v1/jobs", timeout=DEADLINE_S)

    assert newcomer.json()["jobs"] == [{"id": site.job_id, "status": "RUNNING"}]
    until(lambda: sum(_is_closed(connection) for connection in silent) >= MOST_CONNECTIONS)
    for connection in silent:
        connection.close()


def test_whoever_takes_no_answers_takes_no_place_from_others(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    asked = b"GET /static/vendor/uplot/uPlot.esm.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50
    with contextlib.ExitStack() as crowd:
        deaf = []
        for _ in range(20):
            deaf.append(crowd.enter_context(socket.socket()))
            deaf[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf[-1].connect(("127.0.0.1", _port(site)))
            deaf[-1].sendall(asked)
        assert deaf[-1].recv(1) == b"H"

        for _ in range(20):
            newcomer = httpx.get(f"{site.address}/v1/jobs", timeout=DEADLINE_S)
            assert newcomer.status_code == 200

    assert "Traceback" not in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_without_a_token_other_users_of_the_machine_are_refused(start: Start) -> None:
    site = start()

    asked = [sys.executable, "-c", _AS_NOBODY, str(_port(site)), f"/v1/jobs/{site.job_id}"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=DEADLINE_S)

    assert told.stdout.split() == ["403"] * 6
    assert site.get("/jobs")["jobs"] == [{"id": site.job_id, "status": "RUNNING"}]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_nobody_passes_for_the_owner_by_naming_one_of_his_connections(start: Start) -> None:
    site = start()

    with socket.create_connection(("127.0.0.1", _port(site)), DEADLINE_S) as ours:
        forged = f"X-Forwarded-For: 127.0.0.1:{ours.getsockname()[1]}\r\n"
        asked = [sys.executable, "-c", _AS_NOBODY, str(_port(site)), f"/v1/jobs/{site.job_id}", forged]
        told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=DEADLINE_S)

    assert told.stdout.split() == ["403"] * 6
    assert site.get("/jobs")["jobs"] == [{"id": site.job_id, "status": "RUNNING"}]


def test_of_many_requests_at_once_only_the_first_is_refused(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", _port(site)), DEADLINE_S) as line:
        line.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: elsewhere\r\n\r\n" * 50)

        assert _all_of(line).count(b"HTTP/1.1 403") == 1


def test_a_cookie_that_is_hard_to_read_keeps_nobody_waiting(start: Start) -> None:
    site = start({"rest.token": "secret"})
    cookie = b'tidemark_token="' + b'\\"' * 30_000 + b'"'
    asked = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: " + cookie + b"\r\n\r\n"

    with contextlib.ExitStack() as crowd:
        lines = [
            crowd.enter_context(socket.create_connection(("127.0.0.1", _port(site)), DEADLINE_S))
            for _ in range(40)
        ]
        for line in lines:
            line.sendall(asked)

        assert httpx.get(f"{site.address}/login", timeout=DEADLINE_S).status_code == 200
        assert all(_all_of(line) for line in lines)


def _all_of(line: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    told = b""
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(1 << 16):
            told += part
    return told


def test_a_connection_belongs_to_whoever_holds_its_other_end() -> None:
    client, server = ("127.0.0.1", 40000), ("127.0.0.1", 8081)
    ours = "1: 0100007F:1F91 0100007F:9C40 01 0:0 00:0 0 0 0 77 1"
    theirs = "2: 0100007F:9C40 0100007F:1F91 01 0:0 00:0 0 1001 0 78 1"
    mapped = theirs.replace("0100007F", "0000000000000000FFFF00000100007F")
    closed = theirs.replace(" 1001 0 78 ", " 0 0 0 ")

    if sys.byteorder == "little":
        assert peer_uid(client, server, [ours, theirs]) == 1001
        assert peer_uid(client, server, [ours, mapped]) == 1001
        assert peer_uid(("127.0.0.1", 40001), server, [ours, theirs]) is None
        # A socket that its process has closed is root's by the kernel's tables, and nobody's here.
        assert peer_uid(client, server, [closed]) is None


def test_what_the_caller_calls_this_machine_does_not_open_a_path(start: Start) -> None:
    site = start({"rest.token": "secret"})

    for host in ("x/static/", "x/login?", "x/static/#"):
        answer = site.client.get("/v1/jobs", headers={"Host": host})
        assert answer.status_code in (400, 401), host


def test_a_name_that_no_file_can_have_is_not_found(site: Site) -> None:
    assert site.client.get("/static/" + "a" * 300).status_code == 404
    assert site.client.get("/static/" + "/".join(["a" * 200] * 30)).status_code == 404


def test_the_server_of_an_ipv6_address_knows_its_user(start: Start) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    site = start({"rest.bind-address": "::1"})

    assert site.get("/jobs")["jobs"]
