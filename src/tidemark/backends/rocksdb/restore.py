"""Filling a store: from canonical rows, from native files, and with new serializers (migration).

Restoring moves bytes. Typed columns are encoded as they were, without the classes of the user; whether the
values suit the new job is decided when it registers the state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.backends.registration import StateMigration
from tidemark.backends.rocksdb.columns import CarriedSerializer, bytes_from_arrow, key_bytes_from_arrow
from tidemark.backends.rocksdb.cut import NativeExtra
from tidemark.backends.rocksdb.keys import (
    STAMP_WIDTH,
    KeyCodec,
    decode_segment,
    encode_segment,
    key_group_prefix,
    state_prefix,
)
from tidemark.backends.rocksdb.options import RocksDBOptions
from tidemark.backends.rocksdb.store import RocksStore, Row, after
from tidemark.errors import RestoreError, StateMigrationException
from tidemark.state.canonical import StateSerializers
from tidemark.state.descriptors import StateKind
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.carrier import carrying_serializer
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state.snapshot import StateMeta

__all__ = [
    "RowWriter",
    "column_types",
    "copy_rows",
    "link_files",
    "must_rewrite",
    "restored_serializers",
    "rewrite_values",
    "table_rows",
]

_CHUNK = 8192
_NAMESPACE_BIAS = np.uint64(1 << 63)


class RowWriter:
    """Writes many rows in chunks that suit the write buffer."""

    def __init__(self, store: RocksStore) -> None:
        self._store = store
        self._batch = store.new_batch()
        self._rows = 0

    def put(self, row: bytes, raw: bytes) -> None:
        """Add one row."""
        self._batch.put(row, raw)
        self._count()

    def delete(self, row: bytes) -> None:
        """Add the deletion of one row."""
        self._batch.delete(row)
        self._count()

    def _count(self) -> None:
        self._rows += 1
        if self._rows >= _CHUNK:
            self.finish()

    def finish(self) -> None:
        """Write what has been added."""
        batch, self._batch, self._rows = self._batch, self._store.new_batch(), 0
        self._store.write(batch)


def restored_serializers(
    meta: StateMeta, key: TypeSerializer[Any], column_type: Callable[[str], pa.DataType]
) -> StateSerializers:
    """Serializers with the bytes and columns of those a restored state was written with.

    Args:
        meta: The restored state.
        key: The serializer of keys, which never changes.
        column_type: Arrow type of the column `value` (of its elements, for a list) or `map_key`.
    """
    map_key = None if meta.map_key is None else _restored(meta.map_key, "map_key", column_type)
    return StateSerializers(key, _restored(meta.value, "value", column_type), map_key)


def _restored(snapshot: bytes, column: str, column_type: Callable[[str], pa.DataType]) -> TypeSerializer[Any]:
    try:
        return carrying_serializer(load_serializer_snapshot(snapshot))
    except StateMigrationException:
        # Told to whoever registers the state; until then it travels as it is.
        return CarriedSerializer(column_type(column))


def column_types(meta: StateMeta, schema: pa.Schema) -> Callable[[str], pa.DataType]:
    """The types `restored_serializers` asks for, as a canonical table has them."""

    def column_type(column: str) -> pa.DataType:
        found = schema.field(column).type
        return found.value_type if column == "value" and meta.kind is StateKind.LIST else found

    return column_type


def table_rows(
    meta: StateMeta,
    serializers: StateSerializers,
    batch: pa.RecordBatch,
    state_id: int,
    codec: KeyCodec,
    next_segment: Callable[[], int],
) -> Iterable[Row]:
    """Rows of one canonical batch."""
    assert serializers.value is not None
    prefixes = _prefixes(meta, serializers.key, batch, state_id, codec)
    column = batch.column("value")
    if meta.kind is StateKind.LIST:
        lists = _lists(meta, serializers.value, batch)
        return [
            (prefix + next_segment().to_bytes(8, "big"), encode_segment(units))
            for prefix, units in zip(prefixes, lists, strict=True)
        ]
    if serializers.map_key is not None:
        map_keys = batch.column("map_key")
        tails = key_bytes_from_arrow(serializers.map_key, map_keys)
        prefixes = [prefix + tail for prefix, tail in zip(prefixes, tails, strict=True)]
    raws = bytes_from_arrow(serializers.value, column)
    if meta.ttl:
        raws = [
            stamp + raw for stamp, raw in zip(_big_endian(batch.column("last_access")), raws, strict=True)
        ]
    return zip(prefixes, raws, strict=True)


def _big_endian(column: pa.Array, bias: np.uint64 | None = None) -> list[bytes]:
    """Eight bytes for each int64, in big-endian order; with a bias they sort like the numbers."""
    words = column.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    if bias is not None:
        words = words ^ bias
    data = words.astype(">u8").tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def _prefixes(
    meta: StateMeta, key: TypeSerializer[Any], batch: pa.RecordBatch, state_id: int, codec: KeyCodec
) -> list[bytes]:
    groups = batch.column("key_group").to_numpy(zero_copy_only=False).astype(">u2").tobytes()
    state = state_id.to_bytes(2, "big")
    part = codec.key_part
    prefixes = [
        groups[2 * index : 2 * index + 2] + state + part(raw)
        for index, raw in enumerate(key_bytes_from_arrow(key, batch.column("key")))
    ]
    for name in meta.namespace.columns:
        numbers = _big_endian(batch.column(name), _NAMESPACE_BIAS)
        prefixes = [prefix + number for prefix, number in zip(prefixes, numbers, strict=True)]
    return prefixes


def _lists(meta: StateMeta, value: TypeSerializer[Any], batch: pa.RecordBatch) -> list[list[bytes]]:
    column = batch.column("value")
    flat = bytes_from_arrow(value, column.flatten())
    if meta.ttl:
        stamps = _big_endian(batch.column("last_access").flatten())
        flat = [stamp + raw for stamp, raw in zip(stamps, flat, strict=True)]
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    return [flat[start:end] for start, end in zip([0, *ends][:-1], ends, strict=True)]


def link_files(files: Mapping[str, Path], extra: NativeExtra, directory: Path) -> None:
    """Lay the files of a native cut out as a database directory, without touching the originals.

    Raises:
        RestoreError: A file is missing.
    """
    directory.mkdir(parents=True)
    for published, local in extra.files.items():
        source = files.get(published)
        if source is None or not source.exists():
            raise RestoreError(
                f"The native RocksDB snapshot lacks its file {published}. Restore from another checkpoint.",
                path=str(source) if source is not None else None,
            )
        target = directory / local
        if local.endswith(".sst"):
            # RocksDB never changes a table file, so a link will do where the file system allows it.
            try:
                os.link(source, target)
                continue
            except OSError:
                pass
        shutil.copyfile(source, target)


def copy_rows(
    files: Mapping[str, Path],
    extra: NativeExtra,
    scratch: Path,
    options: RocksDBOptions,
    target: RocksStore,
    ids: Mapping[str, int],
    key_groups: tuple[int, int],
) -> None:
    """Copy the rows of `key_groups` from a native cut into `target`, giving states their number there."""
    link_files(files, extra, scratch)
    source = RocksStore(scratch, options)
    try:
        writer = RowWriter(target)
        numbers = {
            extra.states[name].to_bytes(2, "big"): ids[name].to_bytes(2, "big") for name in extra.states
        }
        first = max(key_groups[0], extra.key_groups[0])
        last = min(key_groups[1], extra.key_groups[1])
        if first <= last:
            for row, raw in source.scan(key_group_prefix(first), key_group_prefix(last + 1)):
                writer.put(row[:2] + numbers[row[2:4]] + row[4:], raw)
        writer.finish()
    finally:
        source.close()


def rewrite_values(
    store: RocksStore,
    state_id: int,
    key_groups: tuple[int, int],
    meta: StateMeta,
    written: StateSerializers,
    migration: StateMigration,
    codec: KeyCodec,
) -> None:
    """Read every value of a state as it was written and write it as `migration` says."""
    change = _value_change(written.value, migration, meta.ttl)
    move = _row_change(meta, written.map_key, migration, codec)
    is_list = meta.kind is StateKind.LIST
    frozen = store.freeze()
    writer = RowWriter(store)
    try:
        for group in range(key_groups[0], key_groups[1] + 1):
            prefix = state_prefix(group, state_id)
            for row, raw in frozen.scan(prefix, after(prefix)):
                new_raw = encode_segment(map(change, decode_segment(raw))) if is_list else change(raw)
                new_row = row if move is None else move(row)
                if new_row != row:
                    writer.delete(row)
                writer.put(new_row, new_raw)
        writer.finish()
    finally:
        frozen.release()


def must_rewrite(written: StateSerializers, migration: StateMigration) -> bool:
    """Whether the rows of a restored state are not what the serializers of `migration` read."""
    return migration.rewrite or _is_packed(written.value) or _is_packed(written.map_key)


def _is_packed(serializer: TypeSerializer[Any] | None) -> bool:
    return isinstance(serializer, CarriedSerializer) and serializer.column_type != pa.binary()


def _reader(written: TypeSerializer[Any] | None, old: TypeSerializer[Any]) -> Callable[[bytes], Any]:
    """How to read what was restored: also values packed because their class was not known yet."""
    if not isinstance(written, CarriedSerializer) or written.column_type == pa.binary():
        return old.from_bytes
    unpack = written.unpack
    return lambda raw: old.from_arrow(unpack([raw]))[0]


def _value_change(
    written: TypeSerializer[Any] | None, migration: StateMigration, ttl: bool
) -> Callable[[bytes], bytes]:
    read, convert = _reader(written, migration.old), migration.convert
    to_bytes = migration.spec.value.to_bytes
    skip = STAMP_WIDTH if ttl else 0

    def change(raw: bytes) -> bytes:
        value = read(raw[skip:])
        return raw[:skip] + to_bytes(value if convert is None else convert(value))

    return change


def _row_change(
    meta: StateMeta, written: TypeSerializer[Any] | None, migration: StateMigration, codec: KeyCodec
) -> Callable[[bytes], bytes] | None:
    map_key = migration.spec.map_key
    if map_key is None or not _is_packed(written):
        return None
    read, key_bytes = _reader(written, map_key), map_key.key_bytes
    width = 8 * len(meta.namespace.columns)

    def move(row: bytes) -> bytes:
        at = codec.split(row)[1] + width
        return row[:at] + key_bytes(read(row[at:]))

    return move
