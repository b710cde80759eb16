"""The RocksDB backend: keyed state as bytes in a local store, behind the `KeyedStateBackend` contract.

This module joins the parts: which states there are (`catalog`), tables and their cache (`tables`), row keys
(`keys`), snapshots (`snapshot`), filling the store (`restore`), reading from outside (`reading`), removing
expired state (`cleanup`), the store itself (`store`).
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tidemark.backends import chain_files
from tidemark.backends.columns.handles import ColumnValueState, column_handle
from tidemark.backends.columns.key_index import index_for
from tidemark.backends.columns.window_index import WindowIndex
from tidemark.backends.registration import (
    StateSpec,
    check_columns,
    create_handle,
    lies_in_columns,
    resolve_restored,
    spec_of,
)
from tidemark.backends.reported import ReportedTable, reported
from tidemark.backends.rocksdb.catalog import StateCatalog
from tidemark.backends.rocksdb.cleanup import CompactionCleanup, ExpiringState
from tidemark.backends.rocksdb.column_rows import ColumnCache, ColumnRows
from tidemark.backends.rocksdb.cut import KIND, FileNames, NativeExtra, RocksCut, RowStateTable
from tidemark.backends.rocksdb.expiring_rows import ExpiringValueRows
from tidemark.backends.rocksdb.handles import RocksTtlValueState, RocksValueState
from tidemark.backends.rocksdb.keys import KeyCodec, decode_namespace, key_group_prefix
from tidemark.backends.rocksdb.options import RocksDBOptions
from tidemark.backends.rocksdb.reading import OutsideReader
from tidemark.backends.rocksdb.restore import (
    RowWriter,
    column_types,
    copy_rows,
    link_files,
    must_rewrite,
    rewrite_values,
    table_rows,
)
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.rocksdb.store import RocksStore
from tidemark.backends.rocksdb.tables import AnyRows, table_for
from tidemark.backends.rocksdb.value_rows import ValueRows
from tidemark.backends.table import Table
from tidemark.errors import RestoreError
from tidemark.state.backend import BackendParameters, KeyContext, KeyedStateBackend, KeyToken, Windows
from tidemark.state.column_keys import Keys
from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.namespace import VOID, Namespace, NamespaceKind
from tidemark.state.primitives import State
from tidemark.state.snapshot import Increment, KeyedCut, NativeCut, StateMeta

__all__ = ["RocksDBKeyedStateBackend"]

_REPORT_EVERY_MS = 1000

_FIGURES = (
    "estimate-num-keys",
    "estimate-live-data-size",
    "total-sst-files-size",
    "cur-size-all-mem-tables",
    "size-all-mem-tables",
    "num-immutable-mem-table",
    "block-cache-capacity",
    "block-cache-usage",
    "block-cache-pinned-usage",
    "estimate-table-readers-mem",
    "estimate-pending-compaction-bytes",
    "compaction-pending",
    "mem-table-flush-pending",
    "num-snapshots",
    "background-errors",
    "actual-delayed-write-rate",
    "is-write-stopped",
    "num-running-compactions",
    "num-running-flushes",
)


class RocksDBKeyedStateBackend(KeyedStateBackend):
    """Keeps keyed state in RocksDB, larger than memory if need be.

    Options (`BackendParameters.options`) are the fields of `RocksDBOptions`. Without a directory it works
    in a temporary one.
    """

    by_column = True
    prefetches = True

    def __init__(self, parameters: BackendParameters) -> None:
        """Open an empty store of its own under `parameters.directory`.

        Raises:
            ConfigError: An option is unknown or out of range.
            BackendError: The store cannot be opened.
        """
        self.parameters = parameters
        self.context = KeyContext()
        self.context.start_batch(parameters.clock.now())
        self.options = RocksDBOptions.from_dict(parameters.options)
        # Every instance has its own directory: a predecessor may still be finishing a snapshot in its own.
        self._id = uuid.uuid4().hex[:16]
        base = parameters.directory or Path(tempfile.mkdtemp(prefix="tidemark-rocksdb-"))
        self._temporary = base if parameters.directory is None else None
        self._directory = base / f"rocksdb-{self._id}"
        self._names = FileNames(self._id)
        self._codec = KeyCodec(parameters.key_serializer, parameters.max_parallelism)
        self._catalog = StateCatalog()
        limit = self.options.read_cache_size
        self._columns = ColumnCache(parameters.tokens, limit, index_for)
        self._window_columns = ColumnCache(parameters.tokens, limit, WindowIndex, namespaced=True)
        self._cuts = 0
        self._closed = False
        self._open(RocksStore(self._directory / "db", self.options))

    def _open(self, store: RocksStore) -> None:
        self._store = store
        self._scope = BatchScope(store, self._codec)
        self._scope.state_numbers = self._catalog.numbers
        self._cleanup = CompactionCleanup(store, self.context, self.parameters)
        self._reader = OutsideReader(self._catalog, self._scope, self.context, self.parameters)

    # -- registration

    def state(self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID) -> State:
        """Register the state, or find it again, and return its handle; migrates restored rows first."""
        handle = self._catalog.registered.find(descriptor, namespace)
        if handle is not None:
            return handle
        spec, number = self._prepared(descriptor, namespace)
        table = self._table(spec, number)
        self._enter(spec, table)
        handle = self._handle(spec, table)
        self._catalog.registered.add(spec, handle)
        return handle

    def column_state(
        self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID
    ) -> State:
        """Register the state, or find it again, and return its handle for many keys at once."""
        handle = self._catalog.registered.find(descriptor, namespace)
        if handle is not None:
            return handle
        check_columns(descriptor)
        if lies_in_columns(spec_of(descriptor, self.parameters.key_serializer, namespace)):
            spec, number = self._prepared(descriptor, namespace)
            cache = self._columns if namespace is NamespaceKind.VOID else self._window_columns
            table = ColumnRows(self._scope, number, spec.value, spec.ttl is not None, cache)
            cache.tables.append(table)
            self._enter(spec, table)
            self._watch(spec, table)
            handle = ColumnValueState(spec, self.context, table)
        else:
            records = self.state(descriptor)
            spec = self._catalog.registered.spec(descriptor.name)
            handle = column_handle(spec, self.context, records)
        self._catalog.registered.add(spec, handle)
        return handle

    def column_keys(self, tokens: pa.Array, windows: Windows | None = None) -> Keys:
        """The keys of a batch."""
        self._scope.write_back()
        self.context.batch = batch = object()
        cache = self._columns if windows is None else self._window_columns
        return cache.keys(tokens, batch, windows)

    def _prepared(self, descriptor: StateDescriptor, namespace: NamespaceKind) -> tuple[StateSpec, int]:
        """A state that is about to be registered, its restored rows migrated, and its number."""
        spec = spec_of(descriptor, self.parameters.key_serializer, namespace)
        restored = self._catalog.restored.get(spec.name)
        number = self._catalog.number(spec.name)
        if restored is not None:
            migration = resolve_restored(restored.meta, spec)
            spec = migration.spec
            if must_rewrite(restored.serializers, migration):
                rewrite_values(
                    self._store,
                    number,
                    self.parameters.key_groups,
                    restored.meta,
                    restored.serializers,
                    migration,
                    self._codec,
                )
        return spec, number

    def _enter(self, spec: StateSpec, table: AnyRows | ColumnRows) -> None:
        self._catalog.tables[spec.name] = table
        self._scope.tables.append(table)

    def _table(self, spec: StateSpec, number: int) -> AnyRows:
        expiry = spec.expiry
        if _is_plain_value(spec) and expiry is not None and expiry.plain:
            return ExpiringValueRows(self._scope, number, spec.value, expiry, self.context)
        return table_for(
            spec.kind, self._scope, number, spec.serializers, spec.ttl is not None, spec.namespace
        )

    def _handle(self, spec: StateSpec, table: AnyRows) -> State:
        expiry = spec.expiry
        if expiry is not None and expiry.reported:
            if self.expired is None:
                self.expired = []
            watched = reported(
                spec, self.context.event if expiry.event_time else self.context, table, self.expired
            )
            self._watch(spec, table, watched)
            return create_handle(spec, self.context, cast("Table", watched))
        self._watch(spec, table)
        if isinstance(table, ExpiringValueRows):
            return RocksTtlValueState(spec, self.context, table)
        if isinstance(table, ValueRows) and _is_plain_value(spec) and spec.ttl is None:
            return RocksValueState(spec, self.context, table)
        return create_handle(spec, self.context, table)

    def _watch(self, spec: StateSpec, table: RowTable, watched: ReportedTable | None = None) -> None:
        # What is reported has to be found in time, so it does not wait for compactions to be switched on.
        allowed = self.options.ttl_compaction_filter_enabled or watched is not None
        if spec.ttl is None or spec.expiry is None or not allowed:
            return
        strategy = spec.ttl.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
        if strategy is not None:
            self._cleanup.watch(
                ExpiringState(
                    spec.name,
                    spec.kind,
                    table,
                    spec.expiry,
                    max(strategy.query_time_after_num_entries, 1),
                    strategy.period_ms or (None if watched is None else _REPORT_EVERY_MS),
                    None if watched is None else partial(self._settle, spec.namespace, watched),
                )
            )

    def _settle(self, kind: NamespaceKind, watched: ReportedTable, row: bytes) -> None:
        key, end = self._codec.split(row)
        token = self._codec.token(key)
        watched.settle(token if kind is NamespaceKind.VOID else (token, decode_namespace(kind, row, end)))

    def next_expiry(self) -> int | None:
        """When the next look for what has expired is due, where that is reported."""
        return self._cleanup.next_pass()

    def look_everywhere(self) -> None:
        """Begin a pass."""
        self._cleanup.begin(self._scope.bytes_written)

    @property
    def is_looking(self) -> bool:
        """Whether the pass has not come to its end."""
        return self._cleanup.is_amid_pass

    # -- batches

    def start_batch(self, tokens: Sequence[KeyToken] | None = None) -> None:
        """Read the clock and remember the keys; they are fetched together when the first is read."""
        # First what is still pending of the time before this one: tables stamp it as they write it.
        self._scope.begin(tokens)
        self.context.start_batch(self.parameters.clock.now())

    def end_batch(self) -> None:
        """Write back what changed, and give the clean-up of expired state its turn."""
        self.context.batch = None
        self._scope.end()
        self._cleanup.after_batch(self._scope.bytes_written)
        if self.expired:
            self._scope.write_back()

    def record_processed(self) -> None:
        """Nothing: incremental clean-up is for stores that keep objects; here `CompactionCleanup` does it."""

    @property
    def wants_records(self) -> bool:
        """Never."""
        return False

    def compact(self) -> None:
        """Compact the whole store now; drops expired state first where its clean-up is switched on."""
        self._scope.write_back()
        self._cleanup.run(self._scope.bytes_written)
        self._store.compact()

    def figures(self) -> dict[str, int]:
        """RocksDB's own figures: sizes, number of keys (an estimate), running compactions."""
        return self._store.properties(_FIGURES)

    def native_metrics(self) -> dict[str, int]:
        """The figures that were switched on, none by default."""
        return self._store.metrics(self.options.metrics) if self.options.metrics else {}

    def registered(self) -> list[StateDescriptor]:
        """The states that have a handle."""
        return [spec.descriptor for spec in self._catalog.registered]

    # -- reading from outside

    def keys(self, state_name: str, namespace: Namespace = VOID, limit: int | None = None) -> list[KeyToken]:
        """Tokens of keys that hold a visible value in that state and namespace, `limit` at most."""
        return self._reader.keys(state_name, namespace, limit)

    def namespaces(self, state_name: str, token: KeyToken) -> list[Namespace]:
        """Namespaces in which `token` holds a visible value."""
        return self._reader.namespaces(state_name, token)

    def num_entries(self, state_name: str | None = None) -> int:
        """Physical entries, expired ones included; counts them one by one."""
        return self._reader.num_entries(state_name)

    def erase(self, token: KeyToken) -> dict[str, int]:
        """Forget a key in every state, and compact: a deleted row leaves its key in files until then."""
        counts: dict[str, int] = {}
        self._scope.write_back()
        group, key = self._codec.place(token)
        batch = self._store.new_batch()
        for name, number in self._catalog.numbers.items():
            rows = self._store.prefixed(group + number.to_bytes(2, "big") + key)
            for row, _ in rows:
                batch.delete(row)
            if rows:
                # A list is one row in segments.
                lists = self._catalog.meta(name).kind is StateKind.LIST
                counts[name] = len({row[:-8] if lists else row for row, _ in rows})
        self._store.write(batch)
        for table in self._catalog.tables.values():
            table.invalidate()
        self._store.compact()
        return counts

    def query(
        self, state_name: str, token: KeyToken, namespace: Namespace = VOID, *, accumulator: bool = False
    ) -> tuple[bool, Any]:
        """Read for an outside client: `(found, value)`."""
        return self._reader.query(state_name, token, namespace, accumulator)

    # -- snapshots

    def cut(self, *, incremental: Increment | None = None) -> KeyedCut:
        """Freeze the content: hard links to the files if `incremental`, else a RocksDB snapshot."""
        self._scope.write_back()
        return self._native_cut() if incremental else self._canonical_cut()

    def _native_cut(self) -> RocksCut:
        metas = [self._catalog.meta(name) for name in self._catalog.numbers]
        self._cuts += 1
        number, directory = self._cuts, self._directory / f"cut-{self._cuts}"
        extra = NativeExtra(
            {},
            dict(self._catalog.numbers),
            self.parameters.key_groups,
            self._scope.next_segment,
            self._catalog.carried_types(),
        )
        frozen = self._store.begin_checkpoint(directory)

        def native() -> NativeCut:
            frozen.result()
            files, shared = self._names.publish(number, [item.name for item in directory.iterdir()])
            paths = {published: directory / local for published, local in files.items()}
            return NativeCut(KIND, paths, shared, replace(extra, files=files).to_bytes())

        def release() -> None:
            # Not while files are still linked into it.
            frozen.add_done_callback(lambda _frozen: self._drop(directory))

        return RocksCut(metas, lambda: (), release, native)

    def _drop(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        if self._closed:
            self._remove_empty_directories()

    def _canonical_cut(self) -> RocksCut:
        # Before anything is frozen: a serializer without a usable snapshot declines the checkpoint here.
        metas = [self._catalog.meta(name) for name in self._catalog.numbers]
        tables = [self._table_of(meta) for meta in metas]

        def release() -> None:
            for table in tables:
                table.release()
            if self._closed:
                self._remove_empty_directories()

        return RocksCut(metas, lambda: tables, release)

    def _table_of(self, meta: StateMeta) -> RowStateTable:
        return RowStateTable(
            meta,
            self._catalog.serializers(meta.name),
            self._store.freeze(),
            self._catalog.numbers[meta.name],
            self._codec,
            self.parameters.key_groups,
            self._catalog.in_full_snapshot(meta.name, self.context, self.parameters.clock),
            self.options.max_entry_size,
        )

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Load canonical rows; bytes stay bytes, typed columns are encoded as they were written."""
        number = self._catalog.number(meta.name)
        key = self.parameters.key_serializer
        writer = RowWriter(self._store)
        for batch in batches:
            serializers = self._catalog.restore(meta, key, column_types(meta, batch.schema))
            for row, raw in table_rows(meta, serializers, batch, number, self._codec, self._next_segment):
                writer.put(row, raw)
        writer.finish()
        self._catalog.restore(meta, key, lambda column: pa.binary())

    def _next_segment(self) -> int:
        number = self._scope.next_segment
        self._scope.next_segment = number + 1
        return number

    def restored_states(self) -> list[StateMeta]:
        """States that came by restore, registered since or not."""
        return [restored.meta for restored in self._catalog.restored.values()]

    def restore_native(
        self, kind: str, files: dict[str, Path], extra: bytes, metas: Sequence[StateMeta]
    ) -> None:
        """Open the files directly if they hold all our key groups and we are empty, else copy our rows.

        Incremental checkpoints of the heap can be restored, too.
        """
        if kind == chain_files.KIND:
            for meta, batches in chain_files.chain_tables(files, extra, metas, self.parameters.key_groups):
                self.restore_table(meta, batches)
            return
        if kind != KIND:
            raise RestoreError(
                f"The RocksDB backend cannot read a native snapshot of kind '{kind}'. Take a savepoint with "
                "the backend that wrote it and restore that one."
            )
        snapshot = NativeExtra.from_bytes(extra)
        first, last = self.parameters.key_groups
        if not self._catalog.numbers and snapshot.key_groups[0] <= first and last <= snapshot.key_groups[1]:
            self._adopt(files, snapshot)
        else:
            for name in snapshot.states:
                self._catalog.number(name)
            scratch = self._directory / f"restore-{uuid.uuid4().hex[:8]}"
            copy_rows(
                files,
                snapshot,
                scratch,
                self.options,
                self._store,
                self._catalog.numbers,
                self.parameters.key_groups,
            )
        self._scope.next_segment = max(self._scope.next_segment, snapshot.next_segment)
        self._catalog.restore_carried(metas, self.parameters.key_serializer, snapshot.carried)

    def _adopt(self, files: dict[str, Path], snapshot: NativeExtra) -> None:
        self._store.close()
        path = self._directory / "restored-db"
        link_files(files, snapshot, path)
        self._open(RocksStore(path, self.options))
        self._catalog.numbers.update(snapshot.states)
        for published, local in snapshot.files.items():
            if local.endswith(".sst"):
                self._names.inherit(published, local)
        (first, last), (old_first, old_last) = self.parameters.key_groups, snapshot.key_groups
        if old_first < first:
            self._store.delete_range(key_group_prefix(old_first), key_group_prefix(first))
        if last < old_last:
            self._store.delete_range(key_group_prefix(last + 1), key_group_prefix(old_last + 1))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing to do: which files are new follows from their names."""

    def close(self) -> None:
        """Release memory, files and locks; files of unreleased cuts go when these are released."""
        if self._closed:
            return
        self._closed = True
        self._store.close()
        self._remove_empty_directories()

    def _remove_empty_directories(self) -> None:
        for directory in (self._directory, self._temporary):
            if directory is not None:
                try:
                    directory.rmdir()
                except OSError:
                    return


def _is_plain_value(spec: StateSpec) -> bool:
    return spec.kind is StateKind.VALUE and spec.namespace is NamespaceKind.VOID
