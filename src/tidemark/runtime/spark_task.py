"""The function Spark runs in every task of an epoch, and what a Python worker keeps between tasks.

The plan travels in the function's closure, once; what changes from epoch to epoch (directive, splits, slot
addresses) travels as a local property of the job. A worker keeps unpickled plans and connections to slots
as a cache; nothing is lost when it dies.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import chdir, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import load_functions
from tidemark.protocol.failure import FailureInfo
from tidemark.protocol.reports import EpochDirective, TaskReport
from tidemark.rpc import Connections
from tidemark.runtime.engine import TaskInput
from tidemark.runtime.launch import client_tls, shipped_files
from tidemark.runtime.pipeline import Pipeline
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.factory import make_task_sink
from tidemark.runtime.slot_manager import SlotAddress
from tidemark.runtime.sources.origins import by_origin
from tidemark.runtime.task import run_split
from tidemark.slot.allocator import keep_batches
from tidemark.state.serializers.registry import serializer_for
from tidemark.tls import TlsFiles
from tidemark.wire import PATIENCE_S, Connection

__all__ = [
    "EPOCH_PROPERTY",
    "REPORT_TAG",
    "ROW_SCHEMA",
    "EpochMessage",
    "SlotLinks",
    "TaskClosure",
    "plan_of",
    "task_function",
]

EPOCH_PROPERTY = "tidemark.epoch"
REPORT_TAG = "report"
ROW_SCHEMA = "tag string, payload binary"
_ARROW_SCHEMA = pa.schema([("tag", pa.string()), ("payload", pa.binary())])

_PLANS_KEPT = 8
_plans: dict[str, JobPlan] = {}
_connections: dict[bytes, Connections] = {}
"""To the slots of each job, by its token."""


@dataclass(frozen=True, slots=True)
class EpochMessage:
    """What tasks of one epoch have to know."""

    directive: EpochDirective
    inputs: list[TaskInput]
    slots: list[SlotAddress]

    def encode(self) -> str:
        """As a Spark local property."""
        return base64.b85encode(pickle.dumps(self, 5)).decode()

    @staticmethod
    def decode(text: str) -> EpochMessage:
        """From a Spark local property."""
        return pickle.loads(base64.b85decode(text))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class TaskClosure:
    """The job as tasks get it."""

    plan: JobPlan
    """Without user code: its vertices are in `functions`."""
    functions: bytes
    token: bytes = field(repr=False)
    shipped_files: bool = False
    """Functions run where Spark puts the files of the job."""
    tls: TlsFiles | None = None
    """What TCP connections are encrypted with."""

    @property
    def digest(self) -> str:
        """Identifies the job's code in a worker's cache."""
        return hashlib.sha256(self.functions).hexdigest() + self.plan.job_id


def task_function(closure: TaskClosure, frame_source: int | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The `mapInArrow` function of our own splits (None) or of the DataFrame of a source."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The daemon collects garbage after every task; what is frozen is not looked at.
        gc.freeze()
        keep_batches()
        with chdir(shipped_files()) if closure.shipped_files else nullcontext():
            yield from _run(closure, frame_source, batches)

    return step


def _run(
    closure: TaskClosure, frame_source: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    message = EpochMessage.decode(context.getLocalProperty(EPOCH_PROPERTY) or "")
    if frame_source is None:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = message.inputs[number] if message.inputs else None
                yield from _one_task(closure, message, task, None, number == 0)
        return
    partition = context.partitionId()
    task = TaskInput(frame_source, partition, None)
    closer = partition == 0 and not message.inputs
    yield from _one_task(closure, message, task, batches, closer)


def _one_task(
    closure: TaskClosure,
    message: EpochMessage,
    task: TaskInput | None,
    batches: Iterator[pa.RecordBatch] | None,
    closer: bool,
) -> Iterator[pa.RecordBatch]:
    links = SlotLinks(message.slots, closure)
    pipeline: Pipeline | None = None
    source, partition = (task.source, task.partition) if task is not None else (-1, 0)
    try:
        plan = plan_of(closure)
        pipeline = Pipeline(
            plan,
            message.directive,
            source,
            partition,
            links.take,
            links.give_back,
            make_task_sink(plan, message.directive),
        )
        if batches is not None:
            for rows in _run_frame(pipeline, source, partition, batches):
                yield _rows(rows)
        elif task is not None:
            for row in run_split(pipeline, task):
                yield _rows([row])
        pipeline.finish(closer)
        report = pipeline.report
    except Exception as exc:
        report = pipeline.report if pipeline is not None else TaskReport(source, partition)
        report.failure = FailureInfo.of(exc)
        # Spark wants its input consumed; a task that leaves it makes the worker useless for the next one.
        for _ in batches or ():
            pass
    finally:
        # Also if Spark ends the task.
        links.drop()
    rows = list(pipeline.rows()) if pipeline is not None and report.failure is None else []
    yield _rows([*rows, (REPORT_TAG, pickle.dumps(report, 5))])


def _run_frame(
    pipeline: Pipeline, source: int, partition: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[list[tuple[str, bytes]]]:
    vertex = pipeline.plan.vertices[source]
    assert vertex.output_type is not None
    serializer = serializer_for(vertex.output_type)
    wanted = serializer.arrow_type()
    subtask = partition % vertex.parallelism
    origin_columns = vertex.spec.partition_columns
    for batch in batches:
        if origin_columns:
            for origin, part in by_origin(batch, origin_columns):
                column = _as_struct(part, wanted)
                pipeline.push_from(origin, source, Records(None, None, subtask, column, serializer))
        else:
            column = _as_struct(batch, wanted)
            pipeline.push(source, Records(None, None, subtask, column, serializer))
        rows = list(pipeline.rows())
        if rows:
            yield rows


def _as_struct(batch: pa.RecordBatch, wanted: pa.DataType) -> pa.Array:
    """The rows of a Spark batch as a column of the stream's type; columns match by position."""
    if not pa.types.is_struct(wanted):
        return batch.column(0).cast(wanted)
    columns = []
    for at in range(wanted.num_fields):
        kind = wanted.field(at).type
        if at >= batch.num_columns:
            # The kind of a row: null means an insert, which is all that Spark gives.
            columns.append(pa.nulls(batch.num_rows, kind))
        else:
            column = batch.column(at)
            columns.append(column if column.type == kind else column.cast(kind))
    return pa.StructArray.from_arrays(columns, fields=list(wanted))


