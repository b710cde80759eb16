"""Compaction of small files: when a file sink merges what it has staged, and how. The settings only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidemark.errors import ConfigError
from tidemark.formats.files import BinaryOutput, BulkWriterFactory

__all__ = ["FileCompactStrategy", "FileCompactor"]

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileCompactStrategy:
    """When staged files are merged and published; until then they wait, part of every checkpoint."""

    num_checkpoints_before_compaction: int = -1
    """After how many checkpoints; -1: no matter how many."""
    size_threshold: int = -1
    """With how many bytes in one bucket; -1: no matter how many."""
    num_compact_threads: int = 1

    @staticmethod
    def builder() -> Builder:
        """Start a strategy."""
        return FileCompactStrategy.Builder()

    class Builder:
        """Collects the settings; every method returns the builder."""

        def __init__(self) -> None:
            self._strategy = FileCompactStrategy()

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Merge at every so many checkpoints.

            Raises:
                ConfigError: Not positive.
            """
            checkpoints = _positive("num_checkpoints_before_compaction", num_checkpoints_before_compaction)
            self._strategy = replace(self._strategy, num_checkpoints_before_compaction=checkpoints)
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Merge, at the next checkpoint, what has that many bytes in one bucket.

            Raises:
                ConfigError: Not positive.
            """
            self._strategy = replace(
                self._strategy, size_threshold=_positive("size_threshold", size_threshold)
            )
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Merge that many buckets at a time.

            Raises:
                ConfigError: Not positive.
            """
            threads = _positive("num_compact_threads", num_compact_threads)
            self._strategy = replace(self._strategy, num_compact_threads=threads)
            return self

        def build(self) -> FileCompactStrategy:
            """The finished strategy.

            Raises:
                ConfigError: Neither checkpoints nor a size say when to merge.
            """
            if max(self._strategy.num_checkpoints_before_compaction, self._strategy.size_threshold) < 0:
                raise ConfigError(
                    "A FileCompactStrategy needs enable_compaction_on_checkpoint() or set_size_threshold()."
                )
            return self._strategy


class FileCompactor(ABC):
    """Makes one file of several; plain data."""

    merges = True
    """Whether it can take more than one file."""

    @abstractmethod
    def compact(self, files: Iterable[Any], out: BinaryOutput, bulk_writer: BulkWriterFactory | None) -> None:
        """Write the content of open binary files, in their order.

        Args:
            files: Each is read before the next is opened.
            out: The merged file.
            bulk_writer: Of the sink, None if it has a row format.
        """

    def check(self, bulk_writer: BulkWriterFactory | None) -> None:
        """Refuse a sink whose files this compactor cannot merge.

        Raises:
            ConfigError: It cannot.
        """

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Put files of a row format behind each other, with `file_delimiter` in between."""
        return _Concatenation(b"" if file_delimiter is None else bytes(file_delimiter))

    @staticmethod
    def record_wise_file_compactor() -> FileCompactor:
        """Read the records of files of a bulk format and write them to one."""
        return _RecordWise()

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Leave every file as it is; they only wait as long as the strategy says."""
        return _Identical()


@dataclass(frozen=True, slots=True)
class _Concatenation(FileCompactor):
    delimiter: bytes

    def compact(self, files: Iterable[Any], out: BinaryOutput, bulk_writer: BulkWriterFactory | None) -> None:
        for at, file in enumerate(files):
            if at and self.delimiter:
                out.write(self.delimiter)
            while data := file.read(_CHUNK):
                out.write(data)

    def check(self, bulk_writer: BulkWriterFactory | None) -> None:
        if bulk_writer is not None:
            raise ConfigError(
                "Files of a bulk format cannot be put behind each other. Use "
                "FileCompactor.record_wise_file_compactor()."
            )


@dataclass(frozen=True, slots=True)
class _RecordWise(FileCompactor):
    def compact(self, files: Iterable[Any], out: BinaryOutput, bulk_writer: BulkWriterFactory | None) -> None:
        assert bulk_writer is not None, "refused by check()"
        reader, writer = bulk_writer.reader(), bulk_writer.create(out)
        for file in files:
            # No file has more units than this.
            for elements, _ in reader.read(file, 0, 1 << 62):
                writer.add_elements(elements)
        writer.finish()

    def check(self, bulk_writer: BulkWriterFactory | None) -> None:
        if bulk_writer is None:
            raise ConfigError(
                "Nobody knows the records in files of a row format. Use FileCompactor.concat_file_compactor()."
            )


@dataclass(frozen=True, slots=True)
class _Identical(FileCompactor):
    merges = False

    def compact(self, files: Iterable[Any], out: BinaryOutput, bulk_writer: BulkWriterFactory | None) -> None:
        raise AssertionError("files are published as they are")


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a positive number, not {value!r}.")
    return value
