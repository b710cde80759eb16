"""Making state on Spark: elements move to the task that owns their key group, which writes their state.

Only the handles of what was written come back to the driver.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark import errors
from tidemark.checkpoint.metadata import SubtaskState
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ExecutionError, TidemarkError
from tidemark.protocol.failure import FailureInfo
from tidemark.state_processor.bootstrap import BootstrapKind, BootstrapWork
from tidemark.state_processor.columns import conform_batch
from tidemark.state_processor.spark import BatchFunction, map_in_arrow
from tidemark.state_processor.streams import Elements, elements_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "HANDLES",
    "PART",
    "SEQUENCE",
    "bootstrap_local",
    "bootstrap_on_spark",
    "by_part",
    "collect_handles",
    "handle_row",
    "moved",
    "reporting",
]

PART = "__tidemark_part"
SEQUENCE = "__tidemark_sequence"
_FAILED = -1
_RAISED = re.compile(r"(?!org\.|java\.|py4j\.|pyspark\.)[\w.]+(Error|Exception): ")
HANDLES = pa.schema([("part", pa.int32()), ("state", pa.binary())])


def bootstrap_local(work: BootstrapWork, values: list[Any]) -> list[SubtaskState]:
    """Run the work in this process."""
    storage = FileSystemStorage()
    if work.kind is not BootstrapKind.KEYED:
        return [_run_here(work, 0, values, storage)]
    router = work.router()
    targets = router.subtasks(router.tokens(values))
    shares: list[list[Any]] = [[] for _ in work.ranges]
    for value, target in zip(values, [0] * len(values) if targets is None else targets.tolist(), strict=True):
        shares[target].append(value)
    return [_run_here(work, index, share, storage) for index, share in enumerate(shares)]


def _run_here(work: BootstrapWork, index: int, values: list[Any], storage: Storage) -> SubtaskState:
    try:
        return work.run(index, [values], storage)
    except Exception as exc:
        raise failure_of(FailureInfo.of(exc, work.uid, work.uid)) from exc


def bootstrap_on_spark(work: BootstrapWork, data: Elements, parallelism: int) -> list[SubtaskState]:
    """Run the work in Spark tasks; subtasks that got no element have no state."""
    if work.kind is BootstrapKind.KEYED:
        return _bootstrap_keyed(work, data)
    frame = data.frame.coalesce(1 if work.kind is BootstrapKind.BROADCAST else parallelism)
    kind = data.type_info

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        index = context.partitionId() if context is not None else 0
        state = work.run(index, (elements_of(batch, kind) for batch in batches), FileSystemStorage())
        yield handle_row(index, state)

    found = [state for _, state in collect_handles(map_in_arrow(frame, reporting(run, work.uid), HANDLES))]
    return found or [work.run(0, [], FileSystemStorage())]


def _bootstrap_keyed(work: BootstrapWork, data: Elements) -> list[SubtaskState]:
    kind = data.type_info
    names = data.frame.columns

    def parts(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        router = work.router()
        targets = router.subtasks(router.tokens(elements_of(batch, kind)))
        return np.zeros(batch.num_rows, np.int32) if targets is None else targets.astype(np.int32)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part, pieces in by_part(batches):
            elements = (elements_of(piece.select(names), kind) for piece in pieces)
            yield handle_row(part, work.run(part, elements, FileSystemStorage()))

    rows = moved(data.frame, parts, len(work.ranges))
    frame = map_in_arrow(rows, reporting(run, work.uid), HANDLES)
    states = dict(collect_handles(frame))
    return [states.get(i) or SubtaskState(i, groups) for i, groups in enumerate(work.ranges)]


def moved(frame: DataFrame, parts: Any, count: int) -> DataFrame:
    """The rows, each in the Spark partition `parts(batch)` says, in the order in which they came.

    Two columns are added: the partition, and the number of the row.
    """
    from pyspark.sql import functions as sql

    names = frame.columns

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = (context.partitionId() if context is not None else 0) << 40
        for batch in batches:
            rows = batch.num_rows
            columns = [
                *(batch.column(name) for name in names),
                pa.array(parts(batch), pa.int32()),
                pa.array(np.arange(number, number + rows, dtype=np.int64)),
            ]
            number += rows
            yield pa.RecordBatch.from_arrays(columns, names=[*names, PART, SEQUENCE])

    schema = _arrow_schema(frame)
    schema = schema.append(pa.field(PART, pa.int32())).append(pa.field(SEQUENCE, pa.int64()))
    assigned = map_in_arrow(frame, assign, schema)
    return assigned.repartitionById(count, sql.col(PART)).sortWithinPartitions(PART, SEQUENCE)


def by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Rows of a task, sorted by part, piece by piece: usually a task has one part."""

    def pieces() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            numbers = batch.column(PART).to_numpy()
            borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
            for start, end in pairwise(borders):
                if end > start:
                    yield int(numbers[start]), batch.slice(start, end - start)

    for part, group in groupby(pieces(), key=lambda piece: piece[0]):
        yield part, (piece for _, piece in group)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from tidemark.state_processor.spark import exact_schema

    return exact_schema(frame.schema)


def handle_row(part: int, state: Any) -> pa.RecordBatch:
    """One row that brings what a task wrote to the driver."""
    return conform_batch(
        pa.RecordBatch.from_arrays(
            [pa.array([part], pa.int32()), pa.array([pickle.dumps(state, 5)], pa.binary())], schema=HANDLES
        ),
        HANDLES,
    )


def reporting(run: BatchFunction, uid: str) -> BatchFunction:
    """A task function whose failures come back as rows, so that the driver can raise what was raised."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from run(batches)
        except Exception as exc:
            yield handle_row(_FAILED, FailureInfo.of(exc, uid, uid))
            # Spark wants its input consumed; a task that leaves it makes the worker useless for the next one.
            for _ in batches:
                pass

    return step


def collect_handles(frame: DataFrame) -> list[tuple[int, Any]]:
    """What the tasks wrote, by part.

    Raises:
        TidemarkError: What a task raised, or an `ExecutionError` that quotes it.
    """
    try:
        table = frame.toArrow()
    except Exception as exc:
        raise _spark_failure(exc) from exc
    parts = table.column("part").to_pylist()
    states = [pickle.loads(data) for data in table.column("state").to_pylist()]
    for part, state in zip(parts, states, strict=True):
        if part == _FAILED:
            raise failure_of(state)
    return sorted(zip(parts, states, strict=True), key=lambda item: item[0])


def failure_of(info: FailureInfo) -> BaseException:
    """Our own errors as they are; what user code raised inside an `ExecutionError`."""
    cause = info.exception()
    return cause if isinstance(cause, TidemarkError) else info.error()


def _spark_failure(exc: Exception) -> TidemarkError:
    """The error behind a Spark job that failed in a Python task: the last exception its text names."""
    told = [line.strip() for line in str(exc).splitlines() if _RAISED.match(line.strip())]
    name, _, message = (told[-1] if told else f"{type(exc).__name__}: {exc}").partition(": ")
    ours = getattr(errors, name.removeprefix("tidemark.errors."), None)
    if name.startswith("tidemark.errors.") and isinstance(ours, type) and issubclass(ours, TidemarkError):
        return ours(message)
    return ExecutionError(f"A Spark task of the state processor failed: {name}: {message[:500]}")
