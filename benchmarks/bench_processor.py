"""A savepoint with many keys: made from a DataFrame, read with SQL, changed, written anew, compared, rekeyed.

    python benchmarks/bench_processor.py [--keys 1000000]

Prints the time of each step and the peak memory of the driver's Python process, of the JVM (driver and
executor in one, with a local master) and of the largest Python worker. What must stay small, however many
keys there are, is the driver: rows go from task to file and from file to task.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tidemark import Configuration, StreamExecutionEnvironment, Types, ValueStateDescriptor
from tidemark.state_processor import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
)
from tidemark.state_processor.diff import diff
from tidemark.state_processor.rewrite import erase_key, rekey
from tidemark.state_processor.spark import session_of


class Fill(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.total.update(value[1])


class Read(KeyedStateReaderFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def read_key(self, key: Any, ctx: Any) -> Any:
        yield key, self.total.value()


class Memory:
    """Watches the resident memory of this process and its children."""

    def __init__(self) -> None:
        self.workers = self.jvm = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.1):
            for child in me.children(recursive=True):
                try:
                    size, name = child.memory_info().rss, child.name()
                except psutil.Error:
                    continue
                if "java" in name:
                    self.jvm = max(self.jvm, size)
                else:
                    self.workers = max(self.workers, size)

    @property
    def driver(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def step(name: str, memory: Memory, work: Callable[[], Any], keys: int) -> Any:
    started = time.perf_counter()
    result = work()
    took = time.perf_counter() - started
    print(
        f"{name:<44} {took:8.2f} s  {keys / took / 1000:8.0f} k keys/s   "
        f"driver {memory.driver >> 20:5d} MB  JVM {memory.jvm >> 20:5d} MB  worker {memory.workers >> 20:5d} MB",
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    configuration = Configuration()
    configuration.set_string("spark.master", "local[2]")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(4)
    memory = Memory()
    with tempfile.TemporaryDirectory(prefix="bench-processor-") as folder:
        paths = {name: str(Path(folder) / name) for name in ("new", "edited", "rekeyed", "erased")}
        spark = step("Spark session and data source", memory, lambda: session_of(env), keys)
        spark.range(1000).selectExpr("sum(id)").collect()
        frame = spark.range(keys).selectExpr("concat('key-', id) as key", "id as value")

        def bootstrap() -> None:
            data = OperatorTransformation.bootstrap_with(frame)
            keyed = data.key_by(lambda row: row[0], Types.STRING()).transform(Fill())
            SavepointWriter.new_savepoint(env, None, 128).with_operator("sum", keyed).write(paths["new"])

        def load(path: str) -> Any:
            return spark.read.format("tidemark").options(path=path, uid="sum", state="total").load()

        def edit() -> None:
            load(paths["new"]).createOrReplaceTempView("totals")
            changed = spark.sql(f"select key, value * 2 as value from totals where value <> {keys - 1}")
            writer = SavepointWriter.from_existing_savepoint(env, paths["new"])
            writer.write_state("sum", "total", changed).write(paths["edited"])

        def read_keyed() -> int:
            pair = Types.TUPLE([Types.STRING(), Types.LONG()])
            stream = SavepointReader.read(env, paths["new"]).read_keyed_state(
                "sum", Read(), Types.STRING(), pair
            )
            return int(stream.to_dataframe().selectExpr("sum(f1)").first()[0])

        step("bootstrap keyed state from a DataFrame", memory, bootstrap, keys)
        total = step(
            "sum over the data source", memory, lambda: load(paths["new"]).selectExpr("sum(value)"), keys
        )
        value = step("  run that query", memory, lambda: total.first()[0], keys)
        assert value == keys * (keys - 1) // 2
        assert step("read through a KeyedStateReaderFunction", memory, read_keyed, keys) == value
        step("edit with SQL and write a new savepoint", memory, edit, keys)
        spark.stop()
        print(f"size of the savepoint: {_size(paths['new']) >> 20} MB; without Spark from here on:")
        entries = step("diff", memory, lambda: diff(paths["new"], paths["edited"]), keys)
        [entry] = [entry for entry in entries if entry.state == "total"]
        assert (entry.added, entry.removed, entry.changed) == (0, 1, keys - 2)
        step("rekey to 1024 key groups", memory, lambda: rekey(paths["new"], 1024, paths["rekeyed"]), keys)
        erased = step(
            "erase one key", memory, lambda: erase_key(paths["new"], "key-7", paths["erased"]), keys
        )
        assert erased.total == 1
    memory.stop()


def _size(path: str) -> int:
    return sum(os.path.getsize(os.path.join(root, f)) for root, _, files in os.walk(path) for f in files)


if __name__ == "__main__":
    main()
