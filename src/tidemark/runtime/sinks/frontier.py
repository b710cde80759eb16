"""How far a sink has published, kept with its claim: a driver that would start behind that is refused.

Two drivers may be started from one snapshot, one after the other. When the second one comes, the first may have
published output that the second would produce again. The holder of a claim therefore notes in its area where
it started and what it has published last; the area, and the note in it, pass to the next claimant in one step.
The note is written before the first rename and again after the last one. So a listed file that is neither staged
nor visible is told apart: it was fetched by a reader (all was published), it is lost (nothing was), or nobody can say
(a driver died in between).
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.errors import StorageError, StorageVerdict
from tidemark.runtime.claim import areas_of
from tidemark.runtime.places import Place
from tidemark.runtime.sealed_notes import DamagedNote, unseal

__all__ = ["ATTEMPT", "FRONTIER", "NOTES", "Frontier", "Progress", "progress_of", "read_frontier"]

FRONTIER = ".frontier"
ATTEMPT = ".attempt"
"""Of a Kafka sink: where the records of its last transaction went (`kafka_attempts`)."""
NOTES = (FRONTIER, ATTEMPT)
"""What an area holds besides staged output; it stays for the next claimant."""


class Progress(Enum):
    """How much of a snapshot's output has been published."""

    NONE = "none"
    BEGUN = "begun"
    """Some of it, perhaps all: whoever published died in between."""
    ALL = "all"
    UNKNOWN = "unknown"
    """Nobody has kept a note of it."""


_WITHOUT_END = 1 << 62


