from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from tests.unit.checkpoint.tables import FakeTable, rows_in, rows_of

from tidemark.checkpoint.format import read_table, verify_table, write_table
from tidemark.checkpoint.format.write import ROW_GROUP_ROWS
from tidemark.checkpoint.metadata.model import RowGroup, TableHandle
from tidemark.checkpoint.storage import FileSystemStorage, MemoryStorage
from tidemark.errors import StateError, StorageError, StorageVerdict

DIRECTORY = "job/chk-1"


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.mark.parametrize("batch_rows", [7, 1000, 100_000])
@pytest.mark.parametrize("compression", [False, True])
def test_rows_survive_whatever_the_batches(
    storage: MemoryStorage, batch_rows: int, compression: bool
) -> None:
    rows = rows_in(range(5, 40), 700)

    handle = write_table(
        FakeTable(rows, batch_rows=batch_rows), storage, DIRECTORY, "a.parquet", compression=compression
    )

    assert rows_of(read_table(handle, storage, DIRECTORY)) == rows
    assert handle.rows == len(rows)
    assert handle.state_size == 16 * len(rows)
    assert handle.file_size == storage.size("job/chk-1/a.parquet")


def test_row_groups_end_at_key_group_borders(storage: MemoryStorage) -> None:
    handle = write_table(FakeTable(rows_in(range(64), 1000)), storage, DIRECTORY, "a.parquet")

    groups = handle.row_groups
    assert all(a.last < b.first for a, b in pairwise(groups))
    assert all(group.rows >= ROW_GROUP_ROWS for group in groups[:-1])
    assert max(group.rows for group in groups) < 2 * ROW_GROUP_ROWS


def test_a_huge_key_group_is_split_over_row_groups(storage: MemoryStorage) -> None:
    rows = rows_in(range(3, 4), 200_000)

    handle = write_table(FakeTable(rows, batch_rows=50_000), storage, DIRECTORY, "a.parquet")

    assert len(handle.row_groups) > 1
    assert {(group.first, group.last) for group in handle.row_groups} == {(3, 3)}
    assert rows_of(read_table(handle, storage, DIRECTORY, (3, 3))) == rows


def test_only_rows_of_the_wanted_key_groups_are_read(storage: MemoryStorage) -> None:
    rows = rows_in(range(128), 300)
    handle = write_table(FakeTable(rows), storage, DIRECTORY, "a.parquet")

    found = rows_of(read_table(handle, storage, DIRECTORY, (43, 85)))

    assert found == [row for row in rows if 43 <= row[0] <= 85]
    assert rows_of(read_table(handle, storage, DIRECTORY, (200, 300))) == []


def test_unwanted_row_groups_are_not_even_fetched(storage: MemoryStorage) -> None:
    rows = rows_in(range(64), 1000)
    handle = write_table(FakeTable(rows), storage, DIRECTORY, "a.parquet")
    data = bytearray(storage.read("job/chk-1/a.parquet"))
    data[sum(group.length for group in handle.row_groups[:-1]) + 100] ^= 1
    storage.write("job/chk-1/a.parquet", bytes(data))
    first = handle.row_groups[0]

    assert len(rows_of(read_table(handle, storage, DIRECTORY, (first.first, first.last)))) == first.rows
    with pytest.raises(StorageError, match=r"a\.parquet is damaged"):
        rows_of(read_table(handle, storage, DIRECTORY))


@pytest.mark.parametrize("claimed", [(0, 1), (5, 9), (4, 8)])
def test_rows_in_other_key_groups_than_the_handle_says_are_refused(
    storage: MemoryStorage, claimed: tuple[int, int]
) -> None:
    handle = write_table(FakeTable(rows_in(range(4, 10), 3)), storage, DIRECTORY, "a.parquet")
    (group,) = handle.row_groups
    lying = replace(handle, row_groups=(group._replace(first=claimed[0], last=claimed[1]),))

    with pytest.raises(StorageError, match="not in the key groups") as refusal:
        rows_of(read_table(lying, storage, DIRECTORY))
    assert refusal.value.verdict is StorageVerdict.DAMAGED


def test_rows_that_are_not_sorted_are_refused(storage: MemoryStorage) -> None:
    rows = pa.table({"key_group": pa.array([1, 3, 2], pa.uint16()), "key": [1, 2, 3], "value": [1, 2, 3]})
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    data = buffer.getvalue()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    spans = [xxhash.xxh3_128_digest(part) for part in (data[:-footer], data[-footer:])]
    group = RowGroup(1, 3, 3, len(data) - footer, spans[0])
    meta = FakeTable([]).meta
    handle = TableHandle(meta, 3, 24, len(data), None, data, (group,), spans[1])

    with pytest.raises(StorageError, match="not sorted"):
        rows_of(read_table(handle, storage, DIRECTORY))


