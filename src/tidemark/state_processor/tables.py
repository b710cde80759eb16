"""The rows of a split as canonical tables, whatever wrote the snapshot.

Full checkpoints and savepoints hold canonical tables already. An incremental checkpoint holds files of its backend's
own: they are restored into a temporary store for the key groups of the split, and canonical tables are cut from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.api.state_backends import EmbeddedRocksDBStateBackend, StateBackend
from tidemark.backends.chain_files import KIND as HEAP_KIND
from tidemark.checkpoint.format.read import read_schema, read_table
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.clock import Clock, SystemClock
from tidemark.errors import StateMigrationException, UnknownStateError
from tidemark.protocol.deployment import BackendChoice
from tidemark.scratch import ScratchDirectory
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.state.canonical import StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import StateMeta, state_schema
from tidemark.state_processor.input_splits import InputSplit
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.subtask.backend_factory import create_backend
from tidemark.subtask.restored_state import load_restored_state

__all__ = [
    "canonical_schema",
    "canonical_tables",
    "key_serializer_of",
    "restored_backend",
]

Table = tuple[StateMeta, Iterator[pa.RecordBatch]]


def key_serializer_of(metas: list[StateMeta]) -> TypeSerializer[Any]:
    """The serializer of the keys of an operator.

    Raises:
        UnknownStateError: The operator wrote no state that would tell.
    """
    for meta in metas:
        return StateSerializers.key_of(meta)
    raise UnknownStateError(
        "The operator has no keyed state and no timers, so the type of its keys is unknown."
    )


def canonical_schema(snapshot: OpenSnapshot, uid: str, meta: StateMeta) -> pa.Schema:
    """Columns of a state's canonical table.

    Derived from the serializers; where their classes cannot be imported, read from a file.

    Raises:
        StateMigrationException: Neither is possible.
    """
    try:
        serializers = StateSerializers.of(meta)
        return state_schema(meta, serializers.key, serializers.value, serializers.map_key)
    except StateMigrationException:
        for subtask in snapshot.operator(uid).subtasks:
            for table in subtask.tables:
                if table.meta.name == meta.name and table.rows:
                    return read_schema(table, snapshot.storage, snapshot.path)
        raise


@contextmanager
def canonical_tables(
    split: InputSplit, storage: Storage | None = None, wanted: Callable[[StateMeta], bool] = lambda meta: True
) -> Iterator[list[Table]]:
    """Tables of a split: each state once, its batches sorted by key group, to be read once inside the block.

    Raises:
        StorageError: A file is missing or damaged.
    """
    storage = storage or FileSystemStorage()
    if not split.restore.natives:
        yield [table for table in _stored(split, storage) if wanted(table[0])]
        return
    metas = [meta for native in split.restore.natives for meta in native.metas]
    with restored_backend(split, storage, key_serializer_of(metas), None) as backend:
        cut = backend.cut()
        try:
            tables = [(table.meta, table.batches()) for table in cut.tables() if wanted(table.meta)]
            timers = [t for t in _stored(split, storage) if t[0].kind is StateKind.TIMER and wanted(t[0])]
            yield [*tables, *timers]
        finally:
            cut.release()


def _stored(split: InputSplit, storage: Storage) -> list[Table]:
    directory = split.restore.location.directory
    found: dict[tuple[bool, str], tuple[StateMeta, list[Iterator[pa.RecordBatch]]]] = {}
    for handle in split.restore.tables:
        key = (handle.meta.kind is StateKind.TIMER, handle.meta.name)
        batches = read_table(handle, storage, directory, split.key_groups)
        found.setdefault(key, (handle.meta, []))[1].append(batches)
    return [(meta, chain.from_iterable(parts)) for meta, parts in found.values()]


@contextmanager
def restored_backend(
    split: InputSplit,
    storage: Storage,
    key: TypeSerializer[Any],
    backend: StateBackend | None,
    clock: Clock | None = None,
) -> Iterator[KeyedStateBackend]:
    """A temporary keyed store filled with the keyed state of a split (timers are left out).

    Native snapshots of RocksDB need RocksDB, whatever `backend` says.
    """
    kinds = {native.kind for native in split.restore.natives}
    if kinds - {HEAP_KIND} and (backend is None or backend.store != "rocksdb"):
        backend = EmbeddedRocksDBStateBackend()
    choice = BackendChoice.of(backend)
    with ScratchDirectory("tidemark-processor-") as folder:
        scratch = Path(folder)
        parameters = BackendParameters(
            key,
            split.max_parallelism,
            split.key_groups,
            clock or SystemClock(),
            directory=scratch / "store",
            options=choice.options,
        )
        store = create_backend(choice, parameters)
        try:
            load_restored_state(split.restore, storage, scratch / "files").fill(store)
            yield store
        finally:
            store.close()
