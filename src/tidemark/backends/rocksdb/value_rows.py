"""The table of value-like states: one row per key, fetched together, written together.

The first read of a batch that goes to the store fetches all keys of the batch with one sorted multi-get,
unless the last batch showed that few of them are read. Between batches a bounded part stays in memory: as
objects if their type is immutable, else as bytes, so that every batch gets fresh objects.

Where a unit is looked for, in this order; each step fills the ones above it::

    pending   written in this batch                         the dictionary the handle works on
    known     read or written back in this batch            objects; for immutable types the same dict as kept.young
    fetched   bytes of the batch's multi-get, not decoded   only what is asked for is worth an object
    kept      what earlier batches left behind              objects or bytes
    store     RocksDB
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidemark.backends.rocksdb.cache import MISS, GenerationCache
from tidemark.backends.rocksdb.scope import BatchScope, RowTable
from tidemark.backends.table import ABSENT, Address

if TYPE_CHECKING:
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["PendingUnits", "ValueRows"]

_KNOWN_ROWS: Final = 50_000
"""Row keys each state remembers, so that hot keys are not put together again in every batch."""
_SAMPLE: Final = 8
"""Of so many prefetched units one is watched."""


class PendingUnits(dict[Any, Any]):
    """Units written in this batch, by address; asked for any other address it asks what the batch knows."""

    __slots__ = ("known", "load")

    known: dict[Any, Any]
    load: Callable[[Any], Any]

    def __missing__(self, at: Any) -> Any:
        # Not stored under `at`: what is in this dictionary is written back, and a unit that was only read is not.
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
        self._known: dict[Any, Any] = {}
        self.pending = self._new_pending()
        self.pending.load, self.pending.known = self._load, self._known
        # C methods, bound once: a hit among the pending writes runs no Python code of ours. That is also why
        # `pending` is never replaced, only cleared.
        self.get = self.pending.__getitem__
        self.put = self.pending.__setitem__
        self._removing = False
        self._row_of: dict[Any, bytes] = {}
        # Objects that nobody can change may outlive the batch; of the others only the bytes do.
        self._shared = serializer.immutable
        self._kept = GenerationCache(scope.store.options.read_cache_size)
        # Bytes of this batch that go to `_kept` when it is over; of shared objects `_known` is that already.
        self._fresh: dict[Any, Any] = {}
        self._grown_by = 0
        self._grown_size = 0
        self._fetched: dict[Any, Any] = {}
        # A batch tells its keys, not its windows, so addresses with a namespace cannot be fetched ahead.
        self._prefetching = not namespaced
        self._prefetched = False
        self._used = 0
        self._share()

    def _new_pending(self) -> PendingUnits:
        return PendingUnits()

    def _share(self) -> None:
        # The cache swaps its generations when it has grown too large; what was `young` is then another dictionary.
        if self._shared:
            self._known = self._kept.young
            self.pending.known = self._known

    def remove(self, at: Address) -> None:
        """Drop the unit."""
        # A write like any other, so that a read behind it finds it; `write_back` sorts the removals out, and the
        # flag spares it the search in batches that remove nothing.
        self.pending[at] = ABSENT
        self._removing = True

    def peek(self, at: Address) -> Any:
        """The stored unit, or `ABSENT`, without remembering anything."""
        unit = self._peek_pending(at)
        if unit is MISS:
            unit = self._known.get(at, MISS)
        if unit is MISS:
            raw = self._store.get(self.row(at))
            unit = ABSENT if raw is None else self._decode(raw)
        return unit

    def _peek_pending(self, at: Address) -> Any:
        """The unit that waits to be written, `ABSENT` if it waits to be removed, else `MISS`."""
        return self.pending.get(at, MISS)

    def _load(self, at: Any) -> Any:
        raw = self._fetched.get(at, MISS)
        if raw is MISS:
            kept = self._kept.get(at)
            if kept is not MISS:
                unit = kept if self._shared or kept is ABSENT else self._decode(kept)
                self._known[at] = unit
                return unit
            if self._prefetching and not self._prefetched:
                self._prefetch()
                # Ends after one more round: a batch prefetches once. The key may be left out of it (too few
                # keys, or one that `start_batch` was not told of) or lie in `_fetched` undecoded.
                unit = self._known.get(at, MISS)
                return unit if unit is not MISS else self._load(at)
            raw = self._store.get(self.row(at))
            self._scope.count_read()
        # Reads of fetched bytes and of single rows count alike: `end_batch` asks how many keys were read at all.
        self._used += 1
        self._grown_by += 1
        if raw is None:
            unit = kept = ABSENT
        else:
            unit, kept = self._decode(raw), raw
            self._grown_size += len(raw)
        if not self._shared:
            self._fresh[at] = kept
        self._known[at] = unit
        return unit

    def _prefetch(self) -> None:
        self._prefetched = True
        young, old = self._kept.young, self._kept.old
        tokens = [token for token in self._scope.distinct() if token not in young and token not in old]
        if len(tokens) < 2:
            return
        # In row order: neighbours lie in the same block, which is then read and decompressed once.
        by_row = dict(zip(self._rows(tokens), tokens, strict=True))
        rows = sorted(by_row)
        tokens = list(map(by_row.__getitem__, rows))
        raws = self._store.get_many(rows)
        # Objects that may be shared are made at once, which is much cheaper; the rest, and a sample that
        # tells whether prefetching pays, when they are asked for.
        lazy = slice(None, None, _SAMPLE if self._shared else 1)
        self._fetched = dict(zip(tokens[lazy], raws[lazy], strict=True))
        if self._shared:
            del tokens[lazy], raws[lazy]
            decode = self._decode
            units = [ABSENT if raw is None else decode(raw) for raw in raws]
            self._known.update(zip(tokens, units, strict=True))
            self._grown_by += len(units)
            self._grown_size += sum([len(raw) for raw in raws if raw is not None])

    def _rows(self, addresses: list[Any]) -> list[bytes]:
        if self._namespaced:
            return [self.row(at) for at in addresses]
        row_of = self._row_of
        rows = list(map(row_of.get, addresses))
        if None in rows:
            unknown = [at for at in addresses if at not in row_of]
            if len(row_of) + len(unknown) > _KNOWN_ROWS:
                # All at once instead of the oldest: bookkeeping per hit would cost more than it saves.
                row_of.clear()
                unknown = addresses
            row_of.update(zip(unknown, self._codec.rows(unknown, self._state), strict=True))
            rows = list(map(row_of.get, addresses))
        return rows  # type: ignore[return-value]  # none is None any more

    def write_back(self) -> None:
        """Serialise each changed unit once."""
        pending = self.pending
        if not pending:
            return
        removed = self._take_removed() if self._removing else []
        addresses = list(pending)
        raws, written = self._encode_pending()
        self._scope.put_rows(dict(zip(self._rows(addresses), raws, strict=True)))
        if not self._shared:
            self._fresh.update(zip(addresses, raws, strict=True))
        self._grown_by += len(raws)
        self._grown_size += sum(map(len, raws))
        self._known.update(written)
        pending.clear()
        for at in removed:
            # A row that is known to be absent needs no tombstone: those cost every later read around them.
            if self._known.get(at, MISS) is not ABSENT and self._kept.get(at) is not ABSENT:
                self._scope.delete(self.row(at))
            self._known[at] = ABSENT
            if not self._shared:
                self._fresh[at] = ABSENT

    def _encode_pending(self) -> tuple[list[bytes], Mapping[Any, Any]]:
        """The bytes of the pending units in their order, and the units by address."""
        return list(map(self._encode, self.pending.values())), self.pending

    def _take_removed(self) -> list[Any]:
        self._removing = False
        removed = [at for at, unit in self.pending.items() if unit is ABSENT]
        for at in removed:
            del self.pending[at]
        return removed

    def end_batch(self) -> None:
        """Decide whether the next batch prefetches: if it pays for one key in four."""
        if self._fetched or (self._used and not self._namespaced):
            # Of shared objects only a sample is watched (`_SAMPLE`), so both sides of the ratio are samples.
            candidates = len(self._fetched) or len(self._scope.distinct())
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
