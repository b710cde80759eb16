"""The file sink's files: staged under a hidden name by a task, published by renaming, once.

`<base>/<bucket>/.<prefix>-…<suffix>.inprogress` becomes `<base>/<bucket>/<prefix>-…<suffix>`. The name holds
the sink, job, attempt, epoch and partition, so that no two files ever collide and a replay writes new ones.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from tidemark.errors import StorageError
from tidemark.runtime.records import Records
from tidemark.runtime.reports import TaskReport

__all__ = [
    "FileTaskSink",
    "StagedFile",
    "publish_file",
    "remove_staged",
    "staging_token",
    "sweep_staged",
    "withdraw_file",
]

_log = logging.getLogger(__name__)


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """One written file that is not visible yet."""

    staged: str
    final: str
    rows: int
    size: int
    checksum: str


def publish_file(file: StagedFile) -> None:
    """Make a staged file visible. A file that is published already, or was taken away since, is left alone.

    Raises:
        StorageError: The file cannot be renamed, or its size is not what was staged.
    """
    filesystem, staged = _filesystem(file.staged)
    _, final = _filesystem(file.final)
    try:
        if filesystem is None:
            if not os.path.exists(staged):
                return
            if os.path.getsize(staged) != file.size:
                raise StorageError(
                    f"Staged output '{file.staged}' has {os.path.getsize(staged)} bytes instead of {file.size}.",
                    path=file.staged,
                )
            os.replace(staged, final)
        elif filesystem.exists(staged):
            filesystem.mv(staged, final)
    except OSError as exc:
        raise StorageError(f"Cannot publish output file '{file.final}': {exc}", path=file.final) from exc


def withdraw_file(file: StagedFile) -> None:
    """Take a file back, whether it is visible or still staged; a missing one is no error.

    Raises:
        StorageError: It cannot be deleted.
    """
    for name in (file.final, file.staged):
        filesystem, path = _filesystem(name)
        try:
            if filesystem is None:
                Path(path).unlink(missing_ok=True)
            elif filesystem.exists(path):
                filesystem.rm(path)
        except OSError as exc:
            raise StorageError(f"Cannot take back output file '{name}': {exc}", path=name) from exc


def remove_staged(file: StagedFile) -> None:
    """Delete a staged file that no checkpoint covers; a failure is only logged."""
    filesystem, staged = _filesystem(file.staged)
    try:
        if filesystem is None:
            Path(staged).unlink(missing_ok=True)
        elif filesystem.exists(staged):
            filesystem.rm(staged)
    except OSError as exc:
        _log.warning("Staged file %s stays behind: %s", file.staged, exc)


def staging_token(job_id: str, vertex_id: int) -> str:
    """The part of a staged file's name that says whose it is; sinks may share a directory."""
    return f"{job_id[:12]}-{vertex_id}"


def sweep_staged(base_path: str, token: str) -> None:
    """Delete all staged files with that token under `base_path`; call it when none is wanted."""
    filesystem, base = _filesystem(base_path)
    if filesystem is None:
        for path in Path(base).rglob(f".*-{token}-*.inprogress"):
            path.unlink(missing_ok=True)
    elif filesystem.exists(base):
        for name in filesystem.find(base):
            if fnmatch(name.rpartition("/")[2], f".*-{token}-*.inprogress"):
                filesystem.rm(name)


def _filesystem(path: str) -> tuple[Any, str]:
    local = path.removeprefix("file://") if path.startswith("file://") else path.removeprefix("file:")
    if "://" not in local:
        return None, local
    import fsspec

    return fsspec.core.url_to_fs(local)  # type: ignore[no-any-return]


class _Part:
    """A file that is being written."""

    def __init__(self, directory: str, name: str) -> None:
        self.final = f"{directory}/{name}"
        self.staged = f"{directory}/.{name}.inprogress"
        filesystem, path = _filesystem(self.staged)
        if filesystem is None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._stream: Any = Path(path).open("wb")  # noqa: SIM115 - closed by close()
        else:
            filesystem.makedirs(os.path.dirname(path), exist_ok=True)
            self._stream = filesystem.open(path, "wb")
        self._hash = xxhash.xxh3_128()
        self.rows = 0
        self.size = 0

    def write(self, data: bytes, rows: int) -> None:
        self._stream.write(data)
        self._hash.update(data)
        self.rows += rows
        self.size += len(data)

    def close(self) -> StagedFile:
        self._stream.flush()
        if hasattr(self._stream, "fileno"):
            os.fsync(self._stream.fileno())
        self._stream.close()
        return StagedFile(self.staged, self.final, self.rows, self.size, self._hash.hexdigest())


class FileTaskSink:
    """Writes the records of one task to staged files, one per bucket, rolled by size."""

    def __init__(
        self,
        base_path: str,
        encode: Callable[[Any], bytes],
        bucket_of: Callable[[Any, int], str],
        prefix: str,
        suffix: str,
        part_size: int,
        unique: str,
        vertex_id: int,
    ) -> None:
        """Prepare to write.

        Args:
            base_path: The sink's directory.
            encode: Element -> bytes of its line, terminator included.
            bucket_of: (element, processing time) -> sub-directory, may be empty.
            prefix: Start of final names.
            suffix: End of final names.
            part_size: Bytes after which a new file is begun.
            unique: Part of the name that no other task, epoch or attempt of any job has.
            vertex_id: The sink, for the report.
        """
        self._base = base_path.rstrip("/")
        self._encode = encode
        self._bucket_of = bucket_of
        self._prefix = prefix
        self._suffix = suffix
        self._part_size = part_size
        self._unique = unique
        self._vertex = vertex_id
        self._open: dict[str, _Part] = {}
        self._done: list[StagedFile] = []

    def write(self, records: Records) -> None:
        """Append records to the files of their buckets."""
        now = int(time.time() * 1000)
        by_bucket: dict[str, list[bytes]] = {}
        for value in records.values:
            by_bucket.setdefault(self._bucket_of(value, now), []).append(self._encode(value))
        for bucket, lines in by_bucket.items():
            part = self._open.get(bucket) or self._begin(bucket)
            part.write(b"".join(lines), len(lines))
            if part.size >= self._part_size:
                self._done.append(self._open.pop(bucket).close())

    def _begin(self, bucket: str) -> _Part:
        directory = f"{self._base}/{bucket}" if bucket else self._base
        name = f"{self._prefix}-{self._unique}-{uuid.uuid4().hex[:8]}{self._suffix}"
        part = self._open[bucket] = _Part(directory, name)
        return part

    def rows(self) -> list[tuple[str, bytes]]:
        """Files travel in the report, not as rows."""
        return []

    def close(self, report: TaskReport) -> None:
        """Finish all files and report them."""
        self._done += [part.close() for part in self._open.values()]
        self._open.clear()
        report.staged.setdefault(self._vertex, []).extend(self._done)
        self._done = []
