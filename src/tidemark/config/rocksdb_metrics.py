"""RocksDB's own figures by the names of Flink's options `state.backend.rocksdb.metrics.*`.

A property is asked for when somebody looks; a ticker is counted by RocksDB all the time, which costs it a few percent,
so each is off unless it is switched on.
"""

from __future__ import annotations

__all__ = ["METRICS_PREFIX", "PROPERTIES", "TICKERS"]

METRICS_PREFIX = "state.backend.rocksdb.metrics."

PROPERTIES = (
    "actual-delayed-write-rate",
    "background-errors",
    "block-cache-capacity",
    "block-cache-pinned-usage",
    "block-cache-usage",
    "compaction-pending",
    "cur-size-active-mem-table",
    "cur-size-all-mem-tables",
    "estimate-live-data-size",
    "estimate-num-keys",
    "estimate-pending-compaction-bytes",
    "estimate-table-readers-mem",
    "is-write-stopped",
    "live-sst-files-size",
    "mem-table-flush-pending",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-files-at-level",
    "num-immutable-mem-table",
    "num-live-versions",
    "num-running-compactions",
    "num-running-flushes",
    "num-snapshots",
    "size-all-mem-tables",
    "total-sst-files-size",
)
"""Properties of a store; `num-files-at-level` is one for each level."""

TICKERS = {
    "block-cache-hit": "block.cache.hit",
    "block-cache-miss": "block.cache.miss",
    "bloom-filter-useful": "bloom.filter.useful",
    "bloom-filter-full-positive": "bloom.filter.full.positive",
    "bloom-filter-full-true-positive": "bloom.filter.full.true.positive",
    "bytes-read": "bytes.read",
    "bytes-written": "bytes.written",
    "compaction-read-bytes": "compact.read.bytes",
    "compaction-write-bytes": "compact.write.bytes",
    "iter-bytes-read": "db.iter.bytes.read",
    "stall-micros": "stall.micros",
}
"""Flink's name -> RocksDB's, without `rocksdb.`."""
