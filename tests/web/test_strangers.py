"""Those who open connections and say nothing, and other users of the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import httpx
import pytest
from tests.web.conftest import DEADLINE_S, Site, Start, until

from tidemark.rpc.peers import peer_uid
from tidemark.web.connections import MOST_CONNECTIONS

_AS_NOBODY = """
import os, socket, sys
"loaded while it can be read".encode("idna")
os.setgid(65534); os.setuid(65534)
for method, path in (("GET", "/v1/jobs"), ("GET", "/metrics"), ("PATCH", sys.argv[2]), ("GET", "/v1/events")):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    connection.sendall(f"{method} {path} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n".encode())
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


@pytest.mark.parametrize("said", [b"", b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_without_a_token_other_users_of_the_machine_are_refused(start: Start) -> None:
    site = start()

    asked = [sys.executable, "-c", _AS_NOBODY, str(_port(site)), f"/v1/jobs/{site.job_id}"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=DEADLINE_S)

    assert told.stdout.split() == ["403"] * 4
    assert site.get("/jobs")["jobs"] == [{"id": site.job_id, "status": "RUNNING"}]


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
