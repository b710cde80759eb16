"""Those who hold connections open without asking for anything, and bodies that never end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest
from tests.web.conftest import DEADLINE_S, Site, until

from tidemark.web import bodies, connections


@pytest.fixture
def line(site: Site) -> Iterator[socket.socket]:
    with socket.create_connection(_place(site), timeout=DEADLINE_S) as opened:
        yield opened


def _place(site: Site) -> tuple[str, int]:
    return "127.0.0.1", int(site.address.rpartition(":")[2])


def _is_closed(opened: socket.socket) -> bool:
    try:
        return opened.recv(1000) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(bodies, "_PATIENCE_S", 0.2)


@pytest.mark.parametrize("said", [b"", b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_a_connection_that_does_not_ask_is_closed(hasty: None, site: Site, said: bytes) -> None:
    with socket.create_connection(_place(site), timeout=DEADLINE_S) as opened:
        opened.sendall(said)

        assert _is_closed(opened)


def test_a_second_request_that_never_ends_is_closed(hasty: None, line: socket.socket) -> None:
    line.sendall(b"GET /v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert line.recv(100).startswith(b"HTTP/1.1 200")
    line.sendall(b"GET /v1/con")

    until(lambda: _is_closed(line))


def test_a_body_that_does_not_come_is_given_up(hasty: None, site: Site, line: socket.socket) -> None:
    head = (
        f"POST /v1/jobs/{site.job_id}/savepoints HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"
    )
    line.sendall(head.encode() + b"{")

    answer = b""
    while not answer.endswith(b"}") and (part := line.recv(10_000)):
        answer += part

    assert answer.startswith(b"HTTP/1.1 408")
    assert b'{"errors":["' in answer
    assert site.of_job("/savepoints")["savepoints"] == []


@pytest.mark.parametrize("how", [b"", b"Connection: close\r\n"], ids=["kept alive", "closed"])
def test_an_answer_that_is_not_taken_is_given_up(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: bytes
) -> None:
    monkeypatch.setattr(connections, "ANSWER_S", 0.2)
    began = _connections_of(site)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(_place(site))
        asked = b"GET /static/vendor/uplot/uPlot.esm.js HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        deaf.sendall((asked + b"\r\n") * 50 + asked + how + b"\r\n")
        until(lambda: _connections_of(site) > began)

        until(lambda: _connections_of(site) == began)


def test_only_so_many_connections_are_held_and_the_job_goes_on(site: Site, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    before = site.of_job()["records"]

    with ExitStack() as crowd:
        lines = [
            crowd.enter_context(socket.create_connection(_place(site), timeout=DEADLINE_S)) for _ in range(30)
        ]
        turned_away = until(lambda: _reset(lines))
        assert turned_away >= 10

        until(lambda: site.of_job()["records"] > before)


def _connections_of(site: Site) -> int:
    """How many the server holds."""
    port = _place(site)[1]
    held = psutil.Process().net_connections("tcp4")
    return sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in held)


def _reset(lines: list[socket.socket]) -> int:
    """How many of them the server has closed."""
    count = 0
    for opened in lines:
        opened.setblocking(False)
        try:
            count += opened.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            count += 1
    return count if count >= 10 else 0


def test_a_stream_of_events_may_last(hasty: None, site: Site) -> None:
    with site.client.stream("GET", "/v1/events", params={"job": site.job_id}) as stream:
        events = [line for line, _ in zip(stream.iter_lines(), range(12), strict=False)]

    assert sum(line.startswith("data: ") for line in events) >= 3
