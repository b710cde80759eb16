"""Worker of PySpark's own Python state: `transformWithStateInPandas` and `transformWithState` (rows).

Settings: RocksDB state store (the only one it supports) with changelog checkpoints, as many shuffle
partitions as cores, unix sockets to the Python workers, state read and written once per key and micro-batch.
Input is one warm-up micro-batch of other keys, then the measured one; start-up is what comes before those.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from suite import kafka_work
from suite.latency import Ticker, figures_of
from suite.work import LIST_LENGTH, MAP_KEYS, Rows, is_correct
from suite.worker import Case, answer

WARM = 20_000
TTL_MS = 3_600_000


def session(slots: int, jars: str = "") -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": f"local[{slots}]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(slots),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if jars:
        settings["spark.jars"] = jars
    builder = SparkSession.builder.appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def run_kafka(case: Case, spark: Any, topic: str, folder: Path) -> list[Any]:
    """The records of a topic counted by key with Spark's own operators; the last count of each key comes out."""
    from pyspark.sql import functions as F

    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", case.options["bootstrap"])
    texts = read.option("subscribe", topic).option("startingOffsets", "earliest").load()
    counted = texts.groupBy(F.col("value").cast("string").alias("k")).count()
    name = f"counts_{time.time_ns()}"
    query = (
        counted.writeStream.format("memory").queryName(name).outputMode("complete")
        .trigger(availableNow=True).option("checkpointLocation", f"{folder}/{name}").start()
    )  # fmt: skip
    query.awaitTermination()
    return [
        (key, number)
        for key, count in spark.table(name).collect()
        for number in range(kafka_work.EVERY, count + 1, kafka_work.EVERY)
    ]


