"""Cost of window aggregation beside a plain keyed reduce, per record and in state entries.

Operators run in this process on batches of 10,000 records, as a slot would drive them, without the wire.
A record is `(key, value)` with 1,000 keys; time moves on by one millisecond every ten records, so that a
window of one second holds 10,000 records, ten per key. Figures are medians of CPU time. `by column` gets the same
records as Arrow columns and computes a sum and a count of them.

The proof of incremental aggregation is the number of entries the backend holds before the windows fire:
one per key and open window, however many records went in. Windows that keep their elements are shown
for comparison.

    python benchmarks/bench_window.py
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.api.functions import AggregateFunction, ProcessWindowFunction
from tidemark.api.specs import OperatorSpec, ReduceSpec, WindowSpec
from tidemark.api.windows.aggregations import count, sum_
from tidemark.api.windows.column_aggregate import ColumnAggregate, WindowRow
from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.clock import SystemClock
from tidemark.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, OperatorEnvironment, Output
from tidemark.operators.factory import create_operator
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import MAX_WATERMARK, Batch, ColumnBatch
from tidemark.state.backend import BackendParameters
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.time import Time
from tidemark.types.typeinfo import Types

KEYS, BATCH, BATCHES, ROUNDS = 1_000, 10_000, 20, 5
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Sum(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


class SumOfList(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, sum(value for _, value in elements)


def add(left: Any, right: Any) -> Any:
    return left[0], left[1] + right[1]


def window(assigner: WindowAssigner[Any, Any], **how: Any) -> OperatorSpec:
    return WindowSpec(assigner, element_type=PAIR, **how)


def by_column(assigner: WindowAssigner[Any, Any]) -> OperatorSpec:
    function = ColumnAggregate({"total": sum_(1), "n": count()}, PAIR)
    names = ["k", "window_start", "window_end", "total", "n"]
    return window(
        assigner,
        aggregate=function,
        accumulator_type=function.accumulator_type,
        window_function=WindowRow(Types.ROW_NAMED(names, [Types.LONG()] * 5)),
        function_kind="apply",
    )


def second() -> WindowAssigner[Any, Any]:
    return TumblingEventTimeWindows.of(Time.seconds(1))


CASES: dict[str, Callable[[], OperatorSpec]] = {
    "keyed reduce, no window": lambda: ReduceSpec(add),
    "tumbling 1 s, reduce": lambda: window(second(), reduce=add),
    "tumbling 1 s, aggregate": lambda: window(second(), aggregate=Sum(), accumulator_type=Types.LONG()),
    "tumbling 1 s, elements kept": lambda: window(
        second(), window_function=SumOfList(), function_kind="process"
    ),
    "sliding 1 s by 0.5 s, aggregate": lambda: window(
        SlidingEventTimeWindows.of(Time.seconds(1), Time.milliseconds(500)),
        aggregate=Sum(),
        accumulator_type=Types.LONG(),
    ),
    "tumbling 1 s, by column": lambda: by_column(second()),
    "sliding 1 s by 0.5 s, by column": lambda: by_column(
        SlidingEventTimeWindows.of(Time.seconds(1), Time.milliseconds(500))
    ),
    "session gap 0.3 s, aggregate": lambda: window(
        EventTimeSessionWindows.with_gap(Time.milliseconds(300)),
        aggregate=Sum(),
        accumulator_type=Types.LONG(),
    ),
}


def batches() -> list[Batch]:
    made = []
    for number in range(BATCHES):
        first = number * BATCH
        values = [((first + at) * 7919 % KEYS, at) for at in range(BATCH)]
        stamps: list[int | None] = [(first + at) // 10 for at in range(BATCH)]
        made.append(Batch(values, stamps, [key for key, _ in values]))
    return made


def operator(spec: OperatorSpec, backend: str, directory: Path) -> Operator:
    made = create_operator(spec, Types.LONG(), [PAIR])

    def make_backend(serializer: Any) -> Any:
        parameters = BackendParameters(serializer, 128, (0, 127), SystemClock(), directory=directory)
        return (
            HeapKeyedStateBackend(parameters) if backend == "heap" else RocksDBKeyedStateBackend(parameters)
        )

    made.setup(
        OperatorEnvironment(
            SubtaskInfo("bench", "bench"), SystemClock(), MetricRegistry().group("b"), make_backend
        )
    )
    made.initialize(None)
    made.open()
    return made


def as_columns(batch: Batch) -> ColumnBatch:
    serializer = serializer_for(PAIR)
    return ColumnBatch(
        serializer.to_arrow(batch.values), serializer, pa.array(batch.timestamps), pa.array(batch.keys)
    )


def run(spec: OperatorSpec, backend: str, work: list[Batch]) -> tuple[float, int, int]:
    """CPU µs per record (firing included), most state entries held, and results emitted."""
    columns = list(map(as_columns, work))
    with tempfile.TemporaryDirectory() as directory:
        tested: Any = operator(spec, backend, Path(directory) / "state")
        out, emitted, most = Output(), 0, 0
        spent = 0.0
        for batch, column in zip(work, columns, strict=True):
            started = time.thread_time()
            if tested.columnar:
                tested.process_columns(0, column, out)
            else:
                tested.process(0, batch, out)
            spent += time.thread_time() - started
            most = max(most, tested.backend.num_entries())
            started = time.thread_time()
            tested.advance_watermark(batch.timestamps[-1] - 1, out)  # type: ignore[index, operator]
            emitted += sum(len(part) for _, part in out.parts())
            spent += time.thread_time() - started
        tested.advance_watermark(MAX_WATERMARK, out)
        emitted += sum(len(part) for _, part in out.parts())
        tested.close()
    return spent / (len(work) * BATCH) * 1e6, most, emitted


def main() -> None:
    work = batches()
    print(f"{len(work) * BATCH:,} records, {KEYS:,} keys, batches of {BATCH:,}; median of {ROUNDS} rounds")
    for backend in ("heap", "rocksdb"):
        print(f"\n{backend:<34} {'µs/record':>10} {'vs reduce':>10} {'entries':>9} {'results':>9}")
        base = 0.0
        for name, make in CASES.items():
            gc.collect()
            rounds = [run(make(), backend, work) for _ in range(ROUNDS)]
            cost = statistics.median(figures[0] for figures in rounds)
            base = base or cost
            _, entries, results = rounds[0]
            print(f"{name:<34} {cost:>10.2f} {cost / base:>9.2f}x {entries:>9,} {results:>9,}", flush=True)
            if "aggregate" in name and "tumbling" in name:
                # A batch is one second of ten records per key: two windows of a key are open at most.
                assert entries <= 2 * KEYS, "a window holds more than its accumulator"


if __name__ == "__main__":
    main()
