"""The seam between HTTP and jobs: what a route may ask of a job, and of the jobs it serves.

There are three views: of a job in this process, of one in another process of this machine, and of one that has
ended (`runtime.job_view`, `runtime.remote_view`, `runtime.archive`). All methods may be called from any thread; none
of them waits for the job's own thread, and what acts on a job answers with a future.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tidemark.futures import CompletableFuture
from tidemark.web.facts import (
    CheckpointFacts,
    CheckpointHistory,
    JobFacts,
    OperatorStates,
    Series,
)

__all__ = ["JobView", "Jobs"]


class JobView(Protocol):
    """One job, running or ended."""

    @property
    def job_id(self) -> str:
        """Its id."""

    def facts(self) -> JobFacts:
        """Everything but its checkpoints, at most about a second old."""

    def checkpoints(self) -> CheckpointHistory:
        """Its snapshots, without their subtasks."""

    def checkpoint(self, checkpoint_id: int) -> CheckpointFacts | None:
        """One snapshot with its subtasks, None if it is not known."""

    def states(self) -> Sequence[OperatorStates]:
        """The states of its operators."""

    def query(self, name: str, key: Any) -> Any:
        """The value of a queryable state for a key, both plain data.

        Raises:
            QueryError: The state is not served, or the key has no value.
            ConfigError: The key does not have the type of the job's keys.
        """

    def series(self) -> Series:
        """Its curves."""

    def logs(self) -> dict[str, int]:
        """Name -> size of its log files: `driver.log`, `slot-0.log` ..."""

    def log(self, name: str) -> str | None:
        """The end of a log file, None if there is none of that name."""

    def savepoint(self, directory: str | None) -> CompletableFuture[str]:
        """Take a savepoint; the future gets its directory."""

    def checkpoint_now(self) -> CompletableFuture[str]:
        """Take a checkpoint; the future gets its id."""

    def stop(self, drain: bool, directory: str | None) -> CompletableFuture[str]:
        """Take a savepoint and end the job; the future gets its directory."""

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        """Go on with another parallelism; the future gets it when the job runs with it."""

    def cancel(self) -> None:
        """End the job; does not wait for its end."""


class Jobs(Protocol):
    """The jobs that a server shows."""

    def all(self) -> Sequence[JobView]:
        """All of them, running ones first."""

    def find(self, job_id: str) -> JobView | None:
        """The job of that id."""

    def configuration(self) -> dict[str, str]:
        """What the server itself was configured with; secrets are not shown."""

    def sample(self) -> None:
        """A second has passed: let curves grow. Never blocks."""

    def look(self) -> None:
        """Ask slots how they are, though nobody looks, so that there is something to show when jobs have ended."""
