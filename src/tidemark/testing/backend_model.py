"""Random programs against a backend and against plain dictionaries, which must agree after every step.

A program is a list of `Step`s: accesses of states of all kinds under a few keys, time passing, cuts that stay
pending for a while, restores into a new backend. The model keeps a dictionary per state. `run_program`
raises `AssertionError` where the two differ. The programs themselves come from hypothesis (`programs`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.ttl import StateTtlConfig
from tidemark.testing.backend_contract_states import Average
from tidemark.testing.backend_driver import BackendDriver, Content, as_key, read_cut
from tidemark.types.typeinfo import Types

__all__ = ["Step", "programs", "run_program"]

TTL = 50
Step = tuple[Any, ...]

_keys = st.integers(0, 2)
_numbers = st.integers(-3, 3)
_map_keys = st.sampled_from(["a", "b", "c"])
_state_steps = st.one_of(
    st.tuples(st.just("value.update"), _keys, st.one_of(st.none(), st.lists(_numbers, max_size=2))),
    st.tuples(st.just("value.update"), _keys, st.lists(_numbers, max_size=2)),
    st.tuples(st.just("value.mutate"), _keys, _numbers),
    st.tuples(st.just("list.mutate"), _keys, _numbers),
    st.tuples(st.just("map.mutate"), _keys, _numbers),
    st.tuples(st.just("list.add_all"), _keys, st.lists(st.lists(_numbers, max_size=2), max_size=2)),
    st.tuples(st.just("list.update"), _keys, st.lists(st.lists(_numbers, max_size=2), max_size=2)),
    st.tuples(st.just("map.put"), _keys, _map_keys, st.one_of(st.none(), st.lists(_numbers, max_size=2))),
    st.tuples(st.just("map.remove"), _keys, _map_keys),
    st.tuples(st.just("reducing.add"), _keys, st.one_of(st.none(), _numbers)),
    st.tuples(st.just("aggregating.add"), _keys, st.one_of(st.none(), _numbers)),
    st.tuples(st.just("clear"), _keys, st.sampled_from(["value", "list", "map", "reducing", "aggregating"])),
    st.tuples(st.just("read"), _keys),
)
_other_steps = st.one_of(
    st.tuples(st.just("advance"), st.integers(1, 60)),
    st.tuples(st.just("cut")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("finish"), st.integers(0, 2)),
    st.tuples(st.just("restore")),
)


def programs() -> st.SearchStrategy[list[Step]]:
    """Programs of a few dozen steps, mostly accesses."""
    return st.lists(st.one_of(_state_steps, _state_steps, _other_steps), min_size=5, max_size=40)


def _descriptors(ttl: bool) -> list[StateDescriptor]:
    anything = Types.PICKLED_BYTE_ARRAY()
    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor("value", anything),
        ListStateDescriptor("list", anything),
        MapStateDescriptor("map", Types.STRING(), anything),
        ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
        AggregatingStateDescriptor("aggregating", Average(), Types.TUPLE([Types.LONG(), Types.LONG()])),
    ]
    if ttl:
        for descriptor in descriptors:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(TTL).build())
    return descriptors


@dataclass
class _Model:
    """What the states should hold: state -> key -> units, a unit being [value, stamp]."""

    ttl: bool
    now: int
    states: dict[str, dict[int, Any]] = field(default_factory=dict)

    def of(self, state: str) -> dict[int, Any]:
        return self.states.setdefault(state, {})

    def alive(self, unit: list[Any]) -> bool:
        return not self.ttl or unit[1] + TTL > self.now

    def visible(self, state: str, key: int) -> Any:
        """The value a read gives."""
        held = self.of(state).get(key)
        if state == "list":
            return [unit[0] for unit in held or [] if self.alive(unit)]
        if state == "map":
            return {name: unit[0] for name, unit in (held or {}).items() if self.alive(unit)}
        return held[0] if held is not None and self.alive(held) else None

    def content(self) -> dict[str, dict[int, Any]]:
        """All visible values."""
        found: dict[str, dict[int, Any]] = {}
        for state, held in self.states.items():
            values = {key: self.visible(state, key) for key in held}
            found[state] = {key: value for key, value in values.items() if value not in (None, [], {})}
            if state == "value":
                found[state] = {key: value for key, value in values.items() if value is not None}
        return copy.deepcopy(found)


class _Run:
    """One program in progress."""

    def __init__(self, driver: BackendDriver, ttl: bool) -> None:
        self.driver = driver
        self.model = _Model(ttl, driver.clock.now())
        self.pending: list[tuple[Any, _Model]] = []
        self.open([])

    def open(self, content: Content) -> None:
        self.backend: KeyedStateBackend = self.driver.open(content=content)
        descriptors = _descriptors(self.model.ttl)
        self.handles: dict[str, Any] = {d.name: self.backend.state(d) for d in descriptors}

    def step(self, step: Step) -> None:
        name, *arguments = step
        if "." in name or name in ("clear", "read"):
            with as_key(self.backend, arguments[0]):
                self.access(name, *arguments)
            return
        getattr(self, name)(*arguments)

    def access(self, name: str, key: int, *arguments: Any) -> None:
        if name == "read":
            for state in self.handles:
                assert self.read(state) == self.expected(state, key), (state, key)
            return
        if name == "clear":
            self.handles[arguments[0]].clear()
            self.model.of(arguments[0]).pop(key, None)
            return
        state, operation = name.split(".")
        getattr(self, f"{state}_{operation}")(self.handles[state], self.model.of(state), key, *arguments)

    def read(self, state: str) -> Any:
        handle = self.handles[state]
        if state == "value":
            return handle.value()
        return dict(handle.items()) if state == "map" else handle.get()

    def expected(self, state: str, key: int) -> Any:
        value = self.model.visible(state, key)
        return value[1] / value[0] if state == "aggregating" and value is not None else value

    def value_update(self, handle: Any, held: dict[int, Any], key: int, value: Any) -> None:
        handle.update(copy.deepcopy(value))
        if value is None:
            held.pop(key, None)
        else:
            held[key] = [value, self.model.now]

    def value_mutate(self, handle: Any, held: dict[int, Any], key: int, number: int) -> None:
        """Change the object in place, then write it back: a pending cut must not see either."""
        value = handle.value()
        if value is not None:
            value.append(number)
            handle.update(value)
            held[key] = [[*held[key][0], number], self.model.now]

    def list_mutate(self, handle: Any, held: dict[int, Any], key: int, number: int) -> None:
        elements = list(handle.get())
        for element in elements:
            element.append(number)
        handle.update(elements)
        units = [unit for unit in held.get(key, []) if self.model.alive(unit)]
        held[key] = [[[*unit[0], number], self.model.now] for unit in units]

    def map_mutate(self, handle: Any, held: dict[int, Any], key: int, number: int) -> None:
        for name, value in list(handle.items()):
            if value is not None:
                value.append(number)
                handle.put(name, value)
                held[key][name] = [[*held[key][name][0], number], self.model.now]

    def list_add_all(self, handle: Any, held: dict[int, Any], key: int, values: list[Any]) -> None:
        handle.add_all(copy.deepcopy(values))
        units = held.setdefault(key, [])
        units += [[value, self.model.now] for value in values]

    def list_update(self, handle: Any, held: dict[int, Any], key: int, values: list[Any]) -> None:
        handle.update(copy.deepcopy(values))
        held[key] = [[value, self.model.now] for value in values]

    def map_put(self, handle: Any, held: dict[int, Any], key: int, name: str, value: Any) -> None:
        handle.put(name, copy.deepcopy(value))
        held.setdefault(key, {})[name] = [value, self.model.now]

    def map_remove(self, handle: Any, held: dict[int, Any], key: int, name: str) -> None:
        handle.remove(name)
        held.get(key, {}).pop(name, None)

    def reducing_add(self, handle: Any, held: dict[int, Any], key: int, number: int | None) -> None:
        handle.add(number)
        if number is None:
            held.pop(key, None)
            return
        old = self.model.visible("reducing", key)
        held[key] = [number if old is None else old + number, self.model.now]

    def aggregating_add(self, handle: Any, held: dict[int, Any], key: int, number: int | None) -> None:
        handle.add(number)
        if number is None:
            held.pop(key, None)
            return
        count, total = self.model.visible("aggregating", key) or (0, 0)
        held[key] = [(count + 1, total + number), self.model.now]

    def advance(self, ms: int) -> None:
        self.driver.clock.advance(ms)
        self.model.now += ms

    def cut(self) -> None:
        if len(self.pending) < 3:
            self.pending.append((self.backend.cut(), copy.deepcopy(self.model)))

    def finish(self, index: int) -> None:
        """Read a pending cut and compare it with the model of its moment."""
        if index >= len(self.pending):
            return
        cut, model = self.pending.pop(index)
        content = read_cut(cut)
        # Read by a backend whose clock stands where it stood at the cut.
        later = self.driver.clock.now()
        self.driver.clock.set(model.now)
        reader = _Run(self.driver, model.ttl)
        reader.open(content)
        reader.model = model
        reader.compare()
        self.driver.clock.set(later)

    def restore(self) -> None:
        """Go on in a new backend."""
        while self.pending:
            self.finish(0)
        content = read_cut(self.backend.cut())
        self.backend.close()
        self.open(content)

    def compare(self) -> None:
        content = self.model.content()
        for state in self.handles:
            expected = content.get(state, {})
            assert sorted(self.backend.keys(state)) == sorted(expected), state
            for key in expected:
                assert self.backend.query(state, key, accumulator=True) == (True, expected[key]), (state, key)


def run_program(driver: BackendDriver, program: list[Step], ttl: bool) -> None:
    """Run a program; afterwards every state must hold exactly what the model holds."""
    run = _Run(driver, ttl)
    for step in program:
        run.step(step)
    run.compare()
    while run.pending:
        run.finish(0)
