"""A sink whose staged output lies in a directory that one driver of a lineage owns at a time.

What file and Kafka sinks have in common: the claim, the area that tasks write to, the note of how far output is
published, and sweeping up what nobody will publish. How output becomes visible is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.errors import ConfigError, StorageError
from tidemark.paths import join, name_of
from tidemark.plan.vertex import Vertex
from tidemark.runtime.claim import Claim
from tidemark.runtime.places import Place, open_place
from tidemark.runtime.sealed_notes import seal
from tidemark.runtime.sinks.driver import TransactionalSink
from tidemark.runtime.sinks.frontier import FRONTIER, NOTES, Frontier
from tidemark.runtime.sinks.staged_files import StagedFile

__all__ = ["ClaimedSink"]


class ClaimedSink(TransactionalSink):
    """Holds the claim of one driver on the directory of its staged output."""

    def __init__(self, vertex: Vertex, base_path: str, job_id: str, noun: str) -> None:
        """Make the sink; nothing is touched before `claim`.

        Args:
            vertex: The sink in its job.
            base_path: The directory that holds the directory of the claim.
            job_id: The job.
            noun: What it is, for messages: "file sink".
        """
        super().__init__(vertex)
        self._base = base_path.rstrip("/") or "/"
        self._job_id = job_id
        self._noun = noun
        self._opened: Place | None = None
        self._directory = ""
        self._claim: Claim | None = None
        self._restored: CheckpointMetadata | None = None
        self._frontier: Frontier | None = None
        """The newest note, ours or that of the driver before us."""

    @property
    def staging(self) -> str | None:
        """The area of this driver's claim."""
        return None if self._claim is None else join(self._base, self._claim.area)

    @property
    def claimed_at(self) -> tuple[str, str] | None:
        """Where the claim is, once there is one."""
        return None if self._claim is None else (self._base, self._directory)

    def verify_claim(self) -> None:
        """Compare the claim with what is in the sink's own place."""
        if self._claim is not None:
            with self._mapped("looked at"):
                self._claim.verify()

    def _acquire(self, lineage: str) -> Claim:
        subject = f"The {self._noun} '{self.vertex.uid}' at '{self._base}' (lineage {lineage})"
        return Claim.acquire(self._place, self._directory, self._job_id, subject)

    def _note(self, frontier: Frontier) -> None:
        assert self._claim is not None
        try:
            self._place.write(f"{self._claim.area}/{FRONTIER}", seal(frontier))
        except FileNotFoundError:
            self._claim.verify()
            raise
        self._frontier = frontier

    def _sweep(self, kept: Iterable[StagedFile] = ()) -> None:
        """Delete whatever is staged and not to be kept."""
        assert self._claim is not None, "a sink is claimed before it is used"
        stays = {*NOTES, *(name_of(file.staged) for file in kept)}
        for name in self._place.names(self._claim.area):
            if name not in stays:
                self._place.remove(f"{self._claim.area}/{name}")

    def _release(self, kept: Iterable[StagedFile] = (), *, restorable: bool, keep: bool) -> None:
        """The job is over: give the claim up; one that is lost is left alone.

        Args:
            kept: Files that stay staged whatever else goes.
            restorable: Whether the area, and the note in it, is to be found by another driver.
            keep: Whether all that is staged stays.
        """
        self._prepared, self._pending = {}, []
        if self._claim is None:
            return
        with self._mapped("closed"):
            if self._claim.is_held() and not keep:
                self._sweep(kept)
            self._claim.release(keep_area=restorable)
        self._claim = None

    @property
    def _place(self) -> Place:
        # Not in the constructor: it may import a file system's driver, and the sink may never be used.
        if self._opened is None:
            self._opened = open_place(self._base)
        return self._opened

    @contextmanager
    def _mapped(self, verb: str) -> Iterator[None]:
        try:
            yield
        except ConfigError:
            raise
        except (OSError, ImportError, ValueError) as exc:
            raise StorageError(
                f"The {self._noun} '{self.vertex.uid}' at '{self._base}' cannot be {verb}: {exc}.",
                path=self._base,
            ) from exc
