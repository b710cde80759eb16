"""Tables over RocksDB with a write-back cache: what a batch reads is read once, what it writes once.

A table collects the writes of a batch as live objects. `write_back` serialises each changed address once
and puts it into the batch's native write. Reads look at the pending writes, then at what the batch has
read already, then at the store. Value-like states have a module of their own, `value_rows`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final

from tidemark.backends.rocksdb.cache import MISS, GenerationCache
from tidemark.backends.rocksdb.keys import decode_segment, encode_segment
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.rocksdb.store import Row
from tidemark.backends.rocksdb.value_rows import ValueRows
from tidemark.backends.table import ABSENT, Address
from tidemark.state.canonical import StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import NamespaceKind

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["AnyRows", "ListRows", "MapRows", "table_for"]

_MANY_SEGMENTS: Final = 16
"""A list read in so many pieces is written as one again."""
_MANY_ENTRIES: Final = 1024
"""Of larger maps nothing is kept from batch to batch."""


class _KnowingTable(RowTable):
    """A table that keeps a bounded part of what it knows from batch to batch."""

    _kept: GenerationCache

    def invalidate(self) -> None:
        """Drop everything that was read."""
        self.forget()
        self._kept.clear()


class _Rows:
    """What a batch knows of the list at one address."""

    __slots__ = ("added", "found", "replaced", "stored", "whole")

    def __init__(self) -> None:
        self.found: list[Row] | None = None
        """Segments in the store; None if not known."""
        self.stored: list[Any] | None = None
        """Their units; None if not decoded."""
        self.added: list[Any] = []
        self.replaced = False
        self.whole: list[Any] | None = None
        """What `get` handed out; never changed afterwards."""


class ListRows(_KnowingTable):
    """A list is a sequence of segments, one per batch that appended to it, so that adding reads nothing.

    Between batches the segments of a bounded number of lists stay known, as bytes.
    """

    def __init__(
        self, scope: BatchScope, state_id: int, serializer: TypeSerializer[Any], ttl: bool, namespaced: bool
    ) -> None:
        super().__init__(scope, state_id, serializer, ttl, namespaced)
        self._lists: dict[Any, _Rows] = {}
        self._kept = GenerationCache(scope.store.options.read_cache_size)
        self._grown_by = 0
        self._grown_size = 0

    def _of(self, at: Any) -> _Rows:
        rows = self._lists.get(at)
        if rows is None:
            rows = self._lists[at] = _Rows()
        return rows

    def get(self, at: Address) -> list[Any]:
        """The units in order; the list is never changed by the table."""
        rows = self._of(at)
        if rows.whole is None:
            if rows.replaced:
                rows.whole = rows.added.copy()
            else:
                if rows.stored is None:
                    self._read(at, rows)
                rows.whole = rows.stored + rows.added  # type: ignore[operator]
        return rows.whole

    def peek(self, at: Address) -> list[Any]:
        """What `get` would return, without remembering anything."""
        known = self._lists.get(at)
        if known is not None and (known.replaced or known.stored is not None):
            return self.get(at)
        return self._units(self._segments(at)[0]) + (known.added if known is not None else [])

    def _segments(self, at: Any) -> tuple[list[Row], bool]:
        """The segments of a list, and whether they had to be fetched from the store."""
        known = self._kept.get(at)
        return (self._store.prefixed(self.row(at)), True) if known is MISS else (known, False)

    def _units(self, found: list[Row]) -> list[Any]:
        decode = self._decode
        return [decode(unit) for _, segment in found for unit in decode_segment(segment)]

    def _read(self, at: Any, rows: _Rows) -> None:
        rows.found, fetched = self._segments(at)
        rows.stored = self._units(rows.found)
        if fetched:
            self._scope.check_list(self.state_id, sum([len(segment) for _, segment in rows.found]))
            self._keep(at, rows.found, rows.found)
            self._scope.count_read()

    def _keep(self, at: Any, found: list[Row], news: list[Row]) -> None:
        """Remember the segments of a list, of which `news` have not been accounted for."""
        self._kept.young[at] = found
        self._grown_by += 1 + len(news)
        self._grown_size += sum([len(row) + len(segment) for row, segment in news])

    def append(self, at: Address, units: list[Any]) -> None:
        """Add units without reading."""
        rows = self._of(at)
        rows.added.extend(units)
        rows.whole = None

    def replace(self, at: Address, units: list[Any]) -> None:
        """Store exactly these units."""
        rows = self._of(at)
        rows.replaced = True
        rows.added = list(units)
        rows.whole = None

    def remove(self, at: Address) -> None:
        """Drop the list."""
        self.replace(at, [])

    def write_back(self) -> None:
        """Write one segment for each list that was changed."""
        for at, rows in self._lists.items():
            if rows.added or rows.replaced or len(rows.found or ()) >= _MANY_SEGMENTS:
                self._write(at, rows)
        self._lists.clear()

    def _write(self, at: Any, rows: _Rows) -> None:
        found = rows.found
        if found is None:
            kept = self._kept.get(at)
            found = None if kept is MISS else kept
        if rows.replaced:
            self._write_whole(at, found, rows.added)
        elif rows.stored is not None and len(rows.found or ()) >= _MANY_SEGMENTS:
            # The list has been read anyway, so it costs little to make it one segment again.
            self._write_whole(at, found, rows.stored + rows.added)
        else:
            self._write_more(at, found, rows.added)

    def _write_whole(self, at: Any, found: list[Row] | None, units: list[Any]) -> None:
        """Write a list over its first segment: a deleted one would be a step more for later reads."""
        if found is None:
            self._scope.clear_prefix(self.row(at))
            found = []
        for row, _ in found[1:] if units else found:
            self._scope.delete(row)
        news = [self._put(found[0][0] if found else self._new_row(at), units)] if units else []
        self._keep(at, news, news)

    def _write_more(self, at: Any, found: list[Row] | None, units: list[Any]) -> None:
        news = [self._put(self._new_row(at), units)]
        if found is None:
            return
        if len(found) < _MANY_SEGMENTS:
            self._keep(at, [*found, *news], news)
        else:
            # Carrying on the segments of a list that nobody reads would cost more and more.
            self._kept.drop(at)

    def _new_row(self, at: Any) -> bytes:
        number = self._scope.next_segment
        self._scope.next_segment = number + 1
        return self.row(at) + number.to_bytes(8, "big")

    def _put(self, row: bytes, units: list[Any]) -> Row:
        segment = encode_segment(map(self._encode, units))
        self._scope.put(row, segment)
        return row, segment

    def forget(self) -> None:
        """Drop all objects."""
        self._lists.clear()
        if self._grown_by:
            self._kept.grown(self._grown_by, self._grown_size)
            self._grown_by = self._grown_size = 0


class _Entries:
    """What a batch knows of the map at one address."""

    __slots__ = ("absent", "changed", "cleared", "complete", "present", "widest")

    def __init__(self) -> None:
        self.present: dict[Hashable, Any] = {}
        self.absent: set[Hashable] = set()
        self.changed: set[Hashable] = set()
        self.complete = False
        """Whether `present` is the whole map."""
        self.cleared = False
        self.widest = 0
        """Bytes of the largest unit seen."""

    def saw(self, raw: bytes) -> None:
        """Account for a unit that was read or written."""
        if len(raw) > self.widest:
            self.widest = len(raw)


class MapRows(_KnowingTable):
    """One row per map entry. Between batches a bounded number of entries that nobody can change stay known."""

    def __init__(
        self,
        scope: BatchScope,
        state_id: int,
        serializer: TypeSerializer[Any],
        ttl: bool,
        namespaced: bool,
        map_key: TypeSerializer[Any],
    ) -> None:
        super().__init__(scope, state_id, serializer, ttl, namespaced)
        self._maps: dict[Any, _Entries] = {}
        self._kept = GenerationCache(scope.store.options.read_cache_size if serializer.immutable else 0)
        tokens = KeyTokens(map_key)
        self._key_bytes, self._map_key_of = tokens.to_bytes, tokens.from_bytes

    def _of(self, at: Any) -> _Entries:
        entries = self._maps.get(at)
        if entries is None:
            kept = self._kept.get(at)
            entries = self._maps[at] = _Entries() if kept is MISS else kept
        return entries

    def _tail(self, map_key: Any) -> bytes:
        return map_key if self._key_bytes is None else self._key_bytes(map_key)

    def get(self, at: Address, map_key: Hashable) -> Any:
        """The unit, or `ABSENT`."""
        entries = self._of(at)
        unit = entries.present.get(map_key, MISS)
        if unit is not MISS:
            return unit
        if entries.complete or map_key in entries.absent:
            return ABSENT
        raw = self._store.get(self.row(at) + self._tail(map_key))
        if raw is None:
            entries.absent.add(map_key)
            unit = ABSENT
        else:
            unit = entries.present[map_key] = self._decode(raw)
            entries.saw(raw)
        self._scope.count_read()
        return unit

    def put(self, at: Address, map_key: Hashable, unit: Any) -> None:
        """Store one entry."""
        entries = self._of(at)
        entries.present[map_key] = unit
        entries.changed.add(map_key)
        entries.absent.discard(map_key)

    def remove(self, at: Address, map_key: Hashable) -> None:
        """Drop one entry, if it is there."""
        entries = self._of(at)
        found = entries.present.pop(map_key, MISS) is not MISS
        if found or not (entries.complete or map_key in entries.absent):
            entries.absent.add(map_key)
            entries.changed.add(map_key)

    def items(self, at: Address) -> Iterable[tuple[Hashable, Any]]:
        """All entries, as the items of a dictionary: changing the map while iterating is noticed."""
        entries = self._of(at)
        if not entries.complete:
            self._complete(at, entries)
        return entries.present.items()

    def peek(self, at: Address) -> dict[Hashable, Any]:
        """All entries, without remembering anything."""
        known = self._maps.get(at)
        copied = _Entries()
        if known is not None:
            copied.present, copied.absent, copied.complete = dict(known.present), known.absent, known.complete
        if not copied.complete:
            self._complete(at, copied)
        return copied.present

    def _complete(self, at: Any, entries: _Entries) -> None:
        prefix = self.row(at)
        start, key_of, decode = len(prefix), self._map_key_of, self._decode
        present, absent = entries.present, entries.absent
        for row, raw in self._store.prefixed(prefix):
            map_key = row[start:] if key_of is None else key_of(row[start:])
            if map_key not in present and map_key not in absent:
                present[map_key] = decode(raw)
                entries.saw(raw)
        entries.complete = True
        self._scope.count_read()

    def is_empty(self, at: Address) -> bool:
        """Whether there is no entry."""
        entries = self._of(at)
        if entries.present:
            return False
        if not entries.complete:
            self._complete(at, entries)
        return not entries.present

    def clear(self, at: Address) -> None:
        """Drop all entries."""
        entries = self._of(at)
        entries.present.clear()
        entries.absent.clear()
        entries.changed.clear()
        entries.complete = entries.cleared = True

    def write_back(self) -> None:
        """Write or delete one row for each changed entry."""
        put, delete, encode = self._scope.put, self._scope.delete, self._encode
        for at, entries in self._maps.items():
            if not entries.changed and not entries.cleared:
                continue
            prefix = self.row(at)
            if entries.cleared:
                self._scope.clear_prefix(prefix)
                entries.cleared = False
            for map_key in entries.changed:
                unit = entries.present.get(map_key, MISS)
                row = prefix + self._tail(map_key)
                if unit is MISS:
                    delete(row)
                else:
                    raw = encode(unit)
                    put(row, raw)
                    entries.saw(raw)
            entries.changed.clear()

    def forget(self) -> None:
        """Keep what may be kept, drop the rest."""
        kept = self._kept
        if kept.limit:
            count = size = 0
            for at, entries in self._maps.items():
                known = len(entries.present) + len(entries.absent)
                held = entries.widest * len(entries.present)
                if known <= _MANY_ENTRIES and held <= kept.limit:
                    kept.young[at] = entries
                    count += known
                    size += held
                else:
                    kept.drop(at)
            kept.grown(count, size)
        self._maps.clear()


AnyRows = ValueRows | ListRows | MapRows


def table_for(
    kind: StateKind,
    scope: BatchScope,
    state_id: int,
    serializers: StateSerializers,
    ttl: bool,
    namespace: NamespaceKind,
) -> AnyRows:
    """The table a kind of state needs."""
    namespaced = namespace is not NamespaceKind.VOID
    assert serializers.value is not None
    if kind is StateKind.LIST:
        return ListRows(scope, state_id, serializers.value, ttl, namespaced)
    if kind is StateKind.MAP:
        assert serializers.map_key is not None
        return MapRows(scope, state_id, serializers.value, ttl, namespaced, serializers.map_key)
    return ValueRows(scope, state_id, serializers.value, ttl, namespaced)