def test_state_below_the_threshold_lives_in_the_handle(storage: MemoryStorage) -> None:
    rows = rows_in(range(2), 10)

    handle = write_table(FakeTable(rows), storage, DIRECTORY, "a.parquet", inline_threshold=16 * 20 + 1)

    assert handle.path is None
    assert handle.inline is not None
    assert storage.list("job") == []
    assert rows_of(read_table(handle, storage, DIRECTORY, (1, 1))) == rows[10:]


def test_state_of_the_size_of_the_threshold_gets_a_file(storage: MemoryStorage) -> None:
    handle = write_table(
        FakeTable(rows_in(range(2), 10)), storage, DIRECTORY, "a.parquet", inline_threshold=16 * 20
    )

    assert handle.path == "a.parquet"
    assert handle.inline is None


def test_a_state_without_rows_needs_no_bytes(storage: MemoryStorage) -> None:
    handle = write_table(FakeTable([]), storage, DIRECTORY, "a.parquet")

    assert handle.path is None
    assert handle.rows == 0
    assert rows_of(read_table(handle, storage, DIRECTORY)) == []
    verify_table(handle, storage, DIRECTORY)


@pytest.mark.parametrize("where", [0, 5, 5000, -1, -20])
def test_a_flipped_bit_anywhere_is_found(storage: MemoryStorage, where: int) -> None:
    handle = write_table(FakeTable(rows_in(range(20), 500)), storage, DIRECTORY, "a.parquet")
    data = bytearray(storage.read("job/chk-1/a.parquet"))
    data[where] ^= 0x10
    storage.write("job/chk-1/a.parquet", bytes(data))

    with pytest.raises(StorageError, match=r"job/chk-1/a\.parquet"):
        verify_table(handle, storage, DIRECTORY)
    with pytest.raises(StorageError, match=r"job/chk-1/a\.parquet"):
        rows_of(read_table(handle, storage, DIRECTORY))


def test_a_truncated_file_is_found(storage: MemoryStorage) -> None:
    handle = write_table(FakeTable(rows_in(range(20), 500)), storage, DIRECTORY, "a.parquet")
    storage.write("job/chk-1/a.parquet", storage.read("job/chk-1/a.parquet")[:-10])

    with pytest.raises(StorageError, match="truncated") as caught:
        rows_of(read_table(handle, storage, DIRECTORY))

    assert caught.value.path == "job/chk-1/a.parquet"


def test_a_missing_file_is_named(storage: MemoryStorage) -> None:
    handle = write_table(FakeTable(rows_in(range(20), 500)), storage, DIRECTORY, "a.parquet")
    storage.delete("job/chk-1/a.parquet")

    with pytest.raises(StorageError, match=r"a\.parquet"):
        rows_of(read_table(handle, storage, DIRECTORY))


@pytest.mark.parametrize("batch_rows", [1, 10])
def test_rows_out_of_order_are_refused_and_nothing_is_left(storage: MemoryStorage, batch_rows: int) -> None:
    table = FakeTable([(2, 1, 1), (1, 2, 2)], batch_rows=batch_rows)

    with pytest.raises(StateError, match="'count' are not sorted"):
        write_table(table, storage, DIRECTORY, "a.parquet")

    assert storage.list("job") == []


def test_a_table_file_is_plain_parquet(tmp_path: Path) -> None:
    write_table(FakeTable(rows_in(range(3), 2)), FileSystemStorage(), str(tmp_path), "a.parquet")

    table = pq.read_table(tmp_path / "a.parquet")

    assert table.column_names == ["key_group", "key", "value"]
    assert table.column("value").to_pylist() == [0, 1, 0, 1, 0, 1]


def test_nested_and_variable_columns_keep_their_schema(storage: MemoryStorage) -> None:
    class Nested(FakeTable):
        @property
        def schema(self) -> pa.Schema:
            return pa.schema(
                [
                    ("key_group", pa.uint16()),
                    ("key", pa.string()),
                    ("value", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.binary())]))),
                ]
            )

        def batches(self):
            values = [[{"a": 1, "b": b"x"}, None], None, []]
            yield pa.record_batch(
                [
                    pa.array([0, 0, 9], pa.uint16()),
                    ["k", "", "ü"],
                    pa.array(values, self.schema.field(2).type),
                ],
                schema=self.schema,
            )

    handle = write_table(Nested([]), storage, DIRECTORY, "a.parquet")
    (batch,) = read_table(handle, storage, DIRECTORY)

    assert batch.schema.equals(Nested([]).schema)
    assert batch.column(2).to_pylist() == [[{"a": 1, "b": b"x"}, None], None, []]
