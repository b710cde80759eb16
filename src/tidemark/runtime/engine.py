"""The seam between the epoch loop and what runs epochs: Spark with slot processes, or this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.events import SlotEvent
from tidemark.protocol.frames import CutRequest, EraseRequest
from tidemark.protocol.reports import EpochDirective, TaskReport
from tidemark.runtime.worker import Worker

__all__ = ["Engine", "EpochResult", "EpochWork", "TaskInput"]


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What one task of an epoch reads: partition `partition` of a source, as a split."""

    source: int
    partition: int
    split: Any


@dataclass(slots=True)
class EpochWork:
    """One epoch: own splits, and DataFrames of Spark sources."""

    directive: EpochDirective
    inputs: list[TaskInput] = field(default_factory=list)
    dataframes: dict[int, Any] = field(default_factory=dict)
    """Source vertex -> DataFrame."""


@dataclass(slots=True)
class EpochResult:
    """What came out of an epoch that Spark ran to its end; user failures are in the reports."""

    reports: list[TaskReport] = field(default_factory=list)
    rows: dict[str, list[bytes]] = field(default_factory=dict)
    """Tag -> rows for the driver."""
    frames: dict[int, Any] = field(default_factory=dict)
    """Sink vertex -> DataFrame, for sinks that want one."""
    release: Callable[[], None] = lambda: None
    """Frees what `frames` need; call it when they have been used."""


class Engine(Protocol):
    """Runs epochs and talks to slots. Calls come from the job's own thread where nothing else is said.

    Whatever runs user code is waited for patiently: the job's thread calls `worker.while_waiting` meanwhile, and
    what that raises ends the wait. What was waited for may then still run; `settle` brings it to its end.

    Attributes:
        worker: Runs what may block on user code in this process, also for sinks.
    """

    worker: Worker

    def start(self, plan: JobPlan, attempt: int) -> None:
        """Settle the attempt before, then have every slot alive and empty: launch those that are missing."""

    def settle(self) -> None:
        """Wait until nothing of the attempt runs any more and its operators are closed.

        What does not return within `task.cancellation.timeout` is ended: a slot by its pid, a thread of this
        process by leaving it behind, fenced off from sinks and checkpoints.
        """

    def deploy(self, deployments: list[Deployment]) -> None:
        """Deploy to every slot; raises what the first failing slot raised."""

    def run_epoch(self, work: EpochWork) -> EpochResult:
        """Run one epoch to its end.

        Raises:
            ExecutionError: A task, worker or slot died.
        """

    def cut(self, request: CutRequest) -> list[tuple[int, BaseException | int]]:
        """Synchronous part on every slot: (slot, error or duration). Writing goes on in the background."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every slot; raises what a user's listener raised."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Tell every slot, without waiting for it; never raises."""

    def finish(self) -> None:
        """Close the operators of every slot at the regular end; raises what a user's `close` raised."""

    def source_status(self) -> dict[int, dict[int, dict[str, Any]]]:
        """Source vertex -> slot -> status of its source function."""

    def blocked_ms(self) -> int:
        """For how long one call into user code has kept a slot from going on, the longest of all."""

    def stats(self, timeout: float) -> list[dict[str, Any]]:
        """Statistics of every slot, from any thread: `entries`, `metrics`, `age_ms`.

        A slot that user code keeps from answering within `timeout` seconds is there with what it said last.
        """

    def figures(self, timeout: float) -> list[dict[str, Any]]:
        """Figures of every slot for displays, from any thread: those of `SlotHost.figures` and of its process.

        Each has its age in `age_ms`. A slot that user code keeps from answering within `timeout` seconds is there
        with what it said last.
        """

    def erase(self, request: EraseRequest, timeout: float) -> list[dict[str, dict[str, int]]]:
        """Forget a key in every slot, from any thread: operator uid -> state -> rows, of each slot.

        Raises:
            TimeoutError: A slot did not come to it within `timeout` seconds; it may do it all the same.
            IllegalStateError: The attempt does not run any more.
        """

    def slot_log(self, slot: int, timeout: float) -> str | None:
        """The end of a slot's log file, from its machine; None if that cannot be had. From any thread."""

    def slot_pids(self) -> dict[int, int]:
        """Process id of every slot; from any thread."""

    def events(self) -> list[SlotEvent]:
        """What slots said since the last call."""

    def lost(self) -> str | None:
        """Why no attempt can run in this process any more, None while one can; asked when one has failed."""

    def interrupt(self) -> None:
        """Cancel the running epoch, from another thread."""

    def stop(self) -> None:
        """End every slot, with the patience of `settle`. Idempotent; never raises."""
