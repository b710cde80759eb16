"""How far a sink has published, kept with its claim: a driver that would start behind that is refused.

Two drivers may be started from one snapshot, one after the other. When the second one comes, the first may have
published output that the second would produce again. The holder of a claim therefore notes in its area where
it started and what it has published last; the area, and the note in it, pass to the next claimant in one step.
"""

from __future__ import annotations

import msgspec

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.runtime.sinks.claim import areas_of
from tidemark.runtime.sinks.places import Place

__all__ = ["FRONTIER", "Frontier", "read_frontier"]

FRONTIER = ".frontier"


class Frontier(msgspec.Struct, frozen=True):
    """What the last holder of a claim has published."""

    job_id: str
    published: int = 0
    """Newest checkpoint of that job whose output may be visible; 0: none."""
    origin_job: str = ""
    origin_checkpoint: int = 0
    """The snapshot it started from, if it did."""

    @staticmethod
    def at_start(job_id: str, restored: CheckpointMetadata | None) -> Frontier:
        """Of a job that begins an attempt at a snapshot."""
        if restored is None:
            return Frontier(job_id)
        if restored.job_id == job_id:
            return Frontier(job_id, restored.checkpoint_id)
        return Frontier(job_id, 0, restored.job_id, restored.checkpoint_id)

    def admits(self, restored: CheckpointMetadata | None) -> bool:
        """Whether a job may start at a snapshot without producing again what is published.

        A snapshot of the last holder will do if it is not older than what that has published. While it has
        published nothing, so will the snapshot it started from itself; another one of the job before it will
        not, for what that one had staged later is gone.
        """
        if restored is None:
            return False
        if restored.job_id == self.job_id:
            return restored.checkpoint_id >= self.published
        origin = (self.origin_job, self.origin_checkpoint)
        return not self.published and origin == (restored.job_id, restored.checkpoint_id)

    def __str__(self) -> str:
        if self.published:
            return f"checkpoint {self.published} of job {self.job_id}"
        if self.origin_job:
            return f"checkpoint {self.origin_checkpoint} of job {self.origin_job}"
        return f"the start of job {self.job_id}"


def read_frontier(place: Place, directory: str) -> Frontier | None:
    """The note of the newest claimant that has left one; None if nobody has.

    Raises:
        OSError: It cannot be read.
    """
    areas = areas_of(place, directory)
    # What a claimant had not emptied when it died (a longer name) is older than its own area.
    for name in sorted(areas, key=lambda name: (-areas[name], len(name))):
        try:
            return msgspec.json.decode(place.read(f"{directory}/{name}/{FRONTIER}"), type=Frontier)
        except (FileNotFoundError, msgspec.MsgspecError):
            continue
    return None
