"""Which snapshot a job goes on from, and what becomes of those that cannot be used.

A snapshot that cannot be reached is tried again by the next attempt; one that is damaged goes into quarantine,
and the job goes back to an older one only as far as its visible output allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from tidemark.api.functions import CheckpointListener
from tidemark.checkpoint.completed import CompletedSnapshot, CompletedSnapshots, Origin
from tidemark.checkpoint.fallback import LeftBehind, Publisher, decide_fallback
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.config import Options
from tidemark.errors import (
    MetadataError,
    RestoreError,
    SavepointNotFoundError,
    StorageError,
    StorageVerdict,
)
from tidemark.plan.vertex import Vertex
from tidemark.runtime.storage import StoragePlan

if TYPE_CHECKING:
    from tidemark.runtime.execution import JobExecution

__all__ = ["Deploy", "restore_newest"]

_log = logging.getLogger(__name__)

Deploy = Callable[[CompletedSnapshot | None, CheckpointMetadata | None], None]
"""Brings every slot to a snapshot, or to the beginning."""

_UNREADABLE = (StorageError, SavepointNotFoundError, MetadataError)


def restore_newest(
    job: JobExecution, storage: StoragePlan, deploy: Deploy
) -> tuple[CompletedSnapshot | None, CheckpointMetadata | None]:
    """Deploy with the newest snapshot that is intact, and return it; without any if there never was one.

    Raises:
        StorageError: A snapshot could not be reached. Nothing was given up; the restart strategy decides.
        RestoreError: Every snapshot is damaged, or going back further would repeat visible output.
    """
    completed = job.coordinator.completed
    problems: list[str] = []
    for candidate in completed.candidates():
        try:
            metadata = read_metadata(storage.for_directory(candidate.directory), candidate.directory)
            left = [LeftBehind(s, _listing(s, completed, storage)) for s in completed.left_behind(candidate)]
            policy = job.settings.configuration.get(Options.CHECKPOINTING_ALLOW_FALLBACK)
            fallback = decide_fallback(policy, candidate, left, *_outputs(job))
            deploy(candidate, metadata)
        except _UNREADABLE as exc:
            if not _is_damage(exc, completed, storage):
                raise
            problems.append(f"{candidate.directory}: {exc}")
            if candidate.origin is not Origin.EXTERNAL:
                job.snapshots.quarantine(candidate, str(exc))
            continue
        if fallback.warning:
            _log.warning("%s", fallback.warning)
        for newer in fallback.withdraw:
            _withdraw(job, newer, metadata)
        completed.went_back(candidate)
        return candidate, metadata
    if problems or completed.quarantined():
        # Starting from nothing would apply every record a second time.
        raise RestoreError(
            "None of the job's snapshots can be restored. "
            + " ".join(problems)
            + " They were kept. Start the job from another checkpoint or savepoint with 'tidemark run -s'."
        )
    deploy(None, None)
    return None, None


def _is_damage(exc: StorageError | RestoreError, completed: CompletedSnapshots, storage: StoragePlan) -> bool:
    """Whether an error tells of the snapshot itself, not of the way to it.

    Raises:
        StorageError: All snapshots are missing, directories and all: an unmounted disk, a share that is away.
            They may come back.
    """
    if isinstance(exc, MetadataError):
        return True
    if isinstance(exc, StorageError) and exc.verdict is not StorageVerdict.MISSING:
        return exc.verdict is StorageVerdict.DAMAGED
    directories = [s.directory for s in (*completed.candidates(), *completed.quarantined())]
    if any(storage.for_directory(directory).exists(directory) for directory in directories):
        return True
    raise StorageError(
        f"All snapshots of the job are gone, the newest from {directories[0]}. Bring the place back.",
        path=directories[0],
    ) from exc


def _listing(
    snapshot: CompletedSnapshot, completed: CompletedSnapshots, storage: StoragePlan
) -> CheckpointMetadata | None:
    """The metadata of a snapshot that is left behind, None if it is damaged."""
    try:
        return read_metadata(storage.for_directory(snapshot.directory), snapshot.directory)
    except _UNREADABLE as exc:
        if not _is_damage(exc, completed, storage):
            raise
        return None


def _outputs(job: JobExecution) -> tuple[list[Publisher], list[str]]:
    """Whatever lets something out when a checkpoint completes, and the names of sinks that do so at once."""
    publishers, repeating = [], []
    for sink in job.sinks.values():
        name = f"sink '{sink.vertex.name}'"
        if sink.publishes:
            # Taking back nothing tells whether it could take back something.
            publishers.append(Publisher(name, sink.withdraw(b"", b"")))
        else:
            repeating.append(name)
    for vertex in job.plan.in_slots():
        if _acts_on_completion(vertex):
            publishers.append(Publisher(f"function '{vertex.name}'", withdraws=False))
    return publishers, repeating


def _acts_on_completion(vertex: Vertex) -> bool:
    parts = [getattr(vertex.spec, part.name) for part in fields(vertex.spec)]
    return any(
        isinstance(part, CheckpointListener)
        and type(part).notify_checkpoint_complete is not CheckpointListener.notify_checkpoint_complete
        for part in parts
    )


def _withdraw(job: JobExecution, newer: CheckpointMetadata, kept: CheckpointMetadata) -> None:
    for sink in job.sinks.values():
        uid = sink.vertex.uid
        prepared = newer.sink_commits.get(uid, b"")
        if prepared:
            sink.withdraw(prepared, kept.sink_commits.get(uid, b""))