def _rows(rows: list[tuple[str, bytes]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([tag for tag, _ in rows], pa.string()), pa.array([data for _, data in rows], pa.binary())],
        schema=_ARROW_SCHEMA,
    )


def plan_of(closure: TaskClosure) -> JobPlan:
    """The job with its code, unpickled once per worker."""
    digest = closure.digest
    plan = _plans.get(digest)
    if plan is None:
        while len(_plans) >= _PLANS_KEPT:
            del _plans[next(iter(_plans))]
        vertices = {vertex.id: vertex for vertex in load_functions(closure.functions)}
        plan = _plans[digest] = closure.plan.with_vertices(vertices)
    return plan


class SlotLinks:
    """Connections of one task, taken from those of its worker and given back at its end."""

    def __init__(self, slots: list[SlotAddress], closure: TaskClosure) -> None:
        self._slots = slots
        self._closure = closure
        self._taken: list[Connection] = []

    @property
    def _connections(self) -> Connections:
        token = self._closure.token
        known = _connections.get(token)
        if known is None:
            tls = client_tls(self._closure.tls)
            known = _connections[token] = Connections(token, tls, connect_s=PATIENCE_S)
        return known

    def take(self, slot: int) -> Connection:
        """A connection to a slot that nobody else uses: through its unix socket if that is on this machine.

        Raises:
            ConfigError: The files of TLS are not here, or cannot be used.
        """
        address = self._slots[slot]
        path = address.unix.partition(":")[2]
        here = address.machine == socket.gethostname() and os.path.exists(path)
        door = address.unix if here or address.tcp is None else address.tcp
        self._taken.append(self._connections.take(door))
        return self._taken[-1]

    def give_back(self, _slot: int, connection: Any) -> None:
        """Keep a healthy connection for the next task of this worker."""
        self._taken.remove(connection)
        self._connections.give_back(connection)

    def discard(self, connection: Any) -> None:
        """Close one."""
        self._taken.remove(connection)
        self._connections.discard(connection)

    def drop(self) -> None:
        """Close what was not given back: it is in an unknown state."""
        while self._taken:
            self._connections.discard(self._taken.pop())
