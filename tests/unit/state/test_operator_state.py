from __future__ import annotations

from typing import Any

import pytest

from tidemark.errors import (
    ConfigError,
    SerializationError,
    StateMigrationException,
    UnsupportedOperationException,
)
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.operator_state import OperatorStateStore
from tidemark.state.snapshot import OperatorStatePart, Redistribution
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import Types

NUMBERS = ListStateDescriptor("numbers", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())


def test_a_list_keeps_its_elements_between_checkpoints() -> None:
    store = OperatorStateStore()
    state = store.get_list_state(NUMBERS)
    state.add(1)
    state.add_all([2, 3])
    state.add_all([])

    first = store.cut()
    state.add(4)
    [second] = store.cut()

    assert list(state.get()) == list(state) == [1, 2, 3, 4]
    assert len(first[0].elements) == 3
    assert second.mode is Redistribution.SPLIT
    state.update([9])
    assert list(state.get()) == [9]
    state.clear()
    assert list(state.get()) == []


def test_a_list_refuses_none_and_values_of_another_type() -> None:
    state = OperatorStateStore().get_list_state(NUMBERS)
    state.add(1)

    calls: list[tuple[Any, Any]] = [
        (state.add, None),
        (state.add_all, None),
        (state.add_all, [2, None]),
        (state.update, None),
    ]
    for call, argument in calls:
        with pytest.raises(ConfigError, match="'numbers'"):
            call(argument)
    with pytest.raises(SerializationError):
        state.add("text")
    assert list(state.get()) == [1]


def test_elements_changed_after_the_cut_are_not_in_it() -> None:
    store = OperatorStateStore()
    state = store.get_list_state(ListStateDescriptor("l", Types.PICKLED_BYTE_ARRAY()))
    state.add({"a": 1})
    parts = store.cut()

    next(iter(state.get()))["a"] = 2

    restored = OperatorStateStore(parts).get_list_state(ListStateDescriptor("l", Types.PICKLED_BYTE_ARRAY()))
    assert list(restored.get()) == [{"a": 1}]


def test_everything_comes_back_after_a_restore() -> None:
    store = OperatorStateStore()
    store.get_list_state(NUMBERS).add_all([1, 2])
    store.get_union_list_state(ListStateDescriptor("union", Types.STRING())).add("x")
    store.get_broadcast_state(RULES).put_all({"a": "1", "b": None})
    store.get_raw_state("raw").elements = (b"blob",)

    restored = OperatorStateStore(store.cut())

    assert list(restored.get_list_state(NUMBERS).get()) == [1, 2]
    assert list(restored.get_union_list_state(ListStateDescriptor("union", Types.STRING())).get()) == ["x"]
    assert dict(restored.get_broadcast_state(RULES).items()) == {"a": "1", "b": None}
    assert restored.get_raw_state("raw").restored == (b"blob",)
    assert restored.cut()[-1].elements == (b"blob",)


def test_names_are_reported_by_kind() -> None:
    store = OperatorStateStore()
    store.get_list_state(NUMBERS)
    store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
    store.get_broadcast_state(RULES)
    store.get_raw_state("raw")

    assert store.get_registered_state_names() == {"numbers", "union"}
    assert store.get_registered_broadcast_state_names() == {"rules"}


def test_a_name_has_one_mode_and_one_type() -> None:
    store = OperatorStateStore()
    first = store.get_list_state(NUMBERS)

    assert store.get_list_state(ListStateDescriptor("numbers", Types.LONG())) is first
    with pytest.raises(ConfigError, match=r"'numbers'.*split.*union"):
        store.get_union_list_state(NUMBERS)
    with pytest.raises(ConfigError, match="'numbers'"):
        store.get_broadcast_state(MapStateDescriptor("numbers", Types.STRING(), Types.STRING()))
    with pytest.raises(ConfigError, match="'numbers'"):
        store.get_raw_state("numbers")
    with pytest.raises(ConfigError, match="type"):
        store.get_list_state(ListStateDescriptor("numbers", Types.STRING()))
    store.get_broadcast_state(RULES)
    assert store.get_raw_state("r") is store.get_raw_state("r")
    with pytest.raises(ConfigError, match="type"):
        store.get_broadcast_state(MapStateDescriptor("rules", Types.LONG(), Types.STRING()))


def test_the_wrong_descriptor_is_refused() -> None:
    store = OperatorStateStore()
    value: Any = ValueStateDescriptor("v", Types.LONG())

    with pytest.raises(ConfigError, match="ListStateDescriptor"):
        store.get_list_state(value)
    with pytest.raises(ConfigError, match="MapStateDescriptor"):
        store.get_broadcast_state(value)


