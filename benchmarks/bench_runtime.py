"""Benchmark of whole jobs on Spark: what is left of the speed of a bare Python loop. `make bench-runtime`.

Work: rows (k, v) of a Spark DataFrame, keyed by k; a `KeyedProcessFunction` adds v to a `ValueState` and
emits every hundredth total of a key. v depends on k only, so every emitted total is known beforehand,
whatever the order, and every result is checked.

Compared, in one run, repetitions interleaved:
- tidemark: 2 slots, heap backend, `local[2]`.
- the limit: two processes that call the same function over the same rows in a `for` loop, keyed state being
  a dictionary; once with the rows ready in memory, once making them from the same Arrow batches as a slot.
- PySpark's `transformWithStateInPandas` on as many rows and keys, in an environment of its own (it needs
  pandas and protobuf): see `suite/worker_spark.py` for its settings and the same work in its words.
Start-up and a warm-up run of each are left out. Then the CPU time of a record by kind of process. Small
epochs: the time from one epoch's end to the next with a Structured Streaming source that always has 2,000
more rows.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

from measure import EpochLog, Table, epoch_log, median, percentile, progress, spread, tuned_session
from suite.peers import run_case
from suite.worker import Case

from tidemark import KeyedProcessFunction, Types, ValueStateDescriptor

EVERY = 100
BATCH_ROWS = 50_000
EPOCH_ROWS = 2_000
WARM_RUNS = 3
"""A run takes two or three seconds; the JVM compiles what it runs for about ten."""
ROUNDS = 3
"""Both take a second or two, less than a slower spell of a shared machine: they take turns within a repetition."""
WARM_EPOCHS = 60
EPOCHS = 60
PARTS = ("tidemark", "bare", "pandas", "cpu", "epochs")


class RunningSum(KeyedProcessFunction):
    """Adds the values of a key; emits every hundredth total."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        if total % (value[1] * EVERY) == 0:
            yield value[0], total


def columns(keys: int, number: str = "id") -> list[str]:
    return [f"{number} % {keys} AS k", f"{number} % {keys} + 1 AS v"]


def expected(records: int, keys: int) -> Counter[tuple[int, int]]:
    """Every total that must come out, each once."""
    return Counter(
        (key, (key + 1) * count)
        for key in range(keys)
        for count in range(EVERY, (records - key + keys - 1) // keys + 1, EVERY)
    )


def check(what: str, found: Iterator[Any], records: int, keys: int) -> None:
    if Counter((row[0], row[1]) for row in found) != expected(records, keys):
        raise SystemExit(f"{what} gave a wrong result; its speed does not matter.")


# tidemark


def run_tidemark(spark: Any, log: EpochLog, records: int, keys: int) -> tuple[float, float]:
    """Steady records per second, and seconds of the whole job."""
    from tidemark import HashMapStateBackend, StreamExecutionEnvironment, field

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.set_state_backend(HashMapStateBackend())
    frame = spark.range(0, records, 1, 2).selectExpr(*columns(keys))
    totals = (
        env.from_spark_stream(frame)
        .key_by(field("k"), Types.LONG())
        .process(RunningSum(), output_type=Types.TUPLE([Types.LONG(), Types.LONG()]))
    )
    started = time.perf_counter()
    results = totals.execute_and_collect("bench-runtime")
    found = list(results)
    seconds = time.perf_counter() - started
    check("tidemark", iter(found), records, keys)
    return log.steady_rate(str(results.get_job_client().get_job_id())), seconds


def run_cpu(spark: Any, records: int, keys: int) -> dict[str, float]:
    """CPU microseconds per record by kind of process, and of two cores together what the clock says."""
    with epoch_log(cpu=True) as log:
        run_tidemark(spark, log, records, keys)
    epoch = max(log.epochs, key=lambda epoch: epoch.records)
    spent = {kind: 1e6 * seconds / epoch.records for kind, seconds in epoch.cpu.items()}
    return {**spent, "both cores": 2e6 * epoch.seconds / epoch.records}


def run_epochs(spark: Any, log: EpochLog, keys: int, warm: int, count: int) -> list[float]:
    """Milliseconds from the end of one small epoch to the end of the next."""
    from tidemark import HashMapStateBackend, StreamExecutionEnvironment, field

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.set_state_backend(HashMapStateBackend())
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", EPOCH_ROWS)
        .option("numPartitions", 2)
        .load()
        .selectExpr(*columns(keys, "value"))
    )
    totals = (
        env.from_spark_stream(stream)
        .key_by(field("k"), Types.LONG())
        .process(RunningSum(), output_type=Types.TUPLE([Types.LONG(), Types.LONG()]))
    )
    client = totals.execute_and_collect("bench-epochs").get_job_client()
    job = str(client.get_job_id())
    deadline = time.monotonic() + 300
    while len(log.intervals(job)) < warm + count:
        if time.monotonic() > deadline or client.get_job_status().result().is_terminal_state():
            raise SystemExit("The job of small epochs did not get on.")
        time.sleep(0.05)
    client.cancel().result(60)
    return [1000 * seconds for seconds in log.intervals(job)[warm : warm + count]]


