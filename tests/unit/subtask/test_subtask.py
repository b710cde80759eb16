"""A subtask is put together in one way, whoever drives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    Configuration,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    StateBackend,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.rescale import SubtaskRestore
from tidemark.checkpoint.snapshot_writer import SnapshotWriter
from tidemark.checkpoint.storage import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Output
from tidemark.operators.keyed import KeyedProcessOperator
from tidemark.operators.stateless import MapOperator
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import Batch
from tidemark.protocol.deployment import BackendChoice
from tidemark.state.snapshot import Increment
from tidemark.subtask.restored_state import load_restored_state
from tidemark.subtask.subtask import Subtask

LOCATION = savepoint_location("/savepoint")


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


def counting(backend: BackendChoice, directory: Path, *, batch_mode: bool = False) -> Subtask:
    return Subtask(
        KeyedProcessOperator(Count(), Types.STRING()),
        SubtaskInfo("count", "count", keyed=True),
        clock=ManualClock(),
        metrics=MetricRegistry(),
        backend=backend,
        directory=directory,
        batch_mode=batch_mode,
    )


def process(subtask: Subtask, *values: str) -> list[Any]:
    out = Output()
    subtask.operator.process(0, Batch(list(values), None, list(values)), out)
    return out.values


@pytest.mark.parametrize("store", ["heap", "rocksdb"])
@pytest.mark.parametrize("incremental", [None, Increment(1)])
def test_a_subtask_goes_on_from_what_another_one_cut(
    tmp_path: Path, store: str, incremental: Increment | None
) -> None:
    choice, storage = BackendChoice(store), MemoryStorage()
    first = counting(choice, tmp_path / "first")
    first.start()
    process(first, "a", "a", "b")
    state = first.cut(1, 0, incremental=incremental).write(SnapshotWriter(storage), LOCATION)
    first.close()
    natives = () if state.native is None else (state.native,)
    share = SubtaskRestore("count", 0, 1, LOCATION, (0, 127), state.tables, natives, state.operator)

    second = counting(choice, tmp_path / "second")
    second.setup()
    second.restore(load_restored_state(share, storage, tmp_path / "second" / "restore"))
    second.open()

    assert bool(natives) == (incremental is not None)
    assert process(second, "a", "b") == [("a", 3), ("b", 2)]
    second.close()


@pytest.mark.parametrize(
    ("chosen", "batch_mode", "kept"),
    [
        (None, False, HeapKeyedStateBackend),
        (HashMapStateBackend(), False, HeapKeyedStateBackend),
        (EmbeddedRocksDBStateBackend(), False, RocksDBKeyedStateBackend),
        (EmbeddedRocksDBStateBackend(), True, HeapKeyedStateBackend),
        (CustomStateBackend(RocksDBKeyedStateBackend), False, RocksDBKeyedStateBackend),
        (CustomStateBackend(RocksDBKeyedStateBackend), True, HeapKeyedStateBackend),
    ],
)
def test_the_backend_is_the_chosen_one_and_the_heap_in_batch_mode(
    tmp_path: Path, chosen: StateBackend | None, batch_mode: bool, kept: type
) -> None:
    subtask = counting(BackendChoice.of(chosen), tmp_path, batch_mode=batch_mode)

    subtask.start()

    operator: Any = subtask.operator
    assert type(operator.backend) is kept
    subtask.close()


def test_a_subtask_without_a_key_owns_no_key_groups() -> None:
    info = SubtaskInfo("map", "map", 5, 2)
    subtask = Subtask(MapOperator(len), info, clock=ManualClock(), metrics=MetricRegistry())

    subtask.start()

    assert info.key_groups is None
    assert subtask.cut(1, 0).write(SnapshotWriter(MemoryStorage()), LOCATION).key_groups is None


def test_a_vertex_says_who_its_subtasks_are() -> None:
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    environment.set_parallelism(3)
    environment.set_max_parallelism(8)
    environment.from_collection(["a"]).key_by(str).process(Count()).uid("count").print()
    graph, settings, _ = environment._prepared("job")
    (vertex,) = [v for v in build_plan(graph, settings, "0" * 32).in_slots() if v.uid == "count"]

    infos = [vertex.subtask(index, 7, {"a": "b"}) for index in range(3)]

    assert [info.key_groups for info in infos] == [(0, 2), (3, 5), (6, 7)]
    assert infos[1] == SubtaskInfo(vertex.name, "count", 1, 3, 8, 7, {"a": "b"}, keyed=True)
