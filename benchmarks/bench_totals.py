"""Running (count, sum) per key, a row for every row: our two styles, Flink in Java, a bare loop. `make bench-totals`.

Whole jobs, parallelism 2, on the same rows, in turns in one run; every result is checked:
- tidemark, `KeyedProcessFunction` and `BatchProcessFunction`: rows made by `map_batch` of the numbers of its own
  sequence source, continuous; and the same with rows from Spark's `range` in the JVM, in epochs.
- Flink in Java on its mini cluster: rows made by `map` of the numbers of `fromSequence`, `KeyedProcessFunction` with
  object reuse and without; see `suite/flink_java` for its settings.
- Spark's own `groupBy().agg()` in the JVM, which gives a row per key and micro-batch only: see `suite/spark_totals.py`.
- a loop in each of two processes over tuples that are ready in memory, with a dictionary as state.

A rate of tidemark in epochs counts their time, scheduling by Spark included; continuous, the time from the first result
to the last. From the time of a job of Flink that of a job over few rows is taken off. The first round of everything is
smaller and warms up. A turn should last seconds: around the start of a job Spark's JVM uses up to a second of processor
time. Then resident bytes per key.

    python benchmarks/bench_totals.py --rounds 3 --keys 10000 --backends heap
"""

from __future__ import annotations

import argparse
import gc
import warnings
from collections import defaultdict
from typing import Any

from bench_columns import memory_per_key
from measure import EpochLog, Table, epoch_log, median, progress, spread, tuned_session
from suite.flink_java import FlinkJava
from suite.peers import PeerMissingError
from suite.spark_totals import spark_rate
from suite.work import Rows
from totals import Work, run_bare, run_job, run_own

SYSTEMS = ("bare", "record", "record-spark", "batch", "batch-spark", "flink", "flink-reuse", "spark")
OURS = {"record", "record-spark", "batch", "batch-spark"}
NAMES = {
    "bare": "bare loop, rows ready in memory",
    "record": "tidemark, process",
    "record-spark": "tidemark, process, rows from Spark's range",
    "batch": "tidemark, process_batch",
    "batch-spark": "tidemark, process_batch, rows from Spark's range",
    "flink": "Flink in Java",
    "flink-reuse": "Flink in Java, object reuse",
    "spark": "Spark groupBy().agg(), a row per key and micro-batch",
}
WANTED: dict[tuple[str, int], tuple[float, float]] = {
    ("heap", 100): (5.0, 0.0),
    ("heap", 10_000): (3.0, 2.0),
    ("heap", 1_000_000): (2.0, 1.0),
    ("rocksdb", 10_000): (3.0, 5.0),
}
"""How many times as fast as the better record path and as the better Flink `process_batch` is to be; 0: no target."""

Rates = dict[str, list[float]]


class Contest:
    """All systems, each at hand for its turn."""

    def __init__(self, systems: list[str]) -> None:
        self.systems = list(systems)
        self._flink: FlinkJava | None = None
        if any(system.startswith("flink") for system in systems):
            try:
                self._flink = FlinkJava()
            except PeerMissingError as exc:
                print(f"Without Flink in Java, which cannot be had here: {exc}")
                self.systems = [system for system in systems if not system.startswith("flink")]
        ours = {*OURS, "spark"} & set(systems)
        self._spark = tuned_session("tidemark bench-totals") if ours else None

    def rate(self, system: str, rows: Rows, backend: str, log: EpochLog) -> float:
        """Records per second of one turn."""
        if system == "bare":
            return run_bare(rows)
        if system.startswith("flink"):
            assert self._flink is not None
            return self._flink.rate(rows, backend, reuse=system == "flink-reuse")
        if system == "spark":
            return spark_rate(self._spark, rows, backend)
        by_batch = system.startswith("batch")
        if system.endswith("-spark"):
            return log.steady_rate(run_job(self._spark, log, rows, Work(backend), by_batch))
        return run_own(rows, Work(backend), by_batch)

    def close(self) -> None:
        if self._flink is not None:
            self._flink.close()
        if self._spark is not None:
            self._spark.stop()


