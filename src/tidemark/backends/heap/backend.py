"""The heap backend: what operators reach through the `KeyedStateBackend` contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tidemark.backends.chain_files import KIND, chain_tables
from tidemark.backends.columns.handles import ColumnValueState, column_handle
from tidemark.backends.columns.table import ColumnTable, ColumnView
from tidemark.backends.heap.chains import MAX_CHANGES, Chain, Chains, Link
from tidemark.backends.heap.cleanup import IncrementalCleanup
from tidemark.backends.heap.columns import HeapColumns
from tidemark.backends.heap.cut import FrozenTable, HeapCut, LinkContent, LiveStateTable
from tidemark.backends.heap.handles import (
    HeapLongState,
    HeapTtlLongState,
    HeapTtlValueState,
    HeapValueState,
)
from tidemark.backends.heap.tables import HeapMapTable, HeapTable, HeapValueTable, unit_copier
from tidemark.backends.heap.unregistered import UnregisteredState, new_table
from tidemark.backends.outside import OutsideView
from tidemark.backends.registration import (
    RegisteredStates,
    StateSpec,
    check_columns,
    check_restored,
    create_handle,
    lies_in_columns,
    resolve_restored,
    spec_of,
)
from tidemark.backends.reported import reported
from tidemark.backends.table import ABSENT, Table
from tidemark.errors import RestoreError
from tidemark.state.backend import (
    AccessContext,
    BackendParameters,
    KeyContext,
    KeyedStateBackend,
    KeyToken,
    Windows,
)
from tidemark.state.canonical import StateSerializers
from tidemark.state.column_keys import Keys
from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.expiry import Expiry
from tidemark.state.key_memory import KeyMemory
from tidemark.state.layers import FrozenView
from tidemark.state.namespace import VOID, Namespace, NamespaceKind
from tidemark.state.primitives import State
from tidemark.state.serializers.builtin import LongSerializer
from tidemark.state.snapshot import FileContent, Increment, KeyedCut, StateMeta

__all__ = ["HeapKeyedStateBackend"]

_SWEPT_PER_BATCH = 1000
"""Entries that are looked at behind a batch for what is to be reported; as many as on RocksDB."""


class HeapKeyedStateBackend(KeyedStateBackend):
    """Keeps keyed state in memory: Python objects in one dictionary per state, and columns for batch functions."""

    by_column = True

    def __init__(self, parameters: BackendParameters) -> None:
        """Start empty."""
        self.parameters = parameters
        self.context = KeyContext()
        self._states = RegisteredStates()
        self._tables: dict[str, HeapTable] = {}
        self._restored: dict[str, UnregisteredState] = {}
        self._restored_metas: dict[str, StateMeta] = {}
        self._cleanups_per_record: list[IncrementalCleanup] = []
        self._reporting: list[tuple[Expiry, IncrementalCleanup]] = []
        self._expiring_values: list[HeapTtlValueState] = []
        self._cut_pending = False
        self._cuts = 0
        self._chains = Chains(parameters.options.get("max_changes", MAX_CHANGES))
        self._columns = HeapColumns(parameters.tokens)

    def state(self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID) -> State:
        """Register the state, or find it again, and return its handle."""
        handle = self._states.find(descriptor, namespace)
        if handle is not None:
            return handle
        spec = spec_of(descriptor, self.parameters.key_serializer, namespace)
        restored = self._restored.get(spec.name)
        if restored is None:
            table = new_table(spec.kind)
        else:
            migration = resolve_restored(restored.meta, spec)
            table = restored.take_over(migration)
            spec = migration.spec
            del self._restored[spec.name]
            self._chains.forget(spec.name)
        table.copy = unit_copier(spec.value, spec.ttl is not None)
        handle = self._handle(spec, table)
        self._tables[spec.name] = table
        self._states.add(spec, handle)
        return handle

    def column_state(
        self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID
    ) -> State:
        """Register the state, or find it again, and return its handle for many keys at once."""
        handle = self._states.find(descriptor, namespace)
        if handle is not None:
            return handle
        check_columns(descriptor)
        spec = spec_of(descriptor, self.parameters.key_serializer, namespace)
        if not lies_in_columns(spec):
            records = self.state(descriptor)
            spec = self._states.spec(spec.name)
            handle = column_handle(spec, self.context, records)
            self._states.add(spec, handle)
            return handle
        columns: Iterable[Any] = ()
        restored = self._restored.get(spec.name)
        if restored is not None:
            migration = resolve_restored(restored.meta, spec)
            columns, spec = restored.take_columns(migration), migration.spec
        handle = ColumnValueState(spec, self.context, self._columns.add(spec, columns))
        self._restored.pop(spec.name, None)
        self._chains.forget(spec.name)
        self._states.add(spec, handle)
        return handle

    def column_keys(self, tokens: pa.Array, windows: Windows | None = None) -> Keys:
        """The keys of a batch; they have the same rows in the columns of all states."""
        self.context.batch = batch = object()
        return self._columns.keys(tokens, batch, windows)

    def _handle(self, spec: StateSpec, table: HeapTable) -> State:
        plain = spec.kind is StateKind.VALUE and spec.namespace is NamespaceKind.VOID
        counts = type(spec.value) is LongSerializer
        if spec.ttl is None:
            if plain:
                assert isinstance(table, HeapValueTable)
                shortcut = HeapLongState if counts else HeapValueState
                return shortcut(spec, self.context, table)
            return create_handle(spec, self.context, table)
        note = None
        seen: Table = table
        if spec.expiry is not None and spec.expiry.reported:
            if self.expired is None:
                self.expired = []
            watch = reported(spec, self._times(spec.expiry), table, self.expired)
            note, seen = watch.note, cast("Table", watch)
        cleanup = self._cleanup_of(spec, table, note)
        if plain and spec.expiry is not None and spec.expiry.plain:
            assert isinstance(table, HeapValueTable)
            expiring = HeapTtlLongState if counts else HeapTtlValueState
            handle = expiring(spec, self.context, table, cleanup)
            self._expiring_values.append(handle)
            return handle
        return create_handle(spec, self.context, seen, None if cleanup is None else cleanup.step)

    def _times(self, expiry: Expiry) -> AccessContext:
        return self.context.event if expiry.event_time else self.context

    def _cleanup_of(
        self, spec: StateSpec, table: HeapTable, note: Callable[..., None] | None
    ) -> IncrementalCleanup | None:
        assert spec.ttl is not None
        assert spec.expiry is not None
        strategy = spec.ttl.get_cleanup_strategies().get_incremental_cleanup_strategy()
        if strategy is None:
            return None
        cleanup = IncrementalCleanup(
            table, self._times(spec.expiry), spec.expiry, strategy.get_cleanup_size(), note
        )
        if note is not None:
            self._reporting.append((spec.expiry, cleanup))
        if strategy.run_cleanup_for_every_record():
            self._cleanups_per_record.append(cleanup)
        return cleanup

    def start_batch(self, tokens: Sequence[KeyToken] | None = None) -> None:
        """Read the clock; fold the layers of cuts that have been released."""
        now = self.parameters.clock.now()
        self.context.start_batch(now)
        for handle in self._expiring_values:
            handle.start_batch(now)
        if self._cut_pending:
            self._fold()

    def end_batch(self) -> None:
        """Look for what expired, where that is reported; fold the layers of cuts that have been released."""
        self.context.batch = None
        for _, cleanup in self._reporting:
            cleanup.sweep(_SWEPT_PER_BATCH)
        if self._cut_pending:
            self._fold()

    def next_expiry(self) -> int | None:
        """When something may expire by the clock whose expiry is reported."""
        return min(
            (cleanup.due for expiry, cleanup in self._reporting if not expiry.event_time), default=None
        )

    def look_everywhere(self) -> None:
        """Begin a round over every state that reports its expiry in event time."""
        for expiry, cleanup in self._reporting:
            if expiry.event_time:
                cleanup.begin()

    @property
    def is_looking(self) -> bool:
        """Whether one of these rounds has not come to its end; rounds by the clock may begin again and again."""
        return any(cleanup.is_amid_round for expiry, cleanup in self._reporting if expiry.event_time)

    def _fold(self) -> None:
        oldest = self._columns.asked_for = self._chains.oldest_cut
        stores = [(table.store, oldest) for table in self._tables.values()]
        # Nobody changes these.
        stores += [(each.table.store, None) for each in self._restored.values() if each.table is not None]
        pending = False
        for store, asked_for in stores:
            store.fold(asked_for)
            pending = pending or store.has_views
        self._cut_pending = pending

    def record_processed(self) -> None:
        """Advance the clean-ups that want every record."""
        for cleanup in self._cleanups_per_record:
            cleanup.step()

    @property
    def wants_records(self) -> bool:
        """Whether some state cleans up on every record."""
        return bool(self._cleanups_per_record)

    def keys(self, state_name: str, namespace: Namespace = VOID, limit: int | None = None) -> list[KeyToken]:
        """Tokens of keys that hold a visible value in that state and namespace, `limit` at most."""
        if state_name in self._columns.tables:
            return self._columns.tokens(state_name, self._view(state_name), limit, namespace)
        table, view = self._look_up(state_name)
        addresses = (at for at, held in table.store.items() if view.visible(held) is not ABSENT)
        if view.namespace.columns:
            addresses = (at[0] for at in addresses if at[1] == namespace)
        return list(islice(addresses, limit))

    def namespaces(self, state_name: str, token: KeyToken) -> list[Namespace]:
        """Namespaces in which `token` holds a visible value."""
        if state_name in self._columns.tables:
            return self._columns.namespaces(state_name, self._view(state_name), token)
        table, view = self._look_up(state_name)
        if not view.namespace.columns:
            return [] if view.visible(table.store.get(token, ABSENT)) is ABSENT else [VOID]
        found = [(at, held) for at, held in table.store.items() if at[0] == token]
        return [at[1] for at, held in found if view.visible(held) is not ABSENT]

    def num_entries(self, state_name: str | None = None) -> int:
        """Physical entries, expired ones included."""
        counters: dict[str, HeapTable | ColumnTable | UnregisteredState] = {
            **self._tables,
            **self._columns.tables,
            **self._restored,
        }
        if state_name is None:
            return sum(counter.num_entries() for counter in counters.values())
        return counters[state_name].num_entries() if state_name in counters else 0

    def erase(self, token: KeyToken) -> dict[str, int]:
        """Forget a key in every state."""
        counts = {
            spec.name: self._tables[spec.name].erase(token, spec.namespace)
            for spec in self._states
            if spec.name in self._tables
        }
        counts |= self._columns.erase(token)
        counts |= {name: restored.erase(token) for name, restored in self._restored.items()}
        # Files that have the key are in no later checkpoint.
        self._chains.clear()
        return {name: count for name, count in counts.items() if count}

    def registered(self) -> list[StateDescriptor]:
        """The states that have a handle."""
        return [spec.descriptor for spec in self._states]

    def known_entries(self, state_name: str) -> int | None:
        """The number of entries, unless entries of maps would have to be counted."""
        table = self._tables.get(state_name) or self._columns.tables.get(state_name)
        return None if table is None or isinstance(table, HeapMapTable) else table.num_entries()

    def query(
        self, state_name: str, token: KeyToken, namespace: Namespace = VOID, *, accumulator: bool = False
    ) -> tuple[bool, Any]:
        """Read for an outside client: `(found, value)`."""
        if state_name in self._columns.tables:
            view = self._view(state_name)
            return view.answer(self._columns.unit(state_name, view.address(token, namespace)), accumulator)
        table, view = self._look_up(state_name)
        return view.answer(table.store.get(view.address(token, namespace), ABSENT), accumulator)

    def _look_up(self, name: str) -> tuple[HeapTable, OutsideView]:
        """The table of a state, registered or merely restored, and what is to be seen of it."""
        restored = self._restored.get(name)
        if restored is not None:
            map_key = StateSerializers.of(restored.meta).map_key
            return restored.decoded(), OutsideView.of_restored(restored.meta, map_key)
        # A state that nobody knows is refused by its view.
        view = self._view(name)
        return self._tables[name], view

    def _view(self, name: str) -> OutsideView:
        return OutsideView.of(self._states.spec(name), self.context, self.parameters.clock)

    def cut(self, *, incremental: Increment | None = None) -> KeyedCut:
        """Freeze the content as it is now, or what changed, in constant time per state."""
        # Before anything is frozen: a serializer without a usable snapshot declines the checkpoint here.
        registered = [(spec, spec.meta()) for spec in self._states]
        self._cuts += 1
        self._cut_pending = True
        if incremental is not None:
            return self._cut_changes(incremental, registered)
        frozen = [self._freeze(spec, meta) for spec, meta in registered]
        frozen += [restored.freeze(self.parameters.max_parallelism) for restored in self._restored.values()]
        cut = HeapCut([table for table, _ in frozen], [view for _, view in frozen if view is not None])
        return cut if self.parameters.asynchronous else cut.materialize()

    def _freeze(self, spec: StateSpec, meta: StateMeta) -> tuple[FrozenTable, FrozenView | ColumnView | None]:
        """All of a state."""
        groups = self.parameters.max_parallelism
        if spec.name in self._columns.tables:
            return self._columns.freeze(spec, meta, groups, self.parameters.clock.now())
        table = self._tables[spec.name]
        view = table.store.freeze(self._cuts)
        living = spec.in_full_snapshot(self.context, self.parameters.clock)
        return LiveStateTable(meta, spec.serializers, view, groups, living, table.keys), view

    def _freeze_changes(
        self, spec: StateSpec, meta: StateMeta, since: int
    ) -> tuple[FrozenTable, FrozenView | ColumnView] | None:
        """What changed in a state since a cut, if anything did."""
        groups = self.parameters.max_parallelism
        if spec.name in self._columns.tables:
            if self._columns.tables[spec.name].changed_behind < since:
                return None
            return self._columns.freeze(spec, meta, groups, 0, since)
        view = self._tables[spec.name].store.freeze_changes(self._cuts, since)
        if view is None:
            return None
        return LiveStateTable(meta, spec.serializers, view, groups, None, KeyMemory()), view

    def _cut_changes(
        self, increment: Increment, registered: Sequence[tuple[StateSpec, StateMeta]]
    ) -> HeapCut:
        since, old = self._chains.base_of(increment)
        chains: dict[str, Chain] = {}
        files: dict[str, FileContent] = {}
        views: list[FrozenView | ColumnView | None] = []

        def write(table: FrozenTable, view: FrozenView | ColumnView | None, chain: Chain | None) -> None:
            name = table.meta.name
            link = Link(f"{self._cuts:08}-{len(files):04}.parquet")
            chains[name] = Chain(table.meta, (link,)) if chain is None else chain.followed_by(link)
            files[link.name] = LinkContent(link, table, self.parameters.max_parallelism)
            views.append(view)

        for spec, meta in registered:
            chain = old.get(spec.name)
            if chain is None or not chain.can_go_on(meta, self._chains.most):
                write(*self._freeze(spec, meta), None)
            elif (changed := self._freeze_changes(spec, meta, since)) is not None:
                write(*changed, chain)
            else:
                chains[spec.name] = chain
        for name, restored in self._restored.items():
            if name in old:
                chains[name] = old[name]
            else:
                write(*restored.freeze(self.parameters.max_parallelism), None)
        for table in self._columns.tables.values():
            table.track(self._cuts)
        metas = [chain.meta for chain in chains.values()]
        native = self._chains.add(increment, self._cuts, chains, files)
        return HeapCut((), [view for view in views if view is not None], metas, native)

    def restore_table(self, meta: StateMeta, batches: Iterable[pa.RecordBatch]) -> None:
        """Take over canonical rows of one state."""
        check_restored(meta, self._restored_metas.get(meta.name), self.parameters.key_serializer)
        self._restored_metas.setdefault(meta.name, meta)
        if meta.name not in self._restored:
            self._restored[meta.name] = UnregisteredState(meta)
        self._restored[meta.name].add(batches)

    def restored_states(self) -> list[StateMeta]:
        """States that came by restore, registered since or not."""
        return list(self._restored_metas.values())

    def restore_native(
        self, kind: str, files: dict[str, Path], extra: bytes, metas: Sequence[StateMeta]
    ) -> None:
        """Take over the rows of an incremental checkpoint of the heap; those of RocksDB are refused."""
        if kind != KIND:
            raise RestoreError(
                f"The heap backend cannot read a native snapshot of kind '{kind}'. Restore it with the backend "
                "that wrote it, take a savepoint there, and restore that one here."
            )
        for meta, batches in chain_tables(files, extra, metas, self.parameters.key_groups):
            self.restore_table(meta, batches)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing before it will be asked for; what changed up to it is folded at the next batch."""
        self._chains.completed(checkpoint_id)
        self._cut_pending = True

    def close(self) -> None:
        """Drop everything."""
        self._states = RegisteredStates()
        self._tables.clear()
        self._columns = HeapColumns(self.parameters.tokens)
        self._restored.clear()
        self._cleanups_per_record.clear()
        self._reporting.clear()
