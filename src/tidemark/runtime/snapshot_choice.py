"""Which snapshot a job goes on from, and what becomes of those that cannot be used.

A snapshot that cannot be reached is tried again by the next attempt; one that is damaged goes into quarantine,
and the job goes back to an older one only as far as its visible output allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields

from tidemark.api.functions import CheckpointListener
from tidemark.checkpoint.completed import CompletedSnapshot, CompletedSnapshots, Origin
from tidemark.checkpoint.fallback import Fallback, LeftBehind, Publisher, decide_fallback
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.checkpoint.metadata.registry import digest_of, read_metadata
from tidemark.config.modes import FallbackPolicy
from tidemark.errors import (
    FencedError,
    MetadataError,
    RestoreError,
    SavepointNotFoundError,
    StorageError,
    StorageVerdict,
)
from tidemark.paths import join, parent
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sinks.driver import DriverSink
from tidemark.runtime.storage_plan import StoragePlan
from tidemark.runtime.worker import Worker

__all__ = ["Deploy", "SnapshotChoice"]

_log = logging.getLogger(__name__)

Deploy = Callable[[CompletedSnapshot | None, CheckpointMetadata | None], None]
"""Brings every slot to a snapshot, or to the beginning."""

_UNREADABLE = (StorageError, SavepointNotFoundError, MetadataError)


@dataclass(frozen=True, slots=True)
class SnapshotChoice:
    """Finds the snapshot an attempt starts from.

    Attributes:
        completed: The snapshots there are.
        storage: Where they lie.
        policy: How far the job may go back behind what it has published.
        sinks: What publishes, and may take back.
        functions: The vertices in slots; some act on completed checkpoints.
        worker: Reads them, and talks to sinks: both may hang.
        quarantine: Told about every damaged snapshot of the job's own, and what is wrong with it.
    """

    completed: CompletedSnapshots
    storage: StoragePlan
    policy: FallbackPolicy
    sinks: Collection[DriverSink]
    functions: Collection[Vertex]
    worker: Worker
    quarantine: Callable[[CompletedSnapshot, str], None]

    def restore_newest(self, deploy: Deploy) -> tuple[CompletedSnapshot | None, CheckpointMetadata | None]:
        """Deploy with the newest snapshot that is intact, and return it; without any if there never was one.

        Raises:
            StorageError: A snapshot could not be reached. Nothing was given up; the restart strategy decides.
            RestoreError: Every snapshot is damaged, or going back further would repeat visible output.
        """
        problems: list[str] = []
        for candidate in self.completed.candidates():
            try:
                metadata, fallback = self._try_twice(candidate, deploy)
            except _UNREADABLE as exc:
                if not self._is_damage(exc):
                    raise
                problems.append(f"{candidate.directory}: {exc}")
                self.quarantine(candidate, str(exc))
                continue
            if fallback.warning:
                _log.warning("%s", fallback.warning)
            if fallback.withdraw:
                for sink in self.sinks:
                    self.worker.call(sink.go_back, fallback.withdraw, metadata)
            self.completed.went_back(candidate)
            return candidate, metadata
        if problems or self.completed.quarantined():
            # Starting from nothing would apply every record a second time.
            raise RestoreError(
                "None of the job's snapshots can be restored. "
                + " ".join(problems)
                + " They were kept. Start the job from another checkpoint or savepoint with 'tidemark run -s'."
            )
        deploy(None, None)
        return None, None

    def require_unchanged(self, snapshot: CompletedSnapshot, metadata: CheckpointMetadata) -> None:
        """Make sure that a snapshot that was read is still where it was.

        A job that ends deletes its checkpoints first and its sinks' notes of what is published behind them. Who finds
        no notes, and then the snapshot, knows that there were none before either.

        Raises:
            FencedError: It is gone, or another one.
            StorageError: The storage gave no answer; another attempt may get one.
        """
        try:
            if digest_of(self._read(snapshot)) == digest_of(metadata):
                return
        except (SavepointNotFoundError, MetadataError):
            pass
        except StorageError as exc:
            if exc.verdict is not StorageVerdict.MISSING:
                raise
        raise FencedError(
            f"{snapshot.directory}, which this job starts from, was deleted or replaced after it was read: the driver "
            "that owned its sinks has ended meanwhile. It may have published all there is, so this one stops and "
            "publishes nothing. Look what is there; to go on from there, start from a savepoint or a retained "
            "checkpoint.",
            path=snapshot.directory,
        )

    def following(self, snapshot: CompletedSnapshot, newest: int) -> list[CheckpointMetadata] | None:
        """Every checkpoint behind one that another driver of the same job took, up to the id `newest`.

        Returns:
            None if one of them is not beside it or cannot be read (it may have been a savepoint, which lies
            elsewhere), or if something in the job cannot take output back.
        """
        publishers, _ = self._outputs()
        if not all(publisher.withdraws for publisher in publishers):
            return None
        found: list[CheckpointMetadata] = []
        for checkpoint_id in range(snapshot.checkpoint_id + 1, newest + 1):
            directory = join(parent(snapshot.directory), f"chk-{checkpoint_id}")
            listing = self._listing(CompletedSnapshot(checkpoint_id, directory, Origin.CHECKPOINT))
            if listing is None or listing.checkpoint_id != checkpoint_id:
                return None
            found.append(listing)
        return found

    def _try_twice(self, candidate: CompletedSnapshot, deploy: Deploy) -> tuple[CheckpointMetadata, Fallback]:
        """Deploy with a snapshot; one bad read does not condemn it, a second one does."""
        try:
            return self._try(candidate, deploy)
        except _UNREADABLE as exc:
            if not self._is_damage(exc):
                raise
            _log.warning("%s seems damaged and is read once more: %s", candidate.directory, exc)
        return self._try(candidate, deploy)

    def _try(self, candidate: CompletedSnapshot, deploy: Deploy) -> tuple[CheckpointMetadata, Fallback]:
        metadata = self._read(candidate)
        left = [LeftBehind(s, self._listing(s)) for s in self.completed.left_behind(candidate)]
        fallback = decide_fallback(self.policy, candidate, left, *self._outputs())
        deploy(candidate, metadata)
        return metadata, fallback

    def _read(self, snapshot: CompletedSnapshot) -> CheckpointMetadata:
        storage = self.storage.for_directory(snapshot.directory)
        metadata = self.worker.call(read_metadata, storage, snapshot.directory)
        if snapshot.digest and snapshot.digest != digest_of(metadata):
            raise MetadataError(
                f"{snapshot.directory} does not hold what this job wrote there: somebody has replaced it. Look who "
                "may write to the checkpoint directory, and start from a snapshot you trust.",
                path=snapshot.directory,
            )
        return metadata

    def _listing(self, snapshot: CompletedSnapshot) -> CheckpointMetadata | None:
        """The metadata of a snapshot that is left behind, None if it is damaged."""
        try:
            return self._read(snapshot)
        except _UNREADABLE as exc:
            if not self._is_damage(exc):
                raise
            return None

    def _is_damage(self, exc: StorageError | RestoreError) -> bool:
        """Whether an error tells of the snapshot itself, not of the way to it.

        Raises:
            StorageError: All snapshots are missing, directories and all: an unmounted disk, a share that is
                away. They may come back.
        """
        if isinstance(exc, MetadataError):
            return True
        if isinstance(exc, StorageError) and exc.verdict is not StorageVerdict.MISSING:
            return exc.verdict is StorageVerdict.DAMAGED
        known = (*self.completed.candidates(), *self.completed.quarantined())
        directories = [snapshot.directory for snapshot in known]
        if any(self._exists(directory) for directory in directories):
            return True
        raise StorageError(
            f"All snapshots of the job are gone, the newest from {directories[0]}. Bring the place back.",
            path=directories[0],
        ) from exc

    def _exists(self, directory: str) -> bool:
        return self.worker.call(self.storage.for_directory(directory).exists, directory)

    def _outputs(self) -> tuple[list[Publisher], list[str]]:
        """Whatever lets something out when a checkpoint completes, and the names of sinks that do so at once."""
        publishers, repeating = [], []
        for sink in self.sinks:
            name = f"sink '{sink.vertex.name}'"
            if sink.publishes:
                # Taking back nothing tells whether it could take back something.
                publishers.append(Publisher(name, self.worker.call(sink.withdraw, b"", b"")))
            else:
                repeating.append(name)
        for vertex in self.functions:
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
