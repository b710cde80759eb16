"""Threads of the local executor that write snapshots beside the stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from tidemark.runtime.worker import Worker

__all__ = ["SnapshotPool", "SnapshotThreads"]


class SnapshotPool(Protocol):
    """Where snapshots are written beside the stream."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Call `fn(*args)` now or later."""

    def shutdown(self) -> None:
        """Finish what was submitted."""

    def abandon(self) -> None:
        """Leave what was submitted behind: it may write nothing any more."""


class SnapshotThreads:
    """A few daemon threads; user code in them (a serializer) can be abandoned."""

    def __init__(self, count: int = 2) -> None:
        """Threads start when they are first needed."""
        self._workers = [Worker(f"snapshot-{at}") for at in range(count)]
        self._turns = itertools.count()

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call `fn(*args)` in one of the threads."""
        return self._workers[next(self._turns) % len(self._workers)].post(fn, *args)

    def shutdown(self) -> None:
        """Wait for what was submitted, then end the threads."""
        for last in [worker.post(lambda: None) for worker in self._workers]:
            last.result()
        for worker in self._workers:
            worker.close()

    def abandon(self) -> None:
        """Leave the threads behind."""
        for worker in self._workers:
            worker.abandon()
