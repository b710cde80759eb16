"""Starting slot processes: whose scratch directory it is, and what happens to that of a slot that was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tidemark.runtime.launch import launch_slots
from tidemark.scratch import sweep_scratch
from tidemark.wire import listen


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Path, str]]:
    """A slot whose driver never answers: its pid, its scratch directory and the directory above."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr(tempfile, "tempdir", base)
        listener, address = listen("tcp:127.0.0.1:0")
        setting = {
            "driver": address,
            "token": "00" * 32,
            "slot": 3,
            "job_id": "ab" * 16,
            "bind": "127.0.0.1",
            "query_ports": [],
        }
        [(_slot, pid, log)] = launch_slots(iter([setting]))
        try:
            yield pid, Path(log).parent, base
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            listener.close()


def test_the_scratch_directory_belongs_to_the_slot_as_long_as_it_lives(launched) -> None:
    pid, scratch, base = launched

    assert scratch.name.startswith("tidemark-abababab-3-")
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert sweep_scratch(base) == []

    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)
    assert sweep_scratch(base) == [str(scratch)]
    assert not scratch.exists()
