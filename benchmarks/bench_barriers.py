"""Benchmark of barriers: checkpoints of a million keys in both modes, and alignment under back-pressure.

`make bench-barriers`.
- A source in Python makes every key once and then goes on slowly; from trigger to complete of a checkpoint each second,
  on both backends, continuous beside epochs. RocksDB's are incremental: the first one writes everything.
- A sink that sleeps holds up the job; how long operators wait for their last barrier, how long checkpoints take,
  with alignment (exactly once) and without.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs import environment
from measure import Table, percentile, progress, spread, tuned_session

from tidemark import (
    CheckpointingMode,
    KeyedProcessFunction,
    SinkFunction,
    Split,
    SplitReader,
    SplitSource,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

PARTS = ("checkpoint", "alignment")
PATIENCE_S = 900.0


class Keys(SplitSource[int]):
    """Every key once, as fast as it is read, and then some each millisecond, without end."""

    bounded = False

    def __init__(self, keys: int, splits: int) -> None:
        self.keys, self.splits = keys, splits

    def enumerate(self) -> list[Split]:
        return [Split(str(n), n) for n in range(self.splits)]

    def open(self, split: Split, position: Any | None) -> KeysReader:
        return KeysReader(self, split.data, position or 0)

    def get_produced_type(self) -> Any:
        return Types.LONG()


class KeysReader(SplitReader[int]):
    def __init__(self, source: Keys, split: int, position: int) -> None:
        self.source, self.split, self.next = source, split, position
        self.due = 0.0

    def read(self, max_records: int, timeout_ms: int) -> Sequence[int]:
        missing = self.source.keys // self.source.splits - self.next
        count = min(max_records, 8192, missing)
        if missing <= 0:
            if time.monotonic() < self.due:
                return []
            self.due, count = time.monotonic() + 0.001, 5
        first, self.next = self.next, self.next + count
        return [(n * self.source.splits + self.split) % self.source.keys for n in range(first, self.next)]

    def position(self) -> int:
        return self.next


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value


class Sleepy(SinkFunction):
    """Takes its time for every record."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def invoke(self, value: Any, context: Any) -> None:
        if self.seconds:
            time.sleep(self.seconds)


class Running:
    """A job over the keys, and its completed checkpoints."""

    def __init__(self, env: Any, keys: int, seconds: float = 0.0) -> None:
        numbers = env.from_source(Keys(keys, 2), WatermarkStrategy.no_watermarks(), "keys")
        counted = numbers.key_by(lambda n: n, Types.LONG()).process(Count(), Types.LONG())
        counted.add_sink(Sleepy(seconds))
        self.client = env.execute_async("barriers")

    def done(self) -> list[Any]:
        """Oldest first."""
        statistics = self.client.runner.execution.coordinator.statistics
        return [record for record in reversed(statistics.records()) if record.is_completed]

    def wait(self, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline or self.client.get_job_status().result().is_terminal_state():
                raise SystemExit("The job did not get on.")
            time.sleep(0.05)

    def next_checkpoints(self, count: int) -> list[Any]:
        """As many that begin from now on."""
        now = time.time() * 1000
        self.wait(lambda: sum(record.triggered_at > now for record in self.done()) >= count)
        return [record for record in self.done() if record.triggered_at > now][:count]

    def cancel(self) -> None:
        self.client.cancel().result(PATIENCE_S)


def checkpoints(table: Table, options: argparse.Namespace) -> None:
    table.title(f"checkpoints of {options.keys:,} keys, ms from trigger to complete")
    for backend in ("heap", "rocksdb"):
        for mode in ("continuous", "epochs"):
            progress(f"{backend}, {mode}")
            with tempfile.TemporaryDirectory() as name:
                env = environment(backend, 2, Path(name), 1_000, **{"execution.mode": mode})
                job = Running(env, options.keys)
                job.wait(lambda job=job: job.client.get_progress()["state_entries"] >= options.keys)
                taken = job.next_checkpoints(options.checkpoints)
                job.cancel()
            aligned = max(record.alignment_ms for record in taken)
            table.row(
                f"{backend}, {mode}",
                spread([record.duration_ms for record in taken]),
                f"synchronous {max(record.sync_ms for record in taken)}, alignment at most {aligned}",
            )


def alignment(table: Table, options: argparse.Namespace) -> None:
    table.title(
        f"a sink that sleeps {options.sleep_ms} ms for every record: ms that operators wait for barriers"
    )
    for mode in (CheckpointingMode.EXACTLY_ONCE, CheckpointingMode.AT_LEAST_ONCE):
        progress(mode.name)
        with tempfile.TemporaryDirectory() as name:
            env = environment("heap", 2, Path(name), 500, **{"execution.mode": "continuous"})
            env.get_checkpoint_config().set_checkpointing_mode(mode)
            job = Running(env, 1_000, options.sleep_ms / 1000)
            taken = job.next_checkpoints(options.checkpoints)
            job.cancel()
        waits = [record.alignment_ms for record in taken]
        table.row(
            mode.name,
            f"p50 {percentile(waits, 0.5):.0f}, longest {max(waits)}",
            f"checkpoints {spread([record.duration_ms for record in taken])}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument(
        "--checkpoints", type=int, default=8, help="that are looked at (default: %(default)s)"
    )
    parser.add_argument("--sleep-ms", type=float, default=2.0)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    # Workers and slots have to find the classes of this file.
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    tuned_session("bench-barriers", cores=6)
    table = Table(width=48)
    if "checkpoint" in options.only:
        checkpoints(table, options)
    if "alignment" in options.only:
        alignment(table, options)
    table.exit()


if __name__ == "__main__":
    main()
