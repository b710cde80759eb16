from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.backends.rocksdb.options import RocksDBOptions
from tidemark.backends.rocksdb.store import RocksStore
from tidemark.errors import BackendCorruptedError, BackendError, BackendLockedError


def open_store(path: Path, **rows: bytes) -> RocksStore:
    store = RocksStore(path, RocksDBOptions())
    put(store, **rows)
    return store


def put(store: RocksStore, **rows: bytes) -> None:
    batch = store.new_batch()
    for key, value in rows.items():
        batch.put(key.encode(), value)
    store.write(batch)


def test_rows_are_read_one_by_one_together_and_in_order(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", a=b"1", b1=b"2", b2=b"3", c=b"4")

    assert store.get(b"x") is None
    assert store.get_many([b"a", b"x", b"c"]) == [b"1", None, b"4"]
    assert list(store.scan(b"b", b"c")) == [(b"b1", b"2"), (b"b2", b"3")]
    assert store.prefixed(b"b") == [(b"b1", b"2"), (b"b2", b"3")]
    assert store.prefixed(b"b", 1) == [(b"b1", b"2")]
    store.close()


def test_a_prefix_read_sees_writes_since_the_last_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", b1=b"2")
    store.prefixed(b"b")

    put(store, b2=b"3")
    store.delete_range(b"b1", b"b2")

    assert store.prefixed(b"b") == [(b"b2", b"3")]
    store.close()


def test_frozen_rows_do_not_change(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", a=b"old", b=b"old")

    frozen = store.freeze()
    put(store, a=b"new", c=b"new")
    store.compact()

    assert list(frozen.scan(b"a", b"z")) == [(b"a", b"old"), (b"b", b"old")]
    frozen.release()
    store.close()


def test_the_directory_goes_with_the_last_frozen_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", a=b"1")
    frozen = store.freeze()

    store.close()
    store.close()

    assert list(frozen.scan(b"a", b"b")) == [(b"a", b"1")]
    assert (tmp_path / "db").exists()
    frozen.release()
    frozen.release()
    assert not (tmp_path / "db").exists()


def test_released_rows_cannot_be_read(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", a=b"1")
    frozen = store.freeze()
    frozen.release()

    with pytest.raises(BackendError, match="released"):
        list(frozen.scan(b"a", b"b"))
    store.close()


def test_a_second_opener_is_told_about_the_lock(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db")

    with pytest.raises(BackendLockedError, match="in use") as raised:
        open_store(tmp_path / "db")

    assert raised.value.path == str(tmp_path / "db")
    store.close()


def test_a_damaged_store_is_reported_as_such(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", a=b"1" * 1000)
    store.begin_checkpoint(tmp_path / "copy").result()
    store.close()
    table = next((tmp_path / "copy").glob("*.sst"))
    table.write_bytes(table.read_bytes()[:100])

    with pytest.raises(BackendCorruptedError, match="last checkpoint"):
        open_store(tmp_path / "copy")


def test_using_a_closed_store_is_a_backend_error(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db")
    batch = store.new_batch()
    batch.put(b"a", b"1")
    store.close()

    for use in (
        lambda: store.get(b"a"),
        lambda: store.get_many([b"a"]),
        lambda: store.write(batch),
        lambda: list(store.scan(b"a", b"b")),
        lambda: store.prefixed(b"a"),
        lambda: store.delete_range(b"a", b"b"),
        store.freeze,
        store.compact,
        lambda: store.begin_checkpoint(tmp_path / "copy"),
    ):
        with pytest.raises(BackendError):
            use()


def test_a_store_reports_figures_of_rocksdb(tmp_path: Path) -> None:
    store = open_store(tmp_path / "db", a=b"1")

    figures = store.properties(["estimate-num-keys", "no-such-figure"])

    assert figures == {"estimate-num-keys": 1}
    store.close()
