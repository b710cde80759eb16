"""A slot's share of a snapshot, fetched: native files on local disk, tables opened, local copies preferred."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tidemark.checkpoint.format.native import fetch_native
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.metadata.model import FileHandle
from tidemark.checkpoint.rescale import SubtaskRestore
from tidemark.checkpoint.restore import restored_tables, restored_timers
from tidemark.checkpoint.storage.base import Storage
from tidemark.operators.base import NativeRestore, RestoredState
from tidemark.state.snapshot import StateMeta

__all__ = ["load_restored_state"]


def load_restored_state(
    share: SubtaskRestore, storage: Storage, scratch: Path, local: LocalCopies | None = None
) -> RestoredState:
    """Fetch native files and open the tables of one subtask's share of a snapshot.

    Args:
        share: What the subtask takes over.
        storage: Where the snapshot lies.
        scratch: Local directory for fetched files.
        local: Copies this slot kept of the same job's checkpoints; used where every byte verifies.

    Raises:
        StorageError: A file is missing or damaged; the message names it.
    """
    find: Callable[[FileHandle], Path | None] = (
        partial(local.native_file, share.checkpoint_id) if local is not None else lambda _file: None
    )
    natives = []
    for number, native in enumerate(share.natives):
        files = fetch_native(
            native, storage, share.location.directory, share.location.shared, scratch / str(number), find
        )
        natives.append(NativeRestore(native.kind, files, native.extra, list(native.metas)))
    tables: list[tuple[StateMeta, Iterable[Any]]] = [
        (table.meta, table.batches)
        for table in (*restored_tables(share, storage, local), *restored_timers(share, storage, local))
    ]
    return RestoredState(tables, natives, list(share.operator))
