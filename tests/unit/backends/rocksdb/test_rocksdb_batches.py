"""What a batch reads and writes, seen from the serializer and from the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend, scope
from tidemark.errors import NoCurrentKeyError
from tidemark.state.backend import NO_KEY
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers import TypeSerializer
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import Types

Make = Callable[..., RocksDBKeyedStateBackend]


class CountingSerializer(TypeSerializer[Any]):
    """Lists of integers as text; counts its work."""

    def __init__(self) -> None:
        self.written = 0
        self.read = 0

    def serialize(self, element: Any, stream: Any) -> None:
        self.written += 1
        stream.write(",".join(map(str, element)).encode())

    def deserialize(self, stream: Any) -> Any:
        self.read += 1
        text = stream.read().decode()
        return [int(part) for part in text.split(",")] if text else []


def run(backend: RocksDBKeyedStateBackend, tokens: list[int], work: Callable[[int], Any]) -> list[Any]:
    backend.start_batch(tokens)
    results = []
    for token in tokens:
        backend.context.token = token
        results.append(work(token))
    backend.context.token = NO_KEY
    backend.end_batch()
    return results


def count_calls(backend: RocksDBKeyedStateBackend, name: str) -> list[Any]:
    store = backend._store
    original = getattr(store, name)
    calls: list[Any] = []

    def counted(argument: Any) -> Any:
        calls.append(argument)
        return original(argument)

    setattr(store, name, counted)
    return calls


def test_each_key_is_read_and_written_once_per_batch(make: Make) -> None:
    backend = make()
    serializer = CountingSerializer()
    state: Any = backend.state(ValueStateDescriptor("v", serializer))
    run(backend, [1, 2, 3], lambda token: state.update([token]))
    serializer.written = serializer.read = 0

    run(backend, [1, 2, 3] * 10, lambda token: state.update([*state.value(), 0]))

    assert (serializer.read, serializer.written) == (3, 3)


def test_the_keys_of_a_batch_are_fetched_together(make: Make) -> None:
    backend = make(read_cache_size=0)
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    run(backend, list(range(100)), state.update)
    together, single = count_calls(backend, "get_many"), count_calls(backend, "get")

    values = run(backend, list(range(100)), lambda token: state.value())

    assert values == list(range(100))
    assert [len(rows) for rows in together] == [100]
    assert together[0] == sorted(together[0])
    assert not single


def test_a_state_that_few_keys_read_is_not_prefetched(make: Make) -> None:
    backend = make(read_cache_size=0)
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    run(backend, list(range(100)), state.update)
    rarely = lambda token: state.value() if token < 3 else None  # noqa: E731
    run(backend, list(range(100)), rarely)
    together, single = count_calls(backend, "get_many"), count_calls(backend, "get")

    run(backend, list(range(100)), rarely)
    assert (len(together), len(single)) == (0, 3)

    run(backend, list(range(100)), lambda token: state.value())
    run(backend, list(range(100)), lambda token: state.value())
    assert len(together) == 1


def test_a_blind_update_reads_nothing(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    together, single = count_calls(backend, "get_many"), count_calls(backend, "get")

    run(backend, list(range(10)), state.update)

    assert not together
    assert not single


def test_hot_keys_are_not_read_again_in_the_next_batch(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    run(backend, list(range(10)), state.update)
    together, single = count_calls(backend, "get_many"), count_calls(backend, "get")

    assert run(backend, list(range(10)), lambda token: state.value()) == list(range(10))
    assert not together
    assert not single


@pytest.mark.parametrize("cache", [0, 1 << 20])
def test_every_batch_gets_fresh_objects_of_changeable_types(make: Make, cache: int) -> None:
    backend = make(read_cache_size=cache)
    state: Any = backend.state(ValueStateDescriptor("v", CountingSerializer()))
    run(backend, [1, 2], lambda token: state.update([token]))

    run(backend, [1, 2], lambda token: state.value().append(99))

    assert run(backend, [1, 2], lambda token: state.value()) == [[1], [2]]


def test_writes_outside_of_a_batch_are_in_the_next_cut(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    backend.context.token = 7
    state.update(70)
    backend.context.token = NO_KEY

    cut = backend.cut()

    assert [row for table in cut.tables() for batch in table.batches() for row in batch.to_pylist()] == [
        {"key_group": backend._codec.place(7)[0][1], "key": 7, "value": 70}
    ]
    cut.release()


def test_a_removed_key_that_was_not_there_leaves_no_tombstone(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    run(backend, [1], lambda token: state.value())
    writes = count_calls(backend, "write")

    run(backend, [1], lambda token: state.clear())

    assert not writes


def test_a_batch_that_reads_too_much_spills(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "_SPILL_AFTER", 10)
    backend = make()
    value: Any = backend.state(ValueStateDescriptor("v", CountingSerializer()))
    items: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    pairs: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))

    def work(token: int) -> None:
        value.update((value.value() or []) + [token])
        items.add(token)
        assert items.get()[-1] == token
        pairs.put(token, (pairs.get(token) or 0) + 1)
        assert dict(pairs.items())[token] >= 1

    for _ in range(2):
        backend.start_batch()
        for token in list(range(30)) * 2:
            backend.context.token = token
            work(token)
        backend.context.token = NO_KEY
        backend.end_batch()

    def read(token: int) -> Any:
        return value.value(), items.get(), dict(pairs.items())

    assert run(backend, [3, 29], read) == [([3] * 4, [3] * 4, {3: 4}), ([29] * 4, [29] * 4, {29: 4})]


def test_values_with_time_to_live_keep_their_time_when_a_batch_spills(
    make: Make, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope, "_SPILL_AFTER", 10)
    backend = make()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(100).build())
    state: Any = backend.state(descriptor)

    def count(token: int) -> None:
        state.update((state.value() or 0) + 1)

    run(backend, list(range(30)) * 2, count)
    clock.advance(60)
    run(backend, list(range(15)) * 2, count)
    clock.advance(60)

    assert run(backend, list(range(30)), lambda token: state.value()) == [4] * 15 + [None] * 15


def test_a_large_batch_is_written_in_pieces(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "_WRITE_CHUNK", 10)
    backend = make()
    value: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    pairs: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    writes = count_calls(backend, "write")

    run(backend, list(range(35)), lambda token: (value.update(token), pairs.put(token, token)))

    assert len(writes) >= 7
    assert backend.num_entries("v") == backend.num_entries("m") == 35


def test_lists_of_many_segments_become_one_when_they_are_read(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    for n in range(20):
        run(backend, [1], lambda token, n=n: state.add(n))
    assert len(list(backend._store.scan(b"", b"\xff"))) == 20

    assert run(backend, [1], lambda token: list(state.get())) == [list(range(20))]
    run(backend, [1], lambda token: state.add(20))

    assert len(list(backend._store.scan(b"", b"\xff"))) == 2
    assert run(backend, [1], lambda token: list(state.get())) == [list(range(21))]


def test_a_kept_list_does_not_change_when_the_state_does(make: Make) -> None:
    backend = make()
    table: Any = backend.state(ListStateDescriptor("l", Types.LONG()))._table  # type: ignore[attr-defined]
    table.append(1, [1])
    kept = table.get(1)

    table.append(1, [2])
    table.replace(1, [3])

    assert kept == [1]
    assert table.get(1) == [3]


def test_hot_lists_are_not_read_again_in_the_next_batch(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    run(backend, [1, 2, 3], lambda token: list(state.get()))
    scans = count_calls(backend, "prefixed")

    run(backend, [1, 2], lambda token: state.add(token))
    read = run(backend, [1, 2, 3], lambda token: list(state.get()))
    run(backend, [1], lambda token: (state.update([7, 8]), state.add(9)))
    run(backend, [2], lambda token: state.clear())

    assert read == [[1], [2], []]
    assert run(backend, [1, 2], lambda token: list(state.get())) == [[7, 8, 9], []]
    assert not scans
    assert len(list(backend._store.scan(b"", b"\xff"))) == 1


def test_a_list_that_is_replaced_is_written_over(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    for n in range(3):
        run(backend, [1], lambda token, n=n: state.add(n))
    first = next(backend._store.scan(b"", b"\xff"))[0]

    run(backend, [1], lambda token: (list(state.get()), state.update([5])))

    assert [row for row, _ in backend._store.scan(b"", b"\xff")] == [first]
    assert run(backend, [1], lambda token: list(state.get())) == [[5]]


@pytest.mark.parametrize("cache", [0, 1 << 20])
def test_every_batch_gets_fresh_objects_in_lists_and_maps(make: Make, cache: int) -> None:
    backend = make(read_cache_size=cache)
    units: Any = backend.state(ListStateDescriptor("l", CountingSerializer()))
    entries: Any = backend.state(MapStateDescriptor("m", Types.LONG(), CountingSerializer()))
    run(backend, [1], lambda token: (units.add([token]), entries.put(0, [token])))

    run(backend, [1], lambda token: ([unit.append(9) for unit in units.get()], entries.get(0).append(9)))

    assert run(backend, [1], lambda token: (list(units.get()), entries.get(0))) == [([[1]], [1])]


def test_hot_map_entries_are_not_read_again_in_the_next_batch(make: Make) -> None:
    backend = make()
    state: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    run(backend, [1, 2], lambda token: (state.put(0, token), state.get(5)))
    single = count_calls(backend, "get")

    run(backend, [1, 2], lambda token: state.put(0, state.get(0) + 10))
    run(backend, [2], lambda token: state.clear())

    assert run(backend, [1, 2], lambda token: (state.get(0), state.get(5))) == [(11, None), (None, None)]
    assert not single
    assert backend.num_entries("m") == 1


def test_what_maps_keep_is_bounded_by_its_bytes(make: Make) -> None:
    limit = 1 << 16
    backend = make(read_cache_size=limit)
    state: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.STRING()))

    for n in range(200):
        run(backend, [1, 2], lambda token, n=n: state.put(n, "x" * 1000))

    kept = state._table._kept
    held = [entries for generation in (kept.young, kept.old) for entries in generation.values()]
    assert sum(len(text) for entries in held for text in entries.present.values()) <= limit


def test_a_list_that_only_grows_is_not_carried_on_for_ever(make: Make) -> None:
    backend = make()
    state: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    run(backend, [1], lambda token: list(state.get()))

    for n in range(40):
        run(backend, [1], lambda token, n=n: state.add(n))

    assert len(state._table._kept) == 0
    assert run(backend, [1], lambda token: list(state.get())) == [list(range(40))]


def test_nothing_of_a_large_map_is_kept(make: Make) -> None:
    backend = make()
    state: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    run(backend, [1, 2], lambda token: state.put_all({n: n for n in range(2_000 if token == 1 else 2)}))
    single = count_calls(backend, "get")

    assert run(backend, [1, 2], lambda token: state.get(1)) == [1, 1]
    assert len(single) == 1


@pytest.mark.parametrize("size", [3, 500])
def test_clearing_a_map_unread_removes_all_its_rows(make: Make, size: int) -> None:
    backend = make()
    state: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    run(backend, [1, 2], lambda token: state.put_all({n: n for n in range(size)}))

    run(backend, [1], lambda token: (state.clear(), state.put(-1, 5)))

    assert run(backend, [1, 2], lambda token: len(list(state.items()))) == [1, size]
    assert backend.num_entries("m") == size + 1


def test_map_entries_changed_in_a_batch_are_merged_with_stored_ones(make: Make) -> None:
    backend = make()
    state: Any = backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    run(backend, [1], lambda token: state.put_all({"a": 1, "b": 2, "c": 3}))

    def work(token: int) -> Any:
        state.remove("a")
        state.put("d", 4)
        state.put("b", 20)
        state.remove("nothing")
        return dict(state.items()), state.contains("a"), state.is_empty()

    assert run(backend, [1], work) == [({"b": 20, "c": 3, "d": 4}, False, False)]
    assert run(backend, [1], lambda token: dict(state.items())) == [{"b": 20, "c": 3, "d": 4}]


def test_windows_of_a_key_are_kept_apart(make: Make) -> None:
    backend = make(key_type=Types.STRING())
    state: Any = backend.state(ListStateDescriptor("l", Types.LONG()), NamespaceKind.WINDOW)
    for key in ("a", "ab"):
        backend.start_batch([key])
        backend.context.token = key
        for start in (0, 10, -10):
            state.set_namespace((start, start + 10))
            state.add(start)
        backend.end_batch()

    assert backend.namespaces("l", "a") == [(-10, 0), (0, 10), (10, 20)]
    assert sorted(backend.keys("l", (0, 10))) == ["a", "ab"]
    assert backend.keys("l", (0, 11)) == []
    assert backend.query("l", "a", (10, 20)) == (True, [10])
    assert backend.num_entries() == 6


def test_state_without_a_current_key_is_refused(make: Make) -> None:
    backend = make()
    states: list[Any] = [
        backend.state(ValueStateDescriptor("v", Types.LONG())),
        backend.state(ListStateDescriptor("l", Types.LONG())),
        backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG())),
    ]

    for use in (
        states[0].value,
        lambda: states[0].update(1),
        states[1].get,
        lambda: states[2].put(1, 1),
        states[2].clear,
    ):
        with pytest.raises(NoCurrentKeyError):
            use()


def test_a_query_changes_nothing_and_sees_pending_writes(make: Make) -> None:
    backend = make()
    value: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
    items: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
    pairs: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    run(backend, [1], lambda token: (items.add(1), pairs.put(1, 1)))
    backend.start_batch([1])
    backend.context.token = 1
    value.update(5)
    items.add(2)
    pairs.put(2, 2)

    assert backend.query("v", 1) == (True, 5)
    assert backend.query("v", 2) == (False, None)
    assert backend.query("l", 1) == (True, [1, 2])
    assert backend.query("m", 1) == (True, {1: 1, 2: 2})
    items.update([9])
    assert backend.query("l", 1) == (True, [9])
    backend.end_batch()


def test_what_a_batch_wrote_has_its_time_even_if_the_next_one_writes_it_back(make: Make, clock: Any) -> None:
    backend = make()
    descriptor = ValueStateDescriptor("v", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(100).build())
    state: Any = backend.state(descriptor)
    backend.start_batch([1])
    backend.context.token = 1
    state.update(5)
    assert backend.query("v", 1) == (True, 5)

    clock.advance(60)
    backend.start_batch([1])
    assert state.value() == 5
    clock.advance(40)
    backend.start_batch([1])

    assert state.value() is None
    backend.end_batch()
