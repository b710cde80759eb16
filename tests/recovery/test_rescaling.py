"""A running job gets another parallelism: keyed state, timers and operator state survive, output is exact. No JVM."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.recovery.local_jobs import DEADLINE, Numbers, board, local_env, new_board

from tidemark import (
    CheckpointedFunction,
    EmbeddedRocksDBStateBackend,
    FlatMapFunction,
    HashMapStateBackend,
    JobStatus,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RestartStrategies,
    TimestampAssigner,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidemark.errors import CheckpointError, ConfigError, IllegalStateError, UnsupportedOperationException
from tidemark.runtime.control import live_jobs
from tidemark.runtime.runner import JobRunner

BLOCKS, SIZE, KEYS = 3, 60, 20
TOTAL = BLOCKS * SIZE
FAR = 10**9
BACKENDS = {
    "heap": HashMapStateBackend,
    "rocksdb": EmbeddedRocksDBStateBackend,
    "incremental": lambda: EmbeddedRocksDBStateBackend(True),
    "incremental-heap": HashMapStateBackend,
}


class Remember(FlatMapFunction, CheckpointedFunction):
    """Keeps every element in operator state, and notes what it gets back."""

    def __init__(self, board_name: str) -> None:
        self.board_name = board_name

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        board(self.board_name).note("remembered", tuple(self.seen.get()))

    def snapshot_state(self, context: Any) -> None:
        pass

    def flat_map(self, value: int) -> Any:
        self.seen.add(value)
        yield value


class CountAndWake(KeyedProcessFunction):
    """Counts per key in three kinds of state; at the end of time a timer of every key tells them."""

    def __init__(self, board_name: str) -> None:
        self.board_name = board_name

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))
        self.parity = runtime_context.get_map_state(
            MapStateDescriptor("parity", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: int, ctx: Any) -> Any:
        if board(self.board_name).values.pop("break", False):
            raise ValueError("broken once")
        self.count.update((self.count.value() or 0) + 1)
        self.values.add(value)
        odd = "odd" if value % 2 else "even"
        self.parity.put(odd, (self.parity.get(odd) or 0) + 1)
        ctx.timer_service().register_event_time_timer(FAR + ctx.get_current_key())
        yield f"{ctx.get_current_key()} {self.count.value()}"

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        key = ctx.get_current_key()
        assert timestamp == FAR + key
        values = sorted(self.values.get())
        assert sum(self.parity.values()) == len(values)
        yield f"timer {key} {self.count.value()} {values[0]} {values[-1]}"


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


EXPECTED = Counter(
    f"{key} {count}" for key in range(KEYS) for count in range(1, TOTAL // KEYS + 1)
) + Counter(f"timer {key} {TOTAL // KEYS} {key} {TOTAL - KEYS + key}" for key in range(KEYS))


def build(backend: str, told: Any, tmp_path: Path, *, maximum: int | None = None) -> Any:
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints"), "rest.enabled": "false"}
    settings["state.backend.incremental"] = str(backend == "incremental-heap").lower()
    env = local_env(settings, 2, BACKENDS[backend]())
    env.enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(10**6)
    if maximum is not None:
        env.set_max_parallelism(maximum)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    numbers = env.add_source(Numbers(told.name, BLOCKS, SIZE, bounded=False), type_info=Types.LONG())
    stamped = numbers.uid("numbers").assign_timestamps_and_watermarks(strategy).uid("stamps")
    remembered = stamped.flat_map(Remember(told.name), Types.LONG()).uid("remember")
    counted = remembered.key_by(lambda n: n % KEYS, Types.LONG()).process(
        CountAndWake(told.name), Types.STRING()
    )
    return env, counted.uid("count")


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize(("maximum", "steps"), [(None, (4, 1)), (4, (3, 7, 2))], ids=["within", "beyond"])
def test_state_timers_and_operator_state_survive_another_parallelism(
    backend: str, maximum: int | None, steps: tuple[int, ...], tmp_path: Path
) -> None:
    told = new_board()
    _env, counted = build(backend, told, tmp_path, maximum=maximum)
    with counted.execute_and_collect("rescaled") as results:
        runner = _runner()
        for number, parallelism in enumerate(steps):
            told.wait(lambda b, n=number: len(completions(b)) > n, "a checkpoint")
            assert runner.rescale(parallelism).result(DEADLINE) == str(parallelism)
            vertices = {v.uid: v for v in runner.execution.plan.vertices.values()}
            assert vertices["count"].parallelism == parallelism
            assert runner.execution.plan.slots == parallelism
        told.wait_set("emitted")
        told.set("end")
        rows = list(results)
    assert Counter(rows) == EXPECTED
    assert runner.status is JobStatus.FINISHED
    assert not runner.attempt_failures
    assert runner.execution.attempt == len(steps)
    remembered = [event[1] for event in told.events if event[0] == "remembered"]
    groups, at = [], 0
    for parallelism in (2, *steps):
        groups.append(sorted(n for part in remembered[at : at + parallelism] for n in part))
        at += parallelism
    assert at == len(remembered)
    assert groups[0] == []
    for restored in groups[1:]:
        assert restored, "elements were seen before the parallelism changed"
        assert restored == list(range(len(restored))), "of all subtasks together, each element once"


def completions(told: Any) -> list[Any]:
    return [event for event in told.events if event[0] == "complete"]


def _runner() -> JobRunner:
    return live_jobs()[-1]


@pytest.mark.parametrize("backend", ["heap", "incremental"])
def test_a_failure_right_behind_it_goes_back_to_its_checkpoint(backend: str, tmp_path: Path) -> None:
    told = new_board()
    env, counted = build(backend, told, tmp_path, maximum=4)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    with counted.execute_and_collect("broken") as results:
        runner = _runner()
        told.wait(lambda b: completions(b), "a checkpoint")
        told.set("break")
        outcome = runner.rescale(7)
        told.wait(lambda b: "break" not in b.values, "the failure")
        with contextlib.suppress(Exception):
            # The record may have been broken in front of the checkpoint.
            outcome.result(DEADLINE)
        if runner.execution.plan.slots != 7:
            assert runner.rescale(7).result(DEADLINE) == "7"
        told.set("end")
        assert Counter(results) == EXPECTED
    assert len(runner.attempt_failures) == 1


def test_what_cannot_be_rescaled_is_refused_and_goes_on(tmp_path: Path) -> None:
    told = new_board()
    _env, counted = build("heap", told, tmp_path)
    with counted.execute_and_collect("refusing") as results:
        runner = _runner()
        told.wait(lambda b: completions(b), "a checkpoint")
        with pytest.raises(ConfigError, match="changes nothing"):
            runner.rescale(2).result(DEADLINE)
        first, second = runner.rescale(3), runner.rescale(4)
        with pytest.raises(IllegalStateError, match="already"):
            second.result(DEADLINE)
        assert first.result(DEADLINE) == "3"
        told.set("end")
        assert Counter(results) == EXPECTED


def test_a_checkpoint_that_fails_leaves_the_parallelism_as_it_is(tmp_path: Path) -> None:
    told = new_board()
    _env, counted = build("heap", told, tmp_path)
    with counted.execute_and_collect("failing") as results:
        runner = _runner()
        told.wait(lambda b: completions(b), "a checkpoint")
        job, moved = tmp_path / "checkpoints" / runner.execution.job_id, tmp_path / "moved"
        job.rename(moved)
        job.write_text("in the way")
        with pytest.raises(CheckpointError):
            runner.rescale(3).result(DEADLINE)
        assert runner.execution.plan.slots == 2
        job.unlink()
        moved.rename(job)
        assert runner.rescale(3).result(DEADLINE) == "3"
        told.set("end")
        assert Counter(results) == EXPECTED


def test_a_batch_job_is_refused() -> None:
    env = local_env({"execution.runtime-mode": "BATCH"})
    env.from_collection([1, 2, 3], Types.LONG()).print()
    client = env.execute_async("batch")
    with pytest.raises(UnsupportedOperationException, match="BATCH"):
        client.runner.rescale(3)
    client.get_job_execution_result().result(DEADLINE)
