from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.errors import RestoreError, StateMigrationException
from tidemark.state import canonical
from tidemark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers import (
    DataInputView,
    DataOutputView,
    TypeSerializer,
    TypeSerializerSchemaCompatibility,
    TypeSerializerSnapshot,
)
from tidemark.state.ttl import StateTtlConfig
from tidemark.testing.backend_driver import BackendDriver, as_key, read_cut
from tidemark.types.typeinfo import Types


@pytest.fixture
def driver(tmp_path: Path) -> BackendDriver:
    return BackendDriver(HeapKeyedStateBackend, tmp_path)


def expiring(descriptor: Any, size: int = 5, every_record: bool = False) -> Any:
    builder = StateTtlConfig.new_builder(100).disable_cleanup_in_background()
    descriptor.enable_time_to_live(builder.cleanup_incrementally(size, every_record).build())
    return descriptor


def test_a_cut_costs_the_same_whatever_the_size(driver: BackendDriver) -> None:
    backend = driver.open()
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    backend.start_batch()
    for key in range(10_000):
        backend.context.token = key
        state.update(key)
    live = state._store.live

    cut = backend.cut()

    assert state._store.frozen[0].entries is live
    assert state._store.live == {}
    cut.release()
    backend.start_batch()
    assert state._store.live is live


def test_a_synchronous_cut_leaves_no_layers(driver: BackendDriver) -> None:
    backend = driver.open(asynchronous=False)
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    with as_key(backend, 1):
        state.update(1)

    cut = backend.cut()
    with as_key(backend, 1):
        assert not state._store.frozen
    assert sum(batch.num_rows for table in cut.tables() for batch in table.batches()) == 1
    cut.release()


def test_native_snapshots_are_refused(driver: BackendDriver) -> None:
    with pytest.raises(RestoreError, match="'rocksdb'"):
        driver.open().restore_native("rocksdb", {}, b"", [])


def test_closing_twice_is_fine(driver: BackendDriver) -> None:
    backend = driver.open()
    backend.state(ValueStateDescriptor("v", Types.LONG()))

    backend.close()
    backend.close()

    assert backend.num_entries() == 0
    backend.notify_checkpoint_complete(1)


def test_each_access_cleans_up_a_few_entries(driver: BackendDriver) -> None:
    backend = driver.open()
    state: Any = backend.state(expiring(ValueStateDescriptor("v", Types.LONG()), size=2))
    for key in range(10):
        with as_key(backend, key):
            state.update(key)
    driver.clock.advance(100)
    with as_key(backend, 100):
        state.update(1)
    before = backend.num_entries("v")
    with as_key(backend, 100):
        state.value()

    assert before - backend.num_entries("v") <= 2
    with as_key(backend, 100):
        for _ in range(20):
            state.value()
    assert backend.num_entries("v") == 1


@pytest.mark.parametrize("kind", ["list", "map"])
def test_elements_and_entries_are_cleaned_up_one_by_one(driver: BackendDriver, kind: str) -> None:
    backend = driver.open()
    descriptor: Any = (
        ListStateDescriptor("s", Types.PICKLED_BYTE_ARRAY())
        if kind == "list"
        else MapStateDescriptor("s", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
    )
    state: Any = backend.state(expiring(descriptor, size=1))

    def write(*numbers: int) -> None:
        with as_key(backend, 1):
            if kind == "list":
                state.add_all([[number] for number in numbers])
            else:
                state.put_all({number: [number] for number in numbers})

    write(1, 2)
    driver.clock.advance(60)
    write(3)
    cut = backend.cut()
    driver.clock.advance(60)
    with as_key(backend, 2):
        for _ in range(20):
            state.clear()

    held = state._table.store.get(1)
    assert [unit[0] for unit in (held if kind == "list" else held.values())] == [[3]]
    rows = [row for _, batches in read_cut(cut) for batch in batches for row in batch.to_pylist()]
    assert len(rows) == (1 if kind == "list" else 3)


def test_records_advance_the_clean_up_only_where_asked(driver: BackendDriver) -> None:
    backend = driver.open()
    plain: Any = backend.state(expiring(ValueStateDescriptor("plain", Types.LONG())))
    assert not backend.wants_records
    eager: Any = backend.state(expiring(ValueStateDescriptor("eager", Types.LONG()), 3, True))
    assert backend.wants_records
    for key in range(5):
        with as_key(backend, key):
            plain.update(1)
            eager.update(1)
    driver.clock.advance(100)

    backend.start_batch()
    for _ in range(4):
        backend.record_processed()
    backend.end_batch()

    assert backend.num_entries("plain") == 5
    assert backend.num_entries("eager") == 0


def test_nothing_is_cleaned_up_without_a_strategy(driver: BackendDriver) -> None:
    backend = driver.open()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(100).disable_cleanup_in_background().build())
    state: Any = backend.state(descriptor)
    for key in range(5):
        with as_key(backend, key):
            state.update(1)
    driver.clock.advance(100)
    with as_key(backend, 9):
        for _ in range(20):
            state.value()

    assert backend.num_entries("v") == 5


