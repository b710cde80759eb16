"""The part of the backend contract on what the six kinds of state mean."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tidemark.errors import ConfigError, NoCurrentKeyError, SerializationError, UnknownStateError
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.namespace import NamespaceKind
from tidemark.state.ttl import StateTtlConfig
from tidemark.testing.backend_driver import BackendDriver, as_key
from tidemark.types.typeinfo import Types

__all__ = ["Average", "StatesContract", "descriptors_of_all_kinds"]


class Average:
    """An aggregate function: the mean of the numbers added; the accumulator is (count, sum)."""

    def create_accumulator(self) -> tuple[int, int]:
        """Nothing added yet."""
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        """One more number."""
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        """The mean."""
        return accumulator[1] / accumulator[0]

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        """Both together."""
        return left[0] + right[0], left[1] + right[1]


def folding(name: str) -> FoldingStateDescriptor:
    """A descriptor that collects numbers in a list that starts as [0]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return FoldingStateDescriptor(
            name, [0], lambda folded, value: [*folded, value], Types.LIST(Types.LONG())
        )


def descriptors_of_all_kinds(ttl: StateTtlConfig | None = None) -> dict[str, Any]:
    """One descriptor of each kind, all of numbers, named after its kind."""
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor("value", Types.LONG()),
        ListStateDescriptor("list", Types.LONG()),
        MapStateDescriptor("map", Types.STRING(), Types.LONG()),
        ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
        AggregatingStateDescriptor("aggregating", Average(), pair),
        folding("folding"),
    ]
    for descriptor in descriptors:
        if ttl is not None:
            descriptor.enable_time_to_live(ttl)
    return {descriptor.name: descriptor for descriptor in descriptors}


