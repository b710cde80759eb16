"""Files as a source. `runtime` reads them; here are only the settings."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from tidemark.api.connectors.base import Source
from tidemark.api.specs import FileSourceSpec
from tidemark.errors import ConfigError
from tidemark.formats.files import BulkFormat, FileFormat, StreamFormat
from tidemark.types.time import TimeLike, to_millis
from tidemark.types.typeinfo import TypeInformation

__all__ = ["FileEnumeratorProvider", "FileSource", "FileSourceBuilder", "FileSplitAssignerProvider"]


@dataclass(frozen=True, slots=True)
class FileSource(Source):
    """Elements of files; bounded unless monitored."""

    paths: tuple[str, ...]
    format: FileFormat
    monitor_ms: int | None = None

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: Any) -> FileSourceBuilder:
        """Start a source over files, directories or globs.

        Raises:
            TypeError: `stream_format` is no `StreamFormat`.
            ConfigError: No path.
        """
        if not isinstance(stream_format, StreamFormat):
            raise TypeError(f"Expected a StreamFormat, not {stream_format!r}.")
        return _builder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: Any) -> FileSourceBuilder:
        """Start a source over files, directories or globs.

        Raises:
            TypeError: `bulk_format` is no `BulkFormat`.
            ConfigError: No path.
        """
        if not isinstance(bulk_format, BulkFormat):
            raise TypeError(f"Expected a BulkFormat, not {bulk_format!r}.")
        return _builder(bulk_format, paths)

    def source_spec(self) -> FileSourceSpec:
        """What the graph holds of this source."""
        return FileSourceSpec(self.paths, self.format, self.monitor_ms)

    def produced_type(self) -> TypeInformation:
        """The type of the format's elements."""
        return self.format.produced_type()


def _builder(file_format: FileFormat, paths: tuple[Any, ...]) -> FileSourceBuilder:
    if not paths:
        raise ConfigError("A FileSource needs at least one path.")
    return FileSourceBuilder(FileSource(tuple([os.fspath(path) for path in paths]), file_format))


class FileEnumeratorProvider:
    """Which files there are, and how they are cut: a file is read by one task at a time, piece by piece."""

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """All files below the paths but hidden ones."""
        return FileEnumeratorProvider()

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """All files below the paths but hidden ones."""
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """Which task reads which file: Spark places tasks, and knows which data is where."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Leave it to Spark."""
        return FileSplitAssignerProvider()


class FileSourceBuilder:
    """Collects the settings of a `FileSource`; every method returns the builder."""

    def __init__(self, source: FileSource) -> None:
        self._source = source

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there at the start; the default."""
        self._source = replace(self._source, monitor_ms=None)
        return self

    def monitor_continuously(self, discovery_interval: TimeLike) -> FileSourceBuilder:
        """Look for new files again and again; makes the source unbounded.

        Raises:
            ConfigError: The interval is not positive.
        """
        interval = to_millis(discovery_interval, "discovery_interval")
        if interval <= 0:
            raise ConfigError(f"discovery_interval must be positive, got {interval} ms.")
        self._source = replace(self._source, monitor_ms=interval)
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Accepted for compatibility: both enumerators list the same files.

        Raises:
            TypeError: Not a `FileEnumeratorProvider`.
        """
        if not isinstance(file_enumerator, FileEnumeratorProvider):
            raise TypeError(f"Expected a FileEnumeratorProvider, not {file_enumerator!r}.")
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accepted for compatibility: Spark places tasks.

        Raises:
            TypeError: Not a `FileSplitAssignerProvider`.
        """
        if not isinstance(split_assigner, FileSplitAssignerProvider):
            raise TypeError(f"Expected a FileSplitAssignerProvider, not {split_assigner!r}.")
        return self

    def build(self) -> FileSource:
        """The finished source."""
        return self._source
