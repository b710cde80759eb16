"""Benchmark of state by column: what a slot does with records, one by one and by column. `make bench-columns`.

The work is that of a slot: an Arrow frame comes in, a function keeps `(count, sum)` per key in a `ValueState` and
gives a row per row, an Arrow frame goes out. Both styles take turns in one process; figures are medians of CPU time
of the thread that works, so that a busy machine does not spoil them much. No Spark, no socket.

    python benchmarks/bench_columns.py [slot] [index] [memory]      # default: all
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from totals import PAIR, TRIPLE, BatchTotals, RecordTotals

from tidemark.backends.columns.key_index import IntegerIndex
from tidemark.clock import SystemClock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, Output
from tidemark.operators.batch_process import BatchProcessOperator
from tidemark.operators.keyed import KeyedProcessOperator
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import BackendChoice
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.state.key_tokens import KeyTokens, key_serializer_for
from tidemark.subtask.subtask import Subtask
from tidemark.types.typeinfo import TypeInformation, Types

FRAME = 32_768
ROUNDS = 5


class Slot:
    """A subtask without its process: frames in, frames out."""

    def __init__(
        self, operator: Operator, backend: str, directory: Path, results: TypeInformation = TRIPLE
    ) -> None:
        self.operator = operator
        self.subtask = Subtask(
            operator,
            SubtaskInfo("bench", "bench", keyed=True),
            clock=SystemClock(),
            metrics=MetricRegistry(),
            backend=BackendChoice(backend),
            directory=directory,
        )
        self.subtask.start()
        key = key_serializer_for(Types.LONG())
        self.source, self.sink = codec_for(PAIR, key), codec_for(results)
        self.out = Output()

    def take(self, flags: int, frame: Any) -> int:
        """Process a frame; bytes of the answer."""
        if self.operator.columnar and self.source.is_column(flags):
            self.operator.process_columns(0, self.source.decode_columns(flags, frame), self.out)
        else:
            for batch in self.source.decode_parts(flags, frame, self.operator.batch_limit):
                self.operator.process(0, batch, self.out)
        return self.answer()

    def advance(self, watermark: int) -> int:
        """Let event time go on; bytes of the answer."""
        self.operator.advance_watermark(watermark, self.out)
        return self.answer()

    def answer(self) -> int:
        """Encode what has been emitted; how many bytes."""
        return sum(memoryview(self.sink.encode_part(part)[1]).nbytes for _, part in self.out.parts())

    def take_all(self, work: list[tuple[int, Any]]) -> None:
        """Process frames."""
        for frame in work:
            self.take(*frame)


def frames(keys: int, count: int, seed: int = 1) -> list[tuple[int, Any]]:
    """Frames of random keys."""
    rng, codec = np.random.default_rng(seed), codec_for(PAIR, key_serializer_for(Types.LONG()))
    made = []
    for _ in range(count):
        key = pa.array(rng.integers(0, keys, FRAME) * 7919)
        value = pa.array(rng.integers(0, 100, FRAME))
        made.append(codec.encode_column(pa.StructArray.from_arrays([key, value], ["f0", "f1"]), None, key))
    return made


def all_keys(keys: int) -> Iterator[tuple[int, Any]]:
    """Frames that hold every key once."""
    codec = codec_for(PAIR, key_serializer_for(Types.LONG()))
    for start in range(0, keys, FRAME):
        key = pa.array(np.arange(start, min(start + FRAME, keys)) * 7919)
        column = pa.StructArray.from_arrays([key, pa.array(np.zeros(len(key), np.int64))], ["f0", "f1"])
        yield codec.encode_column(column, None, key)


def cpu(run: Callable[[], Any]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started


def bench_slot() -> None:
    """CPU time per record of both styles, in turns."""
    print(f"{'backend':<9}{'keys':>10}{'record ns':>12}{'batch ns':>12}{'ratio':>8}")
    for backend in ("heap", "rocksdb"):
        for keys in (100, 10_000, 1_000_000):
            with tempfile.TemporaryDirectory() as scratch:
                slots = {
                    "record": Slot(
                        KeyedProcessOperator(RecordTotals(), Types.LONG()), backend, Path(scratch) / "r"
                    ),
                    "batch": Slot(
                        BatchProcessOperator(BatchTotals(), Types.LONG(), PAIR, TRIPLE),
                        backend,
                        Path(scratch) / "b",
                    ),
                }
                for slot in slots.values():
                    for frame in all_keys(keys):
                        slot.take(*frame)
                work = frames(keys, 4)
                gc.collect()
                taken: dict[str, list[float]] = {name: [] for name in slots}
                for _ in range(ROUNDS):
                    for name, slot in slots.items():
                        taken[name].append(cpu(lambda: slot.take_all(work)))  # noqa: B023
                record, batch = [
                    statistics.median(taken[name]) / (4 * FRAME) * 1e9 for name in ("record", "batch")
                ]
                print(
                    f"{backend:<9}{keys:>10,}{record:>12.0f}{batch:>12.0f}{record / batch:>8.1f}", flush=True
                )
                for slot in slots.values():
                    slot.subtask.close()


def bench_index() -> None:
    """Look-up of the keys of a batch: our table, a dictionary, Arrow's dictionary encoding."""
    print(f"{'keys':>10}{'table ns':>12}{'dict ns':>12}{'arrow ns':>12}")
    for keys in (100, 10_000, 1_000_000):
        known = np.arange(keys) * 7919
        index = IntegerIndex(KeyTokens(key_serializer_for(Types.LONG())))
        index.rows(pa.array(known))
        plain = {key: row for row, key in enumerate(known.tolist())}
        batch = np.random.default_rng(1).integers(0, keys, 65_536) * 7919
        column = pa.array(batch)
        runs = [
            lambda: index.find(batch),  # noqa: B023
            lambda: list(map(plain.get, batch.tolist())),  # noqa: B023
            lambda: column.dictionary_encode(),  # noqa: B023
        ]
        times = [min(cpu(run) for _ in range(9)) / 65_536 * 1e9 for run in runs]
        print(f"{keys:>10,}" + "".join(f"{each:>12.0f}" for each in times), flush=True)


