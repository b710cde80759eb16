"""A whole job whose state evolves: it fills every key once, and tells in its next life what it found there.

A program is a module as in `table.py`; it may also say what the keys are, with `KEY` (from a number) and
`KEY_TYPE`.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from tests.recovery.local_jobs import DEADLINE, Numbers, local_env, new_board

from tidemark import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    Types,
    ValueStateDescriptor,
)

KEYS = 10


class Fill(KeyedProcessFunction):
    """Stores a value under each new key, and emits what is stored under a known one."""

    def __init__(self, program: ModuleType) -> None:
        self.type_info = program.TYPE
        self.values = getattr(program, "VALUES", [None])
        self.migrations = getattr(program, "MIGRATIONS", [])

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("state", self.type_info)
        for old, function in self.migrations:
            descriptor.migrate_from(old, function)
        self.state = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        stored, number = self.state.value(), value[0] % KEYS
        if stored is None:
            self.state.update(self.values[number % len(self.values)])
        else:
            yield number, stored


class Remember(MapFunction, CheckpointedFunction):
    """Passes elements on, and keeps one value in operator state."""

    def __init__(self, program: ModuleType) -> None:
        self.type_info = program.TYPE
        self.values = getattr(program, "VALUES", [])
        self.migrations = getattr(program, "MIGRATIONS", [])

    def initialize_state(self, context):
        descriptor = ListStateDescriptor("state", self.type_info)
        for old, function in self.migrations:
            descriptor.migrate_from(old, function)
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        if not context.is_restored():
            self.state.add(self.values[0])

    def snapshot_state(self, context):
        pass

    def map(self, value):
        return value, self.state.get()


def start(program: ModuleType, parallelism: int, backend: Any, path: str | None, bounded: bool) -> Any:
    board = new_board()
    settings = {"restart-strategy": "none"}
    if path is not None:
        settings["execution.savepoint.path"] = path
    env = local_env(settings, parallelism, backend)
    env.enable_checkpointing(10)
    source = Numbers(board.name, 2 if bounded else 1, KEYS, bounded)
    numbers = env.add_source(source, type_info=Types.LONG()).uid("numbers")
    remembered = numbers.map(Remember(program)).uid("remember")
    key = getattr(program, "KEY", lambda number: number)
    keyed = remembered.key_by(lambda pair: key(pair[0] % KEYS), getattr(program, "KEY_TYPE", Types.LONG()))
    filled = keyed.process(Fill(program)).uid("fill")
    return board, filled.execute_and_collect()


def savepoint_of(program: ModuleType, parallelism: int, backend: Any, directory: Path) -> str:
    """Path of a savepoint in which every key holds one of the program's values."""
    board, results = start(program, parallelism, backend, None, bounded=False)
    board.wait_set("emitted")
    path = results.get_job_client().stop_with_savepoint(False, str(directory)).result(DEADLINE)
    assert list(results) == []
    return path


def found(program: ModuleType, parallelism: int, backend: Any, path: str) -> dict[int, Any]:
    """What the program finds under each key of the savepoint."""
    _board, results = start(program, parallelism, backend, path, bounded=True)
    return dict(results)