def test_operator_state_has_no_time_to_live() -> None:
    config = StateTtlConfig.new_builder(1000).build()
    numbers = ListStateDescriptor("numbers", Types.LONG())
    rules = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    numbers.enable_time_to_live(config)
    rules.enable_time_to_live(config)
    store = OperatorStateStore()

    for call in (
        lambda: store.get_list_state(numbers),
        lambda: store.get_union_list_state(numbers),
        lambda: store.get_broadcast_state(rules),
    ):
        with pytest.raises(ConfigError, match="time-to-live"):
            call()


def test_restored_state_must_fit_the_request() -> None:
    store = OperatorStateStore()
    store.get_list_state(NUMBERS).add(1)
    store.get_broadcast_state(RULES).put("a", "b")
    parts = store.cut()

    restored = OperatorStateStore(parts)
    with pytest.raises(StateMigrationException, match=r"'numbers'.*LONG.*STRING"):
        restored.get_list_state(ListStateDescriptor("numbers", Types.STRING()))
    with pytest.raises(StateMigrationException, match="split"):
        restored.get_union_list_state(NUMBERS)
    with pytest.raises(StateMigrationException, match="'rules'"):
        restored.get_broadcast_state(MapStateDescriptor("rules", Types.LONG(), Types.STRING()))
    with pytest.raises(StateMigrationException, match="'rules'"):
        restored.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
    assert list(restored.get_list_state(NUMBERS).get()) == [1]


def test_a_serializer_that_is_gone_is_reported_with_the_state() -> None:
    gone = b"\x01\x00\x00\x00\x08no.Class\x00\x00\x00\x01\x00\x00\x00\x00"
    store = OperatorStateStore([OperatorStatePart("numbers", Redistribution.SPLIT, (b"1",), gone)])

    with pytest.raises(StateMigrationException, match=r"'numbers'.*no\.Class"):
        store.get_list_state(NUMBERS)


def test_declared_migrations_are_applied() -> None:
    store = OperatorStateStore()
    store.get_list_state(NUMBERS).add_all([1, 2])
    descriptor = ListStateDescriptor("numbers", Types.STRING())
    descriptor.migrate_from(Types.LONG(), str)

    restored = OperatorStateStore(store.cut()).get_list_state(descriptor)

    assert list(restored.get()) == ["1", "2"]


def test_state_nobody_asks_for_is_carried_along() -> None:
    store = OperatorStateStore()
    store.get_list_state(NUMBERS).add(1)
    parts = store.cut()

    again = OperatorStateStore(OperatorStateStore(parts).cut()).cut()

    assert again == parts


def test_broadcast_state_is_a_map() -> None:
    state = OperatorStateStore().get_broadcast_state(RULES)
    assert state.is_empty()
    state.put("a", "1")
    state["b"] = None
    state.put_all([("c", "3")])
    del state["c"]
    state.remove("z")

    assert state["a"] == state.get("a") == "1"
    assert "b" in state
    assert state["z"] is None
    assert dict(state.items()) == dict(state.entries()) == dict(state.immutable_entries())
    assert sorted(state) == sorted(state.keys()) == ["a", "b"]
    assert set(state.values()) == {"1", None}
    assert not state.is_empty()
    state.clear()
    assert state.is_empty()
    with pytest.raises(ConfigError):
        state.put_all(None)  # type: ignore[arg-type]


def test_broadcast_keys_are_compared_by_their_bytes() -> None:
    descriptor = MapStateDescriptor("m", Types.LIST(Types.LONG()), Types.LONG())
    store = OperatorStateStore()
    state = store.get_broadcast_state(descriptor)
    state.put([1, 2], 3)

    restored = OperatorStateStore(store.cut()).get_broadcast_state(descriptor)

    assert restored.get([1, 2]) == 3
    assert list(restored.keys()) == [[1, 2]]
    assert [1] not in restored


def test_changing_broadcast_state_breaks_its_iterations() -> None:
    state = OperatorStateStore().get_broadcast_state(RULES)
    state.put_all({"a": "1", "b": "2"})
    view = state.read_only()
    iterations = [iter(state.items()), iter(view.keys())]
    for iteration in iterations:
        next(iteration)

    state.put("c", "3")

    for iteration in iterations:
        with pytest.raises(RuntimeError, match="'rules'"):
            next(iteration)


def test_the_read_only_side_sees_everything_and_changes_nothing() -> None:
    state = OperatorStateStore().get_broadcast_state(RULES)
    view: Any = state.read_only()
    state.put("a", "1")

    assert view.get("a") == view["a"] == "1"
    assert "a" in view
    assert dict(view.items()) == dict(view.immutable_entries()) == {"a": "1"}
    assert list(view) == ["a"]
    assert not view.is_empty()
    for change in (
        lambda: view.put("b", "2"),
        lambda: view.put_all({}),
        lambda: view.remove("a"),
        view.clear,
        lambda: view.__setitem__("b", "2"),
        lambda: view.__delitem__("a"),
    ):
        with pytest.raises(UnsupportedOperationException, match="read-only"):
            change()
    assert dict(state.items()) == {"a": "1"}
