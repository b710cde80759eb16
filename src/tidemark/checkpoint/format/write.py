"""Writing canonical tables: one Parquet file per state and subtask, sorted by key group.

Row groups end at key-group borders, so that a restore with another parallelism reads only what it needs:
several small key groups share a row group until it has `ROW_GROUP_ROWS`, a huge one is split. Each row
group's bytes have their own checksum (as has the footer), so that what is read is always verified and
what is not read need not be. Memory stays bounded by about one row group of rows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash

from tidemark.checkpoint.metadata.model import RowGroup, TableHandle
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import within
from tidemark.errors import StateError
from tidemark.paths import join, parent
from tidemark.state.snapshot import StateTable

__all__ = ["ROW_GROUP_ROWS", "TableWriter", "write_table"]

ROW_GROUP_ROWS = 16 * 1024
_ROW_GROUP_BYTES = 16 << 20
"""Rows may be large; a row group of fewer rows is cut off once it has this many bytes."""
_HUGE_FACTOR = 8
"""A single key group larger than this many row groups is split over several."""


def write_table(
    table: StateTable,
    storage: Storage,
    directory: str,
    path: str,
    *,
    inline_threshold: int | None = 0,
    compression: bool = False,
    tee: Callable[[BinaryIO], AbstractContextManager[BinaryIO]] = nullcontext,
) -> TableHandle:
    """Write all rows of `table` to `directory/path`, or into the handle if they are few.

    Args:
        table: The frozen rows; consumed once.
        storage: Where the file goes.
        directory: The snapshot's directory.
        path: Name of the file, relative to `directory`.
        inline_threshold: State with fewer bytes than this goes into the handle; None puts all of it there.
        compression: Compress with zstd.
        tee: Wraps the file to also keep a copy of what is written to it.

    Raises:
        StorageError: The file could not be written; nothing is left at the path.
        StateError: The rows cannot be encoded, or are not sorted by key group.
    """
    head: list[pa.RecordBatch] = []
    size = 0
    batches = (batch for batch in table.batches() if batch.num_rows)
    for batch in batches:
        head.append(batch)
        size += _state_bytes(batch)
        if inline_threshold is not None and size >= inline_threshold:
            break
    else:
        if not head:
            return TableHandle(table.meta)
        buffer = io.BytesIO()
        handle = _write_stream(table, buffer, iter(head), compression)
        return _located(handle, inline=buffer.getvalue())

    def rows() -> Iterator[pa.RecordBatch]:
        while head:
            yield head.pop(0)
        yield from batches

    place = within(storage, parent(directory))
    with place.create(join(directory, path)) as durable, tee(durable) as file:
        handle = _write_stream(table, file, rows(), compression)
    return _located(handle, path=path)


def _write_stream(
    table: StateTable, file: BinaryIO, batches: Iterator[pa.RecordBatch], compression: bool
) -> TableHandle:
    with TableWriter(table, file, compression=compression) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.handle()


def _located(handle: TableHandle, *, path: str | None = None, inline: bytes | None = None) -> TableHandle:
    return TableHandle(
        handle.meta,
        handle.rows,
        handle.state_size,
        handle.file_size,
        path,
        inline,
        handle.row_groups,
        handle.footer_checksum,
    )


class TableWriter(AbstractContextManager["TableWriter"]):
    """Writes one table to an open file, batch by batch; `handle` is complete after the block."""

    def __init__(self, table: StateTable, file: BinaryIO, *, compression: bool = False) -> None:
        import pyarrow.parquet as pq

        self._meta = table.meta
        self._sink = _HashingSink(file)
        self._output = pa.PythonFile(self._sink, mode="w")
        self._writer = pq.ParquetWriter(
            self._output,
            table.schema,
            compression="zstd" if compression else "none",
            # Only the key group repeats; for all else a dictionary costs time and gains nothing.
            use_dictionary=["key_group"],
            write_statistics=["key_group"],
            # Keeps Arrow's name of list items, so that what is read has the schema that was written.
            use_compliant_nested_type=False,
        )
        self._groups: list[RowGroup] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._look_again_at = ROW_GROUP_ROWS
        self._last_key_group = -1
        self._rows = 0
        self._state_size = 0
        self._footer_checksum = b""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; their key groups must not be below those of earlier rows."""
        if batch.num_rows == 0:
            return
        self._check_order(batch)
        size = _state_bytes(batch)
        self._rows += batch.num_rows
        self._state_size += size
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += size
        if self._pending_rows >= self._look_again_at or self._pending_bytes >= _ROW_GROUP_BYTES:
            self._flush(last=False)

    def handle(self) -> TableHandle:
        """What finds and verifies the rows again; without a place yet."""
        return TableHandle(
            self._meta,
            rows=self._rows,
            state_size=self._state_size,
            file_size=self._sink.position,
            row_groups=tuple(self._groups),
            footer_checksum=self._footer_checksum,
        )

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        try:
            if exc_type is None:
                self._flush(last=True)
        finally:
            self._writer.close()
            self._output.flush()
        self._footer_checksum = self._sink.take()[1]

    def _check_order(self, batch: pa.RecordBatch) -> None:
        groups = batch.column("key_group").to_numpy(zero_copy_only=False)
        if groups[0] < self._last_key_group or (len(groups) > 1 and bool((groups[1:] < groups[:-1]).any())):
            raise StateError(
                f"The rows of state '{self._meta.name}' are not sorted by key group; its backend is broken.",
                state_name=self._meta.name,
            )
        self._last_key_group = int(groups[-1])

    def _flush(self, *, last: bool) -> None:
        """Write the pending rows that make whole row groups; all of them if no more will come."""
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending)
        groups = np.concatenate([batch.column("key_group").to_numpy() for batch in self._pending])
        limit = self._rows_per_group(table)
        starts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
        # The last key group may go on in the next batch, so it is held back, unless it is huge.
        huge = limit * _HUGE_FACTOR
        end = len(groups) if last else int(starts[-1]) if len(starts) else 0
        if not end and len(groups) >= huge:
            end = len(groups)
        at = 0
        for border in [*(int(start) for start in starts if start <= end), end]:
            while border - at >= huge:
                self._write_group(table, groups, at, at + limit)
                at += limit
            if border - at >= limit or (border == end and last and border > at):
                self._write_group(table, groups, at, border)
                at = border
        self._keep(table, at, limit)

    def _rows_per_group(self, table: pa.Table) -> int:
        per_row = max(self._pending_bytes // table.num_rows, 1)
        return int(max(min(ROW_GROUP_ROWS, _ROW_GROUP_BYTES // per_row), 1))

    def _keep(self, table: pa.Table, at: int, limit: int) -> None:
        rest = table.slice(at)
        self._pending = rest.to_batches()
        self._pending_rows = rest.num_rows
        self._pending_bytes = self._pending_bytes * rest.num_rows // table.num_rows
        # A key group that could not be cut yet is looked at again when as much has come once more.
        self._look_again_at = self._pending_rows + limit if at == 0 else max(limit, self._pending_rows + 1)

    def _write_group(self, table: pa.Table, groups: np.ndarray[Any, Any], start: int, end: int) -> None:
        try:
            self._writer.write_table(table.slice(start, end - start), row_group_size=end - start)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as exc:
            raise StateError(
                f"State '{self._meta.name}' cannot be written as Parquet: {exc}.", state_name=self._meta.name
            ) from exc
        self._output.flush()
        length, checksum = self._sink.take()
        self._groups.append(RowGroup(int(groups[start]), int(groups[end - 1]), end - start, length, checksum))


class _HashingSink:
    """File object for Arrow that passes bytes on and hashes them, span by span."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128()
        self._taken = 0
        self.position = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._file.write(data)
        self.position += len(data)
        return len(data)

    def take(self) -> tuple[int, bytes]:
        """Length and checksum of what was written since the last call."""
        length = self.position - self._taken
        digest = self._hash.digest()
        self._hash.reset()
        self._taken = self.position
        return length, digest

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """The file belongs to the caller."""
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return not self.closed

    def seekable(self) -> bool:
        return False


def _state_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of keys, namespaces and values: what the size limits and the inline threshold count."""
    return sum(batch.column(i).nbytes for i, name in enumerate(batch.schema.names) if name != "key_group")