class Frontier(msgspec.Struct, frozen=True):
    """What the last holder of a claim has published."""

    job_id: str
    published: int = 0
    """Newest checkpoint of that job whose output may be visible; 0: none."""
    origin_job: str = ""
    origin_checkpoint: int = 0
    """The snapshot it started from, if it did."""
    settled: bool = False
    """Whether all output up to here is visible, rather than some of it."""
    shared: tuple[str, ...] = ()
    """Final paths of published files that a checkpoint prepared before their publication lists, too."""
    withdrawn_to: int = 0
    """Checkpoint behind which output is being taken back; 0: none. While it is, nobody can start anywhere else."""
    withdrawn: tuple[tuple[int, int], ...] = ()
    """Spans (after, up to) of checkpoints of that job whose output has been taken back: a job that starts from one
    of them would miss what is gone."""
    beyond: bool = False
    """Whether output that no checkpoint covers is visible, too: the job came to its end without a last one, or takes
    none. Whatever a job would start from, it would write that again."""

    @staticmethod
    def at_start(job_id: str, restored: CheckpointMetadata | None, *, settled: bool) -> Frontier:
        """Of a job that begins an attempt at a snapshot."""
        if restored is None:
            return Frontier(job_id, settled=settled)
        if restored.job_id == job_id:
            return Frontier(job_id, restored.checkpoint_id, settled=settled)
        return Frontier(job_id, 0, restored.job_id, restored.checkpoint_id, settled)

    def admits(self, restored: CheckpointMetadata | None) -> bool:
        """Whether a job may start at a snapshot without producing again what is published, or missing what is not.

        A snapshot of the last holder will do if it is not older than what that has published. While it has
        published nothing, so will the snapshot it started from itself; another one of the job before it will
        not, for what that one had staged later is gone. The beginning will do if it began there and died before its
        first checkpoint: what it had staged is swept.
        """
        if self.beyond:
            return False
        if restored is None:
            touched = self.published or self.origin_job or self.shared or self.withdrawn_to or self.withdrawn
            return not touched
        if self.taken_back_to(restored) is not None:
            return False
        if self.withdrawn_to and self.published > self.withdrawn_to:
            return False
        if restored.job_id == self.job_id:
            return restored.checkpoint_id >= self.published
        return not self.published and self.is_origin(restored)

    def is_origin(self, restored: CheckpointMetadata) -> bool:
        """Whether the holder started from that snapshot, which another job had taken."""
        return (restored.job_id, restored.checkpoint_id) == (self.origin_job, self.origin_checkpoint)

    def taken_back_to(self, restored: CheckpointMetadata) -> int | None:
        """The checkpoint behind which output is gone that a snapshot takes for published; None if it misses none."""
        at = restored.checkpoint_id
        if restored.job_id != self.job_id:
            return self.withdrawn_to if self.withdrawn_to and not self.is_origin(restored) else None
        if self.withdrawn_to and at > self.withdrawn_to:
            return self.withdrawn_to
        return next((after for after, up_to in self.withdrawn if after < at <= up_to), None)

    def withdrawing(self, target: CheckpointMetadata) -> Frontier:
        """The note while output behind a snapshot is taken back."""
        return msgspec.structs.replace(self, withdrawn_to=target.checkpoint_id)

    def went_back(self, target: CheckpointMetadata, newest: int | None) -> Frontier:
        """The note when all output behind a snapshot has been taken back.

        Args:
            target: Of this job, or the one it started from.
            newest: The newest checkpoint that was left behind, if the job goes on behind it; None if it is over, so
                that all its checkpoints behind `target` are spent.
        """
        span = (target.checkpoint_id, _WITHOUT_END if newest is None else newest)
        spans = (*(known for known in self.withdrawn if known != span), span)
        settled = self.progress_of(target) is Progress.ALL
        if target.job_id != self.job_id:
            start = Frontier.at_start(self.job_id, target, settled=settled)
            return msgspec.structs.replace(start, withdrawn=spans)
        published = min(self.published, target.checkpoint_id)
        return Frontier(self.job_id, published, settled=settled, shared=self.shared, withdrawn=spans)

    def progress_of(self, restored: CheckpointMetadata) -> Progress:
        """How much of a snapshot's output the last holder, or one before it, has published."""
        newest = Progress.ALL if self.settled else Progress.BEGUN
        if restored.job_id == self.job_id:
            if restored.checkpoint_id < self.published:
                # Nothing of a checkpoint is published before all of those in front of it is.
                return Progress.ALL
            return newest if restored.checkpoint_id == self.published else Progress.NONE
        if self.is_origin(restored):
            # Whoever has published something of its own had published what it started from.
            return Progress.ALL if self.published else newest
        return Progress.UNKNOWN

    def __str__(self) -> str:
        if self.beyond:
            return f"the end of job {self.job_id}"
        if self.published:
            return f"checkpoint {self.published} of job {self.job_id}"
        if self.origin_job:
            return f"checkpoint {self.origin_checkpoint} of job {self.origin_job}"
        return f"the start of job {self.job_id}"


def progress_of(frontier: Frontier | None, restored: CheckpointMetadata) -> Progress:
    """How much of a snapshot's output is published, as far as notes tell; 0.1.0 kept none."""
    if frontier is None:
        return Progress.NONE if restored.lineage else Progress.UNKNOWN
    return frontier.progress_of(restored)


def read_frontier(place: Place, directory: str) -> Frontier | None:
    """The note of the newest claimant that has left one; None if nobody has.

    Raises:
        StorageError: It is damaged, so nobody knows what is published.
        OSError: It cannot be read.
    """
    areas = areas_of(place, directory)
    # What a claimant had not emptied when it died (a longer name) is older than its own area.
    for name in sorted(areas, key=lambda name: (-areas[name], len(name))):
        path = f"{directory}/{name}/{FRONTIER}"
        try:
            return unseal(place.read(path), Frontier)
        except FileNotFoundError:
            continue
        except DamagedNote as exc:
            raise StorageError(
                f"The note '{path}' of how far a file sink has published is damaged ({exc}), so nothing can say "
                "what would come twice. Start from the newest snapshot after you have removed the note, or give the "
                "sink another directory.",
                path=path,
                verdict=StorageVerdict.UNUSABLE,
            ) from exc
    return None
