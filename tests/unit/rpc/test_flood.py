"""A server whose file descriptors a flood has used up serves again as soon as there are some."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest
from tests.unit.rpc.strangers import echoing, gets_through, stranger, until

_SPARE = 12


def main(address: str) -> None:
    """The server's process: says where it listens, then serves with few descriptors until its input ends."""
    import logging

    logging.basicConfig(level=logging.WARNING)
    with echoing(address) as bound:
        used = psutil.Process().num_fds()
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + _SPARE, used + _SPARE))
        print(bound, flush=True)
        sys.stdin.read()


@pytest.fixture(params=["tcp", "unix"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    wanted = f"unix:{tmp_path_factory.mktemp('s')}/s" if request.param == "unix" else "tcp:127.0.0.1:0"
    process = subprocess.Popen(
        [sys.executable, "-c", f"from tests.unit.rpc.test_flood import main; main({wanted!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with process:
        yield Server(process)
        process.stdin.close()


class Server:
    """The process, and what it has logged so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        threading.Thread(target=lambda: self.lines.extend(process.stderr), daemon=True).start()


def test_a_flood_that_uses_up_all_descriptors_does_not_end_the_server(server: Server) -> None:
    assert gets_through(server.address)

    with contextlib.ExitStack() as flood:
        for _ in range(5 * _SPARE):
            flood.enter_context(stranger(server.address))
        until(lambda: "Too many open files" in "".join(server.lines), "running out of descriptors")

    assert gets_through(server.address)
    assert server.process.poll() is None
    until(
        lambda: len(psutil.Process(server.process.pid).net_connections("all")) < _SPARE,
        "closing the strangers' sockets",
    )
