"""Benchmark of checkpoints: what they cost a running job, what they write, how fast state comes back.

`make bench-checkpoint`. All jobs run on Spark with 2 slots over a million keys of 64-bit numbers.
- Throughput with a checkpoint every second and without any, jobs alternating, heap and RocksDB (incremental):
  wall-clock rate once every key exists.
- Bytes that an incremental checkpoint writes after one per cent of the keys has been touched, neighbours and
  random ones, against the size of the whole state in that checkpoint.
- Restoring the million keys from a savepoint with 2 slots, and rescaling to 3: time to start an attempt
  (launch slots, restore, start sources), less that of the same job without state.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
import jobs
from jobs import RunningJob, attach, discard, endless_rows, environment
from measure import EpochLog, Table, epoch_log, median, progress, spread, tuned_session
from suite.work import Rows

EPOCH_ROWS = 200_000
PARTS = ("cost", "bytes", "restore")
BACKENDS = ("heap", "rocksdb")
PAUSE_MS = {"heap": 50, "rocksdb": 150}
"""Budget of design.md section 12 for the synchronous part with a million keys."""


class Run:
    """One run of the benchmark: its session, its folder, its table."""

    def __init__(self, arguments: argparse.Namespace, spark: Any, log: EpochLog, folder: Path) -> None:
        self.arguments = arguments
        self.spark = spark
        self.log = log
        self.folder = folder
        self.table = Table()
        self.rows = Rows(records=arguments.keys * 100, keys=arguments.keys)
        self.fill_epochs = -(-arguments.keys // arguments.epoch_rows)
        self._directories = 0

    def directory(self) -> Path:
        self._directories += 1
        made = self.folder / str(self._directories)
        made.mkdir()
        return made

    def start(
        self, name: str, backend: str, interval_ms: int = 0, frame: Any = None, **options: Any
    ) -> RunningJob:
        """A job of the running sum, over the endless stream unless another frame is given."""
        slots = options.pop("slots", 2)
        env = environment(backend, slots, self.directory(), interval_ms, **options)
        if frame is None:
            frame = endless_rows(self.spark, self.rows, self.arguments.epoch_rows)
        attach(env, frame, "value", self.rows).add_sink(discard()).uid("sink")
        return RunningJob(self.log, env, name)


# What a checkpoint every second costs


def cost(run: Run) -> None:
    arguments = run.arguments
    rates: dict[tuple[str, bool], list[float]] = {}
    pauses: dict[str, list[float]] = {backend: [] for backend in arguments.backends}
    behind: dict[str, list[int]] = {backend: [] for backend in arguments.backends}
    for repetition in range(arguments.repeat):
        for backend in arguments.backends:
            # The order changes from one repetition to the next, so that drift of the machine cancels out.
            for on in (False, True) if repetition % 2 == 0 else (True, False):
                progress(f"cost, repetition {repetition + 1}: {backend}, checkpoints {'on' if on else 'off'}")
                job = run.start("cost", backend, 1000 if on else 0)
                warm = run.fill_epochs + arguments.warm_epochs
                job.wait_for_epochs(warm + arguments.epochs + 1)
                rates.setdefault((backend, on), []).append(job.rate_between(warm, warm + arguments.epochs))
                pauses[backend] += job.log.pauses_of(job.id)
                behind[backend] += [record.async_ms for record in job.checkpoints()]
                job.cancel()
    run.table.title(
        f"Checkpoint every second, {arguments.keys:,} keys, 2 slots: median of {arguments.repeat}, "
        f"{arguments.epochs} epochs of {arguments.epoch_rows:,} rows each"
    )
    for backend in arguments.backends:
        off, on = rates[backend, False], rates[backend, True]
        # Neighbouring runs are compared: a slower minute of the machine meets both.
        losses = [100 * (1 - b / a) for a, b in zip(off, on, strict=True)]
        run.table.row(f"{backend}: without", f"{median(off):,.0f} /s", f"({spread(off)})")
        run.table.row(f"{backend}: with", f"{median(on):,.0f} /s", f"({spread(on)})")
        loss = median(losses)
        run.table.row(
            f"{backend}: lost", f"{loss:.1f} %", f"<= 10 %   ({spread(losses, digits=1)})", loss <= 10
        )
        if pauses[backend]:
            pause, limit = 1000 * median(pauses[backend]), PAUSE_MS[backend]
            run.table.row(
                f"{backend}: pause at a barrier, median of {len(pauses[backend])}",
                f"{pause:.0f} ms",
                f"<= {limit} ms",
                pause <= limit,
            )
            run.table.row(f"{backend}: writing behind the stream", f"{median(behind[backend]):.0f} ms")


# What an incremental checkpoint writes


def written(run: Run) -> None:
    keys = run.arguments.keys
    share = max(1, keys // 100)
    source = run.directory()
    frame = (
        run.spark.readStream.schema("k long, v long, s long, t long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
    )
    job = run.start("bytes", "rocksdb", 1000, frame)
    steps = {
        "all keys": f"id < {keys}",
        "1 % of the keys, neighbours": f"id >= {keys // 2} AND id < {keys // 2 + share}",
        "1 % of the keys, random": f"xxhash64(id) % 100 = 0 AND id < {keys}",
    }
    run.table.title(f"Bytes of incremental checkpoints, RocksDB, {keys:,} keys, 2 slots")
    for number, (what, condition) in enumerate(steps.items()):
        progress(f"bytes: {what}")
        if number:
            # Compaction of what was loaded before rewrites files as well; wait until that is over.
            job.wait("compaction", lambda: _settled(job.checkpoints()[0]))
        before = {record.checkpoint_id for record in job.checkpoints()}
        touched = add_file(run, source, number, condition)
        job.wait(f"epoch {number + 1}", lambda: len(job.busy_epochs) > number)  # noqa: B023
        # Two more: the first may have been under way when the epoch ended.
        reached = max((record.checkpoint_id for record in job.checkpoints()), default=0) + 2
        job.wait("its checkpoint", lambda: job.checkpoints()[0].checkpoint_id >= reached)  # noqa: B023
        new = [record for record in job.checkpoints() if record.checkpoint_id not in before]
        # One of them holds the change; idle ones write little.
        wrote, whole = max(record.written_size for record in new), new[0].state_size
        part = 100 * wrote / whole
        target = ("<= 5 %", part <= 5) if "neighbours" in what else ("", None)
        run.table.row(f"{what} ({touched:,})", f"{wrote:,} B", f"of {whole:,} B")
        if number:
            run.table.row("  share of the whole state", f"{part:.1f} %", *target)
    job.cancel()


def _settled(record: Any) -> bool:
    return bool(record.state_size) and record.written_size * 100 < record.state_size


def add_file(run: Run, source: Path, number: int, condition: str) -> int:
    """Rows for the keys that satisfy the condition, as one file that appears at once; how many."""
    frame = (
        run.spark.range(run.arguments.keys)
        .where(condition)
        .selectExpr("id AS k", "id + 1 AS v", "0L AS s", "0L AS t")
    )
    made = run.directory()
    frame.coalesce(1).write.mode("overwrite").parquet(str(made))
    (file,) = made.glob("part-*.parquet")
    os.rename(file, source / f"{number}.parquet")
    return int(frame.count())


# How fast state comes back


def restore(run: Run) -> None:
    run.table.title(f"State of {run.arguments.keys:,} keys comes back: median of {run.arguments.repeat}")
    for backend in run.arguments.backends:
        progress(f"restore: savepoint of {backend}")
        job = run.start("fill", backend)
        job.wait_for_epochs(run.fill_epochs + 1)
        savepoint = job.stop(run.directory())
        size = sum(
            path.stat().st_size
            for path in Path(savepoint.removeprefix("file://")).rglob("*")
            if path.is_file()
        )
        seconds: dict[tuple[int, bool], list[float]] = {}
        for _ in range(run.arguments.repeat):
            for slots in (2, 3):
                for restored in (False, True):
                    progress(f"restore: {backend}, {slots} slots, {'restored' if restored else 'empty'}")
                    options = {"restore": savepoint} if restored else {}
                    job = run.start("restored", backend, slots=slots, **options)
                    job.wait_for_epochs(1)
                    seconds.setdefault((slots, restored), []).append(job.log.attempts_of(job.id)[0].seconds)
                    job.cancel()
        run.table.row(f"{backend}: savepoint", f"{size:,} B")
        for slots, what in ((2, "restore with 2 slots"), (3, "rescale from 2 to 3 slots")):
            with_state, without = median(seconds[slots, True]), median(seconds[slots, False])
            run.table.row(
                f"{backend}: {what}",
                f"{with_state - without:.2f} s",
                f"start {with_state:.2f} s, empty {without:.2f} s",
            )


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    cloudpickle.register_pickle_by_value(jobs)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epoch-rows", type=int, default=EPOCH_ROWS)
    parser.add_argument(
        "--warm-epochs", type=int, default=10, help="epochs after all keys exist, before measuring"
    )
    parser.add_argument("--epochs", type=int, default=40, help="measured epochs of each run")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, alternating")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-"))
    spark = tuned_session("tidemark bench-checkpoint")
    try:
        with epoch_log() as log:
            run = Run(arguments, spark, log, folder)
            for part, measure in (("cost", cost), ("bytes", written), ("restore", restore)):
                if part in arguments.only:
                    measure(run)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    run.table.exit()


if __name__ == "__main__":
    main()
