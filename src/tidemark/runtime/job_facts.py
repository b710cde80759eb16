"""A running job as plain data: what the control endpoint answers with. Called from any thread."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tidemark.api.graph import NodeKind
from tidemark.api.job import JobStatus
from tidemark.checkpoint.statistics import CheckpointRecord
from tidemark.config import Options
from tidemark.protocol.batch import MAX_WATERMARK
from tidemark.redaction import without_secrets
from tidemark.runtime.execution import STATISTICS_S

if TYPE_CHECKING:
    from tidemark.plan.vertex import Vertex
    from tidemark.runtime.runner import JobRunner
    from tidemark.web.facts import JobFacts

__all__ = ["checkpoint_facts", "job_facts", "job_progress", "job_summary", "operator_facts"]


def job_summary(runner: JobRunner, application_id: str | None = None) -> dict[str, Any]:
    """What a list of jobs shows."""
    execution = runner.execution
    return {
        "job_id": execution.job_id,
        "name": execution.settings.job_name,
        "status": runner.status.name,
        "start_time": round(runner.started_at * 1000),
        "application_id": application_id,
        "pid": os.getpid(),
    }


def job_facts(runner: JobRunner, application_id: str | None = None) -> dict[str, Any]:
    """Everything about a job: progress, plan, sinks with their guarantee, checkpoints in short."""
    execution = runner.execution
    settings = execution.settings
    statistics = execution.coordinator.statistics
    try:
        progress = job_progress(runner)
    except Exception as exc:
        # Slots come and go while the job restarts; the rest is worth showing all the same.
        progress = {"status": runner.status.name, "unavailable": f"{type(exc).__name__}: {exc}"}
    vertices = list(execution.plan.vertices.values())
    return {
        **job_summary(runner, application_id),
        "target": settings.configuration.get(Options.EXECUTION_TARGET),
        "state_backend": type(settings.state_backend).__name__,
        "batch_mode": settings.batch_mode,
        "mode": execution.progress.mode,
        "mode_reason": execution.progress.mode_reason,
        "parallelism": settings.parallelism,
        "slots": execution.plan.slots,
        "savepoint_directory": settings.savepoint_directory,
        "started_from": settings.savepoint_path,
        "progress": _plain(progress),
        "checkpointing": {
            "interval": settings.checkpointing.interval if settings.checkpointing.enabled else None,
            "mode": settings.checkpointing.mode.name,
            "triggered": statistics.triggered,
            "completed": statistics.completed,
            "failed": statistics.failed,
            "restored": statistics.restored,
        },
        "sources": [_node(vertex) for vertex in vertices if vertex.kind is NodeKind.SOURCE],
        "sinks": [
            {**_node(vertex), "guarantee": vertex.spec.guarantee}
            for vertex in vertices
            if vertex.kind is NodeKind.SINK
        ],
        "nodes": [_node(vertex) for vertex in vertices],
    }


def operator_facts(job: JobFacts) -> list[dict[str, Any]]:
    """What every operator does: records so far and per second, its watermark and how far that is behind the clock."""
    return [
        {
            "uid": vertex.uid,
            "name": vertex.name,
            "records_in": vertex.records_in,
            "records_out": vertex.records_out,
            "records_in_per_second": vertex.records_in_per_second,
            "records_out_per_second": vertex.records_out_per_second,
            "watermark": vertex.watermark,
            "lag_ms": None
            if vertex.watermark in (None, MAX_WATERMARK)
            else max(0, job.now - (vertex.watermark or 0)),
        }
        for vertex in job.vertices
    ]


def job_progress(runner: JobRunner) -> dict[str, Any]:
    """How a job stands: status, mode and why, attempt, epoch, records and replays among them, checkpoints, slots."""
    execution = runner.execution
    progress = execution.progress
    completed = execution.coordinator.completed.latest_checkpoint()
    done = [record for record in execution.coordinator.statistics.records() if record.is_completed]
    slots = execution.engine.stats(STATISTICS_S) if runner.status is JobStatus.RUNNING else []
    return {
        "status": runner.status.name,
        "mode": progress.mode,
        "mode_reason": progress.mode_reason,
        "attempt": progress.attempt,
        "epoch": progress.epoch,
        "records": progress.records,
        "replayed": progress.replayed,
        "watermark": progress.watermark,
        "last_epoch_ms": progress.last_epoch_ms,
        "restored_from": progress.restored_from,
        "last_checkpoint": None if completed is None else completed.checkpoint_id,
        "checkpoints": len(done),
        "checkpoints_of_attempt": sum(r.checkpoint_id >= progress.first_checkpoint for r in done),
        "state_entries": sum(slot["entries"] for slot in slots),
        "stores": _stores(slots),
        "state_age_ms": max((slot["age_ms"] for slot in slots), default=0),
        "slot_pids": execution.engine.slot_pids(),
        "failure": None if runner.failure is None else without_secrets(str(runner.failure)),
    }


def _stores(slots: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Figures of the stores of every operator, by uid, added up over its subtasks."""
    summed: dict[str, dict[str, int]] = {}
    for slot in slots:
        for uid, figures in slot["stores"].items():
            of_operator = summed.setdefault(uid, {})
            for name, value in figures.items():
                of_operator[name] = of_operator.get(name, 0) + value
    return summed


def checkpoint_facts(runner: JobRunner) -> list[dict[str, Any]]:
    """The last checkpoints and savepoints, newest first."""
    return [_checkpoint(record) for record in runner.execution.coordinator.statistics.records()]


def _checkpoint(record: CheckpointRecord) -> dict[str, Any]:
    return {
        "checkpoint_id": record.checkpoint_id,
        "status": record.status.value,
        "type": "savepoint" if record.is_savepoint else "checkpoint",
        "triggered_at": record.triggered_at,
        "ended_at": record.ended_at,
        "duration_ms": record.duration_ms,
        "slots": record.slots,
        "acknowledged": record.acknowledged,
        "state_size": record.state_size,
        "written_size": record.written_size,
        "sync_ms": record.sync_ms,
        "async_ms": record.async_ms,
        "alignment_ms": record.alignment_ms,
        "directory": record.directory,
        "reason": None if record.reason is None else record.reason.value,
        "message": record.message,
        "discarded": record.discarded,
        "quarantined": record.quarantined,
    }


def _node(vertex: Vertex) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "uid": vertex.uid,
        "kind": vertex.kind.value,
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "inputs": [{"id": edge.source, "ship_strategy": edge.ship.value} for edge in vertex.inputs],
    }


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """MessagePack and JSON want text as keys."""
    return {
        name: {str(k): v for k, v in value.items()} if isinstance(value, dict) else value
        for name, value in facts.items()
    }
