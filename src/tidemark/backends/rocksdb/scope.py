"""What the tables of one backend share: the store, the current batch, and the one write at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark.backends.rocksdb.keys import KeyCodec, encode_namespace, too_large_list, unit_codec
from tidemark.backends.rocksdb.store import RocksStore, after
from tidemark.errors import StateError

if TYPE_CHECKING:
    from tidemark.state.backend import KeyToken
    from tidemark.state.serializers.base import TypeSerializer

__all__ = ["BatchScope", "RowTable"]

_WRITE_CHUNK: Final = 8192
"""Rows per native write: a larger one would overshoot the write buffer, which each incremental checkpoint flushes."""
_SPILL_AFTER: Final = 100_000
"""Reads that went to the store after which a batch writes back and forgets, to bound its memory."""
_FEW_ROWS: Final = 256


class BatchScope:
    """The current batch of one backend."""

    def __init__(self, store: RocksStore, codec: KeyCodec) -> None:
        self.store = store
        self.codec = codec
        self.tables: list[RowTable] = []
        self.next_segment = 0
        """Number of the next list segment; larger than any in the store."""
        self.bytes_written = 0
        self._tokens: Sequence[KeyToken] | None = None
        self._distinct: list[KeyToken] | None = None
        self._reads = 0
        self._batch: Any = None
        self._rows = 0
        self._most = store.options.max_entry_size
        self.state_numbers: Mapping[str, int] = {}
        """Names of states and their numbers in row keys, for messages."""

    def begin(self, tokens: Sequence[KeyToken] | None) -> None:
        """A batch starts; `tokens` are its keys, with repetitions, if known."""
        # What was written before belongs to another time; tables take their pending writes to be of this one.
        self.write_back()
        self._tokens = tokens
        self._distinct = None

    def end(self) -> None:
        """The batch ends: everything goes to the store and all objects are forgotten."""
        self.write_back()
        for table in self.tables:
            table.end_batch()
            table.forget()
        self._tokens = self._distinct = None
        self._reads = 0

    def distinct(self) -> list[KeyToken]:
        """The keys of the batch, each once; none if they are not known."""
        if self._distinct is None:
            self._distinct = list(dict.fromkeys(self._tokens)) if self._tokens else []
        return self._distinct

    def write_back(self) -> None:
        """Write all pending changes; what was read stays known."""
        for table in self.tables:
            table.write_back()
        self.flush_rows()

    def put(self, row: bytes, raw: bytes) -> None:
        """Add a row to the pending native write.

        Raises:
            StateError: It is larger than an entry may be.
        """
        self._check(row, raw)
        self._writer().put(row, raw)

    def put_rows(self, raws: dict[bytes, bytes]) -> None:
        """Write many rows, each with its value; sorted, which RocksDB inserts twice as fast."""
        rows = sorted(raws)
        self.put_sorted(rows, list(map(raws.__getitem__, rows)))

    def put_sorted(self, rows: list[bytes], raws: list[bytes]) -> None:
        """Like `put_rows`, for rows that are in order already."""
        for start in range(0, len(rows), _WRITE_CHUNK):
            self.flush_rows()
            chunk = list(
                zip(rows[start : start + _WRITE_CHUNK], raws[start : start + _WRITE_CHUNK], strict=True)
            )
            put = self._writer().put
            for row, raw in chunk:
                put(row, raw)
            self._rows = len(chunk)
            if self._batch.size_in_bytes() > self._most:
                # Only then can one of them be too large.
                for row, raw in chunk:
                    self._check(row, raw)

    def _check(self, row: bytes, raw: bytes) -> None:
        if len(raw) <= self._most and len(row) <= self._most:
            return
        # Nothing of the pending write is to be written: the job fails, and is restored.
        self._batch, self._rows = None, 0
        name = self._name(int.from_bytes(row[2:4], "big"))
        what, size = (
            ("key", len(row)) if len(row) > self._most else ("value, or a segment of a list,", len(raw))
        )
        raise StateError(
            f"A {what} of state '{name}' has {size} bytes, but an entry of the RocksDB backend may have {self._most}. "
            "Split it over several keys or map entries, or keep a reference to where it is stored.",
            state_name=name,
        )

    def check_list(self, state_id: int, size: int) -> None:
        """Refuse a list that is too large to be one value.

        Raises:
            StateError: It is.
        """
        if size > self._most:
            raise too_large_list(self._name(state_id), size, self._most)

    def _name(self, state_id: int) -> str:
        found = [name for name, number in self.state_numbers.items() if number == state_id]
        return found[0] if found else str(state_id)

    def delete(self, row: bytes) -> None:
        """Add a deletion to the pending native write."""
        self._writer().delete(row)

    def _writer(self) -> Any:
        if self._rows >= _WRITE_CHUNK:
            self.flush_rows()
        if self._batch is None:
            self._batch = self.store.new_batch()
        self._rows += 1
        return self._batch

    def flush_rows(self) -> None:
        """Hand the pending native write to the store."""
        if self._batch is not None:
            batch, self._batch, self._rows = self._batch, None, 0
            self.bytes_written += batch.size_in_bytes()
            self.store.write(batch)

    def clear_prefix(self, prefix: bytes) -> None:
        """Delete all rows with the prefix, as of the last `flush_rows`."""
        # Range tombstones cost every later read around them, so few rows are deleted one by one.
        rows = self.store.prefixed(prefix, _FEW_ROWS + 1)
        if len(rows) > _FEW_ROWS:
            self._writer().delete_range(prefix, after(prefix))
            return
        for row, _ in rows:
            self.delete(row)

    def count_read(self) -> None:
        """A table went to the store for one address; spills when a batch has grown too large."""
        self._reads += 1
        if self._reads >= _SPILL_AFTER:
            self._reads = 0
            self.write_back()
            for table in self.tables:
                table.forget()


class RowTable:
    """Base of the tables: one state in the store."""

    def __init__(
        self, scope: BatchScope, state_id: int, serializer: TypeSerializer[Any], ttl: bool, namespaced: bool
    ) -> None:
        self.state_id = state_id
        self._scope = scope
        self._store = scope.store
        self._codec = scope.codec
        self._state = state_id.to_bytes(2, "big")
        self._namespaced = namespaced
        self._encode, self._decode = unit_codec(serializer, ttl)

    def row(self, at: Any) -> bytes:
        """Row key of an address, without tail."""
        if self._namespaced:
            group, key = self._codec.place(at[0])
            return group + self._state + key + encode_namespace(at[1])
        group, key = self._codec.place(at)
        return group + self._state + key

    def write_back(self) -> None:
        """Put every pending change into the scope's native write."""
        raise AssertionError("Every table defines how it writes.")

    def end_batch(self) -> None:
        """The batch is over and written; draw conclusions for the next one."""

    def forget(self) -> None:
        """Drop all objects; called when nothing is pending."""
        raise AssertionError("Every table defines what it forgets.")

    def invalidate(self) -> None:
        """Rows changed behind the table; it must not trust what it kept."""
        self.forget()
