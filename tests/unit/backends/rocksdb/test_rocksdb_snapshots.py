"""Cuts, native and canonical, and what becomes of them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.backends.rocksdb import cut as cutting
from tidemark.backends.rocksdb.cut import NativeExtra
from tidemark.clock import ManualClock
from tidemark.errors import BackendError, RestoreError, StateMigrationException
from tidemark.state.backend import NO_KEY
from tidemark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.serializers import SimpleTypeSerializerSnapshot, TypeSerializer
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import Types

Make = Callable[..., RocksDBKeyedStateBackend]


def states(backend: RocksDBKeyedStateBackend, ttl: bool = False) -> list[Any]:
    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor("v", Types.LONG()),
        ListStateDescriptor("l", Types.STRING()),
        MapStateDescriptor("m", Types.STRING(), Types.PICKLED_BYTE_ARRAY()),
    ]
    if ttl:
        for descriptor in descriptors:
            descriptor.enable_time_to_live(
                StateTtlConfig.new_builder(100)
                .disable_cleanup_in_background()
                .cleanup_full_snapshot()
                .build()
            )
    return [backend.state(descriptor) for descriptor in descriptors]


def fill(backend: RocksDBKeyedStateBackend, keys: range, ttl: bool = False) -> None:
    value, items, pairs = states(backend, ttl)
    backend.start_batch(list(keys))
    for key in keys:
        backend.context.token = key
        value.update(key)
        items.add_all([f"a{key}", f"b{key}"])
        pairs.put("k", [key])
    backend.context.token = NO_KEY
    backend.end_batch()


def content(backend: RocksDBKeyedStateBackend) -> dict[Any, Any]:
    value, items, pairs = states(backend)
    found = {}
    for key in sorted(backend.keys("v")):
        backend.start_batch([key])
        backend.context.token = key
        found[key] = (value.value(), list(items.get()), dict(pairs.items()))
        backend.end_batch()
    backend.context.token = NO_KEY
    return found


def expected(keys: range) -> dict[Any, Any]:
    return {key: (key, [f"a{key}", f"b{key}"], {"k": [key]}) for key in keys}


def restore_native(backend: RocksDBKeyedStateBackend, cut: Any) -> None:
    backend.restore_native(cut.native.kind, cut.native.files, cut.native.extra, cut.metas)


def restore_canonical(backend: RocksDBKeyedStateBackend, cut: Any) -> None:
    for table in cut.tables():
        backend.restore_table(table.meta, table.batches())


def test_a_native_cut_holds_what_was_there(make: Make) -> None:
    old = make()
    fill(old, range(50))

    cut = old.cut(incremental=True)
    fill(old, range(50, 80))
    new = make()
    restore_native(new, cut)

    assert content(new) == expected(range(50))
    assert [meta.name for meta in new.restored_states()] == ["v", "l", "m"]
    cut.release()


@pytest.mark.parametrize(
    "write_buffer_size", [8 << 20, 64 << 10], ids=["all of it waits", "most of it does not"]
)
def test_writes_behind_a_native_cut_are_seen_at_once_and_are_not_in_its_files(
    make: Make, write_buffer_size: int
) -> None:
    keys = range(1_000)
    old = make(write_buffer_size=write_buffer_size)
    fill(old, keys)
    value, items, pairs = states(old)

    # Nobody waits until the files are frozen, which takes RocksDB a while.
    cuts = [old.cut(incremental=True)]
    live = expected(keys)
    for key in keys:
        old.start_batch([key])
        old.context.token = key
        if key % 5 == 0:
            value.clear()
            items.clear()
            pairs.clear()
            del live[key]
        elif key % 5 == 1:
            value.update(value.value() + 1)
            live[key] = (key + 1, *live[key][1:])
        elif key % 5 == 2:
            items.add("c")
            pairs.put("n", list(items.get()))
            live[key][1].append("c")
            live[key][2]["n"] = list(live[key][1])
        elif key % 5 == 3:
            pairs.remove("k")
            items.update([])
            live[key] = (key, [], {})
        old.end_batch()
        old.start_batch([key])
        assert value.value() == (live[key][0] if key in live else None)
        assert dict(pairs.items()) == (live[key][2] if key in live else {})
        old.end_batch()
        if key == 500:
            half_way = {key: (number, [*items], {**pairs}) for key, (number, items, pairs) in live.items()}
            cuts.append(old.cut(incremental=True))

    assert content(old) == live
    for cut, frozen in zip(cuts, (expected(keys), half_way), strict=True):
        new = make()
        restore_native(new, cut)
        cut.release()
        assert content(new) == frozen


def test_a_cut_that_is_given_up_at_once_leaves_nothing(make: Make, tmp_path: Path) -> None:
    backend = make()
    fill(backend, range(5_000))

    backend.cut(incremental=True).release()
    backend.close()

    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_frozen_fail_their_cut_and_lose_no_write(make: Make, tmp_path: Path) -> None:
    backend = make()
    fill(backend, range(50))
    (directory,) = tmp_path.glob("rocksdb-*")
    (directory / "cut-1").mkdir()

    cut = backend.cut(incremental=True)
    fill(backend, range(50, 80))

    with pytest.raises(BackendError, match="take a native checkpoint"):
        cut.native  # noqa: B018
    cut.release()
    again = backend.cut(incremental=True)
    new = make()
    restore_native(new, again)
    again.release()
    assert content(new) == content(backend) == expected(range(80))


def test_a_second_native_cut_shares_the_files_of_the_first(make: Make) -> None:
    backend = make()
    fill(backend, range(50))
    first = backend.cut(incremental=True)
    fill(backend, range(50, 60))

    second = backend.cut(incremental=True)

    assert first.native is not None
    assert second.native is not None
    assert first.native.shared < second.native.shared
    assert not (first.native.files.keys() & second.native.files.keys()) - first.native.shared
    for name in first.native.shared:
        assert first.native.files[name].read_bytes() == second.native.files[name].read_bytes()
    first.release()
    second.release()


def test_two_successors_of_one_cut_give_their_new_files_different_names(make: Make) -> None:
    old = make()
    fill(old, range(20))
    cut = old.cut(incremental=True)
    cuts = []
    for n in range(2):
        successor = make()
        restore_native(successor, cut)
        fill(successor, range(100 + n, 110 + n))
        cuts.append(successor.cut(incremental=True))

    shared = [each.native.shared for each in cuts]

    assert cut.native.shared == shared[0] & shared[1]
    assert all(own - cut.native.shared for own in shared)


def test_the_files_of_a_cut_survive_their_backend_until_released(make: Make, tmp_path: Path) -> None:
    old = make(directory=tmp_path / "own")
    fill(old, range(5))
    native, canonical = old.cut(incremental=True), old.cut()

    old.close()

    new = make()
    restore_native(new, native)
    other = make()
    restore_canonical(other, canonical)
    assert content(new) == content(other) == expected(range(5))
    native.release()
    canonical.release()
    assert list((tmp_path / "own").iterdir()) == []


def test_scaling_out_keeps_only_the_own_key_groups(make: Make) -> None:
    old = make()
    fill(old, range(200))
    cut = old.cut(incremental=True)

    halves = [make(key_groups=groups) for groups in ((0, 40), (41, 127))]
    for half in halves:
        restore_native(half, cut)

    found = [content(half) for half in halves]
    assert found[0] | found[1] == expected(range(200))
    assert not found[0].keys() & found[1].keys()
    assert halves[0].num_entries() + halves[1].num_entries() == old.num_entries()


def test_scaling_in_joins_native_cuts_whose_states_have_other_numbers(make: Make) -> None:
    old = make()
    fill(old, range(200))
    cut = old.cut(incremental=True)
    lower, upper = make(key_groups=(0, 63)), make(key_groups=(64, 127))
    restore_native(lower, cut)
    upper.state(ValueStateDescriptor("first", Types.LONG()))
    restore_native(upper, cut)

    joined = make()
    for part in (upper, lower):
        restore_native(joined, part.cut(incremental=True))

    assert content(joined) == expected(range(200))
    assert joined._scope.next_segment >= old._scope.next_segment


def test_lists_go_on_behind_restored_elements(make: Make) -> None:
    old = make()
    fill(old, range(3))
    new = make()
    restore_native(new, old.cut(incremental=True))
    items = states(new)[1]

    new.start_batch([1])
    new.context.token = 1
    items.add("c")
    new.end_batch()

    new.start_batch([1])
    assert list(items.get()) == ["a1", "b1", "c"]
    new.end_batch()


def test_a_missing_file_fails_the_restore(make: Make) -> None:
    old = make()
    fill(old, range(3))
    cut = old.cut(incremental=True)
    files = dict(cut.native.files)
    del files[next(iter(cut.native.shared))]

    with pytest.raises(RestoreError, match="lacks its file"):
        make().restore_native("rocksdb", files, cut.native.extra, cut.metas)


def test_a_native_snapshot_of_another_kind_is_refused(make: Make) -> None:
    with pytest.raises(RestoreError, match="kind 'lsm'"):
        make().restore_native("lsm", {}, b"", [])


@pytest.mark.parametrize("extra", [b"", b"{}", b'{"format": 1}'])
def test_a_damaged_description_is_refused(extra: bytes) -> None:
    with pytest.raises(RestoreError, match="damaged"):
        NativeExtra.from_bytes(extra)


def test_a_description_of_a_later_format_is_refused() -> None:
    extra = NativeExtra({}, {}, (0, 1), 0, {}).to_bytes().replace(b'"format": 1', b'"format": 99')

    with pytest.raises(RestoreError, match="format 99"):
        NativeExtra.from_bytes(extra)


def test_canonical_batches_are_small_and_sorted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "MAX_BATCH_ROWS", 20)
    monkeypatch.setattr(cutting, "_CHUNK", 3)
    backend = make()
    fill(backend, range(300))
    cut = backend.cut()

    for table in cut.tables():
        batches = list(table.batches())
        groups = [group for batch in batches for group in batch.column("key_group").to_pylist()]
        assert len(groups) == 300
        assert groups == sorted(groups)
        assert max(batch.num_rows for batch in batches) <= 20
        borders = [
            {batch.column("key_group")[0].as_py(), batch.column("key_group")[-1].as_py()} for batch in batches
        ]
        assert not any(left & right for left, right in pairwise(borders))
    restored = make()
    restore_canonical(restored, cut)
    assert content(restored) == expected(range(300))
    cut.release()


def test_one_key_group_that_is_larger_than_a_batch_is_several(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "MAX_BATCH_ROWS", 20)
    monkeypatch.setattr(cutting, "_CHUNK", 3)
    backend = make()
    pairs: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    backend.start_batch([1])
    backend.context.token = 1
    for number in range(50):
        pairs.put(number, number)
    backend.end_batch()

    [table] = backend.cut().tables()
    batches = list(table.batches())

    assert sorted(row["value"] for batch in batches for row in batch.to_pylist()) == list(range(50))
    assert max(batch.num_rows for batch in batches) <= 20


def test_the_segments_of_a_list_stay_together_in_small_batches(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "MAX_BATCH_ROWS", 4)
    monkeypatch.setattr(cutting, "_CHUNK", 2)
    backend = make(key_type=Types.STRING())
    items: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    for n in range(7):
        for key in ("a", "b", "c"):
            backend.start_batch([key])
            backend.context.token = key
            items.add(n)
            backend.end_batch()

    rows = [row for table in backend.cut().tables() for batch in table.batches() for row in batch.to_pylist()]

    assert {row["key"]: row["value"] for row in rows} == {key: list(range(7)) for key in ("a", "b", "c")}
    assert len(rows) == 3


def test_expired_units_stay_out_of_full_snapshots_only(make: Make, clock: ManualClock) -> None:
    backend = make()
    fill(backend, range(3), ttl=True)
    clock.advance(60)
    fill(backend, range(2, 5), ttl=True)
    clock.advance(50)

    tables = {table.meta.name: table for table in backend.cut().tables()}
    rows = {
        name: [row for batch in table.batches() for row in batch.to_pylist()]
        for name, table in tables.items()
    }

    assert sorted(row["key"] for row in rows["v"]) == [2, 3, 4]
    assert sorted(row["key"] for row in rows["m"]) == [2, 3, 4]
    assert {row["key"]: row["value"] for row in rows["l"]}[2] == ["a2", "b2"]
    assert backend.num_entries("v") == 5


def test_lists_that_live_are_in_full_snapshots_whatever_the_year(make: Make, clock: ManualClock) -> None:
    clock.set(1_800_000_000_000)
    backend = make()
    fill(backend, range(3), ttl=True)

    [table] = [table for table in backend.cut().tables() if table.meta.name == "l"]

    rows = [row for batch in table.batches() for row in batch.to_pylist()]
    assert {row["key"]: row["value"] for row in rows} == {key: [f"a{key}", f"b{key}"] for key in range(3)}


@dataclass
class Point:
    x: int
    y: int


def test_rows_of_a_class_that_is_gone_are_carried_along(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("vanishing")
    vanishing: Any = make_dataclass("Vanishing", [("x", int)], namespace={"__module__": "vanishing"})
    vanishing.__module__ = "vanishing"
    module.Vanishing = vanishing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vanishing", module)
    first = make()
    value: Any = first.state(ValueStateDescriptor("gone", Types.DATACLASS(vanishing)))
    pairs: Any = first.state(MapStateDescriptor("pairs", Types.DATACLASS(vanishing), Types.LONG()))
    first.start_batch([1])
    first.context.token = 1
    value.update(vanishing(5))
    pairs.put(vanishing(6), 7)
    first.end_batch()
    saved = [(table.meta, list(table.batches())) for table in first.cut().tables()]
    monkeypatch.delitem(sys.modules, "vanishing")

    second = make()
    for meta, batches in saved:
        second.restore_table(meta, batches)
    with pytest.raises(StateMigrationException, match="vanishing"):
        second.state(ValueStateDescriptor("gone", Types.DATACLASS(Point)))
    third = make()
    restore_native(third, second.cut(incremental=True))
    carried = [(table.meta, list(table.batches())) for table in third.cut().tables()]

    assert [pa.Table.from_batches(batches) for _, batches in carried] == [
        pa.Table.from_batches(batches) for _, batches in saved
    ]
    monkeypatch.setitem(sys.modules, "vanishing", module)
    back: Any = third.state(ValueStateDescriptor("gone", Types.DATACLASS(vanishing)))
    back_pairs: Any = third.state(MapStateDescriptor("pairs", Types.DATACLASS(vanishing), Types.LONG()))
    third.start_batch([1])
    third.context.token = 1
    assert back.value() == vanishing(5)
    assert (
        dict(back_pairs.items()) in ({vanishing(6): 7},)
        if vanishing.__hash__
        else back_pairs.get(vanishing(6)) == 7
    )
    third.end_batch()


class TextSerializer(TypeSerializer[Any]):
    """Writes text; an old form writes it twice."""

    read = 0

    def serialize(self, element: Any, stream: Any) -> None:
        stream.write(element.encode())

    def deserialize(self, stream: Any) -> Any:
        type(self).read += 1
        return stream.read().decode()

    def snapshot_configuration(self) -> Any:
        return TextSnapshot()


class TextSnapshot(SimpleTypeSerializerSnapshot[Any]):
    def __init__(self) -> None:
        super().__init__(TextSerializer)


@pytest.mark.parametrize("native", [False, True])
def test_bytes_are_restored_without_deserialising_them(make: Make, native: bool) -> None:
    old = make()
    state: Any = old.state(ValueStateDescriptor("t", TextSerializer()))
    old.start_batch([1])
    old.context.token = 1
    state.update("hello")
    old.end_batch()
    new = make()
    TextSerializer.read = 0

    (restore_native if native else restore_canonical)(new, old.cut(incremental=native))
    again: Any = new.state(ValueStateDescriptor("t", TextSerializer()))

    assert TextSerializer.read == 0
    new.start_batch([1])
    new.context.token = 1
    assert again.value() == "hello"
    new.end_batch()


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("ttl", [False, True])
def test_a_declared_migration_rewrites_every_kind_of_state(make: Make, native: bool, ttl: bool) -> None:
    old = make()
    fill(old, range(20), ttl)
    cut = old.cut(incremental=native)
    new = make()
    (restore_native if native else restore_canonical)(new, cut)

    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor("v", Types.STRING()).migrate_from(Types.LONG(), str),
        ListStateDescriptor("l", Types.LONG()).migrate_from(Types.STRING(), len),
    ]
    if ttl:
        for descriptor in descriptors:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(100).build())
    value, items = [new.state(descriptor) for descriptor in descriptors]

    new.start_batch([7, 13])
    new.context.token = 13
    assert value.value() == "13"  # type: ignore[attr-defined]
    assert list(items.get()) == [3, 3]  # type: ignore[attr-defined]
    new.end_batch()
    assert content_types(new) == {"v": pa.string(), "l": pa.list_(pa.int64())}


def content_types(backend: RocksDBKeyedStateBackend) -> dict[str, Any]:
    cut = backend.cut()
    types_ = {
        table.meta.name: table.schema.field("value").type for table in cut.tables() if table.meta.name != "m"
    }
    cut.release()
    return types_


def test_an_incompatible_type_fails_only_the_state_that_asks_for_it(make: Make) -> None:
    old = make()
    fill(old, range(3))
    new = make()
    restore_canonical(new, old.cut())

    with pytest.raises(StateMigrationException, match="'v'"):
        new.state(ValueStateDescriptor("v", Types.STRING()))

    assert new.state(ListStateDescriptor("l", Types.STRING())) is not None
    assert [table.meta.name for table in new.cut().tables()] == ["v", "l", "m"]


def test_a_restored_state_can_be_read_from_outside_before_it_is_registered(make: Make) -> None:
    old = make()
    fill(old, range(3))
    new = make()
    restore_canonical(new, old.cut())

    assert new.query("v", 2) == (True, 2)
    assert new.query("m", 2) == (True, {"k": [2]})
    assert sorted(new.keys("l")) == [0, 1, 2]
    assert new.num_entries("v") == 3


def test_a_backend_without_a_directory_cleans_up_its_temporary_one(make: Make) -> None:
    backend = make(directory=None)
    directory = backend._directory.parent

    backend.close()
    backend.close()

    assert not directory.exists()


def test_a_backend_reports_figures_of_its_store(make: Make) -> None:
    backend = make()
    fill(backend, range(10))

    assert backend.figures()["estimate-num-keys"] == 30