# The limit: a loop in each of two processes


class DictState:
    """What a `ValueState` would be if there were nothing but a dictionary."""

    def __init__(self) -> None:
        self.key: Any = None
        self._values: dict[Any, Any] = {}

    def value(self) -> Any:
        return self._values.get(self.key)

    def update(self, value: Any) -> None:
        self._values[self.key] = value


class DictContext:
    """Gives the function its state in `open`."""

    def __init__(self, state: DictState) -> None:
        self._state = state

    def get_state(self, _descriptor: Any) -> DictState:
        return self._state


def bare_loop(index: int, records: int, keys: int, start: Any, answers: Any) -> None:
    """One of the two processes: its share of the keys, as Arrow batches first, then as rows that are ready."""
    import numpy as np
    import pyarrow as pa

    from tidemark.state.serializers import serializer_for

    numbers = np.arange(records, dtype=np.int64)
    key = numbers % keys
    key = key[key % 2 == index]
    serializer = serializer_for(Types.ROW_NAMED(["k", "v"], [Types.LONG(), Types.LONG()]))
    kind = serializer.arrow_type()
    names = [kind.field(at).name for at in range(kind.num_fields)]
    filler = {name: kind.field(name).type for name in names if name not in ("k", "v")}
    batches = []
    for at in range(0, len(key), BATCH_ROWS):
        part = pa.array(key[at : at + BATCH_ROWS])
        made = {"k": part, "v": pa.array(key[at : at + BATCH_ROWS] + 1)}
        made |= {name: pa.nulls(len(part), of) for name, of in filler.items()}
        batches.append((part, pa.StructArray.from_arrays([made[name] for name in names], fields=list(kind))))
    rates = {}
    for ready in (False, True):
        rows = [(k.to_numpy().tolist(), serializer.from_arrow(v)) for k, v in batches] if ready else None
        gc.collect()
        gc.freeze()
        start.wait()
        began = time.perf_counter()
        found = _loop(rows) if rows is not None else _loop_of_arrow(batches, serializer)
        rates["ready" if ready else "arrow"] = len(key) / (time.perf_counter() - began)
    answers.put((rates, found))


def _loop(batches: Any) -> list[tuple[int, int]]:
    state = DictState()
    function = RunningSum()
    function.open(DictContext(state))  # type: ignore[arg-type]
    process = function.process_element
    found: list[tuple[int, int]] = []
    for keys, rows in batches:
        for key, row in zip(keys, rows, strict=True):
            state.key = key
            for pair in process(row, None):
                found.append(pair)
    return found


def _loop_of_arrow(batches: Any, serializer: Any) -> list[tuple[int, int]]:
    return _loop((key.to_numpy().tolist(), serializer.from_arrow(rows)) for key, rows in batches)


def run_bare(records: int, keys: int) -> dict[str, float]:
    """Records per second of both processes together, with rows ready and with rows made from Arrow."""
    context = get_context("spawn")
    start, answers = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=bare_loop, args=(index, records, keys, start, answers)) for index in (0, 1)
    ]
    for process in processes:
        process.start()
    given = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    check("The bare loop", (pair for _, found in given for pair in found), records, keys)
    return {kind: sum(rates[kind] for rates, _ in given) for kind in ("ready", "arrow")}


# PySpark's own state


def run_pandas(records: int, keys: int) -> float:
    """Records per second of the micro-batch that holds the measured rows."""
    result = run_case(Case("spark-pandas", records=records, keys=keys), timeout_s=3600)
    if "error" in result or not result["correct"]:
        raise SystemExit(f"transformWithStateInPandas failed: {result}")
    return float(result["rate"])


# The run


