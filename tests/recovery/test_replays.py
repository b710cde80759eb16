"""Work that is done twice is counted twice, and how much of it was a repetition is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    CheckpointedFunction,
    Configuration,
    KeyedProcessFunction,
    ListStateDescriptor,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.runtime.control import live_jobs
from tidemark.runtime.progress import Progress

FAILURES = 3
DEADLINE_S = 120


def progress() -> Progress:
    return live_jobs()[-1].execution.progress


def failures_in(directory: Path) -> list[int]:
    return [int(line) for line in (directory / "failures").read_text().split()]


class Numbers(SourceFunction, CheckpointedFunction):
    """Numbers in small blocks, until the job has failed often enough."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))
        self.next = next(iter(self.state.get()), 0)
        self.running = True

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])

    def run(self, ctx: Any) -> None:
        while self.running and len(failures_in(self.directory)) < FAILURES:
            self.emit(ctx)
        for _ in range(20):
            self.emit(ctx)
        (self.directory / "total").write_text(str(self.next))

    def emit(self, ctx: Any) -> None:
        with ctx.get_checkpoint_lock():
            for _ in range(50):
                ctx.collect(self.next)
                self.next += 1
        time.sleep(0.001)

    def cancel(self) -> None:
        self.running = False


class FailsNowAndThen(KeyedProcessFunction):
    """Fails as soon as the driver has counted more than at the last failure."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, runtime_context: Any) -> None:
        self.failures = failures_in(self.directory)

    def process_element(self, value: int, ctx: Any) -> Any:
        counted = progress().records
        if len(self.failures) < FAILURES and counted > max(self.failures, default=0):
            told = " ".join(map(str, [*self.failures, counted]))
            (self.directory / "failures").write_text(told)
            raise ValueError("not this time")
        yield value


class Nowhere(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass


@pytest.mark.parametrize("interval", ["10 ms", "1 h"])
def test_all_records_are_those_of_the_input_and_those_that_came_again(tmp_path: Path, interval: str) -> None:
    (tmp_path / "failures").touch()
    given = {
        "execution.target": "local",
        "execution.checkpointing.interval": interval,
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
        "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 ms",
        "restart-strategy.fixed-delay.attempts": "5",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.set_parallelism(2)
    numbers = env.add_source(Numbers(tmp_path), type_info=Types.LONG())
    keyed = numbers.key_by(lambda value: value % 10, Types.LONG())
    keyed.process(FailsNowAndThen(tmp_path), Types.LONG()).add_sink(Nowhere())

    client = env.execute_async("again")
    found = progress()
    client.get_job_execution_result().result(DEADLINE_S)

    assert found.attempt == FAILURES
    assert found.replayed > 0 or interval == "10 ms"
    assert found.records == int((tmp_path / "total").read_text()) + found.replayed