def processor(case: Case, rows: Rows) -> Any:
    """The stateful processor of a case."""
    import pandas as pd
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    every, sample = rows.every, rows.sample
    ttl = TTL_MS if case.ttl else None
    pandas = case.system == "spark-pandas"
    state = case.state

    class Value(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "total long", ttl)

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
            total = self.total.get()[0] if self.total.exists() else 0
            for part in rows:
                if pandas:
                    totals = part["v"].cumsum() + total
                    total = int(totals.iloc[-1])
                    if key[0] % sample == 0:
                        emitted = totals[totals % (part["v"] * every) == 0]
                        if len(emitted):
                            yield pd.DataFrame({"k": key[0], "total": emitted})
                else:
                    total += part.v
                    if total % (part.v * every) == 0 and key[0] % sample == 0:
                        yield Row(k=key[0], total=total)
            self.total.update((total,))

    class Lists(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.values = handle.getListState("values", "v long", ttl)

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
            held = [value[0] for value in self.values.get()]
            emitted = []
            for part in rows:
                for value in part["v"].tolist() if pandas else (part.v,):
                    held.append(value)
                    if len(held) == LIST_LENGTH:
                        if key[0] % sample == 0:
                            emitted.append(sum(held))
                        held = []
            if held:
                self.values.put([(value,) for value in held])
            else:
                self.values.clear()
            if emitted and pandas:
                yield pd.DataFrame({"k": key[0], "total": emitted})
            elif emitted:
                yield from (Row(k=key[0], total=total) for total in emitted)

    class Maps(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.counts = handle.getMapState("counts", "s long", "count long", ttl)

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
            seen: dict[int, int] = {}
            for part in rows:
                for sub in part["s"].tolist() if pandas else (part.s,):
                    seen[sub] = seen.get(sub, 0) + 1
            emitted = []
            for sub, count in seen.items():
                before = self.counts.getValue((sub,))[0] if self.counts.containsKey((sub,)) else 0
                self.counts.updateValue((sub,), (before + count,))
                if key[0] % sample == 0:
                    reached = range(before // 10 * 10 + 10, before + count + 1, 10)
                    emitted += [(key[0] * MAP_KEYS + sub, number) for number in reached]
            if emitted and pandas:
                yield pd.DataFrame(emitted, columns=["k", "total"])
            elif emitted:
                yield from (Row(k=pair, total=number) for pair, number in emitted)

    return {"value": Value, "list": Lists, "map": Maps}[state]()


def latency(case: Case, folder: Path) -> dict[str, Any]:
    """Age of events when a micro-batch has been collected; events come from the same ticker as tidemark's."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class CountAndPass(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "count long")

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
            count = self.count.get()[0] if self.count.exists() else 0
            for part in rows:
                count += len(part)
                yield pd.DataFrame({"t": part["t"]})
            self.count.update((count,))

    spark = session(case.slots)
    with Ticker(case) as ticker:
        lines = spark.readStream.format("socket").options(host="127.0.0.1", port=ticker.port).load()
        parts = lines.selectExpr(
            "CAST(split(value, ',')[0] AS LONG) AS k", "CAST(split(value, ',')[1] AS LONG) AS t"
        )
        ages: list[float] = []

        def take(frame: Any, _batch: int) -> None:
            created = [row[0] for row in frame.collect()]
            now = time.time() * 1000
            ages.extend(now - at / 1000 for at in created)

        query = (
            parts.groupBy("k")
            .transformWithStateInPandas(CountAndPass(), "t long", "Append", "None")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(folder / "query"))
            .start()
        )
        sent = ticker.sent()
        deadline = time.monotonic() + 300
        while len(ages) < sent and time.monotonic() < deadline:
            time.sleep(0.1)
        query.stop()
    spark.stop()
    return figures_of([ages], sent)


def measure(case: Case) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        if case.state == "kafka":
            spark = session(case.slots, ",".join(case.options["jars"]))
            return kafka_work.figures(case, lambda topic: run_kafka(case, spark, topic, folder))
        return latency(case, folder) if case.state == "latency" else _measure(case, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(case: Case, folder: Path) -> dict[str, Any]:
    started = time.perf_counter()
    rows = Rows(case.records, case.keys, case.kind)
    spark = session(case.slots)
    # Keys of the warm-up lie behind those that are measured.
    warm = [f"id % 1000 + {case.keys} AS k", "1L AS v", "0L AS s", "0L AS t"]
    spark.range(0, WARM, 1, case.slots).selectExpr(*warm).write.parquet(str(folder / "in" / "part=0"))
    # Spark's file source takes files in the order of their modification times.
    time.sleep(0.05)
    spark.range(0, case.records, 1, case.slots).selectExpr(*rows.columns()).write.parquet(
        str(folder / "in" / "part=1")
    )
    stream = (
        spark.readStream.schema("k long, v long, s long, t long")
        .option("maxFilesPerTrigger", case.slots)
        .parquet(str(folder / "in" / "part=*"))
    )
    grouped = stream.select(*(["k", "s"] if case.state == "map" else ["k", "v"])).groupBy("k")
    transform = (
        grouped.transformWithStateInPandas if case.system == "spark-pandas" else grouped.transformWithState
    )
    time_mode = "ProcessingTime" if case.ttl else "None"
    found: list[Any] = []
    prepared = time.perf_counter()
    query = (
        transform(processor(case, rows), "k long, total long", "Append", time_mode)
        .writeStream.foreachBatch(lambda frame, _batch: found.extend(frame.collect()))
        .option("checkpointLocation", str(folder / "query"))
        .start()
    )
    batches = _batches(query, [WARM, case.records])
    query.stop()
    steady = batches[1].durationMs["addBatch"] / 1000
    limit = case.keys * (MAP_KEYS if case.state == "map" else 1)
    result = {
        "rate": case.records / steady,
        "steady_s": steady,
        "startup_s": prepared - started,
        "warmup_s": batches[0].durationMs["triggerExecution"] / 1000,
        "correct": is_correct(case.state, rows, (row for row in found if row[0] < limit)),
        "state_bytes": sum(
            path.stat().st_size for path in (folder / "query" / "state").rglob("*") if path.is_file()
        ),
    }
    spark.stop()
    return result


def _batches(query: Any, wanted: list[int]) -> list[Any]:
    """The progress of the micro-batches with rows, once there are as many as wanted.

    With timers or TTL a query runs micro-batches without rows for ever, so its end cannot be waited for.
    """
    while True:
        if query.exception() is not None:
            raise query.exception()
        batches = [batch for batch in query.recentProgress if batch.numInputRows]
        sizes = [batch.numInputRows for batch in batches]
        if sizes == wanted:
            return batches
        if sizes != wanted[: len(sizes)]:
            raise RuntimeError(f"unexpected micro-batches: {sizes}")
        time.sleep(0.05)


if __name__ == "__main__":
    answer(measure)
