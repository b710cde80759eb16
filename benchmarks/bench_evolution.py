"""Benchmark of schema evolution: a dataclass gains a field under a million keys. `make bench-evolution`.

Each figure comes from a process of its own: one writes a savepoint with the old class, another restores it
with the new one. *restore* is the time to take over the stored rows, *register* the time until the state can
be used with its new type: RocksDB rewrites all of them there, the heap turns them into objects.
*unchanged* is the same without a change of the class, for comparison. Memory is what the process holds at
most, and that minus what it held before the restore. On RocksDB the second must not depend on the number of
keys: it is bounded by block cache, write buffers and one batch of rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.checkpoint.format.read import read_table
from tidemark.checkpoint.layout import SnapshotLocation
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, read_metadata, write_metadata
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.clock import SystemClock
from tidemark.state.backend import NO_KEY, BackendParameters, KeyedStateBackend
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.state.serializers import serializer_for
from tidemark.state.snapshot import OperatorCut
from tidemark.types.typeinfo import Types

MANY = 1_000_000
FEWER = 250_000
BATCH = 10_000
BOUND = 150 << 20
"""What four times as many keys may cost RocksDB in memory, on top: noise of caches and allocators."""

OLD = """
from dataclasses import dataclass
@dataclass
class Order:
    number: int
    customer: str
    amount: float
    items: list[int]
"""
NEW = OLD.replace("    items: list[int]\n", "    currency: str = 'EUR'\n")


def backend(kind: str, directory: Path) -> KeyedStateBackend:
    parameters = BackendParameters(
        serializer_for(Types.LONG()), 128, (0, 127), SystemClock(), directory=directory / "store"
    )
    return HeapKeyedStateBackend(parameters) if kind == "heap" else RocksDBKeyedStateBackend(parameters)


def order_class(directory: Path, source: str) -> Any:
    """The class as one version of the program defines it."""
    (directory / "evolving_bench.py").write_text(source)
    sys.path.insert(0, str(directory))
    return importlib.import_module("evolving_bench").Order


def write(kind: str, directory: Path, keys: int) -> dict[str, float]:
    cls = order_class(directory, OLD)
    store = backend(kind, directory)
    state: Any = store.state(ValueStateDescriptor("order", Types.DATACLASS(cls)))
    for first in range(0, keys, BATCH):
        tokens = list(range(first, min(first + BATCH, keys)))
        store.start_batch(tokens)
        for token in tokens:
            store.context.token = token
            state.update(cls(token, f"customer {token % 1000}", token / 4, [token, token + 1]))
        store.context.token = NO_KEY
        store.end_batch()
    target = SubtaskTarget(1, SnapshotLocation(str(directory / "sp"), ""), "op", 0, (0, 127))
    storage = FileSystemStorage()
    subtask = SnapshotWriter(storage).write_subtask(target, OperatorCut(store.cut()))
    operator = OperatorState("op", "op", 1, 128, (subtask,))
    write_metadata(storage, str(directory / "sp"), CheckpointMetadata(1, 0, "0" * 32, operators=(operator,)))
    store.close()
    return {"bytes": float(subtask.state_size)}


def restore(kind: str, directory: Path, keys: int, source: str) -> dict[str, float]:
    cls = order_class(directory, source)
    storage = FileSystemStorage()
    metadata = read_metadata(storage, str(directory / "sp"))
    before = psutil.Process().memory_info().rss
    store = backend(kind, directory)
    started = time.perf_counter()
    for table in metadata.operators[0].subtasks[0].tables:
        store.restore_table(table.meta, read_table(table, storage, str(directory / "sp")))
    restored = time.perf_counter()
    state: Any = store.state(ValueStateDescriptor("order", Types.DATACLASS(cls)))
    registered = time.perf_counter()
    store.start_batch([keys - 1])
    store.context.token = keys - 1
    assert state.value().number == keys - 1
    store.end_batch()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    store.close()
    return {
        "restore": restored - started,
        "register": registered - restored,
        "peak": float(peak),
        "growth": float(peak - before),
    }


def child(*arguments: str) -> dict[str, float]:
    """Run one part in a process of its own."""
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=5, metavar="ARG", help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=int, default=MANY, help="number of keys")
    options = parser.parse_args()
    if options.child:
        part, kind, directory, keys, version = options.child
        if part == "write":
            print(json.dumps(write(kind, Path(directory), int(keys))))
        else:
            print(json.dumps(restore(kind, Path(directory), int(keys), NEW if version == "new" else OLD)))
        return 0
    print(f"  {'':<34}{'restore':>9}{'register':>10}{'us/key':>8}{'peak':>10}{'growth':>10}")
    growth: dict[int, float] = {}
    for kind in ("heap", "rocksdb"):
        for keys in (options.keys // (MANY // FEWER), options.keys):
            with tempfile.TemporaryDirectory() as folder:
                child("write", kind, folder, str(keys), "old")
                for version, name in (("old", "unchanged"), ("new", "evolved")):
                    took = child("restore", kind, folder, str(keys), version)
                    total = took["restore"] + took["register"]
                    print(
                        f"  {f'{kind}, {keys:,} keys, {name}':<34}{took['restore']:>8.2f}s"
                        f"{took['register']:>9.2f}s{1e6 * total / keys:>8.2f}"
                        f"{took['peak'] / 2**20:>7.0f} MB{took['growth'] / 2**20:>7.0f} MB",
                        flush=True,
                    )
                    if kind == "rocksdb":
                        growth[keys] = took["growth"]
    few, many = growth.values()
    bounded = many - few < BOUND
    verdict = "bounded" if bounded else "MISSED"
    print(f"  RocksDB holds {(many - few) / 2**20:.0f} MB more for four times the keys: {verdict}")
    return 0 if bounded else 1


if __name__ == "__main__":
    sys.exit(main())