def test_merging_windows_leaves_expired_values_out(driver: BackendDriver) -> None:
    backend = driver.open()
    reducing: Any = backend.state(
        expiring(ReducingStateDescriptor("r", lambda a, b: a + b, Types.LONG())), NamespaceKind.WINDOW
    )
    elements: Any = backend.state(expiring(ListStateDescriptor("l", Types.LONG())), NamespaceKind.WINDOW)
    for window, number in (((0, 1), 1), ((1, 2), 2), ((2, 3), 4)):
        with as_key(backend, 1, window, reducing, elements):
            reducing.add(number)
            elements.add(number)
        driver.clock.advance(40)

    with as_key(backend, 1):
        reducing.merge_namespaces((0, 1), [(1, 2), (2, 3)])
        elements.merge_namespaces((0, 1), [(1, 2), (2, 3)])

    with as_key(backend, 1, (0, 1), reducing, elements):
        assert reducing.get() == 6
        assert list(elements.get()) == [2, 4]
    assert backend.namespaces("r", 1) == [(0, 1)]


def test_several_values_added_at_once_are_stamped_and_combined(driver: BackendDriver) -> None:
    backend = driver.open()
    state: Any = backend.state(expiring(ReducingStateDescriptor("r", lambda a, b: a + b, Types.LONG())))

    with as_key(backend, 1):
        state.add_all([1, 2, 3])
    with as_key(backend, 1):
        assert state.get() == 6
    driver.clock.advance(100)

    with as_key(backend, 1):
        assert state.get() is None


class TextSerializer(TypeSerializer[Any]):
    """A custom serializer that counts its calls and can be of two versions."""

    calls: ClassVar[list[str]] = []

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def serialize(self, element: Any, stream: Any) -> None:
        self.calls.append(f"write {self.version}")
        DataOutputView(stream).write_utf(f"{self.version}:{element}")

    def deserialize(self, stream: Any) -> Any:
        self.calls.append(f"read {self.version}")
        return DataInputView(stream).read_utf().split(":")[1]

    def snapshot_configuration(self) -> TextSerializerSnapshot:
        return TextSerializerSnapshot(self.version)


class TextSerializerSnapshot(TypeSerializerSnapshot[Any]):
    def __init__(self, version: int = 0) -> None:
        self.version = version

    def get_current_version(self) -> int:
        return 1

    def write_snapshot(self, out: DataOutputView) -> None:
        out.write_int(self.version)

    def read_snapshot(
        self, read_version: int, in_: DataInputView, user_code_class_loader: Any = None
    ) -> None:
        self.version = in_.read_int()

    def resolve_schema_compatibility(self, new_serializer: Any) -> TypeSerializerSchemaCompatibility:
        if not isinstance(new_serializer, TextSerializer):
            return TypeSerializerSchemaCompatibility.incompatible()
        if new_serializer.version == self.version:
            return TypeSerializerSchemaCompatibility.compatible_as_is()
        if new_serializer.version == 99:
            return TypeSerializerSchemaCompatibility.compatible_with_reconfigured_serializer(
                TextSerializer(self.version)
            )
        return TypeSerializerSchemaCompatibility.compatible_after_migration()

    def restore_serializer(self) -> TextSerializer:
        return TextSerializer(self.version)


@pytest.fixture
def text_content(driver: BackendDriver) -> Any:
    backend = driver.open()
    state: Any = backend.state(ValueStateDescriptor("t", TextSerializer(1)))
    for key in range(3):
        with as_key(backend, key):
            state.update(str(key))
    content = read_cut(backend.cut())
    TextSerializer.calls.clear()
    return content


def test_custom_state_is_decoded_at_restore_and_not_touched_by_migration(
    driver: BackendDriver, text_content: Any
) -> None:
    backend = driver.open(content=text_content)
    assert TextSerializer.calls == ["read 1"] * 3
    TextSerializer.calls.clear()

    state: Any = backend.state(ValueStateDescriptor("t", TextSerializer(2)))
    with as_key(backend, 1):
        assert state.value() == "1"

    assert TextSerializer.calls == []
    read_cut(backend.cut())
    assert TextSerializer.calls == ["write 2"] * 3


def test_a_reconfigured_serializer_takes_the_place_of_the_new_one(
    driver: BackendDriver, text_content: Any
) -> None:
    backend = driver.open(content=text_content)
    backend.state(ValueStateDescriptor("t", TextSerializer(99)))
    TextSerializer.calls.clear()

    read_cut(backend.cut())

    assert set(TextSerializer.calls) == {"write 1"}


def test_custom_state_nobody_asks_for_is_written_by_its_old_serializer(
    driver: BackendDriver, text_content: Any
) -> None:
    backend = driver.open(content=text_content)

    assert backend.num_entries("t") == 3
    assert sorted(backend.keys("t")) == [0, 1, 2]
    assert backend.query("t", 1) == (True, "1")
    again = driver.open(content=read_cut(backend.cut()))
    state: Any = again.state(ValueStateDescriptor("t", TextSerializer(1)))
    with as_key(again, 2):
        assert state.value() == "2"


