"""Operations that take a while: each has an id, to be asked for its outcome later, as Flink's clients do."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark.errors import IllegalStateError
from tidemark.futures import CompletableFuture

__all__ = ["Operation", "Triggers"]

_KEPT = 1000
"""Operations remembered over all jobs; the oldest ones that have ended are forgotten first."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, under way or done."""

    id: str
    job_id: str
    kind: str
    """`savepoints`, `checkpoints`, `stop`, `rescaling`, `disposal`."""
    future: CompletableFuture[str]
    started_at: int = field(default_factory=lambda: round(time.time() * 1000))
    told: threading.Event = field(default_factory=threading.Event)
    """Set when somebody has asked for the outcome and got it."""

    @property
    def status(self) -> str:
        """`IN_PROGRESS`, or `COMPLETED`, however it ended."""
        return "COMPLETED" if self.future.done() else "IN_PROGRESS"

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it has."""
        return self.future.exception(0) if self.future.done() else None


class Triggers:
    """The operations of one server. Thread-safe."""

    def __init__(self) -> None:
        """There are none."""
        self._lock = threading.Lock()
        self._operations: OrderedDict[str, Operation] = OrderedDict()

    def begin(
        self, job_id: str, kind: str, start: Callable[[], CompletableFuture[str]], wanted: str | None = None
    ) -> str:
        """Start an operation and remember it; returns its id, which is `wanted` if the caller chose one.

        Asking again with the same id starts nothing: a caller may repeat a request whose answer was lost.

        Raises:
            IllegalStateError: Another operation has the wanted id.
        """
        with self._lock:
            known = self._operations.get(wanted or "")
            if known is not None:
                if (known.job_id, known.kind) != (job_id, kind):
                    raise IllegalStateError(f"triggerId '{wanted}' is that of another operation.")
                return known.id
            operation = Operation(wanted or uuid.uuid4().hex, job_id, kind, start())
            self._operations[operation.id] = operation
            for old in [key for key, known in self._operations.items() if known.future.done()]:
                if len(self._operations) <= _KEPT:
                    break
                del self._operations[old]
        return operation.id

    def find(self, operation_id: str, job_id: str = "", *kinds: str) -> Operation | None:
        """The operation of that id, if it is of that job and of one of those kinds."""
        with self._lock:
            found = self._operations.get(operation_id)
        return found if found is not None and found.job_id == job_id and found.kind in kinds else None

    def settle(self, job_id: str, timeout: float) -> None:
        """Wait until the outcomes of a job's operations have been asked for, `timeout` seconds at most.

        Flink's cluster outlives its jobs, and its clients poll: without this, one that stopped a job would never hear
        of the savepoint.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            waiting = [one for one in self._operations.values() if one.job_id == job_id]
        for operation in waiting:
            operation.told.wait(max(0.0, deadline - time.monotonic()))

    def of_job(self, job_id: str, *kinds: str) -> list[Operation]:
        """The operations of a job, newest first."""
        with self._lock:
            known = list(self._operations.values())
        return [one for one in reversed(known) if one.job_id == job_id and one.kind in kinds]
