"""The file sink's files as a task writes them: hidden in the staging area of the driver's claim.

`<base>/.tidemark-<claim>/.area-<n>-<token>/.<prefix>-…<suffix>.inprogress` becomes, published by the driver,
`<base>/<bucket>/<prefix>-…<suffix>`. The name holds the sink, job, attempt, epoch and partition, so that no two
files ever collide and a replay writes new ones.
"""

from __future__ import annotations

import errno
import io
import os
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import xxhash

from tidemark.clock import Clock, SystemClock, has_passed
from tidemark.errors import ConfigError, StorageError
from tidemark.formats.files import BinaryOutput, BulkWriter
from tidemark.paths import abandon
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.places import create_staged
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.staged_files import (
    StagedFile,
    checked_bucket,
    checked_file_name,
    checked_part_name,
    staged_name,
)

if TYPE_CHECKING:
    from tidemark.api.connectors.file_system import RollingPolicy

__all__ = ["FileTaskSink", "LineWriter", "StagedOutput", "staging_token"]

_SYSTEM_CLOCK: Final = SystemClock()


def staging_token(job_id: str, vertex_id: int) -> str:
    """The part of a file's name that says whose it is; sinks may share a directory."""
    return f"{job_id[:12]}-{vertex_id}"


class StagedOutput:
    """A file that is being written."""

    closed = False
    """Bulk writers ask; whoever made this closes it."""

    def __init__(self, staging: str, directory: str, name: str) -> None:
        """Begin a file in a staging area, to be published as `name` in `directory`."""
        self.final = f"{directory}/{name}"
        self.staged = f"{staging}/{staged_name(name)}"
        try:
            self._stream = create_staged(staging, staged_name(name))
        except OSError as exc:
            if exc.errno == errno.ENAMETOOLONG:
                raise ConfigError(
                    f"The file sink cannot write '{self.staged}' for '{self.final}': its file system takes no such "
                    "long name. Shorten the prefix or suffix in OutputFileConfig."
                ) from exc
            raise StorageError(
                f"A sink cannot stage '{self.staged}': {exc}. If its directory is gone, another driver may have taken "
                "the sink over.",
                path=self.staged,
            ) from exc
        # As long as nobody finishes the file this holds it, so that it is never finalized by itself.
        self._abandon = weakref.finalize(self, abandon, self._stream)
        self._hash = xxhash.xxh3_128()
        self.size = 0

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        self._stream.write(data)
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def flush(self) -> None:
        """Nothing has to be out before `close`."""

    def seekable(self) -> bool:
        """What is written is written."""
        return False

    def close(self, rows: int) -> StagedFile:
        """Make the file durable; it holds that many records."""
        self._stream.flush()
        # Files of remote systems have no descriptor; closing them makes them durable.
        with suppress(io.UnsupportedOperation):
            os.fsync(self._stream.fileno())
        self._stream.close()
        self._abandon.detach()
        return StagedFile(self.staged, self.final, rows, self.size, self._hash.hexdigest())


class LineWriter(BulkWriter):
    """Appends encoded elements: a row format."""

    def __init__(self, encode: Callable[[Any], bytes], out: BinaryOutput) -> None:
        self._encode = encode
        self._out = out

    def add_elements(self, elements: Sequence[Any]) -> None:
        """Append the bytes of elements."""
        self._out.write(b"".join(map(self._encode, elements)))

    def finish(self) -> None:
        """Nothing is held back."""


class _Part:
    """The open file of a bucket."""

    def __init__(self, out: StagedOutput, writer: BulkWriter, now: int) -> None:
        self._out = out
        self._writer = writer
        self._rows = 0
        self._begun_at = self._written_at = now

    def write(self, values: list[Any], now: int) -> None:
        self._writer.add_elements(values)
        self._rows += len(values)
        self._written_at = now

    def is_large(self, policy: RollingPolicy) -> bool:
        return policy.should_roll(self._out.size, 0, 0)

    def is_over(self, policy: RollingPolicy, now: int) -> bool:
        return policy.should_roll(self._out.size, now - self._begun_at, now - self._written_at)

    def close(self) -> StagedFile:
        self._writer.finish()
        return self._out.close(self._rows)


class FileTaskSink:
    """Writes the records of one task to staged files, one per bucket, rolled by the policy of the sink."""

    def __init__(
        self,
        base_path: str,
        staging: str,
        make_writer: Callable[[BinaryOutput], BulkWriter],
        bucket_of: Callable[[Any, int], str],
        prefix: str,
        suffix: str,
        rolling: RollingPolicy,
        unique: str,
        vertex_id: int,
        *,
        check_every_ms: int,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        """Prepare to write.

        Args:
            base_path: The sink's directory.
            staging: Directory of the driver's claim that files wait in; it is there.
            make_writer: Begins the content of a file.
            bucket_of: (element, processing time) -> sub-directory, may be empty.
            prefix: Start of final names.
            suffix: End of final names.
            rolling: When a new file is begun.
            unique: Part of the name that no other task, epoch or attempt of any job has.
            vertex_id: The sink, for the report.
            check_every_ms: How often age and idleness of files are looked at.
            clock: The time that buckets and the policy go by.
        """
        self._base = base_path.rstrip("/")
        self._staging = staging
        self._make_writer = make_writer
        self._bucket_of = bucket_of
        self._prefix = checked_part_name(prefix)
        self._suffix = checked_part_name(suffix)
        self._rolling = rolling
        self._check_every = check_every_ms
        self._clock = clock
        self._checked_at = clock.now()
        self._unique = unique
        self._vertex = vertex_id
        self._open: dict[str, _Part] = {}
        self._done: list[StagedFile] = []

    def write(self, records: Records) -> None:
        """Append records to the files of their buckets."""
        now = self._clock.now()
        if has_passed(self._check_every, self._checked_at, now):
            self._checked_at = now
            self._finish([bucket for bucket, part in self._open.items() if part.is_over(self._rolling, now)])
        by_bucket: dict[str, list[Any]] = {}
        for value in records.values:
            by_bucket.setdefault(self._bucket_of(value, now), []).append(value)
        for bucket, values in by_bucket.items():
            part = self._open.get(bucket) or self._begin(bucket, now)
            part.write(values, now)
            if part.is_large(self._rolling):
                self._finish([bucket])

    def _finish(self, buckets: Sequence[str]) -> None:
        self._done += [self._open.pop(bucket).close() for bucket in buckets]

    def _begin(self, bucket: str, now: int) -> _Part:
        directory = checked_bucket(self._base, bucket)
        name = checked_file_name(f"{self._prefix}-{self._unique}-{uuid.uuid4().hex[:8]}{self._suffix}")
        out = StagedOutput(self._staging, directory, name)
        part = self._open[bucket] = _Part(out, self._make_writer(out), now)
        return part

    def rows(self) -> list[tuple[str, bytes]]:
        """Files travel in the report, not as rows."""
        return []

    def close(self, report: TaskReport) -> None:
        """Finish all files and report them."""
        self._finish(list(self._open))
        report.staged.setdefault(self._vertex, []).extend(self._done)
        self._done = []
