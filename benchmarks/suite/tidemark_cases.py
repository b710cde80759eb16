"""Measurements of tidemark that are no plain throughput: latency, recovery, rescaling, memory and size of state."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import RunningJob, attach, collect, endless_rows, environment
from measure import EpochLog

from suite import nexmark, tidemark_kafka
from suite.latency import Ticker, figures_of, noted_ages
from suite.work import Rows
from suite.worker import Case
from tidemark import KeyedProcessFunction, RestartStrategies, Types, ValueStateDescriptor, field
from tidemark.datastream import SinkFunction


class CountAndPass(KeyedProcessFunction):
    """Counts a key's events and passes on when each was created."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        yield value[1]


class NoteLatency(SinkFunction):
    """Writes the age of every event, in milliseconds, to a file per subtask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Any = None

    def open(self, runtime_context: Any) -> None:
        name = f"latency-{runtime_context.get_index_of_this_subtask()}"
        self._file = open(self._folder / name, "a", buffering=1 << 16)  # noqa: SIM115

    def invoke(self, value: int, context: Any) -> None:
        self._file.write(f"{time.time() * 1000 - value / 1000:.3f}\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def latency(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """Age of events when they reach the sink, at a rate far below what the job could do."""
    with Ticker(case) as ticker:
        lines = spark.readStream.format("socket").options(host="127.0.0.1", port=ticker.port).load()
        parts = lines.selectExpr(
            "CAST(split(value, ',')[0] AS LONG) AS k", "CAST(split(value, ',')[1] AS LONG) AS t"
        )
        env = environment(case.backend, case.slots, folder / "checkpoints", case.checkpoint_ms)
        stream = env.from_spark_stream(parts).key_by(field("k"), Types.LONG())
        stream.process(CountAndPass(), output_type=Types.LONG()).add_sink(NoteLatency(folder))
        job = RunningJob(log, env, "latency")
        sent = ticker.sent()
        job.wait("the last event", lambda: job.records >= sent)
        job.stop(folder / "savepoints")
    return {**figures_of(noted_ages(folder), sent), "startup_s": log.attempts_of(job.id)[0].seconds}


def recovery(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """A slot is killed while the job runs at full speed; until the first epoch after it."""
    epoch_rows = case.epoch_rows or max(case.keys, 1000)
    rows = Rows(case.keys * 2, case.keys, case.kind)
    env = environment(case.backend, case.slots, folder / "checkpoints", case.checkpoint_ms or 1000)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    found = collect(attach(env, endless_rows(spark, rows, epoch_rows), "value", rows))
    job = RunningJob(log, env, "recovery")
    job.wait("three checkpoints", lambda: len(job.checkpoints()) >= 3)
    pids = job.client.get_progress()["slot_pids"]
    killed = time.perf_counter()
    os.kill(list(pids.values() if isinstance(pids, dict) else pids)[-1], signal.SIGKILL)
    job.wait("the second attempt", lambda: len(log.attempts_of(job.id)) == 2)
    again = log.attempts_of(job.id)[1]
    job.wait("an epoch after it", lambda: any(epoch.started > again.ended for epoch in job.busy_epochs))
    first = next(epoch for epoch in job.busy_epochs if epoch.started > again.ended)
    job.wait_for_epochs(len(job.busy_epochs) + 5)
    job.stop(folder / "savepoints", drain=True)
    # Records that were taken back are counted twice; the state says how many there were in truth.
    done = max(total // (key + 1) for key, total in found) * case.keys
    sure = Rows(done, case.keys, case.kind, built_for=rows.records)
    return {
        "recovery_s": first.ended - killed,
        "notice_s": again.started - killed,
        "restore_s": again.seconds,
        "correct": set(sure.totals()) <= set(found),
        "startup_s": log.attempts_of(job.id)[0].seconds,
    }


def rescale(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """Stop with a savepoint, start with one slot more; until the first epoch of the new job."""
    epoch_rows = case.epoch_rows or max(case.keys, 1000)
    rows = Rows(case.keys * 2, case.keys, case.kind)
    env = environment(case.backend, case.slots)
    found = collect(attach(env, endless_rows(spark, rows, epoch_rows), "value", rows))
    job = RunningJob(log, env, "before")
    job.wait_for_epochs(5)
    asked = time.perf_counter()
    savepoint = job.stop(folder / "savepoints")
    stopped = time.perf_counter()
    env = environment(case.backend, case.slots + 1, restore=savepoint)
    more = collect(attach(env, endless_rows(spark, rows, epoch_rows), "value", rows))
    after = RunningJob(log, env, "after")
    after.wait_for_epochs(1)
    running = after.busy_epochs[0].ended
    after.wait_for_epochs(5)
    after.stop(folder / "more", drain=True)
    done = Rows(job.records + after.records, case.keys, case.kind, built_for=rows.records)
    return {
        "rescale_s": running - asked,
        "savepoint_s": stopped - asked,
        "restore_s": log.attempts_of(after.id)[0].seconds,
        "correct": sorted([*found, *more]) == sorted(done.totals().elements()),
        "startup_s": log.attempts_of(job.id)[0].seconds,
    }


def memory(case: Case, spark: Any, log: EpochLog, folder: Path) -> dict[str, Any]:
    """Resident memory of the slots and bytes of a checkpoint, over those of a job with hardly any state."""
    resident: dict[int, int] = {}
    written = checkpointed = entries = 0
    for keys in (100, case.keys):
        rows = Rows(keys * 2, keys)
        epoch_rows = 100_000
        env = environment(case.backend, case.slots, folder / f"checkpoints-{keys}", 1000)
        attach(env, endless_rows(spark, rows, epoch_rows), "value", rows).add_sink(Forget())
        job = RunningJob(log, env, "memory")
        job.wait_for_epochs(-(-case.keys // epoch_rows) + 1)
        enough = len(job.checkpoints()) + 1
        job.wait("a checkpoint of it", lambda: len(job.checkpoints()) > enough)  # noqa: B023
        resident[keys] = job.slot_memory()
        entries = job.client.get_progress()["state_entries"]
        checkpointed = job.checkpoints()[0].state_size
        savepoint = Path(job.stop(folder / f"savepoints-{keys}").removeprefix("file://"))
        written = sum(path.stat().st_size for path in savepoint.rglob("*") if path.is_file())
    return {
        "memory_per_million_keys": (resident[case.keys] - resident[100]) * 1_000_000 / case.keys,
        "slot_memory": resident[case.keys],
        "savepoint_bytes": written,
        "checkpoint_bytes": checkpointed,
        "correct": entries == case.keys,
    }


class Forget(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        """What comes out is not looked at in this case."""


SPECIAL = {
    "latency": latency,
    "recovery": recovery,
    "rescale": rescale,
    "memory": memory,
    "nexmark": nexmark.measure,
    "kafka": tidemark_kafka.measure,
}
"""Measurements by the first word of a case's `state`."""
