"""What a slot is told to run: plain data the driver sends with every start of an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemark.checkpoint.snapshot_writer import WriterOptions

if TYPE_CHECKING:
    from tidemark.api.state_backends import StateBackend
    from tidemark.checkpoint.rescale import SubtaskRestore

__all__ = ["BackendChoice", "Deployment", "StorageChoice"]


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """Which keyed backend the operators of a job use."""

    store: str = "heap"
    """"heap", "rocksdb", or `package.module:Class` of a `KeyedStateBackend`; without meaning beside `custom`."""
    asynchronous: bool = True
    incremental: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    custom: Any = None
    """An object with `create_keyed_state_backend(parameters)`, if the program has one."""
    directories: tuple[str, ...] = ()
    """Where backends with files keep them; empty: the slot's scratch directory."""
    track_every: int = 0
    """One of so many accesses to a keyed state is timed; 0: none."""

    @classmethod
    def of(cls, backend: StateBackend | None, track_every: int = 0) -> BackendChoice:
        """What the program chose; the heap if it chose nothing."""
        if backend is None:
            return cls(track_every=track_every)
        custom = backend if backend.store == "custom" else None
        return cls(
            backend.store,
            backend.is_using_asynchronous_snapshots(),
            custom is None and backend.is_incremental_checkpoints_enabled(),
            backend.store_options(),
            custom,
            tuple(backend.get_db_storage_paths() or ()) if custom is None else (),
            track_every,
        )

    def shared_by(self, stores: int) -> BackendChoice:
        """The same for a slot with that many stores, which share what memory they are given together."""
        if "memory_per_slot" not in self.options:
            return self
        return replace(self, options={**self.options, "stores_per_slot": max(1, stores)})


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """How the asynchronous part of a snapshot is written."""

    options: WriterOptions = field(default_factory=WriterOptions)
    umask: int = 0o077
    """Permissions that new files and directories on local disks do not have."""
    roots: tuple[str, ...] = ()
    """Directories the user chose for snapshots; on local disks no link below them is followed."""
    authors: tuple[int, ...] | None = None
    """Users besides this one and root whose local files below them are read; None for any."""
    custom: Any = None
    """A `Storage` of the program's own, which slots use as the driver does; None: the file systems of paths."""
    local_recovery: bool = False
    local_directory: str | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything a slot needs for one attempt."""

    job_id: str
    attempt: int
    slot: int
    vertices: bytes
    """`plan.vertex.dump_functions` of the vertices that run in slots."""
    backend: BackendChoice = BackendChoice()
    storage: StorageChoice = StorageChoice()
    batch_mode: bool = False
    queryable: bool = False
    job_parameters: dict[str, str] = field(default_factory=dict)
    restore: dict[str, SubtaskRestore] | None = None
    """Uid -> this slot's share of the snapshot to start from; None: a fresh start."""
    restored_id: int | None = None
    same_job: bool = False
    """The snapshot is a checkpoint of this very job, so incremental ones may build on its files."""
    watermarks: dict[str, int] = field(default_factory=dict)
    """Uid -> watermark the operator had at the cut; absent: none yet."""
    channels: int = 0
    """Number of tasks in continuous execution; 0 in epochs."""
    aligned: bool = True
    """Whether channels wait for each other at a barrier (exactly once)."""
    file_systems: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """What remote file systems are made with, secrets included."""
