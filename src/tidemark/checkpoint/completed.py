"""Which completed snapshots there are to restore from, and which of them may go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidemark.checkpoint.messages import JobEnd
from tidemark.config.modes import ExternalizedCheckpointRetention

__all__ = ["CompletedSnapshot", "CompletedSnapshots", "Origin", "is_kept"]


class Origin(Enum):
    """Whose snapshot it is; only checkpoints are ever deleted by the job."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    EXTERNAL = "external"
    """The savepoint or retained checkpoint the job was started from."""


@dataclass(frozen=True, slots=True)
class CompletedSnapshot:
    """A snapshot whose `_metadata` is durable."""

    checkpoint_id: int
    directory: str
    origin: Origin
    timestamp: int = 0
    shared_files: frozenset[str] = frozenset()
    digest: bytes = b""
    """Of the metadata, if this job wrote it: nobody else's is restored in its place."""


class CompletedSnapshots:
    """The snapshots a job can recover from, by id.

    Savepoints are candidates for recovery too, since sinks commit on them, but they neither count among the
    retained checkpoints nor push one out. When a newer checkpoint completes they are forgotten, not deleted.

    A checkpoint pushes out older ones only when the sinks have committed it: until then its output may turn out to
    be lost, and an older one is what remains to start from.

    A snapshot that turned out to be damaged goes into quarantine: it is neither restored from nor deleted, and
    its output is remembered as left behind until the job has gone back to an older snapshot.
    """

    def __init__(self, num_retained: int) -> None:
        self._num_retained = max(num_retained, 1)
        self._snapshots: dict[int, CompletedSnapshot] = {}
        self._quarantined: dict[int, CompletedSnapshot] = {}
        self._left: set[int] = set()
        """Quarantined snapshots whose output may be visible while the job stands before them."""

    def add(self, snapshot: CompletedSnapshot) -> None:
        """Take a completed snapshot; older ones stay until its output is out.

        Raises:
            ValueError: A snapshot of that id is there already.
        """
        if snapshot.checkpoint_id in self._snapshots:
            raise ValueError(f"Snapshot {snapshot.checkpoint_id} is complete already.")
        self._snapshots[snapshot.checkpoint_id] = snapshot

    def committed(self, checkpoint_id: int) -> list[CompletedSnapshot]:
        """The output of that snapshot, and of all before it, is out: forget what it pushes out.

        Returns:
            The checkpoints to delete, oldest first.
        """
        checkpoints = [s for s in self.checkpoints() if s.checkpoint_id <= checkpoint_id]
        if not checkpoints:
            return []
        surplus, kept = checkpoints[: -self._num_retained], checkpoints[-self._num_retained :]
        for other in list(self._snapshots.values()):
            if other.checkpoint_id < kept[0].checkpoint_id:
                del self._snapshots[other.checkpoint_id]
        return surplus

    def checkpoints(self) -> list[CompletedSnapshot]:
        """The job's own checkpoints, oldest first."""
        return [s for s in self._ordered() if s.origin is Origin.CHECKPOINT]

    def candidates(self) -> list[CompletedSnapshot]:
        """All snapshots to recover from, newest first."""
        return self._ordered()[::-1]

    def latest(self) -> CompletedSnapshot | None:
        """The newest snapshot of any origin."""
        return next(iter(self.candidates()), None)

    def latest_checkpoint(self) -> CompletedSnapshot | None:
        """The newest checkpoint of this job."""
        return next(reversed(self.checkpoints()), None)

    def quarantine(self, checkpoint_id: int) -> None:
        """Do not recover from that snapshot any more, and never delete it: it turned out to be damaged."""
        self._quarantined[checkpoint_id] = self._snapshots.pop(checkpoint_id)
        self._left.add(checkpoint_id)

    def quarantined(self) -> list[CompletedSnapshot]:
        """Damaged snapshots, oldest first."""
        return [self._quarantined[i] for i in sorted(self._quarantined)]

    def left_behind(self, target: CompletedSnapshot) -> list[CompletedSnapshot]:
        """Snapshots whose output may be visible but is not part of `target`, newest first.

        All of them are known: a snapshot is forgotten only when nothing older than it can be restored.
        """
        left = [self._quarantined[i] for i in self._left] + list(self._snapshots.values())
        newer = [snapshot for snapshot in left if snapshot.checkpoint_id > target.checkpoint_id]
        return sorted(newer, key=lambda snapshot: snapshot.checkpoint_id, reverse=True)

    def last_commit(self) -> int | None:
        """Id of the newest snapshot whose output belongs to the job, damaged or not: its commit point has passed."""
        return max([*self._snapshots, *self._left], default=None)

    def went_back(self, target: CompletedSnapshot) -> None:
        """The job goes on from `target`; what it left behind has been dealt with."""
        self._left = {i for i in self._left if i < target.checkpoint_id}

    def holds(self, checkpoint_id: int) -> bool:
        """Whether that snapshot is there to be restored, or in quarantine."""
        return checkpoint_id in self._snapshots or checkpoint_id in self._quarantined

    def clear(self) -> list[CompletedSnapshot]:
        """Forget everything but what is in quarantine; return the checkpoints, oldest first."""
        checkpoints = self.checkpoints()
        self._snapshots.clear()
        return checkpoints

    def _ordered(self) -> list[CompletedSnapshot]:
        return [self._snapshots[i] for i in sorted(self._snapshots)]


def is_kept(retention: ExternalizedCheckpointRetention, how: JobEnd) -> bool:
    """Whether completed checkpoints outlive a job that ended this way; those of a finished job never do."""
    if how is JobEnd.SUSPENDED:
        return True
    if retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION:
        return how is not JobEnd.FINISHED
    if retention is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION:
        return how is JobEnd.FAILED
    return False
