"""What never migrates by itself: keys, map keys, kinds of state, the time-to-live switch; snapshot classes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.evolution.conftest import Define
from tests.evolution.containers import BACKENDS, CONTAINERS, take

from tidemark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from tidemark.errors import ConfigError, StateMigrationException
from tidemark.testing import OneInputHarness
from tidemark.types.inference import written_as

POINT = "@dataclass(frozen=True)\nclass Point:\n    x: int\n    y: int\n"
both = pytest.mark.parametrize("backend", ["heap", "rocksdb", "rocksdb files"])


class Touch(KeyedProcessFunction):
    """Registers one state, counts elements, sets a timer."""

    def __init__(self, descriptor=None, timers=False):
        self.descriptor = descriptor or ValueStateDescriptor("state", Types.LONG())
        self.timers = timers

    def open(self, runtime_context):
        if isinstance(self.descriptor, MapStateDescriptor):
            self.state = runtime_context.get_map_state(self.descriptor)
        elif isinstance(self.descriptor, ListStateDescriptor):
            self.state = runtime_context.get_list_state(self.descriptor)
        else:
            self.state = runtime_context.get_state(self.descriptor)

    def process_element(self, value, ctx):
        if self.timers:
            ctx.timer_service().register_event_time_timer(10)
        if isinstance(self.descriptor, MapStateDescriptor):
            self.state.put(value, 1)
        elif isinstance(self.descriptor, ListStateDescriptor):
            self.state.add(1)
        else:
            self.state.update((self.state.value() or 0) + 1)
            yield self.state.value()


def snapshot_of(
    function: Any, elements: list[Any], key_type: Any, backend: str, key=lambda value: value
) -> Any:
    with OneInputHarness(function, key, key_type, state_backend=BACKENDS[backend]()) as harness:
        for element in elements:
            harness.process_element(element)
        return take(harness, backend)


def restore(
    function: Any, snapshot: Any, key_type: Any, backend: str, key=lambda value: value
) -> OneInputHarness:
    harness = OneInputHarness(function, key, key_type, state_backend=BACKENDS[backend]())
    harness.initialize_state(snapshot)
    harness.open()
    return harness


@both
@pytest.mark.parametrize("timers", [False, True])
def test_another_key_type_is_refused(backend: str, timers: bool) -> None:
    snapshot = snapshot_of(Touch(timers=timers), [1, 2], Types.LONG(), backend)

    with pytest.raises(StateMigrationException, match=r"key of state '.*'.* was written as LONG .* STRING"):
        restore(Touch(), snapshot, Types.STRING(), backend, key=str)


@both
def test_a_key_class_that_stays_is_accepted_and_one_that_evolves_is_not(define: Define, backend: str) -> None:
    program = define(POINT)
    points = [program.Point(1, 2), program.Point(3, 4)]
    snapshot = snapshot_of(Touch(), points, program.Point, backend)

    same = define(POINT)
    harness = restore(Touch(), snapshot, same.Point, backend)
    harness.process_element(same.Point(1, 2))
    assert harness.output() == [2]

    for changed in (POINT + "    z: int = 0\n", POINT.replace("    y: int\n", "")):
        evolved = define(changed)
        with pytest.raises(StateMigrationException, match=r"key of state 'state'.*Point"):
            restore(Touch(), snapshot, evolved.Point, backend)


@both
def test_a_key_class_may_be_renamed_if_it_says_so(define: Define, backend: str) -> None:
    program = define(POINT)
    snapshot = snapshot_of(Touch(), [program.Point(1, 2)], program.Point, backend)
    moved = define("@written_as('evolving_shop.Point')\n" + POINT.replace("Point", "Place"))

    harness = restore(Touch(), snapshot, moved.Place, backend)
    harness.process_element(moved.Place(1, 2))

    assert harness.output() == [2]


@both
def test_map_keys_do_not_evolve(define: Define, backend: str) -> None:
    program = define(POINT)
    points = [program.Point(1, 2)]
    descriptor = MapStateDescriptor("state", program.Point, Types.LONG())
    snapshot = snapshot_of(Touch(descriptor), points, Types.LONG(), backend, key=lambda point: point.x)
    evolved = define(POINT + "    z: int = 0\n")

    with pytest.raises(StateMigrationException, match=r"map key of state 'state'.*Point"):
        restore(
            Touch(MapStateDescriptor("state", evolved.Point, Types.LONG())), snapshot, Types.LONG(), backend
        )


@both
def test_a_state_keeps_its_kind(backend: str) -> None:
    snapshot = snapshot_of(Touch(), [1], Types.LONG(), backend)

    with pytest.raises(
        StateMigrationException, match="'state' was written as value state but is read as list"
    ):
        restore(Touch(ListStateDescriptor("state", Types.LONG())), snapshot, Types.LONG(), backend)


@both
@pytest.mark.parametrize("before", [True, False])
def test_time_to_live_is_not_switched_across_a_restore(backend: str, before: bool) -> None:
    def descriptor(expiring: bool) -> ValueStateDescriptor:
        made = ValueStateDescriptor("state", Types.LONG())
        made.migrate_from(Types.LONG(), lambda value: value)
        if expiring:
            made.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        return made

    snapshot = snapshot_of(Touch(descriptor(before)), [1], Types.LONG(), backend)
    names = ["with", "without"] if before else ["without", "with"]

    message = f"'state' was written as state {names[0]} time-to-live but is read as state {names[1]}"
    with pytest.raises(StateMigrationException, match=message):
        restore(Touch(descriptor(not before)), snapshot, Types.LONG(), backend)


NESTED_SNAPSHOT = """
class Text(TypeSerializer):
    class Snapshot(SimpleTypeSerializerSnapshot):
        def __init__(self): super().__init__(Text)
    def serialize(self, element, stream): stream.write_utf(element)
    def deserialize(self, stream): return stream.read_utf()
    def snapshot_configuration(self): return Text.Snapshot()
"""


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nested_snapshot_class_is_refused_when_the_savepoint_is_taken(
    define: Define, backend: str, container: str
) -> None:
    program = define(NESTED_SNAPSHOT)
    kind = CONTAINERS[container]

    with kind.open(program.Text(), [], BACKENDS[backend]()) as harness:
        kind.write(harness, ["a"])
        with pytest.raises(ValueError, match=r"Text\.Snapshot is nested or local.*module level"):
            take(harness, backend)


def test_a_migration_that_fails_fails_the_restore_with_its_own_error() -> None:
    for backend in ("heap", "rocksdb"):
        snapshot = snapshot_of(Touch(), [1, 2], Types.LONG(), backend)
        descriptor = ValueStateDescriptor("state", Types.STRING()).migrate_from(
            Types.LONG(), lambda n: 1 // 0
        )

        with pytest.raises(ZeroDivisionError):
            restore(Touch(descriptor), snapshot, Types.LONG(), backend)


@pytest.mark.parametrize("name", ["Cart", "", "a b.c", None, "shop."])
def test_written_as_needs_a_qualified_name(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"module\.Class"):
        written_as(name)
