"""Running (count, sum) per key with a row for every row: the job in both styles, and the loop that is its limit.

Rows are those of kind "random" of `suite.work`. What a job gives out is added up batch by batch in the tasks, so that
every result is checked and nothing but three numbers a batch travels to the driver.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench_runtime import DictContext, DictState
from jobs import environment
from measure import EpochLog
from suite.work import Rows

from tidemark import (
    BatchProcessFunction,
    KeyedProcessFunction,
    NumberSequenceSource,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    field,
)

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
STAMPED = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()])


class RecordTotals(KeyedProcessFunction):
    """Running (count, sum), a record at a time."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("totals", PAIR))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count, total = self.state.value() or (0, 0)
        count, total = count + 1, total + value[1]
        self.state.update((count, total))
        yield value[0], count, total


class BatchTotals(BatchProcessFunction):
    """The same, a batch at a time."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("totals", PAIR))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        count, total = self.state.read(keys)
        counts = keys.running_count(count)
        sums = keys.running_sum(batch.column(1), total)
        self.state.write(keys, (keys.last(counts), keys.last(sums)))
        return pa.record_batch([batch.column(0), pa.array(counts), pa.array(sums)], names=["f0", "f1", "f2"])


def added_up(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows, sum of the counts and sum of the sums of a batch."""
    figures = [batch.num_rows, pc.sum(batch.column(1)).as_py(), pc.sum(batch.column(2)).as_py()]
    return pa.record_batch([pa.array([figure]) for figure in figures], names=["f0", "f1", "f2"])


class RecordTexts(KeyedProcessFunction):
    """Replaces a text of some size at every record."""

    def __init__(self, size: int) -> None:
        self.size = size

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        held = self.state.value()
        self.state.update(str(value[1] % 10) * self.size)
        yield value[0], 1 if held is None else 0, len(held or "")


class BatchTexts(BatchProcessFunction):
    """The same, a batch at a time: of the rows of a key the last one's text stays."""

    def __init__(self, size: int) -> None:
        self.size = size

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))
        self.texts = pa.array([str(digit) * self.size for digit in range(10)])

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        _held, known = self.state.read(keys, with_mask=True)
        digits = keys.last(batch.column(1).to_numpy()) % 10
        self.state.write(keys, self.texts.take(pa.array(digits)))
        new = ~known[keys.codes] & (keys.cumcount() == 0)
        sizes = np.where(new, 0, self.size)
        columns = [batch.column(0), pa.array(new.astype(np.int64)), pa.array(sizes)]
        return pa.record_batch(columns, names=["f0", "f1", "f2"])


@dataclass(frozen=True, slots=True)
class Work:
    """Which job is run over the rows."""

    backend: str
    """`heap` or `rocksdb`."""
    slots: int = 2
    depth: int = 1
    """Keyed operators one behind the other, which all count and add up."""
    text_bytes: int = 0
    """State is a text of so many bytes instead, which every row replaces."""

    def apply(self, keyed: Any, by_batch: bool) -> Any:
        """One of the operators."""
        if by_batch:
            batch = BatchTexts(self.text_bytes) if self.text_bytes else BatchTotals()
            return keyed.process_batch(batch, output_type=TRIPLE)
        record = RecordTexts(self.text_bytes) if self.text_bytes else RecordTotals()
        return keyed.process(record, output_type=TRIPLE)

    def check(self, rows: Rows, found: tuple[int, ...]) -> None:
        """Whether the sums of what came out are right.

        Raises:
            RuntimeError: They are not.
        """
        expected = rows.running_totals()
        if self.text_bytes:
            known = int(np.count_nonzero(rows.counts()))
            expected = rows.records, known, (rows.records - known) * self.text_bytes
        elif self.depth > 1:
            # From the second operator on counts are added up, in whichever order their rows come.
            expected, found = expected[:2], found[:2]  # type: ignore[assignment]
        if found != expected:
            raise RuntimeError(f"{self} gave {found} instead of {expected}.")


def run_job(spark: Any, log: EpochLog, rows: Rows, work: Work, by_batch: bool) -> str:
    """A whole job on Spark over rows that are made in the JVM; its id, under which the log knows its epochs.

    Raises:
        RuntimeError: The result is wrong.
    """
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    env = environment(work.backend, work.slots)
    stream = env.from_spark_stream(spark.range(0, rows.records, 1, 2).selectExpr(*rows.columns()[:2]))
    for _ in range(work.depth):
        stream = work.apply(stream.key_by(field(0), Types.LONG()), by_batch)
    results = stream.map_batch(added_up, output_type=TRIPLE).execute_and_collect("totals")
    work.check(rows, tuple(map(sum, zip(*results, strict=True))))
    return str(results.get_job_client().get_job_id())


def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What `added_up` gives, and when."""
    return added_up(batch).append_column("f3", pa.array([time.monotonic_ns()]))


def run_own(rows: Rows, work: Work, by_batch: bool) -> float:
    """Records per second of the job over our own source of numbers, in continuous execution.

    The rows are made of the numbers by `map_batch`. From the first result to the last, without the rows of the first
    one: no start, no end.

    Raises:
        RuntimeError: The result is wrong.
    """
    for module in (__name__, Rows.__module__):
        cloudpickle.register_pickle_by_value(sys.modules[module])

    def rows_of(batch: pa.RecordBatch) -> pa.RecordBatch:
        key = rows.key_column(batch.column(0).to_numpy())
        return pa.record_batch([pa.array(key), pa.array(key + 1)], names=["f0", "f1"])

    env = environment(work.backend, work.slots, **{"execution.mode": "continuous"})
    source = NumberSequenceSource(0, rows.records - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream = numbers.map_batch(rows_of, output_type=PAIR)
    for _ in range(work.depth):
        stream = work.apply(stream.key_by(field(0), Types.LONG()), by_batch)
    results = stream.map_batch(stamped, output_type=STAMPED).execute_and_collect("totals")
    found = sorted(results, key=lambda result: result[3])
    work.check(rows, tuple(map(sum, zip(*[result[:3] for result in found], strict=True))))
    return (rows.records - found[0][0]) / (found[-1][3] - found[0][3]) * 1e9


def bare_loop(index: int, rows: Rows, start: Any, answers: Any) -> None:
    """One of two processes: calls the function on its share of the rows, which are ready in memory."""
    key = rows.key_column(np.arange(rows.records))
    key = key[key % 2 == index]
    ready = list(zip(key.tolist(), (key + 1).tolist(), strict=True))
    state, function = DictState(), RecordTotals()
    function.open(DictContext(state))  # type: ignore[arg-type]
    process, append = function.process_element, [].append
    gc.collect()
    gc.freeze()
    start.wait()
    began = time.perf_counter()
    for row in ready:
        state.key = row[0]
        for made in process(row, None):
            append(made)
    answers.put(len(ready) / (time.perf_counter() - began))


def run_bare(rows: Rows) -> float:
    """Records per second of both processes together."""
    context = get_context("spawn")
    start, answers = context.Barrier(2), context.Queue()
    processes = [context.Process(target=bare_loop, args=(index, rows, start, answers)) for index in (0, 1)]
    for process in processes:
        process.start()
    rates = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return sum(rates)
