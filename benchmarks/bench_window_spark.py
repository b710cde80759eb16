"""Tumbling windows by column beside Spark's own streaming aggregation, in turns in one run: `make bench-window`.

Events are `(k, v, at)` from Spark's rate source, 10,000 keys, 100 events per millisecond; windows of one second are
summed up and counted. Spark: `groupBy(window, k).agg(sum, count)` in append mode with its default state store, results
into `noop`. tidemark: `window(...).aggregate(total=sum_("v"), n=count())` on the heap with a checkpoint every second,
results dropped as columns. A figure is events per second of wall-clock time from the end of one micro-batch or epoch
to that of a later one, start-up and the first ones left out; the median of the rounds counts. Both results are
compared first, on a bounded input.

    python benchmarks/bench_window_spark.py [events of a micro-batch, default 100000 1000000] ...
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jobs import RunningJob, discard, environment
from measure import EpochLog, Table, epoch_log, median, progress, spread, tuned_session

from tidemark import (
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    count,
    field,
    sum_,
)

KEYS, PER_MS, ROUNDS, WARM = 10_000, 100, 3, 3
CHECKED = 300_000


def columns(number: str) -> list[str]:
    # A factor without a common divisor with the number of keys: neighbours have different keys.
    return [f"{number} * 7919 % {KEYS} AS k", f"{number} % 97 AS v", f"{number} div {PER_MS} AS at"]


def endless(spark: Any, events: int) -> Any:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", events)
    return rate.option("numPartitions", 2).load().selectExpr(*columns("value"))


def by_tidemark(env: Any, frame: Any) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field("at"))
    return (
        env.from_spark_stream(frame)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(field("k"), Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .aggregate(total=sum_("v"), n=count())
    )


def by_spark(frame: Any) -> Any:
    from pyspark.sql import functions as F

    timed = frame.withColumn("at", F.timestamp_millis("at"))
    if frame.isStreaming:
        timed = timed.withWatermark("at", "0 seconds")
    return timed.groupBy(F.window("at", "1 second"), "k").agg(
        F.sum("v").alias("total"), F.count("*").alias("n")
    )


def check(spark: Any) -> None:
    """Both give the same for a bounded input."""
    frame = spark.range(0, CHECKED, 1, 2).selectExpr(*columns("id"))
    with by_tidemark(environment(), frame).execute_and_collect() as rows:
        ours = sorted([(row["k"], row["window_start"], row["total"], row["n"]) for row in rows])
    flat = by_spark(frame).selectExpr("k", "unix_millis(window.start)", "total", "n")
    if ours != sorted([tuple(row) for row in flat.collect()]):
        raise SystemExit("The results differ; their speed does not matter.")


def run_tidemark(spark: Any, log: EpochLog, events: int, epochs: int, folder: Path) -> float:
    env = environment(checkpoints=folder, interval_ms=1_000)
    by_tidemark(env, endless(spark, events)).map_batch(lambda batch: None).add_sink(discard())
    job = RunningJob(log, env, "bench-window")
    job.wait_for_epochs(WARM + epochs)
    rate = job.rate_between(WARM - 1, WARM + epochs - 1)
    job.cancel()
    return rate


def run_spark(spark: Any, events: int, epochs: int, folder: Path) -> float:
    query = (
        by_spark(endless(spark, events)).writeStream.format("noop").outputMode("append")
        .option("checkpointLocation", str(folder)).start()
    )  # fmt: skip
    ends: dict[int, float] = {}
    while len(ends) <= WARM + epochs:
        last = query.lastProgress
        if last is not None and last["batchId"] not in ends:
            ends[last["batchId"]] = time.perf_counter()
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
        time.sleep(0.005)
    query.stop()
    first, *_, newest = sorted(ends)[WARM - 1 :]
    return events * (newest - first) / (ends[newest] - ends[first])


def main() -> None:
    table = Table()
    spark = tuned_session("tidemark bench-window")
    try:
        with epoch_log() as log, tempfile.TemporaryDirectory() as scratch:
            check(spark)
            for events in [int(each) for each in sys.argv[1:]] or [100_000, 1_000_000]:
                epochs = max(1_000_000 // events, 3)
                rates: dict[str, list[float]] = {"tidemark": [], "Spark": []}
                for number in range(ROUNDS):
                    progress(f"round {number + 1} of {ROUNDS}, {events:,} events at a time")
                    folder = Path(scratch) / f"{events}-{number}"
                    rates["tidemark"].append(run_tidemark(spark, log, events, epochs, folder / "t"))
                    rates["Spark"].append(run_spark(spark, events, epochs, folder / "s"))
                table.title(f"{events:,} events at a time, {KEYS:,} keys, windows of 1 s, {epochs} of them")
                for name, found in rates.items():
                    table.row(name, f"{median(found):,.0f}/s", spread(found))
                ratio = median(rates["tidemark"]) / median(rates["Spark"])
                table.row("tidemark / Spark", f"{ratio:.2f}", met=ratio > 1)
    finally:
        spark.stop()
    table.exit()


if __name__ == "__main__":
    main()