def measure(arguments: argparse.Namespace) -> dict[tuple[str, int], Rates]:
    contest = Contest(arguments.systems)
    cases = [(backend, keys) for backend in arguments.backends for keys in arguments.keys]
    rates: dict[tuple[str, int], Rates] = {case: defaultdict(list) for case in cases}
    try:
        with epoch_log() as log:
            for turn in range(arguments.rounds + 1):
                progress(f"round {turn} of {arguments.rounds}" if turn else "warm-up")
                for backend, keys in cases:
                    records = arguments.records if backend == "heap" else arguments.rocksdb_records
                    rows = Rows(records if turn else records // 4, keys, "random")
                    for system in list(contest.systems):
                        if system == "bare" and (backend != "heap" or not turn):
                            continue
                        gc.collect()
                        try:
                            rate = contest.rate(system, rows, backend, log)
                        except Exception as exc:
                            if system in OURS:
                                raise
                            print(f"Without {NAMES[system]}, which failed: {exc}")
                            if turn:
                                contest.systems.remove(system)
                            continue
                        progress(f"{backend}, {keys:,} keys, {NAMES[system]}: {rate:,.0f} /s")
                        if turn:
                            rates[backend, keys][system].append(rate)
    finally:
        contest.close()
    return rates


def show(table: Table, case: tuple[str, int], rates: Rates) -> None:
    backend, keys = case
    table.title(f"{backend}, {keys:,} keys: records per second")
    middle = {system: median(values) for system, values in rates.items()}
    for system, rate in middle.items():
        table.row(NAMES[system], f"{rate:,.0f} /s", f"({spread(rates[system])})")
    record_target, flink_target = WANTED.get(case, (0.0, 0.0))
    record, flink = (_best(middle, kind) for kind in ("record", "flink"))
    _ratio(table, rates, "batch", record, record_target)
    _ratio(table, rates, "batch", flink, flink_target)
    _ratio(table, rates, record, flink, 1.0 if case == ("heap", 10_000) else 0.0)
    _ratio(table, rates, record, "bare", 0.0)


def _best(rates: dict[str, float], kind: str) -> str | None:
    """The fastest system of a kind that took part."""
    return max((system for system in rates if system.startswith(kind)), key=rates.__getitem__, default=None)


def _ratio(table: Table, rates: Rates, mine: str | None, other: str | None, target: float) -> None:
    """The median of the rounds' ratios: what both met of the machine's moods cancels out."""
    if mine is None or other is None or not rates.get(mine) or not rates.get(other):
        return
    ratios = [one / two for one, two in zip(rates[mine], rates[other], strict=False)]
    times = median(ratios)
    wanted = f"wanted {target:g} x" if target else ""
    table.row(
        f"  {NAMES[mine]} : {NAMES[other]}",
        f"{times:.2f} x",
        f"({spread(ratios, digits=2)}) {wanted}",
        times >= target if target else None,
    )


def show_memory(table: Table) -> None:
    table.title("Heap state of 1,000,000 keys: resident bytes per key")
    for name, (record, batch) in memory_per_key().items():
        table.row(f"{name}, by record", f"{record:.0f}")
        table.row(f"{name}, by column", f"{batch:.0f}", "at most half", batch <= record / 2)


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=16_000_000, help="rows of a turn on the heap")
    parser.add_argument("--rocksdb-records", type=int, default=1_000_000, help="the same on RocksDB")
    parser.add_argument("--keys", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--backends", nargs="+", choices=("heap", "rocksdb"), default=["heap", "rocksdb"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="without bytes per key")
    arguments: Any = parser.parse_args()
    table = Table(64)
    if not arguments.no_memory:
        show_memory(table)
    for case, rates in measure(arguments).items():
        show(table, case, rates)
    table.exit()


if __name__ == "__main__":
    main()
