"""Drivers as processes that a test kills, freezes and starts again from the newest checkpoint.

Processes are forked from a server that has imported everything: most of a driver's life would be imports otherwise.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from multiprocessing.connection import wait as wait_for_end
from pathlib import Path
from typing import Any

from tests.kafka.broker import DEADLINE_S, wait_until

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.kafka.sink_program", "tidemark.runtime.local_executor"])


def _child(log: str, home: str, arguments: tuple[Any, ...]) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ["TIDEMARK_HOME"] = home
    from tests.kafka.sink_program import main

    try:
        main(*arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    # Not through the interpreter's end: whatever threads are left do not matter here.
    os._exit(0)


class Driver:
    """One process of `sink_program`."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        topic: str,
        mode: str,
        checkpoint: str | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        named = dict(settings or {})
        if checkpoint is not None:
            named["execution.savepoint.path"] = checkpoint
        self.log = directory / f"driver-{len(list(directory.glob('driver-*')))}.log"
        self.log.touch()
        arguments = (directory, bootstrap, topic, mode, named)
        self.process = _context.Process(
            target=_child, args=(str(self.log), str(directory / "home"), arguments), daemon=True
        )
        self.process.start()

    def send(self, what: signal.Signals) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, what)

    def kill(self) -> None:
        """`kill -9`; returns when it is gone."""
        if self.process.is_alive():
            self.process.kill()
            wait_for_end([self.process.sentinel], DEADLINE_S)

    def says(self) -> str:
        """What it has said."""
        return self.log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until it has said something."""

        def said() -> bool:
            assert self.process.is_alive() or self.says().count(text) >= times, self.says()
            return self.says().count(text) >= times

        wait_until(said, f"{text} {times} times in {self.log}", 300)

    def end(self) -> str:
        """Wait for its end, whichever; what it has said."""
        self.process.join(300)
        assert not self.process.is_alive(), f"it does not end: {self.says()}"
        return self.says()


def newest_checkpoint(directory: Path) -> str | None:
    """The newest complete one of all jobs in a directory."""
    found = list((directory / "checkpoints").glob("*/chk-*/_metadata"))
    found.sort(key=lambda path: (path.stat().st_mtime_ns, int(path.parent.name[4:])))
    return str(found[-1].parent) if found else None
