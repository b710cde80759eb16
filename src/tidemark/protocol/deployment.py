"""What a slot is told to run: plain data the driver sends with every start of an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.clock import Clock
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.state.serializers.base import TypeSerializer

if TYPE_CHECKING:
    from tidemark.checkpoint.rescale import SubtaskRestore

__all__ = ["BackendChoice", "Deployment", "StorageChoice", "create_keyed_backend"]


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """Which keyed backend the operators of a job use."""

    kind: str = "heap"
    """"heap", "rocksdb" or "custom"."""
    asynchronous: bool = True
    incremental: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    custom: Any = None
    """Of kind "custom": an object with `create_keyed_state_backend(parameters)`."""
    directories: tuple[str, ...] = ()
    """Where backends with files keep them; empty: the slot's scratch directory."""


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """How the asynchronous part of a snapshot is written."""

    inline_threshold: int | None = 1024
    """None: everything travels to the driver inside the acknowledgement (memory backend)."""
    compression: bool = False
    max_state_size: int | None = None
    frame_size: int | None = None
    umask: int = 0o077
    """Permissions that new files and directories on local disks do not have."""
    local_recovery: bool = False
    local_directory: str | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything a slot needs for one attempt."""

    job_id: str
    attempt: int
    slot: int
    vertices: bytes
    """`plan.job_plan.dump_functions` of the vertices that run in slots."""
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


def create_keyed_backend(
    choice: BackendChoice,
    serializer: TypeSerializer[Any],
    max_parallelism: int,
    key_groups: tuple[int, int],
    clock: Clock,
    directory: Path,
    *,
    batch_mode: bool = False,
) -> KeyedStateBackend:
    """The keyed backend of one operator subtask. Batch mode always keeps state on the heap."""
    parameters = BackendParameters(
        key_serializer=serializer,
        max_parallelism=max_parallelism,
        key_groups=key_groups,
        clock=clock,
        asynchronous=choice.asynchronous,
        directory=directory,
        options=choice.options,
    )
    if choice.kind == "custom" and not batch_mode:
        return choice.custom.create_keyed_state_backend(parameters)  # type: ignore[no-any-return]
    if choice.kind == "rocksdb" and not batch_mode:
        from tidemark.backends.rocksdb.backend import RocksDBKeyedStateBackend

        return RocksDBKeyedStateBackend(parameters)
    from tidemark.backends.heap.backend import HeapKeyedStateBackend

    return HeapKeyedStateBackend(parameters)