class StatesContract:
    """Tests of the primitives; see `BackendContract`."""

    @pytest.fixture
    def backend(self, driver: BackendDriver) -> KeyedStateBackend:
        """A backend with LONG keys."""
        return driver.open()

    def test_value_is_kept_per_key(self, backend: KeyedStateBackend) -> None:
        """A handle shows what the current key holds."""
        state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        with as_key(backend, 1):
            state.update(10)
        with as_key(backend, 2):
            assert state.value() is None
            state.update(20)

        with as_key(backend, 1):
            assert state.value() == 10
            state.clear()
            assert state.value() is None
        with as_key(backend, 2):
            assert state.value() == 20

    def test_falsy_values_are_values(self, backend: KeyedStateBackend) -> None:
        """Zero, the empty text and an empty list are stored; None clears."""
        number: Any = backend.state(ValueStateDescriptor("n", Types.LONG(), default_value=7))
        text: Any = backend.state(ValueStateDescriptor("t", Types.STRING()))
        anything: Any = backend.state(ValueStateDescriptor("p", Types.PICKLED_BYTE_ARRAY()))
        with as_key(backend, 1):
            number.update(0)
            text.update("")
            anything.update([])

        with as_key(backend, 1):
            assert (number.value(), text.value(), anything.value()) == (0, "", [])
            number.update(None)
            assert number.value() == 7

    def test_default_value_is_a_fresh_copy(self, backend: KeyedStateBackend) -> None:
        """Changing what `value` returned does not reach another key."""
        state: Any = backend.state(
            ValueStateDescriptor("v", Types.PICKLED_BYTE_ARRAY(), default_value={"a": []})
        )
        with as_key(backend, 1):
            state.value()["a"].append(1)

        with as_key(backend, 2):
            assert state.value() == {"a": []}

    def test_values_are_what_a_round_trip_gives(self, backend: KeyedStateBackend) -> None:
        """FLOAT is single precision, INT has a range, tuples are tuples."""
        single: Any = backend.state(ValueStateDescriptor("f", Types.FLOAT()))
        small: Any = backend.state(ValueStateDescriptor("i", Types.INT()))
        pair: Any = backend.state(ValueStateDescriptor("t", Types.TUPLE([Types.LONG(), Types.STRING()])))
        with as_key(backend, 1):
            single.update(110.1)
            pair.update([1, "x"])
            with pytest.raises(SerializationError):
                small.update(1 << 31)

        with as_key(backend, 1):
            assert single.value() == 110.0999984741211
            assert pair.value() == (1, "x")
            assert small.value() is None

    def test_list_keeps_order_and_is_read_again_and_again(self, backend: KeyedStateBackend) -> None:
        """The list handed out is the caller's own."""
        state: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
        with as_key(backend, 1):
            assert list(state.get()) == []
            state.add(3)
            state.add_all([1, 2])
            state.add_all([])
        with as_key(backend, 1):
            elements = state.get()
            assert list(elements) == [3, 1, 2]
            assert list(elements) == [3, 1, 2]
            assert list(state) == [3, 1, 2]
            state.add(0)
            state.update([9])
            assert list(elements) == [3, 1, 2]
            assert list(state.get()) == [9]
            state.update([])
            assert list(state.get()) == []
        assert backend.num_entries("l") == 0

    def test_list_refuses_none_and_stays_as_it_was(self, backend: KeyedStateBackend) -> None:
        """Neither None nor a None element is accepted, anywhere."""
        state: Any = backend.state(ListStateDescriptor("l", Types.STRING()))
        with as_key(backend, 1):
            state.add("a")
            for call, argument in (
                (state.add, None),
                (state.add_all, None),
                (state.add_all, ["b", None]),
                (state.update, None),
                (state.update, [None]),
            ):
                with pytest.raises(ConfigError, match="'l'"):
                    call(argument)

            assert list(state.get()) == ["a"]

    def test_map_behaves_like_a_dictionary(self, backend: KeyedStateBackend) -> None:
        """Except that absent keys are no errors."""
        state: Any = backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
        with as_key(backend, 1):
            assert state.is_empty()
            assert list(state.items()) == []
            state.put("a", 1)
            state["b"] = 2
            state.put_all({"c": 3})
            state.put_all([("d", 4)])
        with as_key(backend, 2):
            assert state.get("a") is None
            assert "a" not in state
        with as_key(backend, 1):
            assert dict(state.items()) == dict(state.entries()) == {"a": 1, "b": 2, "c": 3, "d": 4}
            assert sorted(state.keys()) == sorted(state) == ["a", "b", "c", "d"]
            assert sorted(state.values()) == [1, 2, 3, 4]
            assert state["a"] == 1
            assert state["z"] is None
            state.remove("z")
            del state["a"]
            state.remove("b")
            assert not state.contains("a")
            assert dict(state.items()) == {"c": 3, "d": 4}
            state.clear()
            assert state.is_empty()
        assert backend.num_entries("m") == 0

    def test_map_stores_none_where_the_type_has_it(self, backend: KeyedStateBackend) -> None:
        """The key then counts as present."""
        texts: Any = backend.state(MapStateDescriptor("t", Types.LONG(), Types.STRING()))
        numbers: Any = backend.state(MapStateDescriptor("n", Types.LONG(), Types.LONG()))
        with as_key(backend, 1):
            texts.put(1, None)
            with pytest.raises(SerializationError):
                numbers.put(1, None)

        with as_key(backend, 1):
            assert texts.contains(1)
            assert texts.get(1) is None
            assert list(texts.items()) == [(1, None)]
            assert numbers.is_empty()

    def test_map_keys_are_compared_by_their_bytes(self, backend: KeyedStateBackend) -> None:
        """Unhashable keys work, and 0.0 is not -0.0."""
        lists: Any = backend.state(MapStateDescriptor("l", Types.LIST(Types.LONG()), Types.LONG()))
        reals: Any = backend.state(MapStateDescriptor("r", Types.DOUBLE(), Types.LONG()))
        with as_key(backend, 1):
            lists.put([1, 2], 3)
            reals.put_all([(0.0, 1), (-0.0, 2), (float("nan"), 3)])

        with as_key(backend, 1):
            assert lists.get([1, 2]) == 3
            assert list(lists.keys()) == [[1, 2]]
            assert (reals.get(0.0), reals.get(-0.0), reals.get(float("nan"))) == (1, 2, 3)

    @pytest.mark.parametrize("change", ["put", "remove", "clear", "put_all"])
    def test_changing_a_map_breaks_its_iterations(self, backend: KeyedStateBackend, change: str) -> None:
        """Whatever the change, and whichever view is iterated over."""
        state: Any = backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
        arguments: tuple[Any, ...] = {"put": ("z", 1), "remove": ("a",), "put_all": ({"y": 2},)}.get(
            change, ()
        )
        with as_key(backend, 1):
            for view in (state.items, state.keys, state.values):
                state.put_all({"a": 1, "b": 2})
                iteration = iter(view())
                next(iteration)
                getattr(state, change)(*arguments)
                with pytest.raises(RuntimeError):
                    next(iteration)

    def test_folded_kinds_combine_and_none_clears(self, backend: KeyedStateBackend) -> None:
        """Reducing keeps the first value as it is, folding starts from a copy of the initial value."""
        found = descriptors_of_all_kinds()
        states: list[Any] = [backend.state(found[name]) for name in ("reducing", "aggregating", "folding")]
        with as_key(backend, 1):
            assert [state.get() for state in states] == [None, None, None]
            for state in states:
                state.add(5)
        with as_key(backend, 2):
            for state in states:
                state.add(1)
        with as_key(backend, 1):
            for state in states:
                state.add(6)
            assert [state.get() for state in states] == [11, 5.5, [0, 5, 6]]
            for state in states:
                state.add(None)
            assert [state.get() for state in states] == [None, None, None]
        with as_key(backend, 2):
            assert [state.get() for state in states] == [1, 1.0, [0, 1]]

    def test_state_needs_a_current_key(self, backend: KeyedStateBackend) -> None:
        """Every access outside a batch of a key is refused."""
        states: list[Any] = [backend.state(d) for d in descriptors_of_all_kinds().values()]
        value, elements, entries = states[:3]
        backend.start_batch()

        for access in (
            value.value,
            value.clear,
            lambda: value.update(1),
            elements.get,
            lambda: elements.add(1),
            lambda: entries.get("a"),
            lambda: entries.put("a", 1),
            lambda: list(entries.items()),
            states[3].get,
            lambda: states[4].add(1),
        ):
            with pytest.raises(NoCurrentKeyError):
                access()
        backend.end_batch()

    def test_a_name_stands_for_one_state(self, backend: KeyedStateBackend) -> None:
        """The same again gives an equivalent handle; another kind, type or TTL switch is refused."""
        first: Any = backend.state(ValueStateDescriptor("s", Types.LONG()))
        again: Any = backend.state(ValueStateDescriptor("s", Types.LONG()))
        with as_key(backend, 1):
            first.update(4)
            assert again.value() == 4
        expiring = ValueStateDescriptor("s", Types.LONG())
        expiring.enable_time_to_live(StateTtlConfig.new_builder(1000).build())

        for other in (
            ValueStateDescriptor("s", Types.STRING()),
            ListStateDescriptor("s", Types.LONG()),
            expiring,
        ):
            with pytest.raises(ConfigError, match="'s'"):
                backend.state(other)
        backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        with pytest.raises(ConfigError, match="'m'"):
            backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))

    def test_windows_are_apart(self, backend: KeyedStateBackend) -> None:
        """State with a namespace is kept per key and window."""
        kind = NamespaceKind.WINDOW
        state: Any = backend.state(ListStateDescriptor("l", Types.LONG()), kind)
        for window, number in (((0, 10), 1), ((10, 20), 2)):
            with as_key(backend, 1, window, state):
                state.add(number)
        with as_key(backend, 2, (10, 20), state):
            state.add(3)

        with as_key(backend, 1, (10, 20), state):
            assert list(state.get()) == [2]
            state.clear()
        with as_key(backend, 1, (0, 10), state):
            assert list(state.get()) == [1]
        assert backend.namespaces("l", 1) == [(0, 10)]
        assert backend.keys("l", (10, 20)) == [2]
        assert backend.keys("l", (0, 10)) == [1]

    def test_merging_windows(self, backend: KeyedStateBackend) -> None:
        """Merging kinds move what the sources hold into the target; absent sources do not matter."""
        kind = NamespaceKind.WINDOW
        found = descriptors_of_all_kinds()
        states: list[Any] = [backend.state(found[name], kind) for name in ("list", "reducing", "aggregating")]
        for window, number in (((0, 1), 1), ((1, 2), 2), ((2, 3), 6)):
            with as_key(backend, 1, window, *states):
                for state in states:
                    state.add(number)

        with as_key(backend, 1):
            for state in states:
                state.merge_namespaces((0, 1), [(1, 2), (2, 3), (8, 9)])

        with as_key(backend, 1, (0, 1), *states):
            assert [state.get() for state in states] == [[1, 2, 6], 9, 3.0]
        assert backend.namespaces("list", 1) == [(0, 1)]
        assert backend.namespaces("reducing", 1) == [(0, 1)]

    def test_merging_into_an_empty_window(self, backend: KeyedStateBackend) -> None:
        """The target need not exist."""
        kind = NamespaceKind.WINDOW
        state: Any = backend.state(descriptors_of_all_kinds()["reducing"], kind)
        with as_key(backend, 1, (0, 1), state):
            state.add(5)
            state.merge_namespaces((0, 9), [(0, 1)])

        with as_key(backend, 1, (0, 9), state):
            assert state.get() == 5

    def test_reading_from_outside(self, backend: KeyedStateBackend) -> None:
        """Keys, counts and queries see what the handles wrote."""
        found = descriptors_of_all_kinds()
        states: dict[str, Any] = {name: backend.state(descriptor) for name, descriptor in found.items()}
        for key in (1, 2):
            with as_key(backend, key):
                states["value"].update(key)
                states["list"].add_all([key, key])
                states["map"].put_all({"a": key, "b": key})
                states["aggregating"].add(key)

        assert sorted(backend.keys("value")) == [1, 2]
        assert len(backend.keys("value", limit=1)) == 1
        assert backend.num_entries("list") == 2
        assert backend.num_entries("map") == 4
        assert backend.num_entries() == 10
        assert backend.query("value", 1) == (True, 1)
        assert backend.query("list", 2) == (True, [2, 2])
        assert backend.query("map", 2) == (True, {"a": 2, "b": 2})
        assert backend.query("aggregating", 2) == (True, 2.0)
        assert backend.query("aggregating", 2, accumulator=True) == (True, (1, 2))
        assert backend.query("value", 3) == (False, None)
        with pytest.raises(UnknownStateError):
            backend.query("nothing", 1)

    def test_keys_of_any_type(self, driver: BackendDriver) -> None:
        """Also keys Python cannot hash, and text with characters beyond ASCII."""
        cases: list[tuple[Any, list[Any]]] = [
            (Types.STRING(), ["", "é", "a" * 100]),
            (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), ("b", 2)]),
            (Types.PICKLED_BYTE_ARRAY(), [{"a": [1]}, (1, "x"), 3]),
            (Types.DOUBLE(), [1.5, -0.0]),
        ]
        for key_type, keys in cases:
            backend = driver.open(key_type)
            state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
            for number, key in enumerate(keys):
                with as_key(backend, key):
                    state.update(number)

            assert [backend.key_of(token) for token in sorted(backend.keys("v"), key=repr)] == sorted(
                keys,
                key=lambda key: (
                    repr(backend.parameters.key_serializer.key_bytes(key))
                    if not backend.parameters.key_serializer.identity_key
                    else repr(key)
                ),
            )
            for number, key in enumerate(keys):
                with as_key(backend, key):
                    assert state.value() == number
