"""A sink that was given another directory than the one its snapshot was taken with.

What such a snapshot lists must be published at the former directory already, or its records would be lost. That is
looked up once for the whole list, each directory at most once, and nothing is touched there. A snapshot may come
from anywhere: whatever the sink at a former directory cannot have written is refused, and so is another server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.errors import MetadataError
from tidemark.paths import is_local, name_of, parent, same_host
from tidemark.runtime.claim import areas_of
from tidemark.runtime.places import open_place
from tidemark.runtime.sinks.frontier import Progress, progress_of, read_frontier
from tidemark.runtime.sinks.staged_files import StagedFile, locate

__all__ = ["FormerPlace"]

_UNTRUSTED = "Nothing was touched; do not restore snapshots you do not trust"
_OTHER_UID = "if all it lists is published, give the sink at the new directory another uid"


@dataclass(frozen=True, slots=True)
class FormerPlace:
    """Files that a snapshot lists outside of the sink's directory.

    Attributes:
        uid: The sink.
        base: Its directory now.
        claim: The directory of its claim, below either.
        restored: The snapshot.
    """

    uid: str
    base: str
    claim: str
    restored: CheckpointMetadata

    def require_published(self, files: Sequence[StagedFile], *, alone: bool) -> None:
        """Make sure that all of them were published, by a sink at one other directory.

        Args:
            files: What the snapshot lists there.
            alone: Whether it lists no file in the sink's own directory.

        Raises:
            MetadataError: They are not what such a sink writes, are on another server, or one of them is not known to
                have been published.
            StorageError: The note of what was published there is damaged.
            OSError: The former directory cannot be read.
        """
        for file in files:
            if not alone:
                raise self._refusal(
                    file,
                    f"outside the directory of sink '{self.uid}', '{self.base}', and others in it. {_UNTRUSTED}",
                )
            # Not even looked at: a snapshot must not make us log in somewhere.
            if not is_local(file.staged) and not same_host(file.staged, self.base):
                raise self._refusal(
                    file,
                    f"which is on another file system than the directory of sink '{self.uid}', '{self.base}'. Start "
                    f"the job with the sink's former directory; {_OTHER_UID}",
                )
        former, found, _ = files[0].staged.partition(f"/{self.claim}/")
        # 0.1.0 staged each file beside its final name.
        legacy = "" if found or self.restored.lineage else self.restored.job_id
        if not found and not legacy:
            raise self._refusal(
                files[0],
                f"which is not what sink '{self.uid}' writes, at '{self.base}' or elsewhere. {_UNTRUSTED}",
            )
        for file in files:
            locate(parent(file.final) if legacy else former, self.claim, self.claim, file, legacy)
        staging = {parent(file.staged) for file in files} if legacy else self._areas(former)
        waiting = {name for directory in staging for name in _names(directory)}
        for file in files:
            if name_of(file.staged) in waiting:
                raise self._refusal(
                    file,
                    f"which is not published yet and lies outside the directory of sink '{self.uid}', '{self.base}'. "
                    "Start the job once with the sink's former directory, or use another snapshot",
                )
        if legacy or self._progress(former) is not Progress.ALL:
            self._require_visible(files)

    def _areas(self, former: str) -> set[str]:
        areas = areas_of(open_place(former), self.claim)
        return {f"{former}/{self.claim}/{area}" for area in areas}

    def _progress(self, former: str) -> Progress:
        return progress_of(read_frontier(open_place(former), self.claim), self.restored)

    def _require_visible(self, files: Sequence[StagedFile]) -> None:
        visible: dict[str, set[str]] = {}
        for file in files:
            directory = parent(file.final)
            if directory not in visible:
                visible[directory] = _names(directory)
            if name_of(file.final) not in visible[directory]:
                raise self._refusal(
                    file,
                    f"which lies outside the directory of sink '{self.uid}', '{self.base}', and is neither staged nor "
                    f"visible ('{file.final}'), so nothing says that it was published. Start the job once with the "
                    f"sink's former directory; {_OTHER_UID}",
                )

    def _refusal(self, file: StagedFile, why: str) -> MetadataError:
        return MetadataError(
            f"The snapshot lists {file.staged!r}, {why}.", path=file.staged, operator_uid=self.uid
        )


def _names(directory: str) -> set[str]:
    try:
        return set(open_place(directory).names(""))
    except NotADirectoryError:
        # A file or a link is in the way, which no sink has put there.
        return set()
