"""When old bytes are read, when new ones are written, and what an incompatible state does to others (18.5)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.evolution.conftest import Define
from tests.evolution.containers import BACKENDS, take

from tidemark import KeyedProcessFunction, ListStateDescriptor, MapFunction, Types, ValueStateDescriptor
from tidemark.api.functions import CheckpointedFunction
from tidemark.errors import StateMigrationException
from tidemark.testing import OneInputHarness, OperatorSnapshot

# Tells which version of the serializer read or wrote, in `CALLS`.
COUNTED = """
CALLS = []
class Counted(TypeSerializer):
    def __init__(self, version={version}): self.version = version
    def serialize(self, element, stream):
        CALLS.append(f'write {{self.version}}')
        stream.write_utf(f'{{self.version}}:{{element}}')
    def deserialize(self, stream):
        CALLS.append(f'read {{self.version}}')
        version, text = stream.read_utf().split(':')
        assert version == str(self.version)
        return text
    def snapshot_configuration(self): return CountedSnapshot(self.version)
class CountedSnapshot(TypeSerializerSnapshot):
    def __init__(self, version=0): self.version = version
    def get_current_version(self): return 1
    def write_snapshot(self, out): out.write_int(self.version)
    def read_snapshot(self, read_version, in_, user_code_class_loader=None): self.version = in_.read_int()
    def resolve_schema_compatibility(self, new):
        if new.version == self.version: return TypeSerializerSchemaCompatibility.compatible_as_is()
        if new.version < self.version: return TypeSerializerSchemaCompatibility.incompatible()
        return TypeSerializerSchemaCompatibility.compatible_after_migration()
    def restore_serializer(self): return Counted(self.version)
