"""Reading canonical tables: only the row groups of the key groups asked for, every byte of them verified."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash

from tidemark.checkpoint.metadata.model import RowGroup, TableHandle
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import within
from tidemark.checkpoint.storage.mapping import storage_error
from tidemark.errors import StorageError, StorageVerdict
from tidemark.paths import join

__all__ = ["read_schema", "read_table", "verify_table"]


def read_table(
    handle: TableHandle, storage: Storage, directory: str, key_groups: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of these key groups (first and last, both included; None for all), sorted by key group.

    Raises:
        StorageError: The file is missing, truncated or damaged; the message names it.
    """
    first, last = key_groups if key_groups is not None else (0, 1 << 16)
    wanted = [i for i, group in enumerate(handle.row_groups) if group.first <= last and group.last >= first]
    if not wanted:
        return
    import pyarrow.parquet as pq

    with _VerifiedFile(handle, storage, directory) as source:
        try:
            metadata = _metadata(handle, source)
            file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=False)
            for i in wanted:
                group = handle.row_groups[i]
                table = file.read_row_group(i, use_threads=False)
                _check_key_groups(table, group, source.name)
                if group.first < first or group.last > last:
                    table = _only(table, first, last)
                yield from (batch for batch in table.to_batches() if batch.num_rows)
        except (pa.ArrowException, OSError) as exc:
            raise _unreadable(source.name, exc) from exc


def read_schema(handle: TableHandle, storage: Storage, directory: str) -> pa.Schema:
    """Columns of a table that has rows; reads only the footer.

    Raises:
        StorageError: The file is missing, truncated or damaged; the message names it.
    """
    with _VerifiedFile(handle, storage, directory) as source:
        return _metadata(handle, source).schema.to_arrow_schema()


def verify_table(handle: TableHandle, storage: Storage, directory: str) -> None:
    """Check every byte of the table.

    Raises:
        StorageError: Missing, truncated or damaged; the message names the file.
    """
    if not handle.row_groups:
        return
    with _VerifiedFile(handle, storage, directory) as source:
        source.check_all()


def _metadata(handle: TableHandle, source: _VerifiedFile) -> Any:
    """Parquet's own metadata, from the footer alone; it must agree with the handle.

    Left to itself Arrow guesses the footer's length and reads into the last row group.
    """
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + source.footer()))
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as exc:
        raise _unreadable(source.name, exc) from exc
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if rows != [group.rows for group in handle.row_groups]:
        raise _unreadable(source.name, "its row groups are not those the snapshot names")
    if schema.get_field_index("key_group") < 0 or schema.field("key_group").type != pa.uint16():
        raise _unreadable(source.name, "it has no column of key groups")
    return metadata


def _unreadable(name: str, why: Any) -> StorageError:
    # The bytes are those that were written, so a reader is older than its writer, or the writer was not tidemark.
    return StorageError(
        f"{name} cannot be read as a state table: {why}.", path=name, verdict=StorageVerdict.DAMAGED
    )


def _check_key_groups(table: pa.Table, group: RowGroup, name: str) -> None:
    """Rows are found by the handle and filtered by their order, so both must be true of them."""
    groups = _key_groups(table)
    inside = (
        table.column("key_group").null_count == 0 and group.first <= groups[0] <= groups[-1] <= group.last
    )
    if not inside or np.any(groups[1:] < groups[:-1]):
        raise _unreadable(
            name, "its rows are not in the key groups the snapshot names, or not sorted by them"
        )


def _key_groups(table: pa.Table) -> Any:
    return np.concatenate(
        [chunk.to_numpy(zero_copy_only=False) for chunk in table.column("key_group").chunks]
    )


def _only(table: pa.Table, first: int, last: int) -> pa.Table:
    groups = _key_groups(table)
    start = int(np.searchsorted(groups, first, side="left"))
    end = int(np.searchsorted(groups, last, side="right"))
    return table.slice(start, end - start)


class _VerifiedFile(io.RawIOBase):
    """A read-only file of spans (row groups, then the footer), each verified as a whole when first touched.

    Holds the span read last, so memory is bounded by one encoded row group.
    """

    def __init__(self, handle: TableHandle, storage: Storage, directory: str) -> None:
        super().__init__()
        # Closed by the collector even if the real one cannot be opened.
        self._file: BinaryIO = io.BytesIO(handle.inline or b"")
        self._size = handle.file_size
        ends = list(accumulate(group.length for group in handle.row_groups))
        self._starts = [0, *ends]
        self._ends = [*ends, handle.file_size]
        self._checksums = [*(group.checksum for group in handle.row_groups), handle.footer_checksum]
        self._at = 0
        self._cached: tuple[int, memoryview] = (-1, memoryview(b""))
        if handle.inline is not None:
            self.name = f"inline table of state '{handle.meta.name}'"
            actual = len(handle.inline)
        else:
            assert handle.path is not None
            self.name = join(directory, handle.path)
            self._file = within(storage, directory).open(self.name)
            try:
                actual = self._file.seek(0, io.SEEK_END)
            except Exception as exc:
                self.close()
                raise storage_error(exc, "read", self.name) from exc
        if actual != self._size:
            self.close()
            raise StorageError(
                f"{self.name} has {actual} bytes instead of {self._size}: it was truncated or replaced. "
                "Use another checkpoint.",
                path=self.name,
                verdict=StorageVerdict.DAMAGED,
            )

    def check_all(self) -> None:
        for span in range(len(self._starts)):
            self._span(span)

    def footer(self) -> bytes:
        return bytes(self._span(len(self._starts) - 1))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        parts = []
        while self._at < end:
            span = bisect.bisect_right(self._starts, self._at) - 1
            data = self._span(span)
            start = self._at - self._starts[span]
            part = data[start : start + end - self._at]
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def _span(self, span: int) -> memoryview:
        if self._cached[0] == span:
            return self._cached[1]
        length = self._ends[span] - self._starts[span]
        try:
            self._file.seek(self._starts[span])
            data = _read_fully(self._file, length)
        except Exception as exc:
            raise storage_error(exc, "read", self.name) from exc
        if xxhash.xxh3_128_digest(data) != self._checksums[span]:
            raise StorageError(
                f"{self.name} is damaged: bytes {self._starts[span]} to {self._ends[span]} do not match "
                "their checksum. Use another checkpoint.",
                path=self.name,
                verdict=StorageVerdict.DAMAGED,
            )
        self._cached = (span, memoryview(data))
        return self._cached[1]


def _read_fully(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) == length:
        return data
    parts = [data]
    missing = length - len(data)
    while missing and (more := file.read(missing)):
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)