def bench_memory() -> None:
    """Bytes per key of heap state, by the resident memory of this process."""
    print(f"{'type':<14}{'record B/key':>14}{'batch B/key':>14}{'ratio':>8}")
    for name, (record, batch) in memory_per_key().items():
        print(f"{name:<14}{record:>14.0f}{batch:>14.0f}{record / batch:>8.1f}", flush=True)


def memory_per_key(keys: int = 1_000_000) -> dict[str, tuple[float, float]]:
    """Resident bytes per key of heap state, by record and by column, for two types."""
    found = {}
    for name, kind, value in (
        ("LONG", Types.LONG(), 5_000_000_000),
        ("(LONG, LONG)", PAIR, (5_000_000_000, 7_000_000_000)),
    ):
        for by_column in (False, True):
            _filled(kind, value, 1_000, by_column).close()
        # A process each: what one has given back to its allocator would be taken for nothing by the next.
        record, batch = [
            _in_a_child(lambda by=by: _grown(kind, value, keys, by)) / keys  # type: ignore[misc]  # noqa: B023
            for by in (False, True)
        ]
        found[name] = record, batch
    return found


def _in_a_child(run: Callable[[], int]) -> int:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(run()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        figure = int(answer.read())
    os.waitpid(child, 0)
    return figure


def _grown(kind: Any, value: Any, keys: int, by_column: bool) -> int:
    before = psutil.Process().memory_info().rss
    held = _filled(kind, value, keys, by_column)
    gc.collect()
    # What the C library keeps of what was freed is not state.
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    grown = psutil.Process().memory_info().rss - before
    held.close()
    return int(grown)


def _filled(kind: Any, value: Any, keys: int, by_column: bool) -> Any:
    from tidemark.backends.heap import HeapKeyedStateBackend
    from tidemark.state.backend import BackendParameters

    backend = HeapKeyedStateBackend(
        BackendParameters(key_serializer_for(Types.LONG()), 128, (0, 127), SystemClock())
    )
    descriptor = ValueStateDescriptor("v", kind)
    backend.start_batch()
    if by_column:
        state: Any = backend.column_state(descriptor)
        for start in range(0, keys, FRAME):
            batch = backend.column_keys(pa.array(np.arange(start, min(start + FRAME, keys)) * 7919))
            columns = value if isinstance(value, tuple) else (value,)
            arrays = tuple([np.arange(len(batch)) + each for each in columns])
            state.write(batch, arrays if isinstance(value, tuple) else arrays[0])
    else:
        state = backend.state(descriptor)
        for key in range(keys):
            backend.context.token = key * 7919
            state.update(tuple([each + key for each in value]) if isinstance(value, tuple) else value + key)
    backend.end_batch()
    return backend


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["slot", "index", "memory"]
    for each in wanted:
        {"slot": bench_slot, "index": bench_index, "memory": bench_memory}[each]()