"""
KEYS = range(20)


class Words(KeyedProcessFunction):
    """One state of the type under test and one of a plain type beside it."""

    def __init__(self, type_info, wanted=("word", "neighbour")):
        self.type_info = type_info
        self.wanted = wanted

    def open(self, runtime_context):
        self.states = {}
        for name in self.wanted:
            type_info = self.type_info if name == "word" else Types.LONG()
            self.states[name] = runtime_context.get_state(ValueStateDescriptor(name, type_info))

    def process_element(self, value, ctx):
        key, word = value
        if word is None:
            yield tuple(state.value() for state in self.states.values())
        elif word == "late":
            yield ctx.get_current_key(), self.late(self.context)
        else:
            self.states["word"].update(word)
            self.states["neighbour"].update(key)


def harness_of(function: Any, backend: str, key_type: Any = None) -> OneInputHarness:
    selector = (lambda value: value[0]) if key_type is None else (lambda value: str(value[0]))
    return OneInputHarness(function, selector, key_type or Types.LONG(), state_backend=BACKENDS[backend]())


def written(define: Define, backend: str, version: int = 1) -> OperatorSnapshot:
    program = define(COUNTED.format(version=version))
    with harness_of(Words(program.Counted()), backend) as harness:
        for key in KEYS:
            harness.process_element((key, f"w{key}"))
        return take(harness, backend)


def read_all(harness: OneInputHarness) -> list[Any]:
    for key in KEYS:
        harness.process_element((key, None))
    return harness.output()


EVERYTHING = [(f"w{key}", key) for key in KEYS]


def test_heap_writes_at_the_savepoint_reads_at_restore_and_migrates_nothing(define: Define) -> None:
    program = define(COUNTED.format(version=1))
    with harness_of(Words(program.Counted()), "heap") as harness:
        for key in KEYS:
            harness.process_element((key, f"w{key}"))
        assert program.CALLS == []
        snapshot = take(harness, "heap")
        assert ["write 1"] * len(KEYS) == program.CALLS

    program = define(COUNTED.format(version=2))
    with_two = harness_of(Words(program.Counted()), "heap")
    with_two.initialize_state(snapshot)
    assert ["read 1"] * len(KEYS) == program.CALLS
    with_two.open()
    assert read_all(with_two) == EVERYTHING
    assert ["read 1"] * len(KEYS) == program.CALLS
    take(with_two, "heap")
    assert program.CALLS[len(KEYS) :] == ["write 2"] * len(KEYS)


@pytest.mark.parametrize("backend", ["rocksdb", "rocksdb files"])
def test_rocksdb_restores_bytes_and_migrates_all_of_them_before_the_first_element(
    define: Define, backend: str
) -> None:
    snapshot = written(define, backend)
    program = define(COUNTED.format(version=2))
    harness = harness_of(Words(program.Counted()), "rocksdb")

    harness.initialize_state(snapshot)
    assert program.CALLS == []
    harness.open()
    assert ["read 1", "write 2"] * len(KEYS) == program.CALLS
    assert read_all(harness) == EVERYTHING
    assert program.CALLS[2 * len(KEYS) :] == ["read 2"] * len(KEYS)

    # The next snapshot writes the bytes as they are.
    program.CALLS.clear()
    again = take(harness, backend)
    assert program.CALLS == []
    following = harness_of(Words(program.Counted()), "rocksdb")
    following.initialize_state(again)
    following.open()
    assert program.CALLS == []
    assert read_all(following) == EVERYTHING


def test_rocksdb_reads_and_writes_with_every_access(define: Define) -> None:
    program = define(COUNTED.format(version=1))
    with harness_of(Words(program.Counted()), "rocksdb") as harness:
        harness.process_element((1, "w"))
        harness.process_element((1, None))
        before = list(program.CALLS)
        take(harness, "rocksdb")

        assert before == ["write 1", "read 1"]
        assert before == program.CALLS


def test_compatible_as_is_costs_nothing_on_rocksdb(define: Define) -> None:
    snapshot = written(define, "rocksdb")
    program = define(COUNTED.format(version=1))
    harness = harness_of(Words(program.Counted()), "rocksdb")

    harness.initialize_state(snapshot)
    harness.open()

    assert program.CALLS == []


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_an_incompatible_state_leaves_its_neighbours_alone(define: Define, backend: str) -> None:
    snapshot = written(define, backend, version=2)
    program = define(COUNTED.format(version=1))

    refused = harness_of(Words(program.Counted()), backend)
    refused.initialize_state(snapshot)
    with pytest.raises(StateMigrationException, match="'word'"):
        refused.open()

    with_neighbour = harness_of(Words(program.Counted(), wanted=["neighbour"]), backend)
    with_neighbour.initialize_state(snapshot)
    with_neighbour.open()
    assert read_all(with_neighbour) == [(key,) for key in KEYS]
    # It is still in the next savepoint, for the program that can read it.
    carried = take(with_neighbour, backend)
    program = define(COUNTED.format(version=2))
    old = harness_of(Words(program.Counted()), backend)
    old.initialize_state(carried)
    old.open()
    assert read_all(old) == EVERYTHING


class Late(Words):
    """Asks for the state when the first element of a key comes."""

    def open(self, runtime_context):
        self.context = runtime_context
        self.states = {}

    def late(self, context):
        return context.get_state(ValueStateDescriptor("word", self.type_info)).value()


def test_a_state_registered_late_is_migrated_then(define: Define) -> None:
    snapshot = written(define, "rocksdb")
    program = define(COUNTED.format(version=2))
    harness = harness_of(Late(program.Counted()), "rocksdb")
    harness.initialize_state(snapshot)
    harness.open()
    assert program.CALLS == []

    harness.process_element((3, "late"))

    assert harness.output() == [(3, "w3")]
    assert [*["read 1", "write 2"] * len(KEYS), "read 2"] == program.CALLS


class Journal(MapFunction, CheckpointedFunction):
    def __init__(self, type_info):
        self.type_info = type_info

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("journal", self.type_info))

    def snapshot_state(self, context):
        pass

    def map(self, value):
        self.state.add(value)
        return value


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_operator_state_follows_the_heap_whatever_the_backend(define: Define, backend: str) -> None:
    program = define(COUNTED.format(version=1))
    with OneInputHarness(Journal(program.Counted()), state_backend=BACKENDS[backend]()) as harness:
        for word in ("a", "b"):
            harness.process_element(word)
        assert program.CALLS == []
        snapshot = take(harness, backend)
        assert program.CALLS == ["write 1"] * 2

    program = define(COUNTED.format(version=2))
    restored = OneInputHarness(Journal(program.Counted()), state_backend=BACKENDS[backend]())
    restored.initialize_state(snapshot)
    assert program.CALLS == ["read 1"] * 2
    restored.open()
    take(restored, backend)
    assert program.CALLS == ["read 1"] * 2 + ["write 2"] * 2


CART = "@dataclass\nclass Cart:\n    owner: str\n    items: list[int]\n    total: int\n"


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize(
    "meanwhile",
    [
        "@dataclass\nclass Cart:\n    owner: int\n",
        "@dataclass\nclass Cart:\n    more: int = 3\n    owner: str = ''\n",
        "class Cart: pass\n",
        "",
    ],
)
def test_state_nobody_asks_for_is_carried_whatever_became_of_its_class(
    define: Define, backend: str, meanwhile: str
) -> None:
    program = define(CART)
    carts = [program.Cart(f"w{key}", [key], -key) for key in KEYS]
    with harness_of(Words(program.Cart), backend) as harness:
        for key in KEYS:
            harness.process_element((key, carts[key]))
        snapshot = take(harness, backend)

    define(meanwhile)
    between = harness_of(Words(None, wanted=["neighbour"]), backend)
    between.initialize_state(snapshot)
    between.open()
    assert read_all(between) == [(key,) for key in KEYS]
    carried = take(between, backend)

    program = define(CART)
    old = harness_of(Words(program.Cart), backend)
    old.initialize_state(carried)
    old.open()
    assert read_all(old) == [(program.Cart(f"w{key}", [key], -key), key) for key in KEYS]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_subtasks_that_wrote_different_forms_cannot_be_merged(define: Define, backend: str) -> None:
    old = written(define, backend)
    program = define(COUNTED.format(version=2))
    halves = OperatorSnapshot.repartition([old], 128, 2)
    rewritten = []
    for index, half in enumerate(halves):
        wanted = ("word", "neighbour") if index else ("neighbour",)
        harness = OneInputHarness(
            Words(program.Counted(), wanted),
            lambda value: value[0],
            Types.LONG(),
            2,
            index,
            state_backend=BACKENDS[backend](),
        )
        harness.initialize_state(half)
        harness.open()
        rewritten.append(take(harness, backend))

    [merged] = OperatorSnapshot.repartition(rewritten, 128, 1)
    together = harness_of(Words(program.Counted()), backend)
    with pytest.raises(StateMigrationException, match=r"'word'.*different forms by different subtasks"):
        together.initialize_state(merged)
