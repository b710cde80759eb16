"""Reading a RocksDB backend from outside: which keys are there, what do they hold, how many rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidemark.backends.outside import OutsideView
from tidemark.backends.rocksdb.catalog import StateCatalog
from tidemark.backends.rocksdb.column_rows import ColumnRows
from tidemark.backends.rocksdb.cut import stamp_of
from tidemark.backends.rocksdb.keys import decode_namespace, decode_segment, encode_namespace, state_prefix
from tidemark.backends.rocksdb.scope import BatchScope
from tidemark.backends.rocksdb.store import Row, after
from tidemark.backends.rocksdb.tables import AnyRows, table_for
from tidemark.state.descriptors import StateKind
from tidemark.state.namespace import Namespace, NamespaceKind

if TYPE_CHECKING:
    from tidemark.state.backend import BackendParameters, KeyContext, KeyToken

__all__ = ["OutsideReader"]


@dataclass(frozen=True, slots=True)
class _Known:
    """Where a state lies, registered or merely restored, and what is to be seen of it."""

    number: int
    table: AnyRows | ColumnRows
    view: OutsideView


class OutsideReader:
    """Answers what `KeyedStateBackend` offers beside handles; changes nothing but the pending writes."""

    def __init__(
        self, catalog: StateCatalog, scope: BatchScope, context: KeyContext, parameters: BackendParameters
    ) -> None:
        self._catalog = catalog
        self._scope = scope
        self._context = context
        self._parameters = parameters

    def keys(self, name: str, namespace: Namespace, limit: int | None) -> list[KeyToken]:
        """Tokens of keys that hold a visible value, `limit` at most."""
        known = self._look_up(name)
        self._scope.write_back()
        space = encode_namespace(namespace) if known.view.namespace is not NamespaceKind.VOID else b""
        codec = self._scope.codec
        found: dict[bytes, None] = {}
        for row in self._living(known, self._rows(known.number)):
            if limit is not None and len(found) >= limit:
                break
            key, at = codec.split(row)
            if row.startswith(space, at):
                found[key] = None
        return [codec.token(key) for key in found]

    def namespaces(self, name: str, token: KeyToken) -> list[Namespace]:
        """Namespaces in which the key holds a visible value."""
        known = self._look_up(name)
        self._scope.write_back()
        group, key = self._scope.codec.place(token)
        prefix = group + known.number.to_bytes(2, "big") + key
        rows = self._living(known, self._scope.store.prefixed(prefix))
        return list(dict.fromkeys([decode_namespace(known.view.namespace, row, len(prefix)) for row in rows]))

    def num_entries(self, name: str | None) -> int:
        """Physical entries of one state or of all, counted one by one."""
        self._scope.write_back()
        return sum(
            self._count(each) for each in ([name] if name is not None else list(self._catalog.numbers))
        )

    def _count(self, name: str) -> int:
        if name not in self._catalog.numbers:
            return 0
        known = self._look_up(name)
        rows = self._rows(known.number)
        if known.view.kind is StateKind.LIST:
            return sum(1 for _ in groupby(rows, key=lambda row: row[0][:-8]))
        return sum(1 for _ in rows)

    def query(self, name: str, token: KeyToken, namespace: Namespace, accumulator: bool) -> tuple[bool, Any]:
        """`(found, value)` of one key."""
        known = self._look_up(name)
        held = known.table.peek(known.view.address(token, namespace))
        return known.view.answer(held, accumulator)

    def _look_up(self, name: str) -> _Known:
        catalog = self._catalog
        if name not in catalog.registered and name in catalog.restored:
            meta, number = catalog.restored[name].meta, catalog.numbers[name]
            serializers = catalog.restored[name].readers()
            table = table_for(meta.kind, self._scope, number, serializers, meta.ttl, meta.namespace)
            return _Known(number, table, OutsideView.of_restored(meta, serializers.map_key))
        view = OutsideView.of(catalog.registered.spec(name), self._context, self._parameters.clock)
        return _Known(catalog.numbers[name], catalog.tables[name], view)

    def _rows(self, number: int) -> Iterator[Row]:
        first, last = self._parameters.key_groups
        for group in range(first, last + 1):
            prefix = state_prefix(group, number)
            yield from self._scope.store.scan(prefix, after(prefix))

    @staticmethod
    def _living(known: _Known, rows: Iterable[Row]) -> Iterator[bytes]:
        living = known.view.living
        for row, raw in rows:
            units = decode_segment(raw) if known.view.kind is StateKind.LIST else [raw]
            if living is None or any(living.alive(stamp_of(unit)) for unit in units):
                yield row
