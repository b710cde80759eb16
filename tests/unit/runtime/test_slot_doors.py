"""Slot processes and their driver's registry, without Spark: which sockets they open, and what strangers do to them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.unit.rpc.strangers import DEADLINE_S, GARBAGE, TOKEN, is_dropped, stranger, until

from tidemark.errors import SlotLostError
from tidemark.rpc import socket_directory
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.slot_manager import SlotManager
from tidemark.wire import WireClosed, connect

JOB = "0123456789abcdef0123456789abcdef"


@pytest.fixture(params=["unix", "tcp"])
def manager(request: pytest.FixtureRequest) -> Iterator[SlotManager]:
    """A registry with one slot."""
    with socket_directory(JOB) as directory:
        manager = SlotManager(
            JOB,
            TOKEN,
            f"unix:{directory}/slots.sock" if request.param == "unix" else "tcp:127.0.0.1:0",
            lambda wanted: list(launch_slots(iter(wanted))),
            "127.0.0.1",
            [0],
        )
        manager.ensure(1)
        yield manager
        manager.stop()


def test_a_slot_opens_a_port_only_if_its_driver_has_one(manager: SlotManager) -> None:
    (address,) = manager.addresses()
    (pid,) = manager.pids().values()
    connections = psutil.Process(pid).net_connections("tcp")
    ports = [c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN]

    if manager.address.startswith("unix:"):
        assert (address.tcp, ports) == (None, [])
    else:
        assert address.tcp == f"tcp:127.0.0.1:{ports[0]}"
        assert len(ports) == 1


def test_garbage_ends_neither_the_registry_nor_the_slot(manager: SlotManager) -> None:
    (address,) = manager.addresses()
    for door in filter(None, [manager.address, address.unix, address.tcp]):
        for garbage in GARBAGE.values():
            with stranger(door) as sock:
                sock.sendall(garbage)
                until(lambda sock=sock: is_dropped(sock))  # type: ignore[misc]

    connect(address.unix, TOKEN, DEADLINE_S).close()
    manager.ensure(2)
    assert sorted(manager.pids()) == [0, 1]


def test_a_peer_that_registers_with_nonsense_is_dropped(manager: SlotManager) -> None:
    facts = [{}, {"slot": "first"}, {"slot": float("inf")}, "text"]
    for introduction in [None, [], *(["register", fact] for fact in facts)]:
        peer = connect(manager.address, TOKEN, DEADLINE_S)
        peer.send(introduction)

        with pytest.raises(WireClosed):
            peer.receive()
        peer.close()
    assert sorted(manager.pids()) == [0]


@pytest.mark.parametrize("manager", ["unix"], indirect=True)
def test_slots_that_are_too_many_end_and_nobody_misses_them(manager: SlotManager) -> None:
    manager.ensure(3)
    before = manager.pids()
    scratch = [Path(slot.log).parent for slot in manager._slots.values()]

    manager.ensure(1)

    assert manager.pids() == {0: before[0]}
    assert len(manager.addresses()) == 1
    until(lambda: not any(psutil.pid_exists(before[slot]) for slot in (1, 2)))
    assert [path.exists() for path in scratch] == [True, False, False]
    assert list(manager.request_all("ping")) == [0]
    assert manager.events() == []
    manager.ensure(2)
    assert sorted(manager.pids()) == [0, 1]


def test_a_slot_that_ends_before_it_registers_is_told_at_once_and_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "slot.log"

    def launch(settings: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
        ended = subprocess.Popen([sys.executable, "-c", "pass"])
        ended.wait()
        log.write_text("ImportError: half of it is missing")
        return [(setting["slot"], ended.pid, str(log)) for setting in settings]

    with socket_directory(JOB) as directory:
        manager = SlotManager(JOB, TOKEN, f"unix:{directory}/slots.sock", launch, "127.0.0.1", [0])
        with pytest.raises(
            SlotLostError, match=r"\[0\] ended before they registered.*\n.*half of it is missing"
        ):
            manager.ensure(1)
        manager.stop()
