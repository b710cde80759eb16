"""The slot's side of a restore: fetch, verify and hand over what `rescale.plan_restore` assigned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.checkpoint.format.native import fetch_native
from tidemark.checkpoint.format.read import read_table
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.rescale import SubtaskRestore
from tidemark.checkpoint.storage.base import Storage
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import StateMeta

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RestoredTable", "restore_keyed_state", "restored_tables", "restored_timers"]


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """Rows of one state that belong to the restoring subtask; `batches` can be iterated once."""

    meta: StateMeta
    batches: Iterator[pa.RecordBatch]


def restored_tables(
    restore: SubtaskRestore, storage: Storage, local: LocalCopies | None = None
) -> Iterator[RestoredTable]:
    """All canonical keyed states, timers left out. A state comes once per old subtask that shared it."""
    return _tables(restore, storage, local, timers=False)


def restored_timers(
    restore: SubtaskRestore, storage: Storage, local: LocalCopies | None = None
) -> Iterator[RestoredTable]:
    """The timer tables."""
    return _tables(restore, storage, local, timers=True)


def restore_keyed_state(
    restore: SubtaskRestore,
    storage: Storage,
    backend: KeyedStateBackend,
    scratch: Path,
    local: LocalCopies | None = None,
) -> None:
    """Fill a fresh backend: native snapshots first, then canonical tables.

    Args:
        restore: The subtask's share.
        storage: Where its files are.
        backend: Nothing may be registered in it yet.
        scratch: Local directory for fetched native files, on the backend's disk so that it can link them.
        local: Copies this slot kept of the same job's checkpoints; used where intact.

    Raises:
        StorageError: A file is missing or damaged; the message names it.
    """
    for number, native in enumerate(restore.natives):
        target = scratch / f"restore-{restore.checkpoint_id}-{number}"
        location = restore.location
        find = partial(local.native_file, restore.checkpoint_id) if local is not None else lambda file: None
        files = fetch_native(native, storage, location.directory, location.shared, target, find)
        backend.restore_native(native.kind, files, native.extra, native.metas)
    for table in restored_tables(restore, storage, local):
        backend.restore_table(table.meta, table.batches)


def _tables(
    restore: SubtaskRestore, storage: Storage, local: LocalCopies | None, *, timers: bool
) -> Iterator[RestoredTable]:
    for handle in restore.tables:
        if (handle.meta.kind is StateKind.TIMER) != timers:
            continue
        source, directory = storage, restore.location.directory
        if local is not None and local.has_table(restore.checkpoint_id, handle):
            source, directory = local.storage, str(local.directory(restore.checkpoint_id))
        yield RestoredTable(handle.meta, read_table(handle, source, directory, restore.key_groups))
