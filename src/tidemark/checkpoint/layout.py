"""Where checkpoints and savepoints lie, and how a path a user gives is turned into one of them.

::

    <state.checkpoints.dir>/<job id>/chk-<n>/_metadata      written last: without it there is no checkpoint
                                    /chk-<n>/<operator>/<state>/part-<subtask>.parquet
                                    /shared/                files of incremental checkpoints
    <state.checkpoints.dir>/<job id>/<run>/chk-<n>/...      the same with high availability, for each driver of the job
    <target>/savepoint-<first 6 of job id>-<12 hex>/_metadata, and the same below
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field

from tidemark.checkpoint.metadata.model import METADATA_FILE
from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import ConfigError, SavepointNotFoundError
from tidemark.paths import absolute, join, name_of, parent
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import StateMeta

__all__ = [
    "JobLayout",
    "SnapshotLocation",
    "native_prefix",
    "new_savepoint_directory",
    "resolve_snapshot_path",
    "savepoint_location",
    "table_path",
]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SnapshotLocation:
    """Where one snapshot is written or read."""

    directory: str
    shared: str
    """The job's shared files. A savepoint names this too, but never refers to anything in it."""
    savepoint: bool = field(default=False, compare=False)
    """A savepoint keeps no tables in its metadata: all of them are files that other programs can read."""

    @property
    def metadata_path(self) -> str:
        """Path of its `_metadata`."""
        return join(self.directory, METADATA_FILE)


@dataclass(frozen=True, slots=True)
class JobLayout:
    """Directories of one job under the checkpoint directory `root` (an absolute path or URI)."""

    root: str
    job_id: str
    run: str = ""
    """Name of the part that one of several drivers of the job writes to; empty if there is only ever one."""

    @classmethod
    def create(cls, root: str, job_id: str, run: str = "") -> JobLayout:
        """Layout under `root`, which may still be relative."""
        return cls(absolute(root), job_id, run)

    @property
    def of_all_runs(self) -> str:
        """Everything of this job, whichever driver wrote it."""
        return join(self.root, self.job_id)

    @property
    def directory(self) -> str:
        """Everything of this job that this driver writes."""
        return join(self.of_all_runs, self.run)

    @property
    def shared(self) -> str:
        """Files referred to by several checkpoints."""
        return join(self.directory, "shared")

    def checkpoint(self, checkpoint_id: int) -> SnapshotLocation:
        """Where checkpoint `checkpoint_id` is."""
        return SnapshotLocation(join(self.directory, f"chk-{checkpoint_id}"), self.shared)


def savepoint_location(directory: str) -> SnapshotLocation:
    """Location of a savepoint, or of a retained checkpoint, given its directory."""
    return SnapshotLocation(directory, join(parent(directory), "shared"), savepoint=True)


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
