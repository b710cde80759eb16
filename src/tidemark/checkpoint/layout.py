"""Where checkpoints and savepoints lie, and how a path a user gives is turned into one of them.

::

    <state.checkpoints.dir>/<job id>/chk-<n>/_metadata      written last: without it there is no checkpoint
                                    /chk-<n>/<operator>/<state>/part-<subtask>.parquet
                                    /shared/                files of incremental checkpoints
                                    /taskowned/
    <target>/savepoint-<first 6 of job id>-<12 hex>/_metadata, and the same below
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from dataclasses import dataclass

from tidemark.checkpoint.metadata.model import METADATA_FILE, CheckpointMetadata
from tidemark.checkpoint.metadata.registry import read_metadata
from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import ConfigError, MetadataError, SavepointNotFoundError, StorageError
from tidemark.ids import is_job_id
from tidemark.paths import absolute, join, name_of, parent
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import StateMeta

__all__ = [
    "JobLayout",
    "SnapshotLocation",
    "latest_retained",
    "list_retained",
    "native_prefix",
    "new_savepoint_directory",
    "resolve_snapshot_path",
    "savepoint_location",
    "table_path",
]

_log = logging.getLogger(__name__)
_CHECKPOINT = re.compile(r"chk-(\d+)\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SnapshotLocation:
    """Where one snapshot is written or read."""

    directory: str
    shared: str
    """The job's shared files. A savepoint names this too, but never refers to anything in it."""

    @property
    def metadata_path(self) -> str:
        """Path of its `_metadata`."""
        return join(self.directory, METADATA_FILE)


@dataclass(frozen=True, slots=True)
class JobLayout:
    """Directories of one job under the checkpoint directory `root` (an absolute path or URI)."""

    root: str
    job_id: str

    @classmethod
    def create(cls, root: str, job_id: str) -> JobLayout:
        """Layout under `root`, which may still be relative."""
        return cls(absolute(root), job_id)

    @property
    def directory(self) -> str:
        """Everything of this job."""
        return join(self.root, self.job_id)

    @property
    def shared(self) -> str:
        """Files referred to by several checkpoints."""
        return join(self.directory, "shared")

    @property
    def task_owned(self) -> str:
        """Files tasks keep for themselves; no checkpoint refers to them."""
        return join(self.directory, "taskowned")

    def checkpoint(self, checkpoint_id: int) -> SnapshotLocation:
        """Where checkpoint `checkpoint_id` is."""
        return SnapshotLocation(join(self.directory, f"chk-{checkpoint_id}"), self.shared)


def savepoint_location(directory: str) -> SnapshotLocation:
    """Location of a savepoint, or of a retained checkpoint, given its directory."""
    return SnapshotLocation(directory, join(parent(directory), "shared"))


def new_savepoint_directory(target: str | None, job_id: str) -> str:
    """A fresh directory name for a savepoint below `target`.

    Raises:
        ConfigError: There is no target.
    """
    if not target:
        raise ConfigError(
            "No savepoint directory is known. Give one with the request, with "
            "env.set_default_savepoint_directory(), or as state.savepoints.dir.",
            key="state.savepoints.dir",
        )
    return join(absolute(target), f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}")


def table_path(uid: str, meta: StateMeta, index: int) -> str:
    """Path of a table file inside a snapshot's directory; one directory holds one state of all subtasks."""
    # A tilde never comes out of _safe, so a state cannot be called like the timers.
    prefix = "timer~" if meta.kind is StateKind.TIMER else ""
    return f"{_safe(uid)}/{prefix}{_safe(meta.name)}/part-{index:05d}.parquet"


def native_prefix(uid: str, index: int) -> str:
    """Start of the paths of a subtask's private native files inside a snapshot's directory."""
    return f"{_safe(uid)}/native-{index:05d}/"


def _safe(name: str) -> str:
    """A readable, unique file name for any text. Spark skips names that start with `_` or a dot."""
    plain = _UNSAFE.sub("-", name).strip("._-")[:80]
    if plain == name:
        return plain
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{plain}-{digest}" if plain else digest


def resolve_snapshot_path(storage: Storage, path: str) -> str:
    """The directory of the snapshot a user means: a directory, its `_metadata`, or a retained `chk-<n>`.

    Raises:
        SavepointNotFoundError: No `_metadata` there.
    """
    directory = absolute(path)
    if name_of(directory) == METADATA_FILE:
        directory = parent(directory)
    if not storage.is_file(join(directory, METADATA_FILE)):
        there = storage.exists(directory)
        raise SavepointNotFoundError(
            f"There is no completed checkpoint or savepoint at {path}: "
            + (f"{METADATA_FILE} is missing in the directory." if there else "the path does not exist.")
            + " Check the path; a checkpoint that never completed cannot be restored.",
            path=path,
        )
    return directory


def list_retained(storage: Storage, directory: str) -> list[tuple[int, str]]:
    """Completed checkpoints below `directory`, as (id, directory), oldest first.

    `directory` is a job's directory, or a checkpoint root with several jobs in it. With several jobs the
    order is by id only.
    """
    found = []
    for name in storage.list(directory):
        match = _CHECKPOINT.match(name)
        if match is not None:
            candidate = join(directory, name)
            if storage.is_file(join(candidate, METADATA_FILE)):
                found.append((int(match.group(1)), candidate))
        elif is_job_id(name):
            found += list_retained(storage, join(directory, name))
    return sorted(found)


def latest_retained(storage: Storage, directory: str) -> tuple[str, CheckpointMetadata] | None:
    """The newest checkpoint below `directory` whose metadata can be read; damaged ones are skipped."""
    best: tuple[str, CheckpointMetadata] | None = None
    for _, candidate in list_retained(storage, directory):
        try:
            metadata = read_metadata(storage, candidate)
        except (MetadataError, StorageError, SavepointNotFoundError) as exc:
            _log.warning("Skipping the checkpoint at %s: %s", candidate, exc)
            continue
        if best is None or _age(metadata) >= _age(best[1]):
            best = (candidate, metadata)
    return best


def _age(metadata: CheckpointMetadata) -> tuple[int, int]:
    return metadata.timestamp, metadata.checkpoint_id