def test_keys_remembered_before_a_state_is_registered_are_not_used_afterwards(
    driver: BackendDriver, text_content: Any
) -> None:
    backend = driver.open(content=text_content)
    for _ in range(3):
        read_cut(backend.cut())
        backend.start_batch()
    state: Any = backend.state(ValueStateDescriptor("t", TextSerializer(2)))

    for key in range(2, 5):
        with as_key(backend, key):
            state.update(f"new {key}")
        again = driver.open(content=read_cut(backend.cut()))
        again.state(ValueStateDescriptor("t", TextSerializer(2)))
        found = {at: again.query("t", at)[1] for at in again.keys("t")}
        assert found == {0: "0", 1: "1", **{at: f"new {at}" for at in range(2, key + 1)}}


def test_a_snapshot_without_expired_windows_may_have_no_row(driver: BackendDriver) -> None:
    backend = driver.open()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(100).cleanup_full_snapshot().build())
    state: Any = backend.state(descriptor, NamespaceKind.WINDOW)
    with as_key(backend, 1, (0, 10), state):
        state.update(1)
    driver.clock.advance(100)

    [(meta, batches)] = read_cut(backend.cut())

    assert (meta.name, batches) == ("v", [])


def test_keys_remembered_by_an_earlier_snapshot_do_not_come_back_when_their_values_have_expired(
    driver: BackendDriver,
) -> None:
    backend = driver.open()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    builder = StateTtlConfig.new_builder(100).disable_cleanup_in_background()
    descriptor.enable_time_to_live(builder.cleanup_full_snapshot().build())
    state: Any = backend.state(descriptor)
    for key in range(4):
        with as_key(backend, key):
            state.update(key)
        read_cut(backend.cut())
    driver.clock.advance(100)
    with as_key(backend, 2):
        state.update(22)

    [(_meta, batches)] = read_cut(backend.cut())

    assert [row["key"] for batch in batches for row in batch.to_pylist()] == [2]


@pytest.mark.parametrize("whole_bytes", [1, 1 << 30])
def test_a_snapshot_holds_old_and_new_keys_however_much_is_put_together_at_once(
    driver: BackendDriver, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    backend = driver.open()
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    monkeypatch.setattr(canonical, "_MAX_WHOLE_BYTES", whole_bytes)
    for key in range(3):
        with as_key(backend, key):
            state.update(10 * key)

        [(_meta, batches)] = read_cut(backend.cut())

        found = {row["key"]: row["value"] for batch in batches for row in batch.to_pylist()}
        assert found == {at: 10 * at for at in range(key + 1)}


def test_custom_objects_pass_through_a_declared_migration(driver: BackendDriver, text_content: Any) -> None:
    backend = driver.open(content=text_content)
    descriptor = ValueStateDescriptor("t", Types.LONG())
    descriptor.migrate_from(TextSerializer(1), int)

    state: Any = backend.state(descriptor)

    with as_key(backend, 2):
        assert state.value() == 2


def test_state_whose_serializer_is_gone_is_carried_along(
    driver: BackendDriver, text_content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(sys.modules[__name__], "TextSerializerSnapshot")
        backend = driver.open(content=text_content)
        with pytest.raises(StateMigrationException, match=r"'t'.*TextSerializerSnapshot"):
            backend.state(ValueStateDescriptor("t", Types.LONG()))
        carried = read_cut(backend.cut())
        empty = driver.open(content=[(text_content[0][0], [])])
        assert [meta.name for meta, _ in read_cut(empty.cut())] == ["t"]

    again = driver.open(content=carried)
    state: Any = again.state(ValueStateDescriptor("t", TextSerializer(1)))
    with as_key(again, 1):
        assert state.value() == "1"


def test_restored_state_can_be_read_before_it_is_registered(driver: BackendDriver) -> None:
    first = driver.open()
    entries: Any = first.state(MapStateDescriptor("m", Types.LIST(Types.LONG()), Types.LONG()))
    windows: Any = first.state(ListStateDescriptor("l", Types.LONG()), NamespaceKind.SINGLE)
    with as_key(first, 1, (5,), windows):
        windows.add(7)
    with as_key(first, 1):
        first.state(ListStateDescriptor("l", Types.LONG()), NamespaceKind.SINGLE)
    hashable: Any = first.state(MapStateDescriptor("h", Types.STRING(), Types.LONG()))
    with as_key(first, 1):
        entries.put([1], 2)
        hashable.put("a", 1)

    backend = driver.open(content=read_cut(first.cut()))

    assert backend.num_entries() == 3
    assert backend.query("h", 1) == (True, {"a": 1})
    assert backend.query("l", 1, (5,)) == (True, [7])
    assert backend.namespaces("l", 1) == [(5,)]
    assert backend.namespaces("h", 1) == [()]
    assert backend.namespaces("h", 2) == []


def test_a_namespace_is_only_for_states_that_have_one(driver: BackendDriver) -> None:
    state: Any = driver.open().state(ValueStateDescriptor("v", Types.LONG()))

    with pytest.raises(RuntimeError, match="'v'"):
        state.set_namespace((1,))
