"""Files as a sink. `runtime` writes them; here are only the settings."""

from __future__ import annotations

import datetime
import os
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidemark.api.connectors.base import Sink
from tidemark.api.connectors.compaction import FileCompactor, FileCompactStrategy
from tidemark.api.specs import FileSinkSpec
from tidemark.errors import ConfigError
from tidemark.formats.files import BulkWriterFactory
from tidemark.formats.schemas import Encoder
from tidemark.types.time import TimeLike, to_millis

__all__ = [
    "BucketAssigner",
    "DefaultRollingPolicy",
    "FileSink",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """What the names of finished files begin and end with."""

    part_prefix: str = "part"
    part_suffix: str = ""

    def get_part_prefix(self) -> str:
        """What names begin with."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """What names end with."""
        return self.part_suffix

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Start a configuration."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        """Collects prefix and suffix; every method returns the builder."""

        def __init__(self) -> None:
            self._config = OutputFileConfig()

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Begin names with `prefix`."""
            self._config = replace(self._config, part_prefix=prefix)
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """End names with `suffix`."""
            self._config = replace(self._config, part_suffix=suffix)
            return self

        def build(self) -> OutputFileConfig:
            """The finished configuration."""
            return self._config


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """When a file in progress is finished and another one is begun; sizes in bytes, times in ms.

    A file also ends with its epoch, in continuous execution with its checkpoint, and is visible only then. Its size is
    looked at behind each batch, age and idleness each `with_bucket_check_interval(...)`.
    """

    part_size: int = 128 * _MIB
    rollover_interval: int = 60_000
    inactivity_interval: int = 60_000
    on_checkpoint: bool = False
    """Roll at every checkpoint and never between."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * _MIB,
        rollover_interval: TimeLike = 60_000,
        inactivity_interval: TimeLike = 60_000,
    ) -> DefaultRollingPolicy:
        """Roll when a file is that large, that old, or was not written to for that long.

        Raises:
            ConfigError: A value is not positive.
        """
        values = (
            part_size,
            to_millis(rollover_interval, "rollover_interval"),
            to_millis(inactivity_interval, "inactivity_interval"),
        )
        if min(values) <= 0:
            raise ConfigError(f"A rolling policy needs positive values, not {values}.")
        return DefaultRollingPolicy(*values)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Roll at every checkpoint."""
        return OnCheckpointRollingPolicy(part_size=sys.maxsize, on_checkpoint=True)

    def should_roll(self, size: int, age_ms: int, idle_ms: int) -> bool:
        """Whether a file of that size and age, last written `idle_ms` ago, is finished."""
        if self.on_checkpoint:
            return False
        return (
            size >= self.part_size or age_ms >= self.rollover_interval or idle_ms >= self.inactivity_interval
        )


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size and time."""

    __slots__ = ()


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls at every checkpoint and never between."""

    __slots__ = ()


class BucketAssigner(ABC):
    """Chooses the directory, below the sink's base path, that an element is written to."""

    @abstractmethod
    def get_bucket_id(self, element: Any, processing_time: int) -> str:
        """The directory; empty for the base path itself."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Everything goes to the base path."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """A directory per hour, or whatever else of the date the pattern names (Java's letters).

        Raises:
            ConfigError: Unknown letters or time zone.
        """
        return _DateTime(format_str, timezone_id)


class _BasePath(BucketAssigner):
    """No directories."""

    def get_bucket_id(self, element: Any, processing_time: int) -> str:
        """Always the base path."""
        return ""


_PATTERN_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


class _DateTime(BucketAssigner):
    """A directory per formatted time."""

    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        self._format = "".join(
            [_translated(part) for part in re.findall(r"[A-Za-z]+|[^A-Za-z]+", format_str)]
        )
        try:
            self._zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as exc:
            raise ConfigError(f"Unknown time zone {timezone_id!r}.") from exc

    def get_bucket_id(self, element: Any, processing_time: int) -> str:
        """The formatted time."""
        return datetime.datetime.fromtimestamp(processing_time / 1000, self._zone).strftime(self._format)


def _translated(part: str) -> str:
    """A run of letters, or of anything else, as `strftime` wants it."""
    if not part[0].isalpha():
        return part.replace("%", "%%")
    runs = [match.group(0) for match in re.finditer(r"([A-Za-z])\1*", part)]
    for letters in runs:
        if letters not in _PATTERN_LETTERS:
            raise ConfigError(f"Unknown letters {letters!r} in a date pattern; use yyyy MM dd HH mm ss.")
    return "".join([_PATTERN_LETTERS[letters] for letters in runs])


@dataclass(frozen=True, slots=True)
class FileSink(Sink):
    """Files of elements. They become visible at checkpoints, or per epoch without checkpointing."""

    base_path: str
    encoder: Encoder | None
    """Of a row format; None for a bulk format."""
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy = RollingPolicy()
    bucket_check_interval: int = 60_000
    """Milliseconds after which age and idleness of files in progress are looked at again."""
    output_file_config: OutputFileConfig = OutputFileConfig()
    bulk_writer: BulkWriterFactory | None = None
    """Of a bulk format."""
    compaction: tuple[FileCompactStrategy, FileCompactor] | None = None
    """When and how staged files are merged before they are published."""

    @staticmethod
    def for_row_format(base_path: Any, encoder: Encoder) -> RowFormatBuilder:
        """Start a sink that appends encoded elements.

        Raises:
            TypeError: `encoder` is no `Encoder`.
            ConfigError: No path.
        """
        if not isinstance(encoder, Encoder):
            raise TypeError(f"Expected an Encoder, not {encoder!r}.")
        return FileSink.RowFormatBuilder(
            FileSink(_checked_path(base_path), encoder, BucketAssigner.date_time_bucket_assigner())
        )

    @staticmethod
    def for_bulk_format(base_path: Any, writer_factory: BulkWriterFactory) -> BulkFormatBuilder:
        """Start a sink that writes whole files, such as Parquet; they are finished at every checkpoint.

        Raises:
            TypeError: `writer_factory` is no `BulkWriterFactory`.
            ConfigError: No path.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            raise TypeError(f"Expected a BulkWriterFactory, not {writer_factory!r}.")
        return FileSink.BulkFormatBuilder(
            FileSink(
                _checked_path(base_path),
                None,
                BucketAssigner.date_time_bucket_assigner(),
                RollingPolicy.on_checkpoint_rolling_policy(),
                bulk_writer=writer_factory,
            )
        )

    def sink_spec(self) -> FileSinkSpec:
        """Of kind "files"."""
        return FileSinkSpec(self)

    class BaseBuilder:
        """Collects the settings of a `FileSink`; every method returns the builder."""

        def __init__(self, sink: FileSink) -> None:
            self._sink = sink

        def with_bucket_check_interval(self, interval: TimeLike) -> Self:
            """How often the rolling policy is asked whether files in progress are too old or idle; a minute by default.

            Raises:
                ConfigError: Not positive.
            """
            every = to_millis(interval, "interval")
            if every <= 0:
                raise ConfigError(f"A bucket check interval is positive, not {every} ms.")
            self._sink = replace(self._sink, bucket_check_interval=every)
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Choose directories with this assigner."""
            self._sink = replace(self._sink, bucket_assigner=bucket_assigner)
            return self

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Name files so."""
            self._sink = replace(self._sink, output_file_config=output_file_config)
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Finish files by this policy."""
            self._sink = replace(self._sink, rolling_policy=rolling_policy)
            return self

        def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
            """Merge small files before they become visible.

            Raises:
                TypeError: Not a `FileCompactStrategy`, or not a `FileCompactor`.
                ConfigError: The compactor cannot merge files of this format.
            """
            if not isinstance(strategy, FileCompactStrategy):
                raise TypeError(f"Expected a FileCompactStrategy, not {strategy!r}.")
            if not isinstance(compactor, FileCompactor):
                raise TypeError(f"Expected a FileCompactor, not {compactor!r}.")
            compactor.check(self._sink.bulk_writer)
            self._sink = replace(self._sink, compaction=(strategy, compactor))
            return self

        def disable_compact(self) -> Self:
            """Publish files as they are; those that wait in a snapshot, too."""
            self._sink = replace(self._sink, compaction=None)
            return self

        def build(self) -> FileSink:
            """The finished sink."""
            return self._sink

    class RowFormatBuilder(BaseBuilder):
        """Collects the settings of a sink that appends encoded elements."""

    class BulkFormatBuilder(BaseBuilder):
        """Collects the settings of a sink that writes whole files."""

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Finish files at checkpoints, which is all that a bulk format can do.

            Raises:
                ConfigError: Another policy.
            """
            if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
                raise ConfigError(
                    "Files of a bulk format are finished at checkpoints only: use "
                    "RollingPolicy.on_checkpoint_rolling_policy()."
                )
            return super().with_rolling_policy(rolling_policy)


def _checked_path(base_path: Any) -> str:
    path: str = os.fspath(base_path)
    if not path:
        raise ConfigError("A FileSink needs a base path.")
    return path
