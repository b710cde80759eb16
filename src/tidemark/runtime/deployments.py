"""What each slot is told at the start of an attempt: its operators, and its part of the snapshot, if that fits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tidemark.api.executor import JobSettings, explicit_max_parallelism
from tidemark.api.graph import Graph
from tidemark.checkpoint.completed import CompletedSnapshot, Origin
from tidemark.checkpoint.layout import JobLayout, resolve_snapshot_path, savepoint_location
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.rescale import SubtaskRestore, map_operators, plan_restore, resolve_max_parallelism
from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import MetadataError, SavepointNotFoundError, StorageError, StorageVerdict
from tidemark.plan.job_plan import JobPlan
from tidemark.protocol.deployment import Deployment

__all__ = ["deployments", "open_savepoint"]

_log = logging.getLogger(__name__)


def open_savepoint(
    plan: JobPlan,
    graph: Graph,
    settings: JobSettings,
    storage: Storage,
    recovered: Sequence[CompletedSnapshot] = (),
) -> tuple[JobPlan, Sequence[CompletedSnapshot]]:
    """The snapshots the job may start from, if any, and the plan with their numbers of key groups.

    Args:
        plan: Of the job.
        graph: What it was made from.
        settings: Name the savepoint the user wants.
        storage: Where it lies.
        recovered: What former drivers of the job completed, newest first; goes before the user's savepoint.

    Raises:
        SavepointNotFoundError: There is nothing at the path.
        MetadataError: It is damaged, or not one of ours.
        UnmappedStateError: It holds state of operators the job does not have.
        MaxParallelismError: The job asks for another number of key groups.
    """
    path, given = settings.savepoint_path, bool(recovered)
    if recovered:
        metadata = _first_intact(storage, recovered)
    elif path is not None:
        directory = resolve_snapshot_path(storage, path)
        metadata = read_metadata(storage, directory)
        recovered = [
            CompletedSnapshot(metadata.checkpoint_id, directory, Origin.EXTERNAL, metadata.timestamp)
        ]
    else:
        return plan, ()
    mapped = map_operators(metadata, _uids(plan), settings.allow_non_restored_state)
    adopted = {
        vertex.uid: resolve_max_parallelism(
            mapped.get(vertex.uid),
            vertex.parallelism,
            # A job that comes back may have been rescaled since its program said how many it wants.
            None if given else explicit_max_parallelism(graph.nodes[vertex.id], settings),
            vertex.max_parallelism,
        )
        for vertex in plan.in_slots()
        if vertex.keyed
    }
    return plan.with_max_parallelism(adopted), recovered


def _first_intact(storage: Storage, snapshots: Sequence[CompletedSnapshot]) -> CheckpointMetadata:
    """Of the newest snapshot that can be read; which one is restored is decided when an attempt starts."""
    for snapshot in snapshots[:-1]:
        try:
            return read_metadata(storage, snapshot.directory)
        except (SavepointNotFoundError, MetadataError) as exc:
            _log.warning("%s cannot be read: %s", snapshot.directory, exc)
        except StorageError as exc:
            if exc.verdict is StorageVerdict.TRANSIENT:
                raise
            _log.warning("%s cannot be read: %s", snapshot.directory, exc)
    return read_metadata(storage, snapshots[-1].directory)


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
            groups = vertex.max_parallelism if vertex.keyed else None
            for share in plan_restore(operator, metadata, location, vertex.parallelism, groups):
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
