"""The part of the backend contract on time-to-live."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.errors import SerializationError
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.serializers.nullable import NullableSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.ttl import StateTtlConfig
from tidemark.testing.backend_contract_states import descriptors_of_all_kinds
from tidemark.testing.backend_driver import BackendDriver, as_key, read_cut
from tidemark.types.typeinfo import Types

__all__ = ["TTL", "TtlContract", "ttl_config"]

TTL = 100


def ttl_config(
    *, renew_on_read: bool = False, return_expired: bool = False, **cleanup: Any
) -> StateTtlConfig:
    """A time-to-live of 100 ms; no clean-up besides explicit reads unless `cleanup` asks for it."""
    builder = StateTtlConfig.new_builder(TTL).disable_cleanup_in_background()
    if renew_on_read:
        builder.update_ttl_on_read_and_write()
    if return_expired:
        builder.return_expired_if_not_cleaned_up()
    if cleanup.get("full_snapshot"):
        builder.cleanup_full_snapshot()
    return builder.build()


def with_ttl(descriptor: Any, **settings: Any) -> Any:
    """The descriptor, with a time-to-live of 100 ms."""
    descriptor.enable_time_to_live(ttl_config(**settings))
    return descriptor


class TtlContract:
    """Tests of expiry; see `BackendContract`."""

    @pytest.mark.parametrize("kind", ["value", "list", "map", "reducing", "aggregating", "folding"])
    def test_the_boundary_counts_as_expired(self, driver: BackendDriver, kind: str) -> None:
        """One millisecond before the end a unit is there, at the end it is gone, and deleted by the read."""
        backend = driver.open()
        state: Any = backend.state(descriptors_of_all_kinds(ttl_config())[kind])
        for key in (1, 2):
            with as_key(backend, key):
                _write(state, kind, 5)

        driver.clock.advance(TTL - 1)
        with as_key(backend, 1):
            assert _read(state, kind) not in (None, [], {})
        driver.clock.advance(1)
        assert backend.num_entries(kind) == 2
        with as_key(backend, 1):
            assert _read(state, kind) in (None, [], {})
        assert backend.num_entries(kind) == 1
        assert backend.keys(kind) == []

    @pytest.mark.parametrize("kind", ["value", "list", "map", "reducing", "aggregating", "folding"])
    def test_reads_renew_only_where_asked(self, driver: BackendDriver, kind: str) -> None:
        """OnReadAndWrite moves the stamp at a read, OnCreateAndWrite does not."""
        backend = driver.open()
        renewed: Any = backend.state(descriptors_of_all_kinds(ttl_config(renew_on_read=True))[kind])
        other = driver.open()
        fixed: Any = other.state(descriptors_of_all_kinds(ttl_config())[kind])
        for each, state in ((backend, renewed), (other, fixed)):
            with as_key(each, 1):
                _write(state, kind, 5)
        driver.clock.advance(60)
        for each, state in ((backend, renewed), (other, fixed)):
            with as_key(each, 1):
                _read(state, kind)

        driver.clock.advance(60)

        with as_key(backend, 1):
            assert _read(renewed, kind) not in (None, [], {})
        with as_key(other, 1):
            assert _read(fixed, kind) in (None, [], {})

    @pytest.mark.parametrize("kind", ["value", "list", "map", "reducing", "aggregating", "folding"])
    def test_expired_is_returned_once_where_visible(self, driver: BackendDriver, kind: str) -> None:
        """The read that returns it deletes it, and does not renew it."""
        backend = driver.open()
        config = ttl_config(return_expired=True, renew_on_read=True)
        state: Any = backend.state(descriptors_of_all_kinds(config)[kind])
        with as_key(backend, 1):
            _write(state, kind, 5)
        driver.clock.advance(TTL)

        with as_key(backend, 1):
            assert _read(state, kind) not in (None, [], {})
            assert _read(state, kind) in (None, [], {})
        assert backend.num_entries(kind) == 0

    def test_visible_expired_value_survives_the_background_defaults(self, driver: BackendDriver) -> None:
        """Clean-up in small steps runs behind an access, not in front of it."""
        descriptor = ValueStateDescriptor("v", Types.LONG())
        descriptor.enable_time_to_live(
            StateTtlConfig.new_builder(TTL).return_expired_if_not_cleaned_up().build()
        )
        backend = driver.open()
        state: Any = backend.state(descriptor)
        with as_key(backend, 1):
            state.update(5)
        driver.clock.advance(TTL)

        with as_key(backend, 1):
            assert state.value() == 5
            assert state.value() is None

    def test_a_write_renews(self, driver: BackendDriver) -> None:
        """The new stamp counts from the write."""
        backend = driver.open()
        state: Any = backend.state(with_ttl(ValueStateDescriptor("v", Types.LONG())))
        with as_key(backend, 1):
            state.update(1)
        driver.clock.advance(90)
        with as_key(backend, 1):
            state.update(2)
        driver.clock.advance(90)

        with as_key(backend, 1):
            assert state.value() == 2

    def test_default_value_is_ignored(self, driver: BackendDriver) -> None:
        """With time-to-live an absent value is None."""
        backend = driver.open()
        state: Any = backend.state(with_ttl(ValueStateDescriptor("v", Types.LONG(), default_value=3)))

        with as_key(backend, 1):
            assert state.value() is None

    def test_list_elements_expire_one_by_one(self, driver: BackendDriver) -> None:
        """Adding leaves the stamps of older elements alone."""
        backend = driver.open()
        state: Any = backend.state(with_ttl(ListStateDescriptor("l", Types.LONG())))
        with as_key(backend, 1):
            state.add(1)
        driver.clock.advance(60)
        with as_key(backend, 1):
            state.add_all([2, 3])
        driver.clock.advance(60)

        with as_key(backend, 1):
            assert list(state.get()) == [2, 3]
            state.update([4])
        driver.clock.advance(60)
        with as_key(backend, 1):
            assert list(state.get()) == [4]

    def test_list_renewal_drops_expired_elements(self, driver: BackendDriver) -> None:
        """Under OnReadAndWrite a read rewrites the list with what lives."""
        backend = driver.open()
        state: Any = backend.state(with_ttl(ListStateDescriptor("l", Types.LONG()), renew_on_read=True))
        with as_key(backend, 1):
            state.add(1)
        driver.clock.advance(60)
        with as_key(backend, 1):
            state.add(2)
        driver.clock.advance(60)
        with as_key(backend, 1):
            assert list(state.get()) == [2]
        driver.clock.advance(60)

        with as_key(backend, 1):
            assert list(state.get()) == [2]

    @pytest.mark.parametrize("ttl", [False, True])
    def test_map_values_are_none_only_if_their_serializer_can_carry_it(
        self, driver: BackendDriver, ttl: bool
    ) -> None:
        """A LONG cannot be None; wrapped by `NullableSerializer` it can, also in a snapshot."""
        narrow: Any = MapStateDescriptor("narrow", Types.STRING(), Types.LONG())
        wide: Any = MapStateDescriptor(
            "wide", Types.STRING(), NullableSerializer(serializer_for(Types.LONG()))
        )
        if ttl:
            with_ttl(narrow), with_ttl(wide)
        backend = driver.open()
        refusing: Any = backend.state(narrow)
        state: Any = backend.state(wide)

        with as_key(backend, 1):
            with pytest.raises(SerializationError):
                refusing.put("a", None)
            with pytest.raises(SerializationError):
                refusing.put_all({"a": 1, "b": None})
            assert refusing.is_empty()
            state.put_all({"a": None, "b": 2})
            assert state.contains("a")
            assert dict(state.items()) == {"a": None, "b": 2}
        again = driver.open(content=read_cut(backend.cut()))
        restored: Any = again.state(wide)
        with as_key(again, 1):
            assert dict(restored.items()) == {"a": None, "b": 2}
            assert restored.contains("a")

    def test_map_entries_expire_one_by_one(self, driver: BackendDriver) -> None:
        """Contains, iteration and is_empty agree on what is there."""
        backend = driver.open()
        state: Any = backend.state(with_ttl(MapStateDescriptor("m", Types.STRING(), Types.STRING())))
        with as_key(backend, 1):
            state.put_all({"old": "x", "gone": None})
        driver.clock.advance(60)
        with as_key(backend, 1):
            state.put("new", None)
        driver.clock.advance(60)

        with as_key(backend, 1):
            assert not state.contains("gone")
            assert state.contains("new")
            assert list(state.items()) == [("new", None)]
            assert list(state.keys()) == ["new"]
            assert not state.is_empty()
        assert backend.num_entries("m") == 1
        driver.clock.advance(60)
        with as_key(backend, 1):
            assert state.is_empty()

    def test_map_entry_read_renews_only_that_entry(self, driver: BackendDriver) -> None:
        """Contains counts as a read."""
        backend = driver.open()
        descriptor = MapStateDescriptor("m", Types.STRING(), Types.LONG())
        state: Any = backend.state(with_ttl(descriptor, renew_on_read=True))
        with as_key(backend, 1):
            state.put_all({"a": 1, "b": 2, "c": 3})
        driver.clock.advance(60)
        with as_key(backend, 1):
            state.get("a")
            assert state.contains("b")
        driver.clock.advance(60)

        with as_key(backend, 1):
            assert dict(state.items()) == {"a": 1, "b": 2}

    @pytest.mark.parametrize(("visible", "total"), [(False, 1), (True, 6)])
    def test_adding_to_an_expired_accumulator(self, driver: BackendDriver, visible: bool, total: int) -> None:
        """It starts afresh, or goes on where expired values are visible; the result is stamped now."""
        backend = driver.open()
        found = descriptors_of_all_kinds(ttl_config(return_expired=visible))
        reducing: Any = backend.state(found["reducing"])
        folding: Any = backend.state(found["folding"])
        with as_key(backend, 1):
            reducing.add(5)
            folding.add(5)
        driver.clock.advance(TTL)

        with as_key(backend, 1):
            reducing.add(1)
            folding.add(1)
        driver.clock.advance(TTL - 1)
        with as_key(backend, 1):
            assert reducing.get() == total
            assert folding.get() == ([0, 5, 1] if visible else [0, 1])

    def test_stamps_travel_and_the_new_length_applies(self, driver: BackendDriver) -> None:
        """Time passes while the job is down; length, update type and visibility may change."""
        backend = driver.open()
        found = descriptors_of_all_kinds(ttl_config())
        states: dict[str, Any] = {name: backend.state(found[name]) for name in ("value", "list", "map")}
        with as_key(backend, 1):
            for kind, state in states.items():
                _write(state, kind, 5)
        content = read_cut(backend.cut())
        driver.clock.advance(150)

        for length, alive in ((200, True), (120, False)):
            restored = driver.open(content=content)
            config = StateTtlConfig.new_builder(length).disable_cleanup_in_background().build()
            again = descriptors_of_all_kinds(config)
            for kind in states:
                state = restored.state(again[kind])
                with as_key(restored, 1):
                    assert (_read(state, kind) not in (None, [], {})) is alive

    @pytest.mark.parametrize("kind", ["value", "list", "map"])
    def test_full_snapshot_leaves_expired_units_out(self, driver: BackendDriver, kind: str) -> None:
        """The running state is untouched."""
        backend = driver.open()
        state: Any = backend.state(descriptors_of_all_kinds(ttl_config(full_snapshot=True))[kind])
        with as_key(backend, 1):
            _write(state, kind, 1)
        driver.clock.advance(TTL)
        with as_key(backend, 2):
            _write(state, kind, 2)

        content = read_cut(backend.cut())

        assert backend.num_entries(kind) == 2
        assert sum(batch.num_rows for _, batches in content for batch in batches) == 1
        restored = driver.open(content=content)
        assert restored.num_entries(kind) == 1
        # What one snapshot remembers of its keys for the next must not be mixed up by those it left out.
        for key in (3, 4, 5):
            with as_key(backend, key):
                _write(state, kind, key)
            content = read_cut(backend.cut())
        again = driver.open(content=content)
        later: Any = again.state(descriptors_of_all_kinds(ttl_config(full_snapshot=True))[kind])
        assert again.num_entries(kind) == 4
        for key in (2, 3, 4, 5):
            with as_key(again, key):
                assert _read(later, kind) == {"value": key, "list": [key], "map": {"k": key}}[kind]

    def test_other_snapshots_keep_expired_units(self, driver: BackendDriver) -> None:
        """Without the strategy nothing is left out."""
        backend: KeyedStateBackend = driver.open()
        state: Any = backend.state(with_ttl(ValueStateDescriptor("v", Types.LONG())))
        with as_key(backend, 1):
            state.update(1)
        driver.clock.advance(TTL)

        [(_, batches)] = read_cut(backend.cut())

        assert sum(batch.num_rows for batch in batches) == 1


def _write(state: Any, kind: str, number: int) -> None:
    if kind == "value":
        state.update(number)
    elif kind == "map":
        state.put("k", number)
    else:
        state.add(number)


def _read(state: Any, kind: str) -> Any:
    if kind == "value":
        return state.value()
    return dict(state.items()) if kind == "map" else state.get()
