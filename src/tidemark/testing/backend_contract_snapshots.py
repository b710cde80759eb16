"""The part of the backend contract on cuts, restore, rescaling and changed types."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tidemark.errors import StateMigrationException
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.namespace import NamespaceKind
from tidemark.testing.backend_contract_states import descriptors_of_all_kinds
from tidemark.testing.backend_contract_ttl import ttl_config
from tidemark.testing.backend_driver import BackendDriver, Content, as_key, read_cut, rescale
from tidemark.types.typeinfo import Types

__all__ = ["SnapshotContract"]

_KEYS = range(300)


def _fill(backend: KeyedStateBackend, keys: range = _KEYS, ttl: bool = False) -> None:
    found = descriptors_of_all_kinds(ttl_config() if ttl else None)
    states: dict[str, Any] = {name: backend.state(descriptor) for name, descriptor in found.items()}
    for key in keys:
        with as_key(backend, key):
            states["value"].update(key)
            states["list"].add_all([key, key + 1])
            states["map"].put_all({"a": key, "b": -key})
            for name in ("reducing", "aggregating", "folding"):
                states[name].add(key)
                states[name].add(1)


def _check(backend: KeyedStateBackend, key: int, ttl: bool = False) -> None:
    found = descriptors_of_all_kinds(ttl_config() if ttl else None)
    states: dict[str, Any] = {name: backend.state(descriptor) for name, descriptor in found.items()}
    with as_key(backend, key):
        assert states["value"].value() == key
        assert list(states["list"].get()) == [key, key + 1]
        assert dict(states["map"].items()) == {"a": key, "b": -key}
        assert states["reducing"].get() == key + 1
        assert states["aggregating"].get() == (key + 1) / 2
        assert states["folding"].get() == [0, key, 1]


def _rows(content: Content, name: str) -> list[dict[str, Any]]:
    return [row for meta, batches in content if meta.name == name for b in batches for row in b.to_pylist()]


class SnapshotContract:
    """Tests of snapshots; see `BackendContract`."""

    @pytest.mark.parametrize("ttl", [False, True])
    def test_every_kind_survives_a_restore(self, driver: BackendDriver, ttl: bool) -> None:
        """Also a second one, of the restored backend."""
        backend = driver.open()
        _fill(backend, ttl=ttl)

        content = read_cut(backend.cut())
        for _ in range(2):
            restored = driver.open(content=content)
            for key in _KEYS:
                _check(restored, key, ttl)
            content = read_cut(restored.cut())
        assert restored.num_entries() == 7 * len(_KEYS)

    def test_rows_are_sorted_by_the_key_group_of_their_key(self, driver: BackendDriver) -> None:
        """The key group is that of the serialised key, whatever the type of key."""
        for key_type, keys in (
            (Types.LONG(), list(range(-50, 50))),
            (Types.STRING(), [f"kéy-{i}" for i in range(100)] + [""]),
            (Types.TUPLE([Types.LONG(), Types.DOUBLE()]), [(i, i / 2) for i in range(100)]),
        ):
            backend = driver.open(key_type)
            state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
            for key in keys:
                with as_key(backend, key):
                    state.update(1)
            serializer = backend.parameters.key_serializer

            [(meta, batches)] = read_cut(backend.cut())

            groups = [row["key_group"] for batch in batches for row in batch.to_pylist()]
            read = [key for batch in batches for key in serializer.from_arrow(batch.column("key"))]
            assert groups == sorted(groups)
            assert groups == [assign_to_key_group(serializer.key_bytes(key), 128) for key in read]
            assert sorted(map(repr, read)) == sorted(map(repr, keys))
            assert meta.name == "v"

    @pytest.mark.parametrize("ttl", [False, True])
    def test_rescaling_there_and_back(self, driver: BackendDriver, ttl: bool) -> None:
        """1 -> 3 -> 2 -> 1 subtasks: every key is where its key group is, once, unchanged."""
        first = driver.open()
        _fill(first, ttl=ttl)
        contents = [read_cut(first.cut())]

        for parallelism in (3, 2, 1):
            backends = rescale(driver, contents, parallelism)
            for backend in backends:
                for descriptor in descriptors_of_all_kinds(ttl_config() if ttl else None).values():
                    backend.state(descriptor)
            owned = [backend.keys("value") for backend in backends]
            assert sorted(key for keys in owned for key in keys) == list(_KEYS)
            for backend, keys in zip(backends, owned, strict=True):
                for key in keys:
                    _check(backend, key, ttl)
            contents = [read_cut(backend.cut()) for backend in backends]

    def test_windows_survive_a_restore(self, driver: BackendDriver) -> None:
        """The namespace is part of the row, and comes back."""
        for kind, windows in (
            (NamespaceKind.WINDOW, [(0, 10), (10, 20)]),
            (NamespaceKind.SINGLE, [(0,), (7,)]),
        ):
            backend = driver.open()
            state: Any = backend.state(ListStateDescriptor("l", Types.STRING()), kind)
            for window in windows:
                with as_key(backend, 1, window, state):
                    state.add(str(window))

            restored = driver.open(content=read_cut(backend.cut()))

            again: Any = restored.state(ListStateDescriptor("l", Types.STRING()), kind)
            for window in windows:
                with as_key(restored, 1, window, again):
                    assert list(again.get()) == [str(window)]
            assert sorted(restored.namespaces("l", 1)) == windows

    def test_a_cut_shows_the_moment_it_was_taken(self, driver: BackendDriver) -> None:
        """Whatever is written, deleted, or changed in place before it is read."""
        backend = driver.open()
        anything = Types.PICKLED_BYTE_ARRAY()
        value: Any = backend.state(ValueStateDescriptor("v", anything))
        elements: Any = backend.state(ListStateDescriptor("l", anything))
        entries: Any = backend.state(MapStateDescriptor("m", Types.STRING(), anything))
        for key in (1, 2, 3):
            with as_key(backend, key):
                value.update({"n": [key]})
                elements.add_all([[key], [key + 1]])
                entries.put_all({"a": [key], "b": [-key]})

        cut = backend.cut()
        with as_key(backend, 1):
            value.value()["n"].append("changed in place")
            elements.add([9])
            for element in elements.get():
                element.append("changed in place")
            entries.get("a").append("changed in place")
            for _, entry in entries.items():
                entry.append("changed in place")
        with as_key(backend, 2):
            value.clear()
            elements.clear()
            entries.clear()
        with as_key(backend, 3):
            value.update({"n": ["other"]})
            elements.update([["other"]])
            entries.put("a", ["other"])
            entries.remove("b")
        with as_key(backend, 4):
            value.update({"n": ["new"]})
        content = read_cut(cut)

        restored = driver.open(content=content)
        again: list[Any] = [
            restored.state(ValueStateDescriptor("v", anything)),
            restored.state(ListStateDescriptor("l", anything)),
            restored.state(MapStateDescriptor("m", Types.STRING(), anything)),
        ]
        for key in (1, 2, 3):
            with as_key(restored, key):
                assert again[0].value() == {"n": [key]}
                assert list(again[1].get()) == [[key], [key + 1]]
                assert dict(again[2].items()) == {"a": [key], "b": [-key]}
        assert sorted(restored.keys("v")) == [1, 2, 3]
        with as_key(backend, 3):
            assert value.value() == {"n": ["other"]}
            assert list(elements.get()) == [["other"]]
            assert dict(entries.items()) == {"a": ["other"]}
        assert sorted(backend.keys("v")) == [1, 3, 4]

    def test_several_cuts_may_be_pending(self, driver: BackendDriver) -> None:
        """Each shows its own moment, in whatever order they are read and released."""
        backend = driver.open()
        state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        counts: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        cuts = []
        for generation in range(8):
            with as_key(backend, generation % 3):
                state.update(generation)
                counts.put(generation, generation)
            with as_key(backend, 100 + generation):
                state.update(generation)
            if generation >= 2:
                with as_key(backend, 100 + generation - 2):
                    state.clear()
            cuts.append(backend.cut())
        expected = []
        for generation in range(8):
            kept = {key: n for n in range(generation + 1) for key in [n % 3]}
            kept |= {100 + n: n for n in range(max(0, generation - 1), generation + 1)}
            expected.append(kept)

        for generation in (5, 0, 7, 3, 1, 2, 6, 4):
            content = read_cut(cuts[generation])
            assert {row["key"]: row["value"] for row in _rows(content, "v")} == expected[generation]
            assert len(_rows(content, "m")) == generation + 1
            with as_key(backend, 0):
                assert state.value() == 6
        assert {key: backend.query("v", key)[1] for key in backend.keys("v")} == expected[7]

    def test_a_cut_is_read_in_another_thread_while_records_flow(self, driver: BackendDriver) -> None:
        """The writer sees the cut, the stream sees itself."""
        backend = driver.open()
        state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        for key in range(2000):
            with as_key(backend, key):
                state.update(0)
        cut = backend.cut()
        found: list[Content] = []
        writer = threading.Thread(target=lambda: found.append(read_cut(cut)))

        writer.start()
        for key in range(2000):
            with as_key(backend, key):
                state.update(1)
        writer.join()

        assert {row["value"] for row in _rows(found[0], "v")} == {0}
        assert len(_rows(found[0], "v")) == 2000
        assert {row["value"] for row in _rows(read_cut(backend.cut()), "v")} == {1}

    def test_a_cut_given_up_leaves_no_trace(self, driver: BackendDriver) -> None:
        """Released without being read."""
        backend = driver.open()
        _fill(backend, range(20))
        backend.cut().release()

        for key in range(20):
            _check(backend, key)
        assert backend.num_entries() == 140

    @pytest.mark.parametrize("registered", [True, False])
    def test_an_erased_key_is_in_no_state_and_in_no_later_cut(
        self, driver: BackendDriver, registered: bool
    ) -> None:
        """Neither in what is registered nor in what was only restored; a cut taken before still has it."""
        backend = driver.open()
        _fill(backend, range(20))
        before = backend.cut()
        if not registered:
            backend = driver.open(content=read_cut(before))
            before = backend.cut()
        [token] = backend.parameters.tokens.of_stored([7])

        erased = backend.erase(token)

        assert erased == {
            "value": 1,
            "list": 1,
            "map": 2,
            "reducing": 1,
            "aggregating": 1,
            "folding": 1,
        }
        assert backend.erase(token) == {}
        held, after = read_cut(before), read_cut(backend.cut())
        for name in erased:
            assert 7 in {row["key"] for row in _rows(held, name)}
            assert {row["key"] for row in _rows(after, name)} == {*range(20)} - {7}
        _check(backend, 8)
        with as_key(backend, 7):
            value: Any = backend.state(descriptors_of_all_kinds(None)["value"])
            assert value.value() is None
            value.update(70)
            assert value.value() == 70

    def test_windows_of_an_erased_key_are_gone(self, driver: BackendDriver) -> None:
        """All of its namespaces, and those of no other key."""
        backend = driver.open()
        state: Any = backend.state(ValueStateDescriptor("w", Types.LONG()), NamespaceKind.WINDOW)
        for key in (1, 2):
            for window in ((0, 10), (10, 20)):
                with as_key(backend, key, window, state):
                    state.update(key)
        tokens = backend.parameters.tokens.of_stored([1, 2])

        assert backend.erase(tokens[0]) == {"w": 2}

        assert backend.namespaces("w", tokens[0]) == []
        assert sorted(backend.namespaces("w", tokens[1])) == [(0, 10), (10, 20)]

    def test_an_empty_state_survives(self, driver: BackendDriver) -> None:
        """Registered, never written: its meta is in the snapshot, without rows."""
        backend = driver.open()
        backend.state(ValueStateDescriptor("v", Types.LONG()))

        content = read_cut(backend.cut())

        assert [meta.name for meta, _ in content] == ["v"]
        assert _rows(content, "v") == []
        restored = driver.open(content=content)
        assert [meta.name for meta in restored.restored_states()] == ["v"]
        assert [meta.name for meta, _ in read_cut(restored.cut())] == ["v"]

    def test_synchronous_snapshots(self, driver: BackendDriver) -> None:
        """With `asynchronous` off, the content is the same."""
        backend = driver.open(asynchronous=False)
        _fill(backend, range(20))

        cut = backend.cut()
        with as_key(backend, 0):
            backend.state(ValueStateDescriptor("value", Types.LONG())).clear()
        restored = driver.open(content=read_cut(cut))

        for key in range(20):
            _check(restored, key)

    def test_state_nobody_registers_is_carried_along(self, driver: BackendDriver) -> None:
        """Unchanged, over several snapshots and over rescaling."""
        backend = driver.open()
        _fill(backend)
        contents = [read_cut(backend.cut())]

        for parallelism in (2, 1):
            backends = rescale(driver, contents, parallelism)
            for each in backends:
                each.state(ValueStateDescriptor("value", Types.LONG()))
            contents = [read_cut(each.cut()) for each in backends]

        [last] = contents
        for meta, batches in last:
            groups = [group for batch in batches for group in batch.column("key_group").to_pylist()]
            assert groups == sorted(groups), meta.name
        restored = driver.open(content=last)
        for key in _KEYS:
            _check(restored, key)

    def test_incompatible_state_fails_only_when_asked_for(self, driver: BackendDriver) -> None:
        """The message names the state and both types; other states are not affected."""
        backend = driver.open()
        _fill(backend, range(10))
        restored = driver.open(content=read_cut(backend.cut()))

        with pytest.raises(StateMigrationException, match=r"(?s)'value'.*LONG.*STRING"):
            restored.state(ValueStateDescriptor("value", Types.STRING()))
        with pytest.raises(StateMigrationException, match="'list'"):
            restored.state(MapStateDescriptor("list", Types.LONG(), Types.LONG()))
        with pytest.raises(StateMigrationException, match="'map'"):
            restored.state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))

        for key in range(10):
            _check(restored, key)

    @pytest.mark.parametrize("before", [False, True])
    def test_time_to_live_cannot_be_switched(self, driver: BackendDriver, before: bool) -> None:
        """Neither on nor off across a restore."""
        backend = driver.open()
        _fill(backend, range(3), ttl=before)
        restored = driver.open(content=read_cut(backend.cut()))

        after = descriptors_of_all_kinds(None if before else ttl_config())
        for name, descriptor in after.items():
            with pytest.raises(StateMigrationException, match=f"'{name}'.*time-to-live"):
                restored.state(descriptor)

    def test_the_key_type_cannot_change(self, driver: BackendDriver) -> None:
        """Not even to a type that could hold the keys."""
        backend = driver.open(Types.INT())
        state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        with as_key(backend, 1):
            state.update(1)
        content = read_cut(backend.cut())

        with pytest.raises(StateMigrationException, match=r"key of state 'v'.*INT.*LONG"):
            driver.open(Types.LONG(), content=content)

    @pytest.mark.parametrize("ttl", [False, True])
    def test_declared_migrations_are_applied(self, driver: BackendDriver, ttl: bool) -> None:
        """To every value of every kind that holds values of the old type."""
        backend = driver.open()
        _fill(backend, range(20), ttl=ttl)
        restored = driver.open(content=read_cut(backend.cut()))
        text = Types.STRING()
        descriptors: list[Any] = [
            ValueStateDescriptor("value", text),
            ListStateDescriptor("list", text),
            MapStateDescriptor("map", Types.STRING(), text),
        ]
        for descriptor in descriptors:
            descriptor.migrate_from(Types.LONG(), lambda number: f"<{number}>")
            if ttl:
                descriptor.enable_time_to_live(ttl_config())

        for backend in (restored, driver.open(content=read_cut(self._registered(restored, descriptors)))):
            value, elements, entries = self._states(backend, descriptors)
            for key in range(20):
                with as_key(backend, key):
                    assert value.value() == f"<{key}>"
                    assert list(elements.get()) == [f"<{key}>", f"<{key + 1}>"]
                    assert dict(entries.items()) == {"a": f"<{key}>", "b": f"<{-key}>"}

    def _states(self, backend: KeyedStateBackend, descriptors: list[Any]) -> list[Any]:
        return [backend.state(descriptor) for descriptor in descriptors]

    def _registered(self, backend: KeyedStateBackend, descriptors: list[Any]) -> Any:
        self._states(backend, descriptors)
        return backend.cut()
