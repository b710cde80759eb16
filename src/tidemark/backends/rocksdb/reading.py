"""Reading a RocksDB backend from outside: which keys are there, what do they hold, how many rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidemark.backends.rocksdb.books import StateBooks
from tidemark.backends.rocksdb.keys import decode_namespace, decode_segment, encode_namespace, state_prefix
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.rocksdb.snapshot import stamp_of
from tidemark.backends.rocksdb.store import Row, after
from tidemark.backends.rocksdb.tables import ListRows, MapRows, table_for
from tidemark.backends.rocksdb.value_rows import ValueRows
from tidemark.backends.table import ABSENT
from tidemark.backends.ttl import TtlRule
from tidemark.state.canonical import tokens_to_keys
from tidemark.state.descriptors import StateKind
from tidemark.state.namespace import Namespace, NamespaceKind
from tidemark.state.serializers.base import TypeSerializer

if TYPE_CHECKING:
    from tidemark.state.backend import BackendParameters, KeyToken

__all__ = ["OutsideReader"]


@dataclass(frozen=True, slots=True)
class _Known:
    """What reading a state needs to know, registered or merely restored."""

    number: int
    kind: StateKind
    namespace: NamespaceKind
    ttl: bool
    table: RowTable
    map_key: TypeSerializer[Any] | None
    dead_before: int | None
    """Units last accessed then or earlier are invisible."""


class OutsideReader:
    """Answers what `KeyedStateBackend` offers beside handles; changes nothing but the pending writes."""

    def __init__(self, books: StateBooks, scope: BatchScope, parameters: BackendParameters) -> None:
        self._books = books
        self._scope = scope
        self._parameters = parameters

    def keys(self, name: str, namespace: Namespace, limit: int | None) -> list[KeyToken]:
        """Tokens of keys that hold a visible value, `limit` at most."""
        known = self._look_up(name)
        self._scope.write_back()
        space = encode_namespace(namespace) if known.namespace is not NamespaceKind.VOID else b""
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
        return list(dict.fromkeys([decode_namespace(known.namespace, row, len(prefix)) for row in rows]))

    def num_entries(self, name: str | None) -> int:
        """Physical entries of one state or of all, counted one by one."""
        self._scope.write_back()
        return sum(self._count(each) for each in ([name] if name is not None else list(self._books.numbers)))

    def _count(self, name: str) -> int:
        if name not in self._books.numbers:
            return 0
        known = self._look_up(name)
        rows = self._rows(known.number)
        if known.kind is StateKind.LIST:
            return sum(1 for _ in groupby(rows, key=lambda row: row[0][:-8]))
        return sum(1 for _ in rows)

    def query(self, name: str, token: KeyToken, namespace: Namespace, accumulator: bool) -> tuple[bool, Any]:
        """`(found, value)` of one key."""
        known = self._look_up(name)
        at = token if known.namespace is NamespaceKind.VOID else (token, namespace)
        table, dead_before = known.table, known.dead_before
        if isinstance(table, ListRows):
            units = table.peek(at)
            if known.ttl:
                units = [value for value, stamp in units if dead_before is None or stamp > dead_before]
            return bool(units), units or None
        if isinstance(table, MapRows):
            entries = table.peek(at)
            if known.ttl:
                entries = {
                    key: value
                    for key, (value, stamp) in entries.items()
                    if dead_before is None or stamp > dead_before
                }
            assert known.map_key is not None
            keys = tokens_to_keys(list(entries), known.map_key)
            return bool(entries), dict(zip(keys, entries.values(), strict=True)) or None
        assert isinstance(table, ValueRows)
        unit = table.peek(at)
        if unit is not ABSENT and known.ttl:
            unit = ABSENT if dead_before is not None and unit[1] <= dead_before else unit[0]
        if unit is ABSENT:
            return False, None
        return True, unit if accumulator else self._result(name, unit)

    def _result(self, name: str, unit: Any) -> Any:
        if name in self._books.registered:
            descriptor = self._books.registered.spec(name).descriptor
            if descriptor.kind is StateKind.AGGREGATING:
                return descriptor.agg_function.get_result(unit)  # type: ignore[attr-defined]
        return unit

    def _look_up(self, name: str) -> _Known:
        books = self._books
        if name not in books.registered and name in books.restored:
            meta, number = books.restored[name].meta, books.numbers[name]
            serializers = books.restored[name].readers()
            table = table_for(meta.kind, self._scope, number, serializers, meta.ttl, meta.namespace)
            return _Known(number, meta.kind, meta.namespace, meta.ttl, table, serializers.map_key, None)
        spec = books.registered.spec(name)
        dead_before = None
        if spec.ttl is not None and not TtlRule(spec.ttl).return_expired:
            dead_before = self._parameters.clock.now() - spec.ttl.ttl_ms
        table = books.tables[name]
        number, ttl = books.numbers[name], spec.ttl is not None
        return _Known(number, spec.kind, spec.namespace, ttl, table, spec.map_key, dead_before)

    def _rows(self, number: int) -> Iterator[Row]:
        first, last = self._parameters.key_groups
        for group in range(first, last + 1):
            prefix = state_prefix(group, number)
            yield from self._scope.store.scan(prefix, after(prefix))

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