def measure(arguments: argparse.Namespace, table: Table) -> None:
    records, keys, parts = arguments.records, arguments.keys, arguments.only
    ours = {"tidemark", "cpu", "epochs"} & set(parts)
    spark = tuned_session("tidemark bench-runtime") if ours else None
    rates: dict[str, list[float]] = {"tidemark": [], "ready": [], "arrow": [], "pandas": []}
    jobs: list[float] = []
    with epoch_log() as log:
        if {"tidemark", "cpu"} & set(parts):
            progress("warm-up of the JVM")
            for _ in range(WARM_RUNS):
                run_tidemark(spark, log, records, keys)
        for repetition in range(arguments.repeat):
            if "tidemark" in parts:
                progress(f"repetition {repetition + 1}: tidemark and the bare loop in turn")
                # Spark ends its Python workers after a minute without work; the measured run should find new ones.
                run_tidemark(spark, log, records // 10, keys)
            for _round in range(ROUNDS):
                if "tidemark" in parts:
                    rate, seconds = run_tidemark(spark, log, records, keys)
                    rates["tidemark"].append(rate)
                    jobs.append(seconds)
                if "bare" in parts:
                    for kind, rate in run_bare(records, keys).items():
                        rates[kind].append(rate)
            if "pandas" in parts:
                progress(f"repetition {repetition + 1}: transformWithStateInPandas")
                rates["pandas"].append(run_pandas(records, keys))
        show_rates(table, arguments, rates, jobs)
    if "cpu" in parts:
        progress("CPU time")
        show_cpu(table, [run_cpu(spark, 2 * records, keys) for _ in range(arguments.repeat)])
    if "epochs" in parts:
        progress("small epochs")
        with epoch_log() as log:
            show_epochs(table, run_epochs(spark, log, keys, arguments.warm_epochs, arguments.epochs))
    if spark is not None:
        spark.stop()


def show_rates(
    table: Table, arguments: argparse.Namespace, rates: dict[str, list[float]], jobs: list[float]
) -> None:
    table.title(
        f"{arguments.records:,} records, {arguments.keys:,} keys, 2 slots, heap; "
        f"medians of {arguments.repeat * ROUNDS} (pandas: {arguments.repeat}), records per second"
    )
    names = {
        "tidemark": "tidemark on Spark",
        "ready": "bare loop in 2 processes, rows ready in memory",
        "arrow": "bare loop in 2 processes, rows made from Arrow",
        "pandas": "PySpark transformWithStateInPandas",
    }
    middle = {kind: median(values) for kind, values in rates.items() if values}
    for kind, rate in middle.items():
        table.row(names[kind], f"{rate:,.0f} /s", f"({spread(rates[kind])})")
    if jobs:
        table.row("  tidemark, whole job with start and end", f"{median(jobs):.1f} s")
    ours = middle.get("tidemark")
    if ours is None:
        return
    if "ready" in middle:
        share = 100 * ours / middle["ready"]
        table.row("tidemark, share of the bare loop", f"{share:.0f} %", ">= 35 %", share >= 35)
        share = 100 * ours / middle["arrow"]
        table.row("tidemark, share of the bare loop with rows from Arrow", f"{share:.0f} %")
    if "pandas" in middle:
        times = ours / middle["pandas"]
        table.row("tidemark against transformWithStateInPandas", f"{times:.1f} x", ">= 10 x", times >= 10)


def show_cpu(table: Table, runs: list[dict[str, float]]) -> None:
    table.title(f"CPU time per record of twice as many records, median of {len(runs)}, microseconds")
    for kind in runs[0]:
        values = [run[kind] for run in runs]
        table.row(f"  {kind}", f"{median(values):.2f} us", f"({spread(values, digits=2)})")


def show_epochs(table: Table, milliseconds: list[float]) -> None:
    table.title(
        f"Epochs of {EPOCH_ROWS:,} rows from a Structured Streaming source, {len(milliseconds)} epochs"
    )
    middle = median(milliseconds)
    table.row(
        "from the end of an epoch to the end of the next, median",
        f"{middle:.0f} ms",
        "<= 200 ms",
        middle <= 200,
    )
    table.row("  99th percentile", f"{percentile(milliseconds, 0.99):.0f} ms")


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each part, interleaved")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="small epochs to measure")
    parser.add_argument("--warm-epochs", type=int, default=WARM_EPOCHS, help="small epochs before those")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    arguments = parser.parse_args()
    table = Table()
    measure(arguments, table)
    table.exit()


if __name__ == "__main__":
    main()
