"""The RocksDB backend: keyed state as bytes in a local store, behind the `KeyedStateBackend` contract.

This module keeps the books (which state has which number, what was restored, what was registered) and
delegates the rest: tables and their cache (`tables`), row keys (`keys`), snapshots (`snapshot`), filling
the store (`restore`), removing expired state (`cleanup`), the store itself (`store`).
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.backends.registration import (
    RegisteredStates,
    StateSpec,
    create_handle,
    resolve_restored,
    spec_of,
)
from tidemark.backends.rocksdb.cleanup import CompactionCleanup, ExpiringState
from tidemark.backends.rocksdb.columns import CarriedSerializer
from tidemark.backends.rocksdb.handles import RocksTtlValueState, RocksValueState
from tidemark.backends.rocksdb.keys import (
    KeyCodec,
    decode_namespace,
    decode_segment,
    encode_namespace,
    key_group_prefix,
    state_prefix,
)
from tidemark.backends.rocksdb.options import RocksDBOptions
from tidemark.backends.rocksdb.restore import (
    RowWriter,
    column_types,
    copy_rows,
    link_files,
    must_rewrite,
    restored_serializers,
    rewrite_values,
    table_rows,
)
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.rocksdb.snapshot import (
    KIND,
    FileNames,
    NativeExtra,
    RocksCut,
    RowStateTable,
    stamp_of,
)
from tidemark.backends.rocksdb.store import RocksStore, Row, after
from tidemark.backends.rocksdb.tables import ListRows, MapRows, ValueRows
from tidemark.backends.table import ABSENT
from tidemark.backends.ttl import TtlRule
from tidemark.errors import BackendError
from tidemark.state.backend import BackendParameters, KeyContext, KeyedStateBackend, KeyToken
from tidemark.state.canonical import StateSerializers, tokens_to_keys
from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.namespace import VOID, Namespace, NamespaceKind
from tidemark.state.primitives import State
from tidemark.state.snapshot import KeyedCut, NativeCut, StateMeta

__all__ = ["RocksDBKeyedStateBackend"]

_METRICS = (
    "estimate-num-keys",
    "estimate-live-data-size",
    "total-sst-files-size",
    "cur-size-all-mem-tables",
    "block-cache-usage",
    "num-running-compactions",
    "num-running-flushes",
)


@dataclass(frozen=True, slots=True)
class _Restored:
    """A state as a snapshot brought it, and the serializers its rows are written with."""

    meta: StateMeta
    serializers: StateSerializers


@dataclass(frozen=True, slots=True)
class _Known:
    """What reading a state from outside needs to know, registered or merely restored."""

    number: int
    kind: StateKind
    namespace: NamespaceKind
    ttl: bool
    table: RowTable
    dead_before: int | None
    """Units last accessed then or earlier are invisible."""


class RocksDBKeyedStateBackend(KeyedStateBackend):
    """Keeps keyed state in RocksDB, larger than memory if need be.

    Options (`BackendParameters.options`) are the fields of `RocksDBOptions`. Without a directory it works
    in a temporary one.
    """

    def __init__(self, parameters: BackendParameters) -> None:
        """Open an empty store of its own under `parameters.directory`.

        Raises:
            ConfigError: An option is unknown or out of range.
            BackendError: The store cannot be opened.
        """
        self.parameters = parameters
        self.context = KeyContext()
        self.context.now = parameters.clock.now()
        self.options = RocksDBOptions.from_dict(parameters.options)
        # Every instance has its own directory: a predecessor may still be finishing a snapshot in its own.
        self._id = uuid.uuid4().hex[:16]
        base = parameters.directory or Path(tempfile.mkdtemp(prefix="tidemark-rocksdb-"))
        self._temporary = base if parameters.directory is None else None
        self._directory = base / f"rocksdb-{self._id}"
        self._names = FileNames(self._id)
        self._codec = KeyCodec(parameters.key_serializer, parameters.max_parallelism)
        self._numbers: dict[str, int] = {}
        self._states = RegisteredStates()
        self._restored: dict[str, _Restored] = {}
        self._tables: dict[str, RowTable] = {}
        self._cuts = 0
        self._closed = False
        self._open(RocksStore(self._directory / "db", self.options))

    def _open(self, store: RocksStore) -> None:
        self._store = store
        self._scope = BatchScope(store, self._codec)
        self._cleanup = CompactionCleanup(store, self.parameters.clock, self.parameters.key_groups)

    # -- registration

    def state(self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID) -> State:
        """Register the state, or find it again, and return its handle; migrates restored rows first."""
        handle = self._states.find(descriptor, namespace)
        if handle is not None:
            return handle
        spec = spec_of(descriptor, self.parameters.key_serializer, namespace)
        restored = self._restored.get(spec.name)
        number = self._number(spec.name)
        if restored is not None:
            resolution = resolve_restored(restored.meta, spec)
            spec = resolution.spec
            if must_rewrite(restored.serializers, resolution):
                rewrite_values(
                    self._store,
                    number,
                    self.parameters.key_groups,
                    restored.meta,
                    restored.serializers,
                    resolution,
                    self._codec,
                )
        table = self._new_table(number, spec.kind, spec.serializers, spec.ttl is not None, namespace)
        self._tables[spec.name] = table
        self._scope.tables.append(table)
        self._watch(spec, table)
        handle = self._handle(spec, table)
        self._states.add(spec, handle)
        return handle

    def _handle(self, spec: StateSpec, table: RowTable) -> State:
        if spec.kind is StateKind.VALUE and spec.namespace is NamespaceKind.VOID:
            assert isinstance(table, ValueRows)
            shortcut = RocksValueState if spec.ttl is None else RocksTtlValueState
            return shortcut(spec, self.context, table)
        return create_handle(spec, self.context, table)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _new_table(
        self,
        number: int,
        kind: StateKind,
        serializers: StateSerializers,
        ttl: bool,
        namespace: NamespaceKind,
    ) -> RowTable:
        namespaced = namespace is not NamespaceKind.VOID
        assert serializers.value is not None
        if kind is StateKind.LIST:
            return ListRows(self._scope, number, serializers.value, ttl, namespaced)
        if kind is StateKind.MAP:
            assert serializers.map_key is not None
            return MapRows(self._scope, number, serializers.value, ttl, namespaced, serializers.map_key)
        return ValueRows(self._scope, number, serializers.value, ttl, namespaced)

    def _watch(self, spec: StateSpec, table: RowTable) -> None:
        if spec.ttl is None or not self.options.ttl_compaction_filter_enabled:
            return
        strategy = spec.ttl.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
        if strategy is not None:
            self._cleanup.watch(
                ExpiringState(
                    spec.name,
                    spec.kind,
                    table,
                    spec.ttl.ttl_ms,
                    max(strategy.query_time_after_num_entries, 1),
                    strategy.periodic_compaction_time,
                )
            )

    # -- batches

    def start_batch(self, tokens: Sequence[KeyToken] | None = None) -> None:
        """Read the clock and remember the keys; they are fetched together when the first is read."""
        self.context.now = self.parameters.clock.now()
        self._scope.begin(tokens)

    def end_batch(self) -> None:
        """Write back what changed, and give the clean-up of expired state its turn."""
        self._scope.end()
        self._cleanup.after_batch(self._scope.bytes_written)

    def record_processed(self) -> None:
        """Nothing: incremental clean-up has no effect on this backend (spec 9.4)."""

    @property
    def wants_records(self) -> bool:
        """Never."""
        return False

    def compact(self) -> None:
        """Compact the whole store now; drops expired state first where its clean-up is switched on."""
        self._scope.write_back()
        self._cleanup.run(self._scope.bytes_written)
        self._store.compact()

    def compact_range(self) -> None:
        """The same as `compact`."""
        self.compact()

    def metrics(self) -> dict[str, int]:
        """RocksDB's own figures: sizes, number of keys (an estimate), running compactions."""
        return self._store.properties(_METRICS)

    # -- reading from outside

    def keys(self, state_name: str, namespace: Namespace = VOID, limit: int | None = None) -> list[KeyToken]:
        """Tokens of keys that hold a visible value in that state and namespace, `limit` at most."""
        known = self._look_up(state_name)
        space = encode_namespace(namespace) if known.namespace is not NamespaceKind.VOID else b""
        found: dict[bytes, None] = {}
        for row in self._visible_rows(known):
            if limit is not None and len(found) >= limit:
                break
            key, at = self._codec.split(row)
            if row.startswith(space, at):
                found[key] = None
        token = self._codec.token
        return [token(key) for key in found]

    def namespaces(self, state_name: str, token: KeyToken) -> list[Namespace]:
        """Namespaces in which `token` holds a visible value."""
        known = self._look_up(state_name)
        group, key = self._codec.place(token)
        prefix = group + known.number.to_bytes(2, "big") + key
        rows = self._living(known, self._store.prefixed(prefix))
        return list(dict.fromkeys([decode_namespace(known.namespace, row, len(prefix)) for row in rows]))

    def num_entries(self, state_name: str | None = None) -> int:
        """Physical entries, expired ones included; counts them one by one."""
        self._scope.write_back()
        return sum(self._count(name) for name in ([state_name] if state_name else list(self._numbers)))

    def _count(self, name: str) -> int:
        if name not in self._numbers:
            return 0
        known = self._look_up(name)
        rows = self._rows(known.number)
        if known.kind is StateKind.LIST:
            return sum(1 for _ in groupby(rows, key=lambda row: row[0][:-8]))
        return sum(1 for _ in rows)

    def query(
        self, state_name: str, token: KeyToken, namespace: Namespace = VOID, *, accumulator: bool = False
    ) -> tuple[bool, Any]:
        """Read for an outside client: `(found, value)`."""
        known = self._look_up(state_name)
        at = token if known.namespace is NamespaceKind.VOID else (token, namespace)
        table, dead_before = known.table, known.dead_before
        if isinstance(table, ListRows):
            units = table.peek(at)
            if known.ttl:
                visible = dead_before is None or any(stamp > dead_before for _, stamp in units)
                units = [value for value, _ in units] if visible else []
            return bool(units), units or None
        if isinstance(table, MapRows):
            entries = table.peek(at)
            if known.ttl:
                visible = dead_before is None or any(stamp > dead_before for _, stamp in entries.values())
                entries = {key: value for key, (value, _) in entries.items()} if visible else {}
            return bool(entries), self._with_map_keys(state_name, entries) or None
        assert isinstance(table, ValueRows)
        unit = table.peek(at)
        if unit is not ABSENT and known.ttl:
            unit = ABSENT if dead_before is not None and unit[1] <= dead_before else unit[0]
        if unit is ABSENT:
            return False, None
        return True, unit if accumulator else self._result(state_name, unit)

    def _with_map_keys(self, name: str, entries: dict[Any, Any]) -> dict[Any, Any]:
        serializer = self._serializers(name).map_key
        assert serializer is not None
        return dict(zip(tokens_to_keys(list(entries), serializer), entries.values(), strict=True))

    def _result(self, name: str, unit: Any) -> Any:
        if name in self._states:
            descriptor = self._states.spec(name).descriptor
            if descriptor.kind is StateKind.AGGREGATING:
                return descriptor.agg_function.get_result(unit)  # type: ignore[attr-defined]
        return unit

    def _look_up(self, name: str) -> _Known:
        if name not in self._states and name in self._restored:
            meta, serializers = self._restored[name].meta, self._restored[name].serializers
            number = self._numbers[name]
            table = self._new_table(number, meta.kind, serializers, meta.ttl, meta.namespace)
            return _Known(number, meta.kind, meta.namespace, meta.ttl, table, None)
        spec = self._states.spec(name)
        dead_before = None
        if spec.ttl is not None and not TtlRule(spec.ttl).return_expired:
            dead_before = self.parameters.clock.now() - spec.ttl.ttl_ms
        return _Known(
            self._numbers[name],
            spec.kind,
            spec.namespace,
            spec.ttl is not None,
            self._tables[name],
            dead_before,
        )

    def _serializers(self, name: str) -> StateSerializers:
        return (
            self._states.spec(name).serializers if name in self._states else self._restored[name].serializers
        )

    def _rows(self, number: int) -> Iterator[Row]:
        first, last = self.parameters.key_groups
        for group in range(first, last + 1):
            prefix = state_prefix(group, number)
            yield from self._store.scan(prefix, after(prefix))

    def _visible_rows(self, known: _Known) -> Iterator[bytes]:
        self._scope.write_back()
        return self._living(known, self._rows(known.number))

    @staticmethod
    def _living(known: _Known, rows: Iterable[Row]) -> Iterator[bytes]:
        dead_before = known.dead_before
        for row, raw in rows:
            if dead_before is None:
                yield row
            elif known.kind is StateKind.LIST:
                if any(stamp_of(unit) > dead_before for unit in decode_segment(raw)):
                    yield row
            elif stamp_of(raw) > dead_before:
                yield row

    # -- snapshots

    def cut(self, *, incremental: bool = False) -> KeyedCut:
        """Freeze the content: hard links to the files if `incremental`, else a RocksDB snapshot."""
        self._scope.write_back()
        return self._native_cut() if incremental else self._canonical_cut()

    def _native_cut(self) -> RocksCut:
        metas = [self._meta(name) for name in self._numbers]
        self._cuts += 1
        directory = self._directory / f"cut-{self._cuts}"
        self._store.checkpoint(directory)
        files, shared = self._names.publish(item.name for item in directory.iterdir())
        extra = NativeExtra(
            files, dict(self._numbers), self.parameters.key_groups, self._scope.next_segment, self._carried()
        )
        paths = {published: directory / local for published, local in files.items()}
        native = NativeCut(KIND, paths, shared, extra.to_bytes())
        return RocksCut(metas, lambda: (), lambda: self._drop(directory), native)

    def _drop(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        if self._closed:
            self._remove_empty_directories()

    def _carried(self) -> dict[str, str]:
        carried = {}
        for name, restored in self._restored.items():
            columns = {"value": restored.serializers.value, "map_key": restored.serializers.map_key}
            for column, serializer in columns.items():
                if isinstance(serializer, CarriedSerializer):
                    carried[f"{column}:{name}"] = serializer.to_text()
        return carried

    def _canonical_cut(self) -> RocksCut:
        now = self.parameters.clock.now()
        tables = [self._table_of(name, now) for name in self._numbers]

        def release() -> None:
            for table in tables:
                table.release()
            if self._closed:
                self._remove_empty_directories()

        return RocksCut([table.meta for table in tables], lambda: tables, release)

    def _table_of(self, name: str, now: int) -> RowStateTable:
        return RowStateTable(
            self._meta(name),
            self._serializers(name),
            self._store.freeze(),
            self._numbers[name],
            self._codec,
            self.parameters.key_groups,
            self._dead_in_full_snapshot(name, now),
        )

    def _meta(self, name: str) -> StateMeta:
        return self._states.spec(name).meta() if name in self._states else self._restored[name].meta

    def _dead_in_full_snapshot(self, name: str, now: int) -> int | None:
        ttl = self._states.spec(name).ttl if name in self._states else None
        if ttl is None or not ttl.get_cleanup_strategies().in_full_snapshot():
            return None
        return now - ttl.ttl_ms

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Load canonical rows; bytes stay bytes, typed columns are encoded as they were written."""
        number = self._number(meta.name)
        writer = RowWriter(self._store)
        for batch in batches:
            serializers = self._restored_as(meta, column_types(meta, batch.schema))
            for row, raw in table_rows(meta, serializers, batch, number, self._codec, self._next_segment):
                writer.put(row, raw)
        writer.finish()
        if meta.name not in self._restored:
            self._restored_as(meta, lambda column: pa.binary())

    def _restored_as(self, meta: StateMeta, column_type: Callable[[str], pa.DataType]) -> StateSerializers:
        restored = self._restored.get(meta.name)
        if restored is None:
            serializers = restored_serializers(meta, self.parameters.key_serializer, column_type)
            restored = self._restored[meta.name] = _Restored(meta, serializers)
        return restored.serializers

    def _next_segment(self) -> int:
        number = self._scope.next_segment
        self._scope.next_segment = number + 1
        return number

    def restored_states(self) -> list[StateMeta]:
        """States that came by restore, registered since or not."""
        return [restored.meta for restored in self._restored.values()]

    def restore_native(
        self, kind: str, files: dict[str, Path], extra: bytes, metas: Sequence[StateMeta]
    ) -> None:
        """Open the files directly if they hold all our key groups and we are empty, else copy our rows."""
        if kind != KIND:
            raise BackendError(
                f"The RocksDB backend cannot read a native snapshot of kind '{kind}'. Take a savepoint with "
                "the backend that wrote it and restore that one.",
                backend="rocksdb",
            )
        snapshot = NativeExtra.from_bytes(extra)
        first, last = self.parameters.key_groups
        if not self._numbers and snapshot.key_groups[0] <= first and last <= snapshot.key_groups[1]:
            self._adopt(files, snapshot)
        else:
            for name in snapshot.states:
                self._number(name)
            scratch = self._directory / f"restore-{uuid.uuid4().hex[:8]}"
            copy_rows(
                files, snapshot, scratch, self.options, self._store, self._numbers, self.parameters.key_groups
            )
        self._scope.next_segment = max(self._scope.next_segment, snapshot.next_segment)
        for meta in metas:
            types = {
                column: CarriedSerializer.from_text(text).column_type
                for column in ("value", "map_key")
                if (text := snapshot.carried.get(f"{column}:{meta.name}")) is not None
            }
            self._restored_as(meta, lambda column, types=types: types.get(column, pa.binary()))  # type: ignore[misc]

    def _adopt(self, files: dict[str, Path], snapshot: NativeExtra) -> None:
        self._store.close()
        path = self._directory / "restored-db"
        link_files(files, snapshot, path)
        self._open(RocksStore(path, self.options))
        self._numbers.update(snapshot.states)
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
