"""Driver side of the file sink: owns the claim, publishes by renaming, takes back.

Every rename of a staged file is guarded twice: the claim is verified in front of it, and the area the file lies
in is taken away by whoever claims next, so that a rename that comes late (a driver frozen between the two) finds
nothing. A staged file that is missing while the claim holds was published before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.config import Options
from tidemark.errors import FencedError, MetadataError, StorageError
from tidemark.paths import join, name_of, parent
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sinks.claim import Claim
from tidemark.runtime.sinks.commits import (
    StagedFile,
    claim_directory,
    decode_commits,
    encode_commits,
    is_inside,
    locate,
)
from tidemark.runtime.sinks.driver import TransactionalSink
from tidemark.runtime.sinks.files import staging_token
from tidemark.runtime.sinks.frontier import FRONTIER, Frontier, read_frontier
from tidemark.runtime.sinks.legacy import sweep_legacy
from tidemark.runtime.sinks.places import Place, open_place

__all__ = ["FilesSink"]

_log = logging.getLogger(__name__)


class FilesSink(TransactionalSink):
    """Renames staged files to their final names; exactly-once, also between drivers of one lineage."""

    def __init__(self, vertex: Vertex, base_path: str, job_id: str) -> None:
        super().__init__(vertex)
        self._base = base_path.rstrip("/") or "/"
        self._job_id = job_id
        self._opened: Place | None = None
        self._directory = ""
        self._claim: Claim | None = None
        self._restored: CheckpointMetadata | None = None

    @property
    def staging(self) -> str | None:
        """The area of this driver's claim."""
        return None if self._claim is None else join(self._base, self._claim.area)

    # The claim

    def claim(self, lineage: str, restored: CheckpointMetadata | None, *, repeat: bool = False) -> None:
        """Claim the sink at the first attempt; later ones keep that claim, if it is still theirs."""
        self._restored = restored
        if self._claim is not None:
            self.verify_claim()
            return
        self._directory = claim_directory(lineage, self.vertex.uid)
        # All that can be refused is refused before the claim, which stops the driver that had it.
        if restored is not None:
            self._own(restored.sink_commits.get(self.vertex.uid, b""))
        with self._mapped("claimed"):
            self._refuse_behind(read_frontier(self._place, self._directory), restored, repeat)
            subject = f"The file sink '{self.vertex.uid}' at '{self._base}' (lineage {lineage})"
            claim = Claim.acquire(self._place, self._directory, self._job_id, subject)
            try:
                # And again behind it, because the other one may have published meanwhile.
                self._refuse_behind(read_frontier(self._place, self._directory), restored, repeat)
            except FencedError:
                claim.release(keep_area=True)
                raise
        self._claim = claim

    def verify_claim(self) -> None:
        """Compare the claim with what is in the sink's own place."""
        if self._claim is not None:
            with self._mapped("looked at"):
                self._claim.verify()

    def _refuse_behind(
        self, frontier: Frontier | None, restored: CheckpointMetadata | None, repeat: bool
    ) -> None:
        if frontier is None or frontier.admits(restored):
            return
        start = (
            "the beginning"
            if restored is None
            else f"checkpoint {restored.checkpoint_id} of job {restored.job_id}"
        )
        problem = (
            f"The file sink '{self.vertex.uid}' at '{self._base}' has been published up to {frontier}, by a "
            f"driver of the same lineage; this job starts from {start}"
        )
        if repeat:
            _log.warning("%s and writes records again.", problem)
            return
        raise FencedError(
            f"{problem} and would write records again. Start from the newest snapshot or give the sink another "
            "directory; to accept duplicates, end the other driver and set "
            f"{Options.CHECKPOINTING_ALLOW_FALLBACK.key}: duplicate.",
            path=self._base,
        )

    def _note(self, frontier: Frontier) -> None:
        assert self._claim is not None
        try:
            self._place.write(f"{self._claim.area}/{FRONTIER}", msgspec.json.encode(frontier))
        except FileNotFoundError:
            self._claim.verify()
            raise

    # The two phases

    def take(self, rows: Iterable[bytes], staged: list[StagedFile], epoch: int) -> None:
        """Remember the files of an epoch."""
        self._pending += staged

    def dump(self, items: list[StagedFile]) -> bytes:
        """The list of files."""
        return encode_commits(items)

    def commit(self, checkpoint_id: int) -> None:
        """Note that the checkpoint is being published, then publish it."""
        due = [key for key in self._prepared if key <= checkpoint_id]
        if not due:
            return
        self.verify_claim()
        with self._mapped("published"):
            self._note(Frontier(self._job_id, max(due)))
        super().commit(checkpoint_id)

    def finish(self) -> None:
        """Let out everything, covered by a checkpoint or not."""
        if self._pending:
            self.verify_claim()
        super().finish()

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Publish what the checkpoint covers; whatever else drivers of this lineage staged goes."""
        covered = self._own(prepared)
        if checkpoint_id is not None:
            self.commit(checkpoint_id)
        with self._mapped("restored"):
            self._note(Frontier.at_start(self._job_id, self._restored))
        self.publish(covered)
        with self._mapped("swept"):
            self._sweep()
            if self._restored is not None and not self._restored.lineage:
                sweep_legacy(self._base, staging_token(self._restored.job_id, self.vertex.id))
        self._prepared, self._pending = {}, []

    def publish(self, items: list[StagedFile]) -> None:
        """Rename each file that is still staged.

        Raises:
            FencedError: A newer driver has taken them away.
            StorageError: A file cannot be renamed, or its size is not what was staged.
        """
        folders = set()
        for file in items:
            if self._publish(file):
                folders.add(self._locate(file)[1].rpartition("/")[0])
        with self._mapped("published"):
            for folder in sorted(folders):
                self._place.sync(folder)

    def _publish(self, file: StagedFile) -> bool:
        """Whether the file had not been published yet."""
        source, target = self._locate(file)
        with self._mapped("published"):
            try:
                size = self._place.size(source)
                if size != file.size:
                    raise StorageError(
                        f"Staged output '{file.staged}' has {size} bytes instead of {file.size}.",
                        path=file.staged,
                    )
                self._place.move(source, target)
            except FileNotFoundError:
                # Published before a crash, and perhaps fetched by a reader since; or no longer ours to publish.
                self.verify_claim()
                return False
        return True

    def withdraw(self, prepared: bytes, kept: bytes = b"") -> bool:
        """Delete the files of a checkpoint, published or still staged, unless a reader has fetched them."""
        files = decode_commits(prepared, self.vertex.uid)
        if not all([is_inside(self._base, file) for file in files]):
            return False
        stays = {file.final for file in decode_commits(kept, self.vertex.uid)}
        paths = [path for file in files if file.final not in stays for path in self._locate(file)]
        if not paths:
            return True
        assert self._claim is not None, "a sink is claimed before it is used"
        self.verify_claim()
        with self._mapped("withdrawn"):
            for path in paths:
                self._place.remove(path)
        return True

    def close(self, *, restorable: bool = False) -> None:
        """Remove what was never committed, and release the claim; one that is lost is left alone.

        What is published stays noted where snapshots remain that a job could be started from.
        """
        self._prepared, self._pending = {}, []
        if self._claim is None:
            return
        with self._mapped("closed"):
            if self._claim.is_held():
                self._sweep()
            self._claim.release(keep_area=restorable)
        self._claim = None

    # Files

    def _own(self, prepared: bytes) -> list[StagedFile]:
        """The files a snapshot lists, checked one and all before the first is touched.

        A sink may be given another directory than the snapshot's had. What the old one published is no
        business of ours then; what it has not published must not be lost silently.
        """
        own: list[StagedFile] = []
        elsewhere: list[StagedFile] = []
        for file in decode_commits(prepared, self.vertex.uid):
            (own if is_inside(self._base, file) else elsewhere).append(file)
        for file in own:
            self._locate(file)
        for file in elsewhere:
            self._refuse_unpublished(file)
        if elsewhere:
            _log.info("%s files of sink %s were published elsewhere.", len(elsewhere), self.vertex.uid)
        return own

    def _refuse_unpublished(self, file: StagedFile) -> None:
        with self._mapped("restored"):
            there = name_of(file.staged) in open_place(parent(file.staged)).names("")
        if there:
            raise MetadataError(
                f"The snapshot lists '{file.staged}', which is not published yet and lies outside the directory "
                f"of sink '{self.vertex.uid}', '{self._base}'. Start the job once with the sink's former "
                "directory, or use another snapshot.",
                path=file.staged,
                operator_uid=self.vertex.uid,
            )

    def _locate(self, file: StagedFile) -> tuple[str, str]:
        # Without a claim this only checks what a snapshot lists.
        area = "" if self._claim is None else self._claim.area
        return locate(self._base, self._directory, area, file)

    def _sweep(self) -> None:
        """Delete whatever is staged; call it when none of it is wanted."""
        assert self._claim is not None, "a sink is claimed before it is used"
        for name in self._place.names(self._claim.area):
            if name != FRONTIER:
                self._place.remove(f"{self._claim.area}/{name}")

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
        except (OSError, ImportError, ValueError) as exc:
            raise StorageError(
                f"The file sink '{self.vertex.uid}' at '{self._base}' cannot be {verb}: {exc}.",
                path=self._base,
            ) from exc
