"""A job of this process as the web shows it: plain reads of what the driver knows, and what slots said last.

Nothing here waits for the job's thread. Slots are asked at most once a second, however many people look, and only
while somebody looks; one that is busy with user code is shown as it was before.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from tidemark.api.graph import NodeKind
from tidemark.api.job import JobStatus
from tidemark.config import Options
from tidemark.futures import CompletableFuture
from tidemark.job_logs import list_logs, read_tail
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.runtime.execution import STATISTICS_S
from tidemark.runtime.progress import add_numbers
from tidemark.runtime.runner import JobRunner
from tidemark.runtime.view_parts import CheckpointMemory, VertexRates, failure_of, settings_of, states_of
from tidemark.slot.processes import process_figures
from tidemark.web.facts import (
    CheckpointFacts,
    CheckpointHistory,
    Input,
    JobFacts,
    OperatorStates,
    Series,
    SlotFacts,
    SubtaskFacts,
    VertexFacts,
    vertex_id,
)
from tidemark.web.series import Sample, SeriesRing

__all__ = ["LiveJobView"]

_FRESH_S = 0.9
"""How long facts are shown again without asking slots: streams of events come every second."""


class LiveJobView:
    """The `JobView` of a job of this process."""

    def __init__(
        self,
        runner: JobRunner,
        query: Callable[[str, Any], Any],
        query_statistics: Callable[[], dict[str, float]] = dict,
    ) -> None:
        """Look at a job.

        Args:
            runner: The job.
            query: Looks a key of a queryable state up.
            query_statistics: Figures of the queryable-state proxy, empty if they are off.
        """
        self._runner = runner
        self._execution = runner.execution
        self.query = query
        self._query_statistics = query_statistics
        self._lock = threading.Lock()
        self._facts: JobFacts | None = None
        self._made_at = 0.0
        self._rates = VertexRates()
        self._ring = SeriesRing()
        self._history = CheckpointMemory(runner.execution)
        self._figures: list[dict[str, Any]] = []
        self._ended_at: int | None = None
        vertices = self._execution.plan.vertices
        self._ids = {key: vertex_id(vertex.uid) for key, vertex in vertices.items()}
        self._settings = settings_of(self._execution.settings)

    @property
    def job_id(self) -> str:
        """Its id."""
        return self._execution.job_id

    # What it tells

    def facts(self) -> JobFacts:
        """Everything but its checkpoints, at most a second old."""
        with self._lock:
            facts, status = self._facts, self._runner.status.name
            fresh = time.monotonic() - self._made_at < _FRESH_S
            if facts is None or not fresh or facts.status != status:
                facts = self._facts = self._make()
                self._made_at = time.monotonic()
            return facts

    def checkpoints(self) -> CheckpointHistory:
        """Its snapshots."""
        return self._history.history()

    def checkpoint(self, checkpoint_id: int) -> CheckpointFacts | None:
        """One snapshot with its subtasks."""
        return self._history.details(checkpoint_id)

    def states(self) -> Sequence[OperatorStates]:
        """The states of its operators."""
        self.facts()
        sizes = self._execution.coordinator.statistics.state_sizes
        return states_of(self._execution.plan.in_slots(), self._figures, sizes)

    def series(self) -> Series:
        """Its curves."""
        return self._ring.series()

    def logs(self) -> dict[str, int]:
        """Its log files on this machine."""
        return list_logs(self.job_id)

    def log(self, name: str) -> str | None:
        """The end of a log file."""
        return read_tail(self.job_id, name)

    def sample(self) -> None:
        """A second has passed: plain reads only."""
        execution = self._execution
        progress, last = execution.progress, execution.coordinator.statistics.last_completed
        self._ring.add(
            Sample(
                round(time.time() * 1000),
                progress.records,
                sum(progress.records_in(vertex) for vertex in execution.plan.of_kind(NodeKind.SINK)),
                round(progress.last_epoch_ms, 3) if progress.epoch or progress.records else None,
                None if last is None else last.duration_ms,
                None if last is None else last.state_size,
            )
        )

    def ended(self, at: int) -> None:
        """The job is over; nothing changes any more."""
        self._ended_at = at
        with self._lock:
            self._facts = None

    # What it does

    def savepoint(self, directory: str | None) -> CompletableFuture[str]:
        """Take a savepoint."""
        return self._runner.savepoint(directory)

    def checkpoint_now(self) -> CompletableFuture[str]:
        """Take a checkpoint."""
        return self._runner.checkpoint()

    def stop(self, drain: bool, directory: str | None) -> CompletableFuture[str]:
        """Take a savepoint and end the job."""
        return self._runner.stop(drain, directory)

    def cancel(self) -> None:
        """End the job."""
        self._runner.cancel()

    # Putting facts together

    def _make(self) -> JobFacts:
        runner, execution = self._runner, self._execution
        settings, progress = execution.settings, execution.progress
        now = round(time.time() * 1000)
        if runner.status is JobStatus.RUNNING:
            self._figures = execution.engine.figures(STATISTICS_S)
        figures = self._figures
        records_in, _records_out = self._ring.rates()
        checkpointing = asdict(settings.checkpointing)
        process = process_figures()
        return JobFacts(
            job_id=execution.job_id,
            name=settings.job_name,
            status=runner.status.name,
            start_time=round(runner.started_at * 1000),
            end_time=self._ended_at,
            now=now,
            attempt=max(0, progress.attempt),
            epoch=progress.epoch,
            records=progress.records,
            replayed=progress.replayed,
            records_in_per_second=records_in,
            latency_ms=round(progress.last_epoch_ms, 3),
            latency=execution.latency.quantiles(),
            watermark=_known(progress.watermark),
            restored_from=progress.restored_from,
            started_from=settings.savepoint_path,
            parallelism=settings.parallelism,
            max_parallelism=settings.max_parallelism,
            batch_mode=settings.batch_mode,
            mode=progress.mode,
            mode_reason=progress.mode_reason,
            target=settings.configuration.get(Options.EXECUTION_TARGET),
            state_backend=type(settings.state_backend).__name__,
            checkpoint_storage=type(settings.checkpoint_storage).__name__
            if settings.checkpoint_storage
            else "",
            restart_strategy=str(settings.restart_strategy),
            checkpointing={
                name: value.name if isinstance(value, Enum) else value
                for name, value in checkpointing.items()
            },
            job_parameters={key: str(value) for key, value in settings.job_parameters.items()},
            vertices=self._vertices(figures, now),
            slots=tuple([_slot(slot) for slot in figures if slot.get("slot") is not None]),
            failures=tuple([failure_of(failure) for failure in reversed(list(runner.attempt_failures))]),
            restarts=max(0, progress.attempt),
            metrics=_accumulators(progress.task_metrics, figures),
            user_metrics=_user_metrics(progress.task_metrics, figures),
            settings=self._settings,
            query_statistics=self._query_statistics(),
            pid=os.getpid(),
            host=socket.gethostname(),
            rss=process["rss"],
            cpu_s=process["cpu_s"],
        )

    def _vertices(self, figures: list[dict[str, Any]], now: int) -> tuple[VertexFacts, ...]:
        marks, sizes = self._marks(), self._history.operator_sizes()
        subtasks: dict[str, list[SubtaskFacts]] = {}
        for slot in figures:
            for uid, told in slot["operators"].items():
                busy = self._rates.busy(uid, told["subtask"], now - slot["age_ms"], told["busy_ms"])
                subtasks.setdefault(uid, []).append(
                    SubtaskFacts(
                        told["subtask"],
                        told["records_in"],
                        told["records_out"],
                        told["busy_ms"],
                        busy,
                        told["watermark"],
                        slot["host"],
                        told["native"],
                        told["held_back"],
                    )
                )
        return tuple(
            [
                self._vertex(vertex, tuple(subtasks.get(vertex.uid, ())), marks, sizes, now)
                for vertex in self._execution.plan.vertices.values()
            ]
        )

    def _vertex(
        self,
        vertex: Vertex,
        subtasks: tuple[SubtaskFacts, ...],
        marks: dict[int, int | None],
        sizes: dict[str, int],
        now: int,
    ) -> VertexFacts:
        progress = self._execution.progress
        records_in, records_out = progress.records_in(vertex), progress.records_out.get(vertex.id, 0)
        since = round(self._runner.started_at * 1000)
        rate_in, rate_out = self._rates.records(vertex.uid, now, since, records_in, records_out)
        in_slots = vertex.placement.value == "slot"
        shares = [subtask.busy for subtask in subtasks if subtask.busy is not None]
        # A slot answers before it is sent more, so it never waits for those behind it; tasks wait for slots.
        busy = round(sum(shares) / len(shares), 4) if shares else None
        waits, idle = (0.0 if in_slots else None), None if busy is None else round(1 - busy, 4)
        of_tasks = None if in_slots else progress.mean_shares()
        if of_tasks is not None:
            busy, waits, idle = of_tasks
        return VertexFacts(
            id=self._ids[vertex.id],
            uid=vertex.uid,
            name=vertex.name,
            kind=vertex.kind.value,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            in_slots=in_slots,
            inputs=tuple([Input(self._ids[edge.source], edge.ship.value) for edge in vertex.inputs]),
            records_in=records_in,
            records_out=records_out,
            records_in_per_second=rate_in,
            records_out_per_second=rate_out,
            watermark=marks.get(vertex.id),
            state_bytes=sizes.get(self._ids[vertex.id]),
            busy=busy,
            subtasks=subtasks,
            backpressured=waits,
            idle=idle,
            spent_ms=None if of_tasks is None else progress.spent_ms,
        )

    def _marks(self) -> dict[int, int | None]:
        """Watermark of every vertex; what has none of its own has the lowest of its inputs."""
        own = self._execution.marks()
        marks: dict[int, int | None] = {}
        for vertex in self._execution.plan.vertices.values():
            if vertex.uid in own:
                marks[vertex.id] = _known(own[vertex.uid])
            else:
                above = [marks.get(edge.source) for edge in vertex.inputs]
                known = [mark for mark in above if mark is not None]
                marks[vertex.id] = min(known) if known and len(known) == len(above) else None
        return marks


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark


def _slot(told: dict[str, Any]) -> SlotFacts:
    groups = {uid: o["key_groups"] for uid, o in told["operators"].items() if o["key_groups"] is not None}
    return SlotFacts(
        told["slot"], told["host"], told["pid"], told["rss"], told["cpu_s"], told["age_ms"], groups
    )


def _accumulators(task_metrics: dict[str, Any], figures: list[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(task_metrics)
    for slot in figures:
        add_numbers(merged, slot["metrics"])
    return merged


def _user_metrics(
    task_metrics: dict[str, Any], figures: list[dict[str, Any]]
) -> tuple[tuple[int | None, str, Any], ...]:
    of_tasks = [(None, path, value) for path, value in task_metrics.items()]
    of_slots = [(slot["slot"], path, value) for slot in figures for path, value in slot["metrics"].items()]
    return (*of_tasks, *of_slots)
