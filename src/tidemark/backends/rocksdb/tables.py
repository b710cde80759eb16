"""Tables over RocksDB with a write-back cache: what a batch reads is read once, what it writes once.

A table collects the writes of a batch as live objects. `write_back` serialises each changed address once
and puts it into the batch's `WriteBatch`. Reads look at the pending writes, then at what the batch has
read already, then at the store. The first read of a value-like state in a batch fetches all keys of the
batch with one sorted multi-get, unless the last batches showed that few of them are read.

Between batches a bounded part of the value-like states stays in memory: as objects if their type is
immutable, else as bytes, so that every batch gets fresh objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final

from tidemark.backends.rocksdb.cache import MISS, GenerationCache
from tidemark.backends.rocksdb.keys import decode_segment, encode_segment
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.table import ABSENT, Address

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["ListRows", "MapRows", "PendingUnits", "ValueRows"]

_KNOWN_ROWS: Final = 50_000
"""Row keys each state remembers, so that hot keys are not put together again in every batch."""
_MANY_SEGMENTS: Final = 16
"""A list read in so many pieces is written as one again."""


class PendingUnits(dict[Any, Any]):
    """Units written in this batch, by address; asked for any other address it asks what the batch knows."""

    __slots__ = ("known", "load")

    known: dict[Any, Any]
    load: Callable[[Any], Any]

    def __missing__(self, at: Any) -> Any:
        unit = self.known.get(at, MISS)
        return unit if unit is not MISS else self.load(at)


class ValueRows(RowTable):
    """One row per address. `get` and `put` are the C methods of the dictionary of pending writes."""

    get: Callable[[Address], Any]
    put: Callable[[Address, Any], None]

    def __init__(
        self, scope: BatchScope, state_id: int, serializer: TypeSerializer[Any], ttl: bool, namespaced: bool
    ) -> None:
        super().__init__(scope, state_id, serializer, ttl, namespaced)
        self.pending = PendingUnits()
        self.pending.load = self._load
        self._known: dict[Any, Any] = {}
        self.pending.known = self._known
        self.get = self.pending.__getitem__
        self.put = self.pending.__setitem__
        self._removing = False
        self._row_of: dict[Any, bytes] = {}
        # Objects that nobody can change may outlive the batch; of the others only the bytes do.
        self._shared = serializer.immutable
        self._kept = GenerationCache(scope.store.options.read_cache_size)
        self._fresh: dict[Any, Any] = {}
        self._grown_by = 0
        self._grown_size = 0
        self._fetched: dict[Any, bytes | None] = {}
        self._prefetching = not namespaced
        self._prefetched = False
        self._used = 0
        self._share()

    def _share(self) -> None:
        if self._shared:
            self._known = self._kept.young
            self.pending.known = self._known

    def remove(self, at: Address) -> None:
        """Drop the unit."""
        self.pending[at] = ABSENT
        self._removing = True

    def peek(self, at: Address) -> Any:
        """What `get` would return, without remembering anything."""
        unit = self.pending.get(at, MISS)
        if unit is MISS:
            unit = self._known.get(at, MISS)
        if unit is MISS:
            raw = self._store.get(self.row(at))
            unit = ABSENT if raw is None else self._decode(raw)
        return unit

    def _load(self, at: Any) -> Any:
        kept = self._kept.get(at)
        if kept is MISS:
            raw = self._fetch(at)
            unit = ABSENT if raw is None else self._decode(raw)
            if not self._shared:
                self._fresh[at] = ABSENT if raw is None else raw
            self._grown_by += 1
            self._grown_size += 0 if raw is None else len(raw)
        else:
            unit = kept if self._shared or kept is ABSENT else self._decode(kept)
        self._known[at] = unit
        return unit

    def _fetch(self, at: Any) -> bytes | None:
        if self._prefetching and not self._prefetched:
            self._prefetch()
        self._used += 1
        if at in self._fetched:
            return self._fetched[at]
        raw = self._store.get(self.row(at))
        self._scope.count_read()
        return raw

    def _prefetch(self) -> None:
        self._prefetched = True
        kept = self._kept.get
        tokens = [token for token in self._scope.distinct() if kept(token) is MISS]
        if len(tokens) < 2:
            return
        by_row = dict(zip(self._rows(tokens), tokens, strict=True))
        rows = sorted(by_row)
        self._fetched = dict(zip(map(by_row.__getitem__, rows), self._store.get_many(rows), strict=True))

    def _rows(self, addresses: list[Any]) -> list[bytes]:
        if self._namespaced:
            return [self.row(at) for at in addresses]
        row_of = self._row_of
        unknown = [at for at in addresses if at not in row_of]
        if unknown:
            if len(row_of) + len(unknown) > _KNOWN_ROWS:
                row_of.clear()
                unknown = addresses
            state = self._state
            places = self._codec.places(unknown)
            row_of.update(zip(unknown, [group + state + key for group, key in places], strict=True))
        return [row_of[at] for at in addresses]

    def write_back(self) -> None:
        """Serialise each changed unit once."""
        pending = self.pending
        if not pending:
            return
        removed = self._take_removed() if self._removing else []
        raws = list(map(self._encode, pending.values()))
        addresses = list(pending)
        self._scope.put_rows(dict(zip(self._rows(addresses), raws, strict=True)))
        if not self._shared:
            self._fresh.update(zip(addresses, raws, strict=True))
        self._grown_by += len(raws)
        self._grown_size += sum(map(len, raws))
        self._known.update(pending)
        pending.clear()
        for at in removed:
            if self._known.get(at, MISS) is not ABSENT and self._kept.get(at) is not ABSENT:
                self._scope.delete(self.row(at))
            self._known[at] = ABSENT
            if not self._shared:
                self._fresh[at] = ABSENT

    def _take_removed(self) -> list[Any]:
        self._removing = False
        removed = [at for at, unit in self.pending.items() if unit is ABSENT]
        for at in removed:
            del self.pending[at]
        return removed

    def end_batch(self) -> None:
        """Decide whether the next batch prefetches: if it pays for one key in four."""
        if self._used and not self._namespaced:
            candidates = len(self._fetched) or len(self._scope.distinct())
            if candidates:
                self._prefetching = self._used * 4 >= candidates
        self._prefetched = False
        self._used = 0

    def forget(self) -> None:
        """Keep what may be kept, drop the rest."""
        if not self._shared:
            self._kept.young.update(self._fresh)
            self._fresh.clear()
            self._known.clear()
        if self._grown_by:
            self._kept.grown(self._grown_by, self._grown_size)
            self._grown_by = self._grown_size = 0
            self._share()
        if self._fetched:
            self._fetched = {}

    def invalidate(self) -> None:
        """Drop everything that was read."""
        self._known.clear()
        self._fresh.clear()
        self._fetched = {}
        self._kept.clear()
        self._share()


class _Rows:
    """What a batch knows of the list at one address."""

    __slots__ = ("added", "replaced", "segments", "stored", "whole")

    def __init__(self) -> None:
        self.stored: list[Any] | None = None
        """Units in the store; None if not read."""
        self.segments: list[bytes] | None = None
        self.added: list[Any] = []
        self.replaced = False
        self.whole: list[Any] | None = None
        """What `get` handed out; never changed afterwards."""


class ListRows(RowTable):
    """A list is a sequence of segments, one per batch that appended to it, so that adding reads nothing."""

    def __init__(
        self, scope: BatchScope, state_id: int, serializer: TypeSerializer[Any], ttl: bool, namespaced: bool
    ) -> None:
        super().__init__(scope, state_id, serializer, ttl, namespaced)
        self._lists: dict[Any, _Rows] = {}

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
        rows = _Rows()
        self._read(at, rows)
        return (rows.stored or []) + (known.added if known is not None else [])

    def _read(self, at: Any, rows: _Rows) -> None:
        decode = self._decode
        found = self._store.prefixed(self.row(at))
        rows.segments = [row for row, _ in found]
        rows.stored = [decode(unit) for _, segment in found for unit in decode_segment(segment)]
        self._scope.count_read()

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
        scope = self._scope
        for at, rows in self._lists.items():
            segments, added = rows.segments, rows.added
            if segments is not None and len(segments) >= _MANY_SEGMENTS and not rows.replaced:
                # The list has been read anyway, so it costs little to make it one segment again.
                added, rows.replaced = (rows.stored or []) + added, True
            if rows.replaced:
                if segments is None:
                    scope.clear_prefix(self.row(at))
                else:
                    for row in segments:
                        scope.delete(row)
            if added:
                number = scope.next_segment
                scope.next_segment = number + 1
                scope.put(self.row(at) + number.to_bytes(8, "big"), encode_segment(map(self._encode, added)))
        self._lists.clear()

    def forget(self) -> None:
        """Drop all objects."""
        self._lists.clear()


class _Entries:
    """What a batch knows of the map at one address."""

    __slots__ = ("absent", "changed", "cleared", "complete", "present")

    def __init__(self) -> None:
        self.present: dict[Hashable, Any] = {}
        self.absent: set[Hashable] = set()
        self.changed: set[Hashable] = set()
        self.complete = False
        """Whether `present` is the whole map."""
        self.cleared = False


class MapRows(RowTable):
    """One row per map entry."""

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
        self._key_bytes: Callable[[Any], bytes] | None = map_key.key_bytes if map_key.identity_key else None
        self._map_key_of: Callable[[bytes], Any] | None = map_key.from_bytes if map_key.identity_key else None

    def _of(self, at: Any) -> _Entries:
        entries = self._maps.get(at)
        if entries is None:
            entries = self._maps[at] = _Entries()
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
                    put(row, encode(unit))
            entries.changed.clear()

    def forget(self) -> None:
        """Drop all objects."""
        self._maps.clear()
