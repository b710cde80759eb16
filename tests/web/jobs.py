"""A job that counts until it is stopped, and can be told to fail, for the tests of the web server."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark import (
    CheckpointedFunction,
    Configuration,
    JobClient,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

ODD = OutputTag("odd", Types.LONG())
BROKEN = threading.Event()
"""While set, the next record fails."""


class Numbers(SourceFunction, CheckpointedFunction):
    """0, 1, 2 ... in blocks; where it stands is operator state."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))
        self.next = next(iter(self.state.get()), 0)
        self.running = True

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])

    def run(self, ctx: Any) -> None:
        while self.running:
            with ctx.get_checkpoint_lock():
                for _ in range(20):
                    ctx.collect(self.next)
                    self.next += 1
            time.sleep(0.005)

    def cancel(self) -> None:
        self.running = False


class Count(KeyedProcessFunction):
    """Counts per key; odd numbers also go to a side output."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable("counts")
        self.count = runtime_context.get_state(descriptor)
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.sizes = group.distribution("sizes")

    def process_element(self, value: int, ctx: Any) -> Any:
        if BROKEN.is_set():
            BROKEN.clear()
            raise ValueError("the number is broken\nwith password=hunter2")
        self.seen.inc()
        self.sizes.update(value % 7)
        self.count.update((self.count.value() or 0) + 1)
        yield value
        if value % 2:
            yield ODD, value


class Nowhere(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass


def start(directory: Path, settings: Mapping[str, str] | None = None) -> JobClient:
    """Run the job in this process."""
    given = {
        "execution.target": "local",
        "execution.checkpointing.interval": "50 ms",
        "state.backend": "filesystem",
        "state.checkpoints.dir": str(directory / "checkpoints"),
        "state.savepoints.dir": str(directory / "savepoints"),
        "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 ms",
        "restart-strategy.fixed-delay.attempts": "5",
        "queryable-state.enable": "true",
        "rest.port": "0",
        **(settings or {}),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.set_parallelism(2)
    numbers = env.add_source(Numbers(), type_info=Types.LONG()).uid("numbers")
    counted = numbers.key_by(lambda value: value % 10, key_type=Types.LONG()).process(Count(), Types.LONG())
    counted.uid("count").add_sink(Nowhere()).uid("all")
    counted.get_side_output(ODD).add_sink(Nowhere()).uid("odd")
    return env.execute_async("counting")
