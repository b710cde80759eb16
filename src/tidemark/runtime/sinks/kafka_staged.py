"""Staged records of one Kafka sink as the driver finds them: where files are, what they hold, what a snapshot's mean.

A snapshot lists files by the checkpoint that was the first to cover them. Those that the marker covers are in Kafka and
of no interest any more; the others are to be written, if they are within reach. Without a marker nobody can say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tidemark.api.connectors.kafka.serialization import OutgoingRecords
from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.config import Options
from tidemark.errors import RestoreError
from tidemark.runtime.places import Place
from tidemark.runtime.sinks.frontier import Frontier
from tidemark.runtime.sinks.kafka_commits import StagedGroup, decode_groups, waits_elsewhere
from tidemark.runtime.sinks.kafka_records import read_staged
from tidemark.runtime.sinks.staged_files import StagedFile, is_inside, locate

__all__ = ["StagedRecords", "Unpublished", "reached"]


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A staged file, and its path below the staging directory."""

    file: StagedFile
    source: str


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """The staging area of a sink.

    Attributes:
        place: The staging directory, opened.
        base: Its path.
        directory: That of the sink below it.
        area: That of this driver's claim; empty before there is one: then files can only be checked.
        uid: The sink.
        what: The same, for messages.
        mapped: Makes an error of the place one of ours; the argument completes "cannot be".
    """

    place: Place
    base: str
    directory: str
    area: str
    uid: str
    what: str
    mapped: Callable[[str], AbstractContextManager[None]]

    def listed(self, prepared: bytes) -> list[StagedGroup]:
        """What a snapshot lists, checked one and all before anything is touched.

        Raises:
            MetadataError: It is not what a Kafka sink stores, or names files that no sink writes.
        """
        groups = decode_groups(prepared, self.uid)
        for file in [file for group in groups for file in group.files]:
            if self._is_own(file):
                self.locate(file)
        return groups

    def _is_own(self, file: StagedFile) -> bool:
        """Whether a file was staged with this directory and transactional id prefix."""
        return is_inside(self.base, file) and f"/{self.directory}/" in file.staged

    def locate(self, file: StagedFile) -> Unpublished:
        """A file with its place."""
        return Unpublished(file, locate(self.base, self.directory, self.area, file)[0])

    def is_there(self, entry: Unpublished) -> bool:
        """Whether it has not been deleted, by us or by anybody."""
        try:
            self.place.size(entry.source)
        except FileNotFoundError:
            return False
        return True

    def batches(self, files: Sequence[Unpublished]) -> Iterator[OutgoingRecords]:
        """The records of files, in order.

        Raises:
            StorageError: A file is damaged, or cannot be read.
        """
        for entry in files:
            with self.mapped("published"), self.place.open(entry.source) as stream:
                yield from read_staged(stream, entry.file)

    def topics_of(self, files: Sequence[Unpublished], fixed: str | None) -> Collection[str]:
        """Where the records of files go; `fixed` is the one topic of the sink, if it has one."""
        if fixed is not None or not files:
            return [fixed] if fixed is not None and files else []
        found: dict[str, None] = {}
        for records in self.batches(files):
            found.update(
                dict.fromkeys([records.topics] if isinstance(records.topics, str) else records.topics)
            )
        return found

    def unpublished(
        self,
        groups: Sequence[StagedGroup],
        restored: CheckpointMetadata,
        published: Frontier | None,
        marker: str | None,
        *,
        repeat: bool,
    ) -> list[StagedFile]:
        """Files of a snapshot whose records are not in Kafka.

        Args:
            groups: What it lists.
            restored: The snapshot.
            published: How far the sink has published, as far as anybody knows.
            marker: None if there is a marker; else the consumer group that it would be in.
            repeat: Whether records may be written again.

        Raises:
            RestoreError: They are out of reach, or nothing can say whether their records are in Kafka.
        """
        known = reached(published, restored)
        left = [file for group in groups if group.checkpoint > known for file in group.files]
        own = [file for file in left if self._is_own(file)]
        elsewhere = [file for file in left if not self._is_own(file)]
        with self.mapped("restored"):
            for file in elsewhere:
                # Files go behind the commit only: what is gone from a place whose marker we do not have was written.
                if marker is None or waits_elsewhere(self.base, file, self.uid):
                    raise self._refusal(
                        f"'{file.staged}' is not written to Kafka yet, and lies outside of the sink's staging area at "
                        f"'{self.base}'. Start the job once with the former staging directory and transactional id "
                        "prefix, or use another snapshot",
                        file,
                    )
            if marker is None:
                return own
            doubtful = [file for file in own if self.is_there(self.locate(file))]
        if doubtful and not repeat:
            raise self._refusal(
                f"records of checkpoint {restored.checkpoint_id} of job {restored.job_id} are still staged "
                f"('{doubtful[0].staged}'), and the marker that says whether they are in Kafka is gone: consumer group "
                f"'{marker}' has expired (offsets.retention.minutes) or was deleted. Look whether "
                f"the topic holds them. If it does, delete the staged files; if not, or if duplicates do no harm, set "
                f"{Options.CHECKPOINTING_ALLOW_FALLBACK.key}: duplicate",
                doubtful[0],
            )
        return doubtful

    def _refusal(self, why: str, file: StagedFile) -> RestoreError:
        return RestoreError(f"{self.what}: {why}.", path=file.staged, operator_uid=self.uid)


def reached(published: Frontier | None, restored: CheckpointMetadata) -> int:
    """The newest checkpoint, in the numbers of the snapshot's job, whose records are known to be in Kafka."""
    if published is None:
        return -1
    if published.job_id == restored.job_id:
        return published.published
    # Whoever started from that snapshot has published what it covers in the first place.
    return restored.checkpoint_id if published.is_origin(restored) else -1
