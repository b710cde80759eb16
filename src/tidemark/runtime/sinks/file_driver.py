"""Driver side of the file sink: owns the claim, publishes by renaming, takes back.

Every rename of a staged file is guarded twice: the claim is verified in front of it, and the area the file lies
in is taken away by whoever claims next, so that a rename that comes late (a driver frozen between the two) finds
nothing. Before the first file of a checkpoint is renamed all of them are looked at, by `staged_checks.py`: one that is
neither staged nor visible fails the job unless it is known to have been published.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.config import Options
from tidemark.errors import ConfigError, FencedError, RestoreError, StorageError, StorageVerdict
from tidemark.paths import is_local
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sinks.claimed import ClaimedSink
from tidemark.runtime.sinks.compaction import Compaction
from tidemark.runtime.sinks.driver import Following
from tidemark.runtime.sinks.file_task import staging_token
from tidemark.runtime.sinks.former_place import FormerPlace
from tidemark.runtime.sinks.frontier import Frontier, Progress, progress_of, read_frontier
from tidemark.runtime.sinks.legacy import sweep_legacy
from tidemark.runtime.sinks.staged_checks import StagedChecks, Unpublished
from tidemark.runtime.sinks.staged_files import (
    StagedFile,
    claim_directory,
    decode_commits,
    encode_commits,
    is_inside,
    locate,
)

__all__ = ["FilesSink"]

_log = logging.getLogger(__name__)


class FilesSink(ClaimedSink):
    """Renames staged files to their final names; exactly-once, also between drivers of one lineage."""

    def __init__(
        self,
        vertex: Vertex,
        base_path: str,
        job_id: str,
        compaction: Compaction | None = None,
        *,
        allow_missing: bool = False,
    ) -> None:
        """Make the sink; nothing is touched before `claim`.

        Args:
            vertex: The sink in its job.
            base_path: The directory below which files appear.
            job_id: The job.
            compaction: Merges small files before they are published.
            allow_missing: Whether files that a driver before us may have published, or lost, need not be there.
        """
        super().__init__(vertex, base_path, job_id, "file sink")
        self._allow_missing = allow_missing
        self._compaction = compaction
        self._waiting: list[StagedFile] = []
        """Files that are to be merged with others, oldest first."""
        self._listed: dict[int, list[StagedFile]] = {}
        """Checkpoint that is not complete yet -> the files that waited at it."""
        self._covered: list[StagedFile] = []
        """The files that waited at the newest complete checkpoint."""
        self._merged: dict[int, list[StagedFile]] = {}
        """Checkpoint -> the files that went into others with it."""
        self._left: Sequence[CheckpointMetadata] = ()
        """Checkpoints whose output is to be taken back before anything is written."""
        self._published_elsewhere = b""
        """The list of a snapshot whose files, all at another directory, are known to be published."""
        self._renamed: set[str] = set()
        """Final paths of what this driver has renamed since the note was last settled."""
        self._owing = False
        """Whether a complete checkpoint covers files that are not published yet."""

    # The claim

    def claim(
        self,
        lineage: str,
        restored: CheckpointMetadata | None,
        *,
        repeat: bool = False,
        following: Following | None = None,
    ) -> None:
        """Claim the sink at the first attempt; later ones keep that claim, if it is still theirs."""
        self._restored = restored
        if self._claim is None:
            self._claim_first(lineage, restored, repeat, following)
        else:
            self.verify_claim()
        if restored is not None and self._left:
            self._take_back(self._left, restored, None)
            self._left = ()

    def _claim_first(
        self, lineage: str, restored: CheckpointMetadata | None, repeat: bool, following: Following | None
    ) -> None:
        self._directory = claim_directory(lineage, self.vertex.uid)
        # All that can be refused is refused before the claim, which stops the driver that had it.
        if restored is not None:
            self._own(restored.sink_commits.get(self.vertex.uid, b""))
        with self._mapped("claimed"):
            self._refuse_behind(read_frontier(self._place, self._directory), restored, repeat, following)
            claim = self._acquire(lineage)
            try:
                # And again behind it, because the other one may have published meanwhile.
                self._frontier = read_frontier(self._place, self._directory)
                self._left = self._refuse_behind(self._frontier, restored, repeat, following)
            except FencedError:
                claim.release(keep_area=True)
                raise
        self._claim = claim
        self._owing = restored is not None

    def _refuse_behind(
        self,
        frontier: Frontier | None,
        restored: CheckpointMetadata | None,
        repeat: bool,
        following: Following | None,
    ) -> Sequence[CheckpointMetadata]:
        """What is to be taken back before the job can start from a snapshot; nothing if it need not."""
        if frontier is None or frontier.admits(restored):
            return ()
        gone = None if restored is None else frontier.taken_back_to(restored)
        if restored is not None and gone is not None:
            option = Options.CHECKPOINTING_ALLOW_FALLBACK.key
            remedy = (
                f"The job went on from there and published up to {frontier}: start from that snapshot or a newer one"
                if frontier.published > restored.checkpoint_id and restored.job_id == frontier.job_id
                else f"Start from checkpoint {gone} or an older one, with {option}: withdraw"
            )
            raise FencedError(
                f"The file sink '{self.vertex.uid}' at '{self._base}' has taken back, or begun to take back, what "
                f"was published after checkpoint {gone} of job {frontier.job_id}; checkpoint "
                f"{restored.checkpoint_id} of job {restored.job_id} takes that for published. {remedy}.",
                path=self._base,
            )
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
            return ()
        same_job = restored is not None and restored.job_id == frontier.job_id
        if following is not None and same_job and self._compaction is None and not frontier.beyond:
            left = following(frontier.published)
            if left is not None and all([self._owns(metadata, frontier.job_id) for metadata in left]):
                _log.warning("%s. What was published in between is taken back.", problem)
                return left
        option = Options.CHECKPOINTING_ALLOW_FALLBACK.key
        withdraw = (
            f"have that output taken back with {option}: withdraw"
            if following is None
            else "(that output cannot be taken back, though the option is 'withdraw': it takes every checkpoint in "
            "between, readable and beside this one, and no other sink or function that acts on checkpoints)"
        )
        raise FencedError(
            f"{problem} and would write records again. Start from the newest snapshot or give the sink another "
            f"directory; or end the other driver and {withdraw} or accept duplicates with {option}: duplicate.",
            path=self._base,
        )

    def _owns(self, metadata: CheckpointMetadata, job_id: str) -> bool:
        """Whether all that a checkpoint published is in this sink's directory."""
        files = decode_commits(metadata.sink_commits.get(self.vertex.uid, b""), self.vertex.uid)
        inside = all([is_inside(self._base, file) and bool(self._locate(file)) for file in files])
        return inside and metadata.job_id == job_id

    def go_back(self, left: Sequence[CheckpointMetadata], target: CheckpointMetadata) -> None:
        """Take back what this driver has published behind a snapshot, and note it."""
        self._take_back(left, target, max(metadata.checkpoint_id for metadata in left))

    def _take_back(
        self, left: Sequence[CheckpointMetadata], target: CheckpointMetadata, newest: int | None
    ) -> None:
        """Delete what checkpoints published behind a snapshot; after a crash amid it the next start goes on with it."""
        uid = self.vertex.uid
        frontier = self._frontier or Frontier(self._job_id)
        with self._mapped("withdrawn"):
            self.verify_claim()
            self._note(frontier.withdrawing(target))
            for metadata in sorted(left, key=lambda metadata: metadata.checkpoint_id, reverse=True):
                self.withdraw(metadata.sink_commits.get(uid, b""), target.sink_commits.get(uid, b""))
            self._note(frontier.went_back(target, newest))

    @property
    def _withdrawn(self) -> tuple[tuple[int, int], ...]:
        """Spans of this job's checkpoints whose output has been taken back."""
        frontier = self._frontier
        return frontier.withdrawn if frontier is not None and frontier.job_id == self._job_id else ()

    # The two phases

    def take(self, rows: Iterable[bytes], staged: list[StagedFile], epoch: int) -> None:
        """Remember the files of an epoch."""
        self._pending += staged

    def prepare(self, checkpoint_id: int) -> bytes:
        """Merge what is due, then list what the checkpoint publishes and what goes on waiting."""
        files, self._pending = [*self._waiting, *self._pending], []
        if self._compaction is None:
            # What waits in a snapshot of a job that merged files is published as it is.
            self._pending, self._waiting = files, []
            return super().prepare(checkpoint_id)
        groups = self._compaction.due(files)
        assert self.staging is not None, "a sink is claimed before it is used"
        with self._mapped("compacted"):
            self._pending = self._compaction.merge(groups, self.staging, self._open)
        done = {file.final for group in groups for file in group}
        published = {file.final for file in self._pending}
        self._merged[checkpoint_id] = [
            file for file in files if file.final in done and file.final not in published
        ]
        self._waiting = [file for file in files if file.final not in done]
        self._listed[checkpoint_id] = self._waiting
        return super().prepare(checkpoint_id)

    def _open(self, file: StagedFile) -> Any:
        return self._place.open(self._locate(file)[0])

    def dump(self, items: list[StagedFile]) -> bytes:
        """The list of files, those that wait marked as such."""
        waiting = [msgspec.structs.replace(file, waiting=True) for file in self._waiting]
        return encode_commits([*items, *waiting])

    def commit(self, checkpoint_id: int) -> None:
        """Look at all files, note that the checkpoint is being published, publish it, note that it is."""
        due = sorted(key for key in self._prepared if key <= checkpoint_id)
        if not due:
            return
        self._owing = True
        self.verify_claim()
        files = [file for key in due for file in self._prepared[key]]
        # Checkpoints that were prepared before this one is published list its files, too.
        overlaps = len(due) < len(self._prepared)
        known = () if self._frontier is None else self._frontier.shared
        shared = (*known, *(file.final for file in files)) if overlaps else ()
        note = Frontier(self._job_id, due[-1], shared=shared, withdrawn=self._withdrawn)
        self._let_out(files, f"checkpoint {due[-1]}", note)
        for key in due:
            del self._prepared[key]
        self._drop_merged(checkpoint_id)
        self._owing = False

    def _drop_merged(self, checkpoint_id: int) -> None:
        """Delete what a complete checkpoint does not list any more because it is in other files."""
        for key in [key for key in self._merged if key <= checkpoint_id]:
            with self._mapped("compacted"):
                for file in self._merged.pop(key):
                    self._place.remove(self._locate(file)[0])
        for key in sorted(key for key in self._listed if key <= checkpoint_id):
            self._covered = self._listed.pop(key)

    def finish(self) -> None:
        """Let out everything, covered by a checkpoint or not."""
        if self._pending or self._waiting:
            self.verify_claim()
        if self._compaction is not None and self.staging is not None and self._pending:
            with self._mapped("compacted"):
                self._pending = self._compaction.merge_all(self._pending, self.staging, self._open)
        super().finish()
        self._let_out_waiting(self._waiting)

    def _let_out_waiting(self, files: list[StagedFile]) -> None:
        """Publish, as they are, files that nothing will be merged with any more.

        Checkpoints list them as waiting, so they are noted for a job that is started from one.
        """
        if files:
            note = self._frontier or Frontier(self._job_id)
            shared = (*note.shared, *(file.final for file in files))
            self._let_out(files, "the end of the job", msgspec.structs.replace(note, shared=shared))
        self._waiting, self._covered, self._listed = [], [], {}

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Publish what the checkpoint covers; whatever else drivers of this lineage staged goes.

        Raises:
            RestoreError: A file the checkpoint lists is lost, or is not what was written.
        """
        listed = self._own(prepared)
        waiting = [file for file in listed if file.waiting]
        try:
            if checkpoint_id is not None:
                self.commit(checkpoint_id)
            self._owing = True
            self._waiting = self._still_waiting(waiting)
            still = {file.final for file in self._waiting}
            gone = tuple([file.final for file in waiting if file.final not in still])
            self._publish_covered([file for file in listed if not file.waiting], gone)
        except StorageError as exc:
            if exc.verdict is StorageVerdict.TRANSIENT:
                raise
            raise RestoreError(str(exc), path=exc.path, operator_uid=self.vertex.uid) from exc
        self._owing = False
        self._merged, self._listed, self._covered = {}, {}, self._waiting
        with self._mapped("swept"):
            self._sweep(self._waiting)
            if self._legacy_job:
                sweep_legacy(self._base, staging_token(self._legacy_job, self.vertex.id))
        self._prepared, self._pending = {}, []

    def _publish_covered(self, covered: list[StagedFile], shared: tuple[str, ...]) -> None:
        restored = self._restored
        progress = Progress.ALL if restored is None else progress_of(self._frontier, restored)
        what = "" if restored is None else f"checkpoint {restored.checkpoint_id} of job {restored.job_id}"
        # While nothing is missing the note says what the one before it said.
        settled = progress is Progress.ALL
        start = Frontier.at_start(self._job_id, restored, settled=settled)
        start = msgspec.structs.replace(start, shared=shared, withdrawn=self._withdrawn)
        self._let_out(covered, what, start, progress, restoring=True)

    def _still_waiting(self, files: list[StagedFile]) -> list[StagedFile]:
        """Those of a snapshot's waiting files that are staged.

        Others were published at the end of a job, or went into files of a checkpoint behind the snapshot, which was
        published; else they are lost.
        """
        restored, frontier = self._restored, self._frontier
        if not files or restored is None:
            return []
        beyond = frontier is not None and frontier.published > (
            restored.checkpoint_id if restored.job_id == frontier.job_id else 0
        )
        progress = Progress.ALL if beyond else Progress.NONE
        known = () if frontier is None else frontier.shared
        with self._mapped("restored"):
            located = [Unpublished(file, *self._locate(file)) for file in files]
            what = f"checkpoint {restored.checkpoint_id} of job {restored.job_id}"
            staged = self._checks(what, hashed=True).unpublished(located, progress, known)
        return [msgspec.structs.replace(entry.file, waiting=False) for entry in staged]

    def _checks(self, what: str, *, hashed: bool) -> StagedChecks:
        return StagedChecks(
            self._place,
            f"sink '{self.vertex.uid}' at {what}",
            self.verify_claim,
            hashed=hashed,
            allow_missing=self._allow_missing,
        )

    def publish(self, items: list[StagedFile]) -> None:
        """Rename each file that is still staged; noted, once, because a job could be started in front of them.

        Raises:
            FencedError: A newer driver has taken them away.
            StorageError: A file cannot be renamed, is gone, or is not what was staged.
        """
        note = self._frontier
        due = bool(items) and note is not None and not note.beyond
        self._let_out(
            items, "the end of the job", msgspec.structs.replace(note, beyond=True) if note and due else None
        )

    def _let_out(
        self,
        files: list[StagedFile],
        what: str,
        note: Frontier | None,
        progress: Progress = Progress.NONE,
        *,
        restoring: bool = False,
    ) -> None:
        """Publish files between two notes; a crash in between leaves each of them staged or visible."""
        known = self._renamed if self._frontier is None else self._renamed.union(self._frontier.shared)
        with self._mapped("published"):
            located = [Unpublished(file, *self._locate(file)) for file in files]
            checks = self._checks(what, hashed=restoring or is_local(self._base))
            staged = checks.unpublished(located, progress, known)
            if note is not None and staged:
                self._note(note)
            for entry in staged:
                self._rename(entry)
            for folder in sorted({entry.target.rpartition("/")[0] for entry in staged}):
                self._place.sync(folder)
            if note is not None:
                self._note(msgspec.structs.replace(note, settled=True))
                self._renamed.clear()

    def _rename(self, entry: Unpublished) -> None:
        try:
            self._place.move(entry.source, entry.target)
        except FileNotFoundError:
            # No longer ours to publish, or somebody deletes what is staged just now.
            self.verify_claim()
            raise
        except OSError as exc:
            if exc.errno != errno.ENAMETOOLONG:
                raise
            bucket = entry.target.rpartition("/")[0]
            raise ConfigError(
                f"The file sink '{self.vertex.uid}' at '{self._base}' cannot publish '{entry.file.final}': the bucket "
                f"{bucket!r} has a name that its file system does not take ({exc}). Shorten what get_bucket_id gives "
                "and start from an older snapshot; the file stays staged.",
            ) from exc
        self._renamed.add(entry.file.final)

    def withdraw(self, prepared: bytes, kept: bytes = b"") -> bool:
        """Delete the files of a checkpoint, published or still staged, unless a reader has fetched them."""
        files = decode_commits(prepared, self.vertex.uid)
        if self._compaction is not None or not all([is_inside(self._base, file) for file in files]):
            # Files of older checkpoints may have gone into those of younger ones.
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

    def conclude(self) -> None:
        """Publish, as they are, files that a complete checkpoint covers and that were to be merged with others."""
        if self._claim is not None and self._covered:
            with self._mapped("closed"):
                if self._claim.is_held():
                    self._let_out_waiting(self._covered)

    def close(self, *, restorable: bool = False) -> None:
        """Remove what was never committed, and release the claim; one that is lost is left alone.

        What is published stays noted where snapshots remain that a job could be started from, and files that
        one of them covers stay staged if they could not be published.
        """
        self._release(self._covered, restorable=restorable, keep=restorable and self._owing)

    # Files

    def _own(self, prepared: bytes) -> list[StagedFile]:
        """The files a snapshot lists, checked one and all before the first is touched.

        A sink may be given another directory than the snapshot's had. What was published there is no
        business of ours then; what was not must not be lost silently.

        Raises:
            MetadataError: A file is not what this sink writes, or was not published at its former directory.
        """
        own: list[StagedFile] = []
        elsewhere: list[StagedFile] = []
        for file in decode_commits(prepared, self.vertex.uid):
            (own if is_inside(self._base, file) else elsewhere).append(file)
        for file in own:
            self._locate(file)
        # Looked up once: what becomes of the former directory while this job runs is no business of ours.
        if elsewhere and prepared != self._published_elsewhere:
            assert self._restored is not None, "only a snapshot lists files"
            former = FormerPlace(self.vertex.uid, self._base, self._directory, self._restored)
            with self._mapped("restored"):
                former.require_published(elsewhere, alone=not own)
            self._published_elsewhere = prepared
            _log.info("%s files of sink %s were published elsewhere.", len(elsewhere), self.vertex.uid)
        return own

    def _locate(self, file: StagedFile) -> tuple[str, str]:
        # Without a claim this only checks what a snapshot lists.
        area = "" if self._claim is None else self._claim.area
        return locate(self._base, self._directory, area, file, self._legacy_job)

    @property
    def _legacy_job(self) -> str:
        """The job of 0.1.0 that the snapshot comes from; lineages are younger."""
        return "" if self._restored is None or self._restored.lineage else self._restored.job_id
