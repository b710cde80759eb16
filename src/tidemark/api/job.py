"""Handles of submitted jobs: client, status and result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidemark.futures import CompletableFuture
from tidemark.ids import JobID

__all__ = ["CompletableFuture", "JobClient", "JobExecutionResult", "JobID", "JobStatus"]


class JobStatus(Enum):
    """Where a job is in its life."""

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Whether this driver will not change the status any more."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """What is left of a job that has finished."""

    job_id: JobID
    net_runtime_ms: int = 0
    accumulators: Mapping[str, Any] = field(default_factory=dict)
    detached: bool = False

    def get_job_id(self) -> JobID:
        """Id of the job."""
        return self.job_id

    def is_job_execution_result(self) -> bool:
        """Whether the job has run to its end; False for a detached submission."""
        return not self.detached

    def get_net_runtime(self) -> int:
        """How long it ran, in ms."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Value of an accumulator, None if absent."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """All accumulators."""
        return dict(self.accumulators)

    def __str__(self) -> str:
        return (
            f"Program execution finished\nJob with JobID {self.job_id} has finished.\n"
            f"Job Runtime: {self.net_runtime_ms} ms"
        )


class JobClient(ABC):
    """Controls one submitted job; executors return it."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Id of the job."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Status now."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """End the job without a savepoint; completes when it has ended."""

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and finish; True fires all event-time timers before it. The result is its path."""

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint and go on. The result is its path."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Accumulators now."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Completes when the job has finished; fails when it failed or was cancelled."""
