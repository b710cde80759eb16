"""Snapshots in Flink's JSON. Pure, and quick for histories of ten thousand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.web.facts import CheckpointFacts, CheckpointHistory, CheckpointSubtask, JobFacts

__all__ = ["configuration", "details", "entry", "history", "statistics_of", "subtask_details", "summary"]

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


def history(found: CheckpointHistory, summarised: dict[str, Any], offset: int, limit: int) -> dict[str, Any]:
    """What `/checkpoints` answers with; `summarised` is `summary(found)`, which may be kept."""
    records = found.records
    newest = {
        "completed": _first(records, "completed", savepoint=False),
        "savepoint": _first(records, "completed", savepoint=True),
        "failed": _first(records, "failed"),
    }
    restored = next((r for r in records if r.checkpoint_id == found.restored_from), None)
    return {
        "counts": {
            "restored": found.restored,
            "total": found.triggered,
            "in_progress": found.in_progress,
            "completed": found.completed,
            "failed": found.failed,
        },
        "summary": summarised,
        "latest": {
            **{name: None if record is None else entry(record) for name, record in newest.items()},
            "restored": None
            if found.restored_from is None
            else {
                "id": found.restored_from,
                "restore_timestamp": found.restored_at,
                "is_savepoint": restored is not None and restored.is_savepoint,
                "external_path": None if restored is None else restored.directory,
            },
        },
        "history": [entry(record) for record in records[offset : offset + limit]],
        "count": found.triggered,
        "history-size": len(records),
    }


def _first(
    records: Iterable[CheckpointFacts], status: str, savepoint: bool | None = None
) -> CheckpointFacts | None:
    return next(
        (r for r in records if r.status == status and savepoint in (None, r.is_savepoint)),
        None,
    )


def entry(record: CheckpointFacts) -> dict[str, Any]:
    """One snapshot in a list."""
    status = record.status.upper().replace("-", "_")
    shown = {
        "className": record.status.replace("-", "_"),
        "id": record.checkpoint_id,
        "status": status,
        "is_savepoint": record.is_savepoint,
        "savepointFormat": "CANONICAL" if record.is_savepoint else None,
        "trigger_timestamp": record.triggered_at,
        "latest_ack_timestamp": record.triggered_at if record.ended_at is None else record.ended_at,
        "checkpointed_size": record.written_size,
        "state_size": record.state_size,
        "end_to_end_duration": 0 if record.ended_at is None else record.ended_at - record.triggered_at,
        "sync_duration": record.sync_ms,
        "async_duration": record.async_ms,
        "alignment_duration": record.alignment_ms,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": record.slots,
        "num_acknowledged_subtasks": record.acknowledged,
        "checkpoint_type": "SAVEPOINT" if record.is_savepoint else "CHECKPOINT",
        "tasks": {},
    }
    if status == "COMPLETED":
        shown.update(
            external_path=record.directory, discarded=record.discarded, quarantined=record.quarantined
        )
    if status == "FAILED":
        shown.update(failure_timestamp=record.ended_at, failure_reason=record.reason)
    if record.message is not None:
        shown["failure_message"] = record.message
    return shown


def summary(records: Iterable[CheckpointFacts]) -> dict[str, Any]:
    """Extremes, averages and quantiles over the completed snapshots that are remembered."""
    done = [record for record in records if record.status == "completed"]
    nothing = statistics_of([0] * len(done))
    return {
        "checkpointed_size": statistics_of([record.written_size for record in done]),
        "state_size": statistics_of([record.state_size for record in done]),
        "end_to_end_duration": statistics_of(
            [(record.ended_at or record.triggered_at) - record.triggered_at for record in done]
        ),
        "sync_duration": statistics_of([record.sync_ms for record in done]),
        "async_duration": statistics_of([record.async_ms for record in done]),
        "alignment_duration": statistics_of([record.alignment_ms for record in done]),
        "alignment_buffered": nothing,
        "processed_data": nothing,
        "persisted_data": nothing,
    }


def statistics_of(values: Sequence[int]) -> dict[str, float]:
    """Least, greatest, average and quantiles; all zero of nothing."""
    if not values:
        return {"min": 0, "max": 0, "avg": 0, **{name: 0.0 for name, _share in _QUANTILES}}
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
        **{name: float(ordered[min(last, int(share * len(ordered)))]) for name, share in _QUANTILES},
    }


def details(record: CheckpointFacts, parallelism: dict[str, int]) -> dict[str, Any]:
    """One snapshot with its operators; `parallelism` of each vertex that keeps state."""
    return {**entry(record), "tasks": {vid: task(record, vid, count) for vid, count in parallelism.items()}}


def task(record: CheckpointFacts, vertex: str, parallelism: int) -> dict[str, Any]:
    """The share of one operator."""
    done = record.operators.get(vertex, ())
    last = max((subtask.acknowledged_at for subtask in done), default=None)
    return {
        "id": record.checkpoint_id,
        "status": record.status.upper().replace("-", "_"),
        "latest_ack_timestamp": -1 if last is None else last,
        "checkpointed_size": sum(subtask.written_size for subtask in done),
        "state_size": sum(subtask.state_size for subtask in done),
        "end_to_end_duration": -1 if last is None else last - record.triggered_at,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": parallelism,
        "num_acknowledged_subtasks": len(done),
    }


def subtask_details(record: CheckpointFacts, vertex: str, parallelism: int) -> dict[str, Any]:
    """The share of one operator, subtask by subtask."""
    done = {subtask.index: subtask for subtask in record.operators.get(vertex, ())}
    nothing = statistics_of([0] * len(done))
    return {
        **task(record, vertex, parallelism),
        "summary": {
            "checkpointed_size": statistics_of([s.written_size for s in done.values()]),
            "state_size": statistics_of([s.state_size for s in done.values()]),
            "end_to_end_duration": statistics_of(
                [s.acknowledged_at - record.triggered_at for s in done.values()]
            ),
            "checkpoint_duration": {
                "sync": statistics_of([s.sync_ms for s in done.values()]),
                "async": statistics_of([s.async_ms for s in done.values()]),
            },
            "alignment": {
                **dict.fromkeys(("buffered", "processed", "persisted"), nothing),
                "duration": statistics_of([s.alignment_ms for s in done.values()]),
            },
            "start_delay": statistics_of(
                [s.start_delay_ms for s in done.values() if s.start_delay_ms is not None]
            ),
        },
        "subtasks": [_subtask(record, index, done.get(index)) for index in range(parallelism)],
    }


def _subtask(record: CheckpointFacts, index: int, done: CheckpointSubtask | None) -> dict[str, Any]:
    if done is None:
        return {"index": index, "status": "pending_or_failed"}
    return {
        "index": index,
        "status": "completed",
        "ack_timestamp": done.acknowledged_at,
        "end_to_end_duration": done.acknowledged_at - record.triggered_at,
        "checkpointed_size": done.written_size,
        "state_size": done.state_size,
        "checkpoint": {"sync": done.sync_ms, "async": done.async_ms},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": done.alignment_ms},
        # Flink's number for what is not known: in epochs no barrier travels.
        "start_delay": -1 if done.start_delay_ms is None else done.start_delay_ms,
        "unaligned_checkpoint": False,
        "aborted": False,
    }


def configuration(job: JobFacts) -> dict[str, Any]:
    """How checkpoints were asked for."""
    given = job.checkpointing
    retention = str(given.get("retention", ""))
    return {
        "mode": str(given.get("mode", "")).lower(),
        "interval": given.get("interval", -1),
        "timeout": given.get("timeout"),
        "min_pause": given.get("min_pause"),
        "max_concurrent": given.get("max_concurrent"),
        "num_retained": given.get("num_retained"),
        "externalization": {
            "enabled": retention != "NO_EXTERNALIZED_CHECKPOINTS",
            "delete_on_cancellation": retention != "RETAIN_ON_CANCELLATION",
        },
        "state_backend": job.state_backend,
        "checkpoint_storage": job.checkpoint_storage,
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": given.get("tolerable_failures"),
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": -1,
        "changelog_storage": "",
    }
