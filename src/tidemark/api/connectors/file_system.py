"""Text files as sources and sinks. `runtime` reads and writes them; here are only the settings."""

from __future__ import annotations

import datetime
import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidemark.api.connectors.base import Sink, Source
from tidemark.api.connectors.serialization import Encoder, known_charset
from tidemark.api.specs import FileSinkSpec, FileSourceSpec
from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSource",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """How the bytes of a file become elements; lines of text are the only kind."""

    charset: str = "UTF-8"

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """One element per line, without its terminator."""
        return StreamFormat(known_charset(charset_name))


@dataclass(frozen=True, slots=True)
class FileSource(Source):
    """Lines of files; bounded unless monitored."""

    paths: tuple[str, ...]
    format: StreamFormat = StreamFormat()
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
        if not paths:
            raise ConfigError("A FileSource needs at least one path.")
        return FileSourceBuilder(FileSource(tuple([os.fspath(path) for path in paths]), stream_format))

    def source_spec(self) -> FileSourceSpec:
        """What the graph holds of this source."""
        return FileSourceSpec(self.paths, self.format.charset, self.monitor_ms)

    def produced_type(self) -> TypeInformation:
        """`Types.STRING()`."""
        return Types.STRING()


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

    def build(self) -> FileSource:
        """The finished source."""
        return self._source


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """What the names of finished files begin and end with."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Start a configuration."""
        return OutputFileConfigBuilder()


class OutputFileConfigBuilder:
    """Collects prefix and suffix; every method returns the builder."""

    def __init__(self) -> None:
        self._config = OutputFileConfig()

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Begin names with `prefix`."""
        self._config = replace(self._config, part_prefix=prefix)
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """End names with `suffix`."""
        self._config = replace(self._config, part_suffix=suffix)
        return self

    def build(self) -> OutputFileConfig:
        """The finished configuration."""
        return self._config


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """When a file in progress is finished and another one is begun; sizes in bytes, times in ms."""

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
    ) -> RollingPolicy:
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
        return RollingPolicy(*values)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """Roll at every checkpoint."""
        return RollingPolicy(on_checkpoint=True)

    def should_roll(self, size: int, age_ms: int, idle_ms: int) -> bool:
        """Whether a file of that size and age, last written `idle_ms` ago, is finished."""
        if self.on_checkpoint:
            return False
        return (
            size >= self.part_size or age_ms >= self.rollover_interval or idle_ms >= self.inactivity_interval
        )


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
    """Files of encoded elements. They become visible at checkpoints, or per epoch without checkpointing."""

    base_path: str
    encoder: Encoder
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy = RollingPolicy()
    output_file_config: OutputFileConfig = OutputFileConfig()

    @staticmethod
    def for_row_format(base_path: Any, encoder: Encoder) -> FileSinkBuilder:
        """Start a sink that appends encoded elements.

        Raises:
            TypeError: `encoder` is no `Encoder`.
            ConfigError: No path.
        """
        if not isinstance(encoder, Encoder):
            raise TypeError(f"Expected an Encoder, not {encoder!r}.")
        path = os.fspath(base_path)
        if not path:
            raise ConfigError("A FileSink needs a base path.")
        return FileSinkBuilder(FileSink(path, encoder, BucketAssigner.date_time_bucket_assigner()))

    def sink_spec(self) -> FileSinkSpec:
        """Of kind "files"."""
        return FileSinkSpec(self)


class FileSinkBuilder:
    """Collects the settings of a `FileSink`; every method returns the builder."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink

    def with_bucket_check_interval(self, interval: TimeLike) -> FileSinkBuilder:
        """Accepted for compatibility: files are looked at once per epoch."""
        to_millis(interval, "interval")
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        """Choose directories with this assigner."""
        self._sink = replace(self._sink, bucket_assigner=bucket_assigner)
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """Finish files by this policy."""
        self._sink = replace(self._sink, rolling_policy=rolling_policy)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """Name files so."""
        self._sink = replace(self._sink, output_file_config=output_file_config)
        return self

    def build(self) -> FileSink:
        """The finished sink."""
        return self._sink
