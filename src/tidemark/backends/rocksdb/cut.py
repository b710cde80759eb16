"""Snapshots of a RocksDB store: native files for incremental checkpoints, canonical tables for the rest.

A native cut is a directory of hard links to the files of the database, made behind the barrier with the rows that
were there at it (`held_writes`). RocksDB numbers its files per
database, so two databases that grew from one checkpoint use the same number for different content. A file
is therefore published under `<database id>-<file>`; a database opened from restored files remembers the
published names it inherited, and later cuts name those files as before. Names of the small files that
change between cuts also carry the number of the cut.

A canonical cut is an open RocksDB iterator per state, which costs microseconds at the barrier; the rows are
read and turned into Arrow in the thread that writes the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemark.backends.descriptions import read_description
from tidemark.backends.rocksdb.columns import bytes_to_arrow
from tidemark.backends.rocksdb.keys import (
    STAMP_WIDTH,
    KeyCodec,
    decode_namespace,
    decode_segment,
    state_prefix,
    too_large_list,
)
from tidemark.backends.rocksdb.store import FrozenRows, Row, after
from tidemark.safe_names import plain_name
from tidemark.state.canonical import MAX_BATCH_ROWS, StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.expiry import Living
from tidemark.state.key_groups import MAX_KEY_GROUPS
from tidemark.state.snapshot import NativeCut, StateMeta, StateTable, state_schema

__all__ = ["KIND", "FileNames", "NativeExtra", "RocksCut", "RowStateTable", "stamp_of"]

KIND: Final = "rocksdb"
_FORMAT: Final = 1
_MAX_BATCH_BYTES: Final = 32 << 20
_CHUNK: Final = 128
_STATES: Final = range(1 << 16)
_SEGMENTS: Final = range(1 << 63)


@dataclass(frozen=True, slots=True)
class NativeExtra:
    """What a native cut must remember besides its files."""

    files: dict[str, str]
    """Published name -> name inside the database directory."""
    states: dict[str, int]
    """State name -> number in row keys."""
    key_groups: tuple[int, int]
    next_segment: int
    carried: dict[str, str]
    """`<column>:<state name>` -> column type, for states whose serializer class is gone."""

    def to_bytes(self) -> bytes:
        """Versioned JSON."""
        fields = {
            "format": _FORMAT,
            "files": self.files,
            "states": self.states,
            "key_groups": list(self.key_groups),
            "next_segment": self.next_segment,
            "carried": self.carried,
        }
        return json.dumps(fields).encode()

    @staticmethod
    def from_bytes(data: bytes) -> NativeExtra:
        """Inverse of `to_bytes`.

        Raises:
            RestoreError: The bytes are of a newer format or damaged.
        """

        def parse(fields: Any) -> NativeExtra:
            return NativeExtra(
                _checked_files(fields["files"]),
                {str(name): _checked(number, _STATES) for name, number in fields["states"].items()},
                _checked_groups(*fields["key_groups"]),
                _checked(fields["next_segment"], _SEGMENTS),
                {str(column): str(kind) for column, kind in fields["carried"].items()},
            )

        return read_description(data, _FORMAT, "a native RocksDB snapshot", parse)


def _checked_files(files: dict[str, str]) -> dict[str, str]:
    """Both names of each file become paths: one among fetched files, one in the database directory."""
    return {plain_name(published): plain_name(local) for published, local in files.items()}


def _checked_groups(first: Any, last: Any) -> tuple[int, int]:
    groups = range(MAX_KEY_GROUPS)
    return _checked(first, groups), _checked(last, groups)


def _checked(value: Any, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise ValueError(f"{value!r} is not in [{allowed.start}, {allowed.stop})")
    return value


class FileNames:
    """Published names of the files of one database."""

    def __init__(self, database_id: str) -> None:
        self._id = database_id
        self._inherited: dict[str, str] = {}

    def inherit(self, published: str, local: str) -> None:
        """An immutable file came from a restored cut and keeps its name."""
        self._inherited[local] = published

    def publish(self, cut: int, local_names: Iterable[str]) -> tuple[dict[str, str], frozenset[str]]:
        """Published name -> local name for a cut by its number, and which of them are shared."""
        files: dict[str, str] = {}
        shared = set()
        for local in sorted(local_names):
            if local.endswith(".sst"):
                published = self._inherited.get(local, f"{self._id}-{local}")
                shared.add(published)
            else:
                published = f"{self._id}-{cut}-{local}"
            files[published] = local
        return files, frozenset(shared)


class RowStateTable:
    """Canonical rows of one state, read from frozen rows of the store."""

    def __init__(
        self,
        meta: StateMeta,
        serializers: StateSerializers,
        rows: FrozenRows,
        state_id: int,
        codec: KeyCodec,
        key_groups: tuple[int, int],
        living: Living | None,
        max_entry_size: int,
    ) -> None:
        """Remember what to read.

        Args:
            meta: Which state.
            serializers: Those its rows are written with.
            rows: The store at the cut, for this table alone.
            state_id: The state's number in row keys.
            codec: Splits row keys.
            key_groups: First and last key group.
            living: The units to write; None writes all.
            max_entry_size: Bytes that a list may have.
        """
        self.meta = meta
        self._max_entry_size = max_entry_size
        self.schema = state_schema(meta, serializers.key, serializers.value, serializers.map_key)
        self._serializers = serializers
        self._rows = rows
        self._state_id = state_id
        self._codec = codec
        self._key_groups = key_groups
        self._living = living

    def release(self) -> None:
        """Drop the frozen rows."""
        self._rows.release()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, sorted by key group; bounded in rows and bytes."""
        pending: list[Row] = []
        size = 0
        for group in range(self._key_groups[0], self._key_groups[1] + 1):
            started = len(pending)
            prefix = state_prefix(group, self._state_id)
            rows = self._rows.scan(prefix, after(prefix))
            while chunk := list(islice(rows, _CHUNK)):
                weight = sum([len(raw) for _, raw in chunk])
                if len(pending) + len(chunk) > MAX_BATCH_ROWS or size + weight > _MAX_BATCH_BYTES:
                    border = self._border(pending, chunk, started)
                    yield from self._batch(pending[:border])
                    del pending[:border]
                    started = 0
                    size = sum([len(raw) for _, raw in pending])
                pending += chunk
                size += weight
        yield from self._batch(pending)

    def _border(self, pending: list[Row], chunk: list[Row], started: int) -> int:
        """Where to cut `pending`: where the current key group began, else between two addresses."""
        border = started or len(pending)
        if self.meta.kind is StateKind.LIST and not started:
            address = chunk[0][0][:-8]
            while border and pending[border - 1][0][:-8] == address:
                border -= 1
        return border

    def _batch(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        if self._living is not None and self.meta.kind is not StateKind.LIST:
            alive = self._living.alive
            rows = [row for row in rows if alive(stamp_of(row[1]))]
        columns = self._list_columns(rows) if self.meta.kind is StateKind.LIST else self._columns(rows)
        if not len(columns[0]):
            return
        if any(isinstance(column, pa.ChunkedArray) for column in columns):
            # A column beyond 2 GiB, which one Arrow array cannot hold.
            half = len(rows) // 2
            yield from self._batch(rows[:half])
            yield from self._batch(rows[half:])
            return
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _columns(self, rows: list[Row]) -> list[Any]:
        if not rows:
            return [[]]
        assert self._serializers.value is not None
        row_keys = [row for row, _ in rows]
        columns, tails = self._head_columns(row_keys)
        map_key = self._serializers.map_key
        if map_key is not None:
            tokens = [row[at:] for row, at in zip(row_keys, tails, strict=True)]
            columns.append(bytes_to_arrow(map_key, tokens))
        raws = [raw for _, raw in rows]
        if not self.meta.ttl:
            return [*columns, bytes_to_arrow(self._serializers.value, raws)]
        stamps = np.frombuffer(b"".join([raw[:STAMP_WIDTH] for raw in raws]), dtype=">i8").astype(np.int64)
        values = bytes_to_arrow(self._serializers.value, [raw[STAMP_WIDTH:] for raw in raws])
        return [*columns, values, pa.array(stamps)]

    def _head_columns(self, row_keys: list[bytes]) -> tuple[list[Any], Iterable[int]]:
        """Columns key_group, key and namespace; and where the tail of each row key begins."""
        groups = np.frombuffer(b"".join([row[:2] for row in row_keys]), dtype=">u2").astype(np.uint16)
        keys, ends = self._codec.split_all(row_keys)
        columns = [pa.array(groups), bytes_to_arrow(self._serializers.key, keys)]
        kind = self.meta.namespace
        if not kind.columns:
            return columns, ends
        spaces = [decode_namespace(kind, row, at) for row, at in zip(row_keys, ends, strict=True)]
        columns += [pa.array(part, pa.int64()) for part in zip(*spaces, strict=True)]
        width = 8 * len(kind.columns)
        return columns, [at + width for at in ends]

    def _list_columns(self, rows: list[Row]) -> list[Any]:
        assert self._serializers.value is not None
        row_keys: list[bytes] = []
        lists: list[list[bytes]] = []
        for address, segments in groupby(rows, key=lambda row: row[0][:-8]):
            units = [unit for _, segment in segments for unit in decode_segment(segment)]
            if self._living is not None:
                units = [unit for unit in units if self._living.alive(stamp_of(unit))]
            if (size := sum(map(len, units))) > self._max_entry_size:
                raise too_large_list(self.meta.name, size, self._max_entry_size)
            if units:
                row_keys.append(address)
                lists.append(units)
        if not lists:
            return [[]]
        heads, _ = self._head_columns(row_keys)
        offsets = np.zeros(len(lists) + 1, np.int32)
        np.cumsum([len(units) for units in lists], out=offsets[1:])
        flat = [unit for units in lists for unit in units]
        stamps = None
        if self.meta.ttl:
            stamps = np.frombuffer(b"".join([unit[:STAMP_WIDTH] for unit in flat]), dtype=">i8")
            flat = [unit[STAMP_WIDTH:] for unit in flat]
        values = bytes_to_arrow(self._serializers.value, flat)
        borders = pa.array(offsets)
        columns = [*heads, pa.ListArray.from_arrays(borders, values, type=self.schema.field("value").type)]
        if stamps is not None:
            columns.append(pa.ListArray.from_arrays(borders, pa.array(stamps.astype(np.int64))))
        return columns


def stamp_of(raw: bytes) -> int:
    """Time of last access in front of a stored unit."""
    return int.from_bytes(raw[:STAMP_WIDTH], "big", signed=True)


class RocksCut:
    """Frozen keyed state of one operator subtask."""

    def __init__(
        self,
        metas: Sequence[StateMeta],
        tables: Callable[[], Sequence[StateTable]],
        release: Callable[[], None],
        native: Callable[[], NativeCut] | None = None,
    ) -> None:
        self.metas = metas
        self._link = native
        self._native: NativeCut | None = None
        self._tables = tables
        self._release = release

    @property
    def native(self) -> NativeCut | None:
        """The files, None for a canonical cut. Waits until they are frozen.

        Raises:
            BackendError: They could not be.
        """
        if self._native is None and self._link is not None:
            self._native = self._link()
        return self._native

    def tables(self) -> Sequence[StateTable]:
        """Canonical tables of all states; empty for a native cut."""
        return self._tables()

    def release(self) -> None:
        """Drop the frozen view or the linked files. Any thread, any number of times."""
        self._release()
