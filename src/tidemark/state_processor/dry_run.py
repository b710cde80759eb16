"""What a program would do with a snapshot: a stand-in executor takes its jobs and runs none of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tidemark.api.executor import JobSettings, explicit_max_parallelism
from tidemark.api.graph import Graph, NodeKind
from tidemark.api.job import JobClient, JobExecutionResult, JobStatus
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.errors import IllegalStateError
from tidemark.futures import CompletableFuture
from tidemark.ids import JobID, new_job_id
from tidemark.plan.job_plan import build_plan
from tidemark.runtime.admission import restrict_classes
from tidemark.state_processor.state_check import StateVerdict, Verdict, check_operator, stored_states

__all__ = ["CheckReport", "DryRunExecutor"]


@dataclass(slots=True)
class CheckReport:
    """All states of the snapshot and of the program."""

    path: str
    states: list[StateVerdict] = field(default_factory=list)

    @property
    def compatible(self) -> bool:
        """Whether the program can start from the snapshot."""
        return all(state.verdict is not Verdict.INCOMPATIBLE for state in self.states)

    def plain(self) -> list[dict[str, Any]]:
        """The states as plain data."""
        return [{**asdict(state), "verdict": state.verdict.value} for state in self.states]


class DryRunExecutor:
    """Takes jobs, runs nothing, and collects verdicts over all of them."""

    def __init__(self, metadata: CheckpointMetadata, allow_non_restored_state: bool = False) -> None:
        """Check against a snapshot."""
        self._metadata = metadata
        self._allow_non_restored_state = allow_non_restored_state
        self._states: list[StateVerdict] = []
        self._uids: set[str] = set()
        self.submitted = 0

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Check the job; the client says that it has finished."""
        self.submitted += 1
        restrict_classes(settings.configuration)
        plan = build_plan(graph, settings, new_job_id())
        self._uids |= {vertex.uid for vertex in plan.vertices.values()}
        for vertex in plan.in_slots():
            operator = self._metadata.operator(vertex.uid)
            explicit = explicit_max_parallelism(graph.nodes[vertex.id], settings)
            self._states += check_operator(vertex, operator, explicit)
        for vertex in plan.of_kind(NodeKind.SOURCE):
            if self._metadata.source_positions.get(vertex.uid):
                self._states.append(StateVerdict(vertex.uid, "position", "source", Verdict.UNCHANGED))
        return _FinishedJob()

    def verdicts(self) -> list[StateVerdict]:
        """Every state of the program's jobs and of the snapshot, by operator."""
        return [*self._states, *self._unmapped()]

    def _unmapped(self) -> Iterable[StateVerdict]:
        verdict, reason = Verdict.INCOMPATIBLE, "no operator of the program has this uid; -n drops the state"
        if self._allow_non_restored_state:
            verdict, reason = Verdict.DROPPED, "no operator of the program has this uid"
        for operator in self._metadata.operators:
            if operator.uid not in self._uids and operator.has_state:
                for name, kind in stored_states(operator):
                    yield StateVerdict(operator.uid, name, kind, verdict, reason)
        for uid, data in self._metadata.source_positions.items():
            if uid not in self._uids and data:
                yield StateVerdict(uid, "position", "source", verdict, reason)
        for uid, data in self._metadata.sink_commits.items():
            if uid not in self._uids and data:
                yield StateVerdict(uid, "commits", "sink", verdict, reason)


class _FinishedJob(JobClient):
    """Stands for a job that was only looked at."""

    def __init__(self) -> None:
        self._id = JobID(new_job_id())

    def get_job_id(self) -> JobID:
        """An id of its own."""
        return self._id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Finished."""
        return CompletableFuture.completed(JobStatus.FINISHED)

    def cancel(self) -> CompletableFuture[None]:
        """Nothing runs."""
        return CompletableFuture.completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Nothing runs, so there is no savepoint to take."""
        return CompletableFuture.failed(IllegalStateError("The job was only checked, not run."))

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Nothing runs, so there is no savepoint to take."""
        return CompletableFuture.failed(IllegalStateError("The job was only checked, not run."))

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """None."""
        return CompletableFuture.completed({})

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """An empty result, at once."""
        return CompletableFuture.completed(JobExecutionResult(self._id))
