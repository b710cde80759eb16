"""Servers of queryable state that share a process."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.rpc.strangers import TOKEN, descriptors, is_dropped, stranger

from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.rpc import Limits, ServerThreads
from tidemark.runtime.local_queries import LocalQueryServers
from tidemark.slot.host import SlotHost


def test_slots_of_one_process_let_no_more_strangers_in_than_one_server(tmp_path: Path) -> None:
    slots, each = 8, 24
    hosts = [SlotHost(ManualClock(), MemoryStorage(), tmp_path / str(slot)) for slot in range(slots)]
    engine: Any = SimpleNamespace(hosts=hosts)
    servers = LocalQueryServers(engine, TOKEN, [0], ServerThreads(1, 1))
    addresses = servers.addresses()
    limit = Limits().handshakes
    assert slots * each > limit

    with contextlib.ExitStack() as clients:
        clients.callback(servers.close)
        before = descriptors()
        flood = [clients.enter_context(stranger(address)) for address in addresses for _ in range(each)]
        # Where all places are taken, somebody has to give way after a while.
        while not any(map(is_dropped, flood)):
            # A newcomer is let in before the oldest one gives way, at every server.
            assert descriptors() - before - len(flood) <= limit + slots < slots * each
