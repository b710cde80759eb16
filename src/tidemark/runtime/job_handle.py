"""The client of a job that runs in this process."""

from __future__ import annotations

from typing import Any

from tidemark.api.job import JobClient, JobExecutionResult, JobStatus
from tidemark.futures import CompletableFuture
from tidemark.ids import JobID
from tidemark.runtime.job_facts import job_progress
from tidemark.runtime.runner import JobRunner

__all__ = ["JobHandle"]


class JobHandle(JobClient):
    """The client of a job that runs in this process."""

    def __init__(self, runner: JobRunner) -> None:
        self.runner = runner

    def get_job_id(self) -> JobID:
        """Id of the job."""
        return JobID(self.runner.execution.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Status now."""
        return CompletableFuture.completed(self.runner.status)

    def cancel(self) -> CompletableFuture[None]:
        """End the job; completes when every slot is gone."""
        self.runner.cancel()
        outcome: CompletableFuture[None] = CompletableFuture()
        self.runner.result.add_done_callback(lambda _done: outcome.set_result(None))
        return outcome

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and finish."""
        return self.runner.stop(advance_to_end_of_event_time, savepoint_directory)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint and go on."""
        return self.runner.savepoint(savepoint_directory)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Counters of the user's functions now."""
        if self.runner.status is JobStatus.RUNNING:
            self.runner.execution.refresh_statistics()
        return CompletableFuture.completed(self.runner.execution.accumulators())

    def get_progress(self) -> dict[str, Any]:
        """How the job stands, as plain data: status, mode and why, attempt, records, checkpoints, state, slots."""
        return job_progress(self.runner)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Completes when the job has finished; fails when it failed or was cancelled."""
        return self.runner.result
