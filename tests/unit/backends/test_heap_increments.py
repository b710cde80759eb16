"""What incremental checkpoints of the heap write, how long their chains get, and what they refuse to restore."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.chained_heap import write_files

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.errors import RestoreError
from tidemark.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from tidemark.state.snapshot import Increment, NativeCut
from tidemark.testing.backend_driver import BackendDriver, as_key
from tidemark.types.typeinfo import Types

KEYS = 100


class Checkpoints:
    """A backend with a value and a map state, and its checkpoints, each of which completes."""

    def __init__(self, driver: BackendDriver, directory: Path) -> None:
        self.driver = driver
        self.backend = driver.open()
        self.value: Any = self.backend.state(ValueStateDescriptor("v", Types.LONG()))
        self.map: Any = self.backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
        self.files: dict[str, Path] = {}
        self.directory = directory
        self.number = 0
        for key in range(KEYS):
            self.put(key, key)
            with as_key(self.backend, key):
                self.map.put("a", key)

    def put(self, key: int, value: int | None) -> None:
        with as_key(self.backend, key):
            self.value.update(value)

    def take(self, base: int | None = None) -> dict[str, int]:
        """Rows of the files that a checkpoint adds, by state."""
        before = set(self.files)
        self.number += 1
        base = self.number - 1 if base is None else base
        cut = self.backend.cut(incremental=Increment(self.number, base or None))
        self.files = write_files(cut, self.files, self.directory)
        cut.release()
        assert cut.native is not None
        self.native, self.metas = cut.native, list(cut.metas)
        self.backend.notify_checkpoint_complete(self.number)
        added = {}
        for state in [meta.name for meta in cut.metas]:
            for name in self.names(state):
                if name not in before:
                    added[state] = pq.read_metadata(self.files[name]).num_rows
        return added

    def names(self, state: str) -> list[str]:
        names: list[str] = json.loads(self.native.extra)["chains"][state]
        return names

    def restore(self, backend: Any) -> None:
        backend.restore_native(self.native.kind, self.files, self.native.extra, self.metas)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[Checkpoints]:
    driver = BackendDriver(HeapKeyedStateBackend, tmp_path)
    yield Checkpoints(driver, tmp_path / "files")
    driver.close()


def test_a_checkpoint_writes_what_changed_since_the_last_one(checkpoints: Checkpoints) -> None:
    assert checkpoints.take() == {"v": KEYS, "m": KEYS}

    checkpoints.put(1, 10)
    checkpoints.put(2, None)
    checkpoints.put(999, 1)
    assert checkpoints.take() == {"v": 3}
    assert checkpoints.take() == {}
    with as_key(checkpoints.backend, 5):
        checkpoints.map.put("b", 1)
    assert checkpoints.take() == {"m": 2}, "all entries of a map that changed"
    assert checkpoints.backend.num_entries("v") == KEYS
    assert checkpoints.backend.known_entries("v") == KEYS


def test_a_checkpoint_based_on_none_writes_everything(checkpoints: Checkpoints) -> None:
    checkpoints.take()
    checkpoints.put(1, 10)

    checkpoints.number += 1
    assert checkpoints.take() == {"v": KEYS, "m": KEYS}, "its base is not known here"


def test_a_chain_is_begun_anew_when_it_is_long_or_heavy(checkpoints: Checkpoints) -> None:
    checkpoints.backend._chains.most = 3  # type: ignore[attr-defined]
    sizes = []
    for number in range(9):
        checkpoints.put(number, -1)
        sizes.append(checkpoints.take()["v"])
    assert sizes == [KEYS, 1, 1, 1, KEYS, 1, 1, 1, KEYS]

    for key in range(60):
        checkpoints.put(key, -2)
    assert checkpoints.take()["v"] == 60
    assert checkpoints.take()["v"] == KEYS


def test_an_erased_key_is_in_no_file_of_the_next_checkpoint(checkpoints: Checkpoints) -> None:
    checkpoints.take()
    checkpoints.put(1, 10)
    checkpoints.take()

    checkpoints.backend.erase(1)

    assert checkpoints.take() == {"v": KEYS - 1, "m": KEYS - 1}
    for name in (*checkpoints.names("v"), *checkpoints.names("m")):
        assert 1 not in pq.read_table(checkpoints.files[name]).column("key").to_pylist()


def test_a_state_that_is_registered_late_is_written_whole(checkpoints: Checkpoints) -> None:
    """Its type may be another one than that of the rows it came with."""
    checkpoints.take()
    later = Checkpoints.__new__(Checkpoints)
    later.__dict__.update(checkpoints.__dict__)
    later.backend = checkpoints.driver.open()
    checkpoints.restore(later.backend)
    later.files, later.number = {}, 10

    assert later.take() == {"v": KEYS, "m": KEYS}
    assert later.take() == {}, "what nobody registered does not change"
    later.value = later.backend.state(ValueStateDescriptor("v", Types.LONG()))
    assert later.take() == {"v": KEYS}
    later.put(3, 4)
    assert later.take() == {"v": 1}


def test_rocksdb_restores_a_chain_of_the_heap(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoints.take()
    checkpoints.put(1, 10)
    checkpoints.put(2, None)
    checkpoints.take()
    driver = BackendDriver(RocksDBKeyedStateBackend, tmp_path / "rocksdb")
    backend = driver.open(key_groups=(0, 63))
    checkpoints.restore(backend)

    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))

    expected = {key: key for key in range(KEYS)} | {1: 10}
    del expected[2]
    found = {key: backend.query("v", key)[1] for key in backend.keys("v")}
    assert found
    assert found == {key: value for key, value in expected.items() if key in found}
    with as_key(backend, 2):
        assert state.value() is None
    driver.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda native: replace(native, extra=b"[]"), "description .* is damaged"),
        (lambda native: replace(native, extra=b'{"format": 2, "chains": {}}'), "has format 2"),
        (lambda native: replace(native, extra=b'{"format": 1, "chains": {}}'), "does not tell .* 'v'"),
        (lambda native: replace(native, extra=b'{"format": 1, "chains": {"v": ["../x"]}}'), "damaged"),
        (lambda native: replace(native, kind="rocksdb"), "of kind 'rocksdb'"),
    ],
)
def test_what_is_no_chain_is_refused(checkpoints: Checkpoints, change: Any, message: str) -> None:
    checkpoints.take()
    checkpoints.native = change(checkpoints.native)
    assert isinstance(checkpoints.native, NativeCut)

    with pytest.raises(RestoreError, match=message):
        checkpoints.restore(checkpoints.driver.open())


@pytest.mark.parametrize("content", [b"", b"PAR1 but no table", "another table"])
def test_a_file_that_is_no_part_of_a_chain_is_named(checkpoints: Checkpoints, content: Any) -> None:
    checkpoints.take()
    [name] = checkpoints.names("v")
    if isinstance(content, bytes):
        checkpoints.files[name].write_bytes(content)
    else:
        table = pq.read_table(checkpoints.files[name])
        pq.write_table(table.drop_columns(["removed"]), checkpoints.files[name])

    with pytest.raises(RestoreError, match=f"{name} cannot be read"):
        checkpoints.restore(checkpoints.driver.open())
