"""Spark's own aggregation: running (count, sum) per key, all in the JVM, update mode.

It gives a row per key and micro-batch instead of one per row, which is less than the others do. Settings: as many
shuffle partitions as cores, the state store in memory (`heap`) or RocksDB with changelog checkpoints, micro-batches of
a quarter of the rows. Steady state: time of the micro-batches as Spark tells it, without the first, which warms up.
"""

from __future__ import annotations

import tempfile
import threading
import time
from typing import Any

import numpy as np

from suite.work import Rows

__all__ = ["spark_rate"]

BATCHES = 4
_STORES = "org.apache.spark.sql.execution.streaming.state."
_PROVIDERS = {"heap": "HDFSBackedStateStoreProvider", "rocksdb": "RocksDBStateStoreProvider"}


def spark_rate(spark: Any, rows: Rows, backend: str) -> float:
    """Records per second of the micro-batches behind the first; the results of all are checked.

    Raises:
        RuntimeError: A result is wrong, or the query failed.
    """
    from pyspark.sql.functions import expr

    size = rows.records // BATCHES
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STORES + _PROVIDERS[backend])
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    source = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", size).option("numPartitions", 2)
    )
    keyed = source.load().selectExpr(*rows.columns("value")[:2]).groupBy("k")
    totals = keyed.agg(expr("count(*) AS n"), expr("sum(v) AS t"))
    found: list[tuple[int, int, int]] = []
    enough = threading.Event()

    def take(frame: Any, batch: int) -> None:
        if batch <= BATCHES:
            found.append(tuple(frame.selectExpr("count(*)", "sum(n)", "sum(t)").first()))
        if batch == BATCHES:
            enough.set()

    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        query = (
            totals.writeStream.outputMode("update")
            .option("checkpointLocation", folder)
            .foreachBatch(take)
            .start()
        )
        while not enough.wait(1.0):
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
        while (last := query.lastProgress) is None or last["batchId"] < BATCHES:
            time.sleep(0.1)
        progress = [p for p in query.recentProgress if 0 < p["batchId"] <= BATCHES]
        query.stop()
    expected = [_after(rows, size, batch) for batch in range(BATCHES + 1)]
    if found != expected:
        raise RuntimeError(f"Spark's aggregation gave {found} instead of {expected}.")
    seconds = sum(p["durationMs"]["triggerExecution"] for p in progress) / 1000
    return size * len(progress) / seconds


def _after(rows: Rows, size: int, batch: int) -> tuple[int, int, int]:
    """Keys of a micro-batch, and the sums of their counts and sums behind it."""
    keys = rows.key_column(np.arange(size * (batch + 1)))
    counts = np.bincount(keys, minlength=rows.keys)
    touched = np.unique(keys[size * batch :])
    return len(touched), int(counts[touched].sum()), int((counts[touched] * (touched + 1)).sum())
