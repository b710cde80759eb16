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
from tidemark.job_logs import list_logs, read_tail, slot_log
from tidemark.processes import process_figures
from tidemark.redaction import shown_value
from tidemark.runtime.execution import STATISTICS_S
from tidemark.runtime.progress import add_numbers
from tidemark.runtime.runner import JobRunner
from tidemark.runtime.vertex_view import VertexView, known_watermark
from tidemark.runtime.view_parts import CheckpointMemory, failure_of, settings_of, states_of
from tidemark.web.facts import (
    CheckpointFacts,
    CheckpointHistory,
    JobFacts,
    OperatorStates,
    Series,
    SlotFacts,
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
        self._vertices = VertexView(runner.execution, round(runner.started_at * 1000))
        self._ring = SeriesRing()
        self._history = CheckpointMemory(runner.execution)
        self._figures: list[dict[str, Any]] = []
        self._ended_at: int | None = None
        self._host = socket.gethostname()
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
        """Its log files; of those on other machines only the names are known, and their size is given as 0."""
        elsewhere = [slot.index for slot in self.facts().slots if slot.host != self._host]
        return {**dict.fromkeys([slot_log(index) for index in elsewhere], 0), **list_logs(self.job_id)}

    def log(self, name: str) -> str | None:
        """The end of a log file; a slot on another machine is asked for its own."""
        found = read_tail(self.job_id, name)
        if found is None:
            slots = {slot_log(slot.index): slot.index for slot in self.facts().slots}
            if name in slots:
                found = self._execution.engine.slot_log(slots[name], STATISTICS_S)
        return found

    def sample(self) -> None:
        """A second has passed: plain reads only."""
        execution = self._execution
        progress, last = execution.progress, execution.coordinator.statistics.last_completed
        self._ring.add(
            Sample(
                round(time.time() * 1000),
                progress.records,
                sum(progress.records_in(vertex) for vertex in execution.plan.of_kind(NodeKind.SINK)),
                None if progress.latency_ms is None else round(progress.latency_ms, 3),
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

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        """Go on with another parallelism."""
        return self._runner.rescale(parallelism)

    def cancel(self) -> None:
        """End the job."""
        self._runner.cancel()

    # Putting facts together

    def _make(self) -> JobFacts:
        runner, execution = self._runner, self._execution
        settings, progress = execution.settings, execution.progress
        now = round(time.time() * 1000)
        attempt = max(0, progress.attempt)
        if runner.status is JobStatus.RUNNING:
            self._figures = execution.engine.figures(STATISTICS_S)
        # Those of another attempt would be shown as this one's, and its counters would go back.
        figures = self._figures = [slot for slot in self._figures if slot["attempt"] == attempt]
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
            mode=progress.mode,
            mode_reason=progress.mode_reason,
            attempt=attempt,
            epoch=progress.epoch,
            records=progress.records,
            replayed=progress.replayed,
            records_in_per_second=records_in,
            latency_ms=None if progress.latency_ms is None else round(progress.latency_ms, 3),
            latency=execution.latency.quantiles(),
            watermark=known_watermark(progress.watermark),
            restored_from=progress.restored_from,
            started_from=settings.savepoint_path,
            parallelism=settings.parallelism,
            max_parallelism=settings.max_parallelism,
            batch_mode=settings.batch_mode,
            target=settings.configuration.get(Options.EXECUTION_TARGET),
            state_backend=type(settings.state_backend).__name__,
            incremental=execution.backend.incremental,
            checkpoint_storage=type(settings.checkpoint_storage).__name__
            if settings.checkpoint_storage
            else "",
            restart_strategy=str(settings.restart_strategy),
            checkpointing={
                name: value.name if isinstance(value, Enum) else value
                for name, value in checkpointing.items()
            },
            job_parameters={
                key: shown_value(key, str(value)) for key, value in settings.job_parameters.items()
            },
            vertices=self._vertices.facts(figures, *self._history.newest(), now),
            slots=tuple([_slot(slot) for slot in figures if slot.get("slot") is not None]),
            failures=tuple([failure_of(failure) for failure in reversed(list(runner.attempt_failures))]),
            restarts=attempt,
            metrics=_accumulators(progress.task_metrics, figures),
            user_metrics=_user_metrics(progress.task_metrics, figures),
            settings=self._settings,
            query_statistics=self._query_statistics(),
            pid=os.getpid(),
            host=self._host,
            rss=process["rss"],
            cpu_s=process["cpu_s"],
        )


def _slot(told: dict[str, Any]) -> SlotFacts:
    groups = {uid: o["key_groups"] for uid, o in told["operators"].items() if o["key_groups"] is not None}
    return SlotFacts(
        told["slot"],
        told["host"],
        told["pid"],
        told["rss"],
        told["cpu_s"],
        told["age_ms"],
        groups,
        told.get("queries", {}),
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
