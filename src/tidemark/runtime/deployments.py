"""What each slot is told at the start of an attempt: its operators, and its part of the snapshot, if that fits."""

from __future__ import annotations

from dataclasses import replace

from tidemark.api.executor import JobSettings, explicit_max_parallelism
from tidemark.api.graph import Graph
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.layout import JobLayout, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.rescale import SubtaskRestore, map_operators, plan_restore, resolve_max_parallelism
from tidemark.checkpoint.storage.base import Storage
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.deployment import Deployment

__all__ = ["deployments", "open_savepoint"]


def open_savepoint(
    plan: JobPlan, graph: Graph, settings: JobSettings, storage: Storage
) -> tuple[JobPlan, CompletedSnapshot | None]:
    """The snapshot the job is to start from, if any, and the plan with its numbers of key groups.

    Raises:
        SavepointNotFoundError: There is nothing at the path.
        MetadataError: It is damaged, or not one of ours.
        UnmappedStateError: It holds state of operators the job does not have.
        MaxParallelismError: The job asks for another number of key groups.
    """
    path = settings.savepoint_path
    if path is None:
        return plan, None
    directory = resolve_snapshot_path(storage, path)
    metadata = read_metadata(storage, directory)
    mapped = map_operators(metadata, _uids(plan), settings.allow_non_restored_state)
    adopted = {
        vertex.uid: resolve_max_parallelism(
            mapped.get(vertex.uid),
            vertex.parallelism,
            explicit_max_parallelism(graph.nodes[vertex.id], settings),
            vertex.max_parallelism,
        )
        for vertex in plan.in_slots()
        if vertex.keyed
    }
    snapshot = CompletedSnapshot(metadata.checkpoint_id, directory, Origin.EXTERNAL, metadata.timestamp)
    return plan.with_max_parallelism(adopted), snapshot


def deployments(
    common: Deployment,
    plan: JobPlan,
    layout: JobLayout,
    snapshot: CompletedSnapshot | None,
    metadata: CheckpointMetadata | None,
) -> list[Deployment]:
    """What each slot is told: `common`, with its number and its share of the snapshot."""
    if snapshot is None or metadata is None:
        return [replace(common, slot=slot) for slot in range(plan.slots)]
    own = snapshot.origin is Origin.CHECKPOINT
    location = layout.checkpoint(snapshot.checkpoint_id) if own else savepoint_location(snapshot.directory)
    shares: list[dict[str, SubtaskRestore]] = [{} for _ in range(plan.slots)]
    mapped = map_operators(metadata, _uids(plan), allow_non_restored_state=True)
    for vertex in plan.in_slots():
        operator = mapped.get(vertex.uid)
        if operator is not None:
            for share in plan_restore(operator, metadata, location, vertex.parallelism):
                shares[share.index][vertex.uid] = share
    return [
        replace(
            common,
            slot=slot,
            restore=shares[slot],
            restored_id=snapshot.checkpoint_id,
            same_job=own,
        )
        for slot in range(plan.slots)
    ]


def _uids(plan: JobPlan) -> list[str]:
    return [vertex.uid for vertex in plan.vertices.values()]
