"""Merging staged files before they are published.

Files wait, staged and listed by every checkpoint, until the strategy is satisfied. Then the checkpoint that is being
prepared lists the merged file instead; what was merged is deleted only after that checkpoint is complete. A crash
before leaves the files as the checkpoint before lists them, and whatever was merged is swept as any other leftover.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidemark.api.connectors.compaction import FileCompactor, FileCompactStrategy
from tidemark.api.connectors.file_system import FileSink, OutputFileConfig
from tidemark.formats.files import BulkWriterFactory
from tidemark.runtime.sinks.file_task import StagedOutput
from tidemark.runtime.sinks.staged_files import StagedFile

__all__ = ["Compaction"]

OpenStaged = Callable[[StagedFile], Any]


class Compaction:
    """Says which files are merged when, and merges them."""

    def __init__(
        self,
        strategy: FileCompactStrategy,
        compactor: FileCompactor,
        bulk_writer: BulkWriterFactory | None,
        names: OutputFileConfig,
    ) -> None:
        self._strategy = strategy
        self._compactor = compactor
        self._bulk_writer = bulk_writer
        self._names = names
        self._checkpoints = 0

    @staticmethod
    def of(sink: FileSink) -> Compaction | None:
        """What a sink asks for."""
        if sink.compaction is None:
            return None
        return Compaction(*sink.compaction, sink.bulk_writer, sink.output_file_config)

    def due(self, waiting: Sequence[StagedFile]) -> list[list[StagedFile]]:
        """A checkpoint is being prepared: the groups, one per bucket, that are to be merged with it."""
        self._checkpoints += 1
        every = self._strategy.num_checkpoints_before_compaction
        all_due = every > 0 and self._checkpoints >= every
        if all_due:
            self._checkpoints = 0
        threshold = self._strategy.size_threshold
        return [
            files
            for files in _by_bucket(waiting)
            if all_due or 0 < threshold <= sum(file.size for file in files)
        ]

    def merge(
        self, groups: Sequence[list[StagedFile]], staging: str, open_staged: OpenStaged
    ) -> list[StagedFile]:
        """Write one file for each group into the staging area, several at a time.

        Raises:
            OSError: A file cannot be read or written.
            StorageError: The staging area is gone.
        """
        with ThreadPoolExecutor(self._strategy.num_compact_threads, "tidemark-compaction") as pool:
            merged = pool.map(lambda group: self._merged(group, staging, open_staged), groups)
            return [file for files in merged for file in files]

    def merge_all(
        self, files: Sequence[StagedFile], staging: str, open_staged: OpenStaged
    ) -> list[StagedFile]:
        """The same for files that no checkpoint lists, whatever the strategy says."""
        return self.merge(_by_bucket(files), staging, open_staged)

    def _merged(self, group: list[StagedFile], staging: str, open_staged: OpenStaged) -> list[StagedFile]:
        if len(group) == 1 or not self._compactor.merges:
            return group
        directory = group[0].final.rpartition("/")[0]
        name = f"{self._names.part_prefix}-compacted-{uuid.uuid4().hex}{self._names.part_suffix}"
        out = StagedOutput(staging, directory, name)
        self._compactor.compact(_opened(group, open_staged), out, self._bulk_writer)
        return [out.close(sum(file.rows for file in group))]


def _opened(group: Sequence[StagedFile], open_staged: OpenStaged) -> Iterator[Any]:
    for file in group:
        with open_staged(file) as stream:
            yield stream


def _by_bucket(files: Sequence[StagedFile]) -> list[list[StagedFile]]:
    groups: dict[str, list[StagedFile]] = {}
    for file in files:
        groups.setdefault(file.final.rpartition("/")[0], []).append(file)
    return list(groups.values())
