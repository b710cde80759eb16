"""Flink's names for our numbers, once for REST and Prometheus; and the forms in which REST lists them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.web.calls import ApiError
from tidemark.web.facts import CheckpointHistory, JobFacts, SlotFacts, SubtaskFacts, VertexFacts

__all__ = [
    "aggregated",
    "job_metrics",
    "listed",
    "slot_metrics",
    "subtask_metrics",
    "user_values",
    "vertex_subtasks",
]

Values = Mapping[str, Any]

_AGGREGATIONS = ("min", "max", "avg", "sum")


def job_metrics(job: JobFacts, checkpoints: CheckpointHistory) -> dict[str, Any]:
    """The metrics of a job as a whole."""
    last = next((r for r in checkpoints.records if r.status == "completed" and not r.is_savepoint), None)
    ended = job.now if job.end_time is None else job.end_time
    return {
        "numberOfCompletedCheckpoints": checkpoints.completed,
        "numberOfFailedCheckpoints": checkpoints.failed,
        "numberOfInProgressCheckpoints": checkpoints.in_progress,
        "totalNumberOfCheckpoints": checkpoints.triggered,
        "lastCheckpointDuration": -1 if last is None else (last.ended_at or 0) - last.triggered_at,
        "lastCheckpointSize": -1 if last is None else last.written_size,
        "lastCheckpointFullSize": -1 if last is None else last.state_size,
        "lastCheckpointProcessedData": 0,
        "lastCheckpointPersistedData": 0,
        "lastCheckpointRestoreTimestamp": -1 if checkpoints.restored_at is None else checkpoints.restored_at,
        "lastCheckpointExternalPath": "n/a" if last is None else last.directory,
        "lastCompletedCheckpointId": -1 if last is None else last.checkpoint_id,
        "uptime": ended - job.start_time if job.status == "RUNNING" else -1,
        "downtime": 0 if job.status == "RUNNING" else -1,
        "runningTime": ended - job.start_time,
        "numRestarts": job.restarts,
        "fullRestarts": job.restarts,
        "attempt": job.attempt,
        "numRecordsReplayed": job.replayed,
        **{f"latency_{name}": value for name, value in job.latency.items()},
    }


def vertex_subtasks(vertex: VertexFacts) -> Sequence[SubtaskFacts]:
    """The subtasks of a vertex; one that runs in Spark's tasks has none of its own and is shown as one."""
    if vertex.in_slots:
        return vertex.subtasks
    return (
        SubtaskFacts(
            0,
            vertex.records_in,
            vertex.records_out,
            vertex.records_in_per_second,
            vertex.records_out_per_second,
            shares=vertex.shares,
            watermark=vertex.watermark,
        ),
    )


def subtask_metrics(subtask: SubtaskFacts) -> dict[str, Any]:
    """The metrics of one subtask, as far as they are known."""
    metrics: dict[str, Any] = {
        "numRecordsIn": subtask.records_in,
        "numRecordsOut": subtask.records_out,
        "numRecordsInPerSecond": subtask.records_in_per_second,
        "numRecordsOutPerSecond": subtask.records_out_per_second,
        "currentInputWatermark": subtask.watermark,
        "heldBackFrames": subtask.held_back,
    }
    if subtask.shares is not None:
        metrics["busyTimeMsPerSecond"] = round(subtask.shares.busy * 1000, 1)
        metrics["backPressuredTimeMsPerSecond"] = round(subtask.shares.backpressured * 1000, 1)
        metrics["idleTimeMsPerSecond"] = round(subtask.shares.idle * 1000, 1)
    if subtask.times is not None:
        metrics["accumulateBusyTimeMs"] = subtask.times.busy
        metrics["accumulateBackPressuredTimeMs"] = subtask.times.backpressured
        metrics["accumulateIdleTimeMs"] = subtask.times.idle
    if subtask.barrier is not None:
        metrics["checkpointStartDelayNanos"] = subtask.barrier[0] * 1_000_000
        metrics["checkpointAlignmentTime"] = subtask.barrier[1] * 1_000_000
    return {name: value for name, value in metrics.items() if value is not None}


def slot_metrics(slot: SlotFacts) -> dict[str, Any]:
    """The metrics of a slot's process."""
    return {
        "Status.JVM.Memory.Heap.Used": slot.rss,
        "Status.JVM.CPU.Time": round(slot.cpu_s * 1e9),
        "secondsSinceLastAnswer": round(slot.age_ms / 1000, 1),
    }


def user_values(path: str, value: Any) -> dict[str, float]:
    """A user's metric as numbers: a meter and a distribution are several; what is no number is none."""
    if isinstance(value, bool):
        return {path: int(value)}
    if isinstance(value, int | float):
        return {path: value}
    if isinstance(value, Mapping):
        return {
            f"{path}_{part}": number
            for part, number in value.items()
            if isinstance(number, int | float) and not isinstance(number, bool)
        }
    return {}


def listed(values: Values, wanted: str | None) -> list[dict[str, Any]]:
    """The names, or of the wanted ones the values, as text like Flink's."""
    if wanted is None:
        return [{"id": name} for name in values]
    return [{"id": name, "value": str(values[name])} for name in wanted.split(",") if name in values]


def aggregated(found: Iterable[Values], wanted: str | None, how: str | None) -> list[dict[str, Any]]:
    """The names, or of the wanted ones the aggregations over all of `found` that have them.

    Raises:
        ApiError: 400, an aggregation is unknown.
    """
    known = list(found)
    if wanted is None:
        return [{"id": name} for name in {name: None for values in known for name in values}]
    chosen = tuple(how.split(",")) if how else _AGGREGATIONS
    unknown = [name for name in chosen if name not in _AGGREGATIONS]
    if unknown:
        raise ApiError(400, f"Unknown aggregation '{unknown[0]}'. Use {', '.join(_AGGREGATIONS)}.")
    answers = []
    for name in wanted.split(","):
        numbers = [v[name] for v in known if isinstance(v.get(name), int | float)]
        if numbers:
            every = {
                "min": min(numbers),
                "max": max(numbers),
                "avg": sum(numbers) / len(numbers),
                "sum": sum(numbers),
            }
            answers.append({"id": name, **{key: float(every[key]) for key in chosen}})
    return answers
