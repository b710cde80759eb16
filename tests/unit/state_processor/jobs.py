"""Small jobs in the local executor that leave snapshots behind, and jobs that go on from one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark import (
    CheckpointedFunction,
    Configuration,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
TEXT = Types.STRING()
LATER = 10**15
"""A time no test reaches."""

TOTAL = ValueStateDescriptor("total", Types.LONG())
LAST = MapStateDescriptor(
    "last", Types.STRING(), Types.ROW_NAMED(["n", "text"], [Types.INT(), Types.STRING()])
)
SEEN = ListStateDescriptor("seen", Types.TUPLE([Types.LONG(), Types.STRING()]))


class Sum(KeyedProcessFunction, CheckpointedFunction):
    """Emits the running total of a key; keeps one state of every shape, and a timer per key."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.list = store.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
        if not context.is_restored():
            self.list.add(self.get_runtime_context().get_index_of_this_subtask())
            self.union.add(f"u{self.get_runtime_context().get_index_of_this_subtask()}")

    def snapshot_state(self, context: Any) -> None:
        pass

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.last = runtime_context.get_map_state(LAST)
        self.seen = runtime_context.get_list_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> Any:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        self.last.put(str(value[1] % 3), Row(value[1] % 7, value[0]))
        self.seen.add((value[1], value[0]))
        ctx.timer_service().register_event_time_timer(LATER + len(value[0]))
        yield value[0], total


class Waiting(SourceFunction):
    """Emits its elements and waits until the job is stopped."""

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = list(elements)

    def run(self, ctx: Any) -> None:
        self.stopped = threading.Event()
        for element in self.elements:
            ctx.collect(element)
        self.stopped.wait()

    def cancel(self) -> None:
        self.stopped.set()


def environment(
    parallelism: int = 2, target: str = "local", settings: dict[str, str] | None = None
) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", target)
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def take_savepoint(
    directory: Path,
    elements: Sequence[tuple[str, int]],
    *,
    parallelism: int = 2,
    rocksdb: bool = False,
    key_type: Any = TEXT,
    max_parallelism: int | None = None,
) -> str:
    """Run the job over the elements and take a savepoint after the last one."""
    env = environment(parallelism)
    if rocksdb:
        env.set_state_backend(EmbeddedRocksDBStateBackend())
    if max_parallelism is not None:
        env.set_max_parallelism(max_parallelism)
    source = env.add_source(Waiting(elements), "numbers", PAIR).uid("numbers")
    results = source.key_by(lambda pair: pair[0], key_type).process(Sum(), PAIR).uid("sum")
    with results.execute_and_collect() as iterator:
        for _ in elements:
            next(iterator)
        return str(iterator.get_job_client().trigger_savepoint(str(directory)).result())


def retained_checkpoint(
    directory: Path, elements: Sequence[tuple[str, int]], *, parallelism: int = 2, heap: bool = False
) -> str:
    """Run the job and return the path of an incremental checkpoint of RocksDB, or the heap, that holds all elements."""
    env = environment(
        parallelism,
        settings={
            "state.checkpoints.dir": str(directory),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "state.backend.incremental": "true",
        },
    )
    env.set_state_backend(HashMapStateBackend() if heap else EmbeddedRocksDBStateBackend())
    env.enable_checkpointing(20)
    source = env.add_source(Waiting(elements), "numbers", PAIR).uid("numbers")
    results = source.key_by(lambda pair: pair[0], Types.STRING()).process(Sum(), PAIR).uid("sum")
    with results.execute_and_collect() as iterator:
        for _ in elements:
            next(iterator)
        client = iterator.get_job_client()
        # A savepoint comes after the last element; any checkpoint after that one holds everything.
        client.trigger_savepoint(str(directory / "unused")).result()
        job = directory / str(client.get_job_id())
        wait_for_checkpoint(job)
        client.cancel().result()
        # Not the one that was waited for: each deletes the one before, until the job has ended.
        return str(max(checkpoints(job), key=lambda path: int(path.name[len("chk-") :])))


def checkpoints(job: Path) -> set[Path]:
    """The completed ones of a job."""
    return {path.parent for path in job.glob("chk-*/_metadata")}


def wait_for_checkpoint(job: Path) -> None:
    """Wait until one completes from now on."""
    old = checkpoints(job)
    deadline = time.monotonic() + 60
    while not checkpoints(job) - old:
        if time.monotonic() > deadline:
            raise TimeoutError("no checkpoint completed")
        threading.Event().wait(0.01)


def continue_job(
    snapshot: str,
    elements: Sequence[tuple[str, int]],
    *,
    parallelism: int = 3,
    rocksdb: bool = False,
    key_type: Any = TEXT,
    max_parallelism: int | None = None,
) -> list[tuple[str, int]]:
    """Run the job from a snapshot over more elements; what it emits, sorted."""
    env = environment(parallelism, settings={"execution.state-recovery.path": snapshot})
    if rocksdb:
        env.set_state_backend(EmbeddedRocksDBStateBackend())
    if max_parallelism is not None:
        env.set_max_parallelism(max_parallelism)
    source = env.from_collection(list(elements), PAIR).uid("numbers")
    results = source.key_by(lambda pair: pair[0], key_type).process(Sum(), PAIR).uid("sum")
    with results.execute_and_collect() as iterator:
        return sorted(iterator)
