"""A subtask's share of a snapshot, fetched: native files on local disk, tables opened, local copies preferred.

`checkpoint.rescale` decides what the share is, `runtime.deployments` sends it, the operator takes it over.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.checkpoint.format.native import fetch_native
from tidemark.checkpoint.format.read import read_table
from tidemark.checkpoint.format.rehash import rehashed
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.metadata.model import TableHandle
from tidemark.checkpoint.rescale import SubtaskRestore
from tidemark.checkpoint.storage.base import Storage
from tidemark.operators.base import NativeRestore, RestoredState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["load_restored_state"]


def load_restored_state(
    share: SubtaskRestore, storage: Storage, scratch: Path, local: LocalCopies | None = None
) -> RestoredState:
    """Fetch native files and open the tables of one subtask's share of a snapshot.

    Args:
        share: What the subtask takes over.
        storage: Where the snapshot lies.
        scratch: Local directory for fetched files, on the backend's disk so that it can link them.
        local: Copies this slot kept of the same job's checkpoints; used where every byte verifies.

    Raises:
        StorageError: A file is missing or damaged; the message names it. Of a table: while it is read.
    """
    location = share.location
    find = partial(local.native_file, share.checkpoint_id) if local is not None else lambda _file: None
    natives = []
    for number, native in enumerate(share.natives):
        files = fetch_native(
            native, storage, location.directory, location.shared, scratch / str(number), find
        )
        natives.append(NativeRestore(native.kind, files, native.extra, list(native.metas)))

    def stored(table: TableHandle, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        if local is not None and local.has_table(share.checkpoint_id, table):
            directory = str(local.directory(share.checkpoint_id))
            return read_table(table, local.storage, directory, groups)
        return read_table(table, storage, location.directory, groups)

    def rows(table: TableHandle) -> Iterator[pa.RecordBatch]:
        if share.rehash is None or share.key_groups is None:
            return stored(table, share.key_groups)
        return rehashed(table.meta, stored(table, None), share.rehash, share.key_groups)

    return RestoredState([(table.meta, rows(table)) for table in share.tables], natives, list(share.operator))
