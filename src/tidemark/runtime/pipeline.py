"""One task's way through the whole graph: fused operators, exchanges with slots, sinks.

A pipeline lives for one source partition in one epoch, in a Spark task or in the local executor. Records
are pushed in at a source; what slots answer is pushed on. One batch is in flight per (vertex, slot):
before the next one is sent the answer is read, so a slow slot slows its senders down and nothing piles
up. Records of one pipeline reach a slot in order.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidemark.api.field_key import FieldKey
from tidemark.api.functions import KeySelector
from tidemark.api.graph import Edge, NodeKind, Ship, SourceSpec
from tidemark.clock import Clock, SystemClock
from tidemark.errors import SlotLostError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import MIN_WATERMARK, Batch, Operator, OperatorEnvironment, Output, SubtaskInfo
from tidemark.operators.factory import create_operator
from tidemark.operators.routing import KeyRouter, custom_targets, split_evenly, split_lists
from tidemark.operators.stateless import FilterOperator
from tidemark.operators.timestamps import TimestampsOperator
from tidemark.runtime.plan import JobPlan
from tidemark.runtime.records import ANY_SUBTASK, Records
from tidemark.slot.codec import BatchCodec, codec_for
from tidemark.slot.failure import FailureInfo, OperatorFailed
from tidemark.slot.requests import EMPTY, BatchHeader
from tidemark.slot.vertex import Placement, Vertex
from tidemark.state.serializers.registry import serializer_for
from tidemark.wire import WireClosed

__all__ = ["EpochDirective", "Link", "Pipeline", "TaskReport", "TaskSink"]


@dataclass(frozen=True, slots=True)
class EpochDirective:
    """What the driver tells every task of an epoch."""

    attempt: int
    epoch: int
    watermarks: dict[int, int]
    """Watermark each vertex has in this epoch (absent: none yet)."""


@dataclass(slots=True)
class TaskReport:
    """What a task tells the driver at its end."""

    source: int
    partition: int
    records_in: int = 0
    records_out: dict[int, int] = field(default_factory=dict)
    observed: dict[int, int | None] = field(default_factory=dict)
    """Vertex with a watermark strategy -> highest timestamp seen by this task (None: no record)."""
    timers: dict[tuple[int, int], int | None] = field(default_factory=dict)
    """(vertex, slot) -> time of its next processing-time timer."""
    position: Any = None
    """Where the source's reader of this partition stands now."""
    staged: dict[int, list[Any]] = field(default_factory=dict)
    """File sink -> staged files."""
    large_frames: set[int] = field(default_factory=set)
    """Sinks that want DataFrames of whose rows some were left with Spark."""
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: FailureInfo | None = None


class Link(Protocol):
    """A connection to one slot: a socket, or a direct call in the local executor."""

    def send(self, header: Any, body: Any = b"") -> None:
        """Send one frame."""

    def receive(self) -> tuple[Any, Any]:
        """Receive one frame."""


class TaskSink(Protocol):
    """Takes the records of a sink vertex inside the task."""

    def write(self, records: Records) -> None:
        """Take some records."""

    def rows(self) -> list[tuple[str, bytes]]:
        """Rows for the driver collected since the last call."""

    def close(self, report: TaskReport) -> None:
        """Finish; may add to the report."""


Connect = Callable[[int], Link]
"""Slot index -> a link for the use of one exchange."""
Release = Callable[[int, Link], None]


_DEALING = {Ship.REBALANCE, Ship.RESCALE, Ship.SHUFFLE}
"""Partitionings under which any subtask may get a record."""


class _Exchange:
    """The links of this task to the subtasks of one slot vertex."""

    def __init__(self, pipeline: Pipeline, vertex: Vertex) -> None:
        self._pipeline = pipeline
        self.vertex = vertex
        self._links: dict[int, Link] = {}
        self._pending: dict[int, bool] = {}
        self._sequence = [0] * vertex.parallelism
        self._main = codec_for(vertex.output_type)
        self._sides = {tag: codec_for(kind) for tag, kind in vertex.side_types.items()}

    def send(self, slot: int, edge_at: int, flags: int, body: Any) -> None:
        if slot in self._pending:
            self._collect(slot)
        link = self._links.get(slot)
        if link is None:
            try:
                link = self._links[slot] = self._pipeline.connect(slot)
            except WireClosed as exc:
                raise _lost(slot) from exc
        directive = self._pipeline.directive
        header = BatchHeader(
            self.vertex.id,
            edge_at,
            self._pipeline.source,
            self._pipeline.partition,
            self._sequence[slot],
            directive.attempt,
            directive.epoch,
            directive.watermarks.get(self.vertex.id, MIN_WATERMARK),
            flags,
        )
        self._sequence[slot] += 1
        try:
            link.send(header, body)
        except WireClosed as exc:
            raise _lost(slot) from exc
        self._pending[slot] = True

    def open_untouched(self) -> None:
        """Touch every subtask this task has not sent to, so that what is due there fires."""
        if self.vertex.kind is NodeKind.SOURCE:
            return
        for slot in range(self.vertex.parallelism):
            if not self._sequence[slot]:
                self.touch(slot)

    def touch(self, slot: int) -> None:
        """Send a frame without records."""
        self.send(slot, 0, EMPTY, b"")

    def flush(self) -> bool:
        """Read every answer in flight; True if there was one."""
        waiting = list(self._pending)
        for slot in waiting:
            self._collect(slot)
        return bool(waiting)

    def release(self) -> None:
        for slot, link in self._links.items():
            self._pipeline.release(slot, link)
        self._links.clear()

    def _collect(self, slot: int) -> None:
        del self._pending[slot]
        try:
            header, body = self._links[slot].receive()
        except WireClosed as exc:
            raise _lost(slot) from exc
        if header[0] == "error":
            raise OperatorFailed(pickle.loads(body))
        _ok, timer, sections, status = header
        self._pipeline.report.timers[self.vertex.id, slot] = timer
        if status is not None:
            self._pipeline.report.position = status
            self._pipeline.report.records_in += status["taken"]
        view = memoryview(body)
        at = 0
        for tag, flags, size in sections:
            codec = self._main if tag is None else self._sides.get(tag)
            if codec is not None:
                records = _decoded(codec, flags, view[at : at + size], slot)
                if self.vertex.kind is NodeKind.SOURCE:
                    self._pipeline.report.records_in += len(records)
                self._pipeline.emit(self.vertex.id, tag, records)
            at += size


def _decoded(codec: BatchCodec, flags: int, body: Any, slot: int) -> Records:
    """The output of a slot; objects are only made if somebody asks for them."""
    if codec.serializer is None:
        batch = codec.decode(flags, body)
        return Records(batch.values, batch.timestamps, slot)
    column, timestamps = codec.decode_column(flags, body)
    return Records(None, timestamps, slot, column, codec.serializer)


class _ToSlot:
    """Splits the records of one edge over the subtasks of a slot vertex."""

    def __init__(self, exchange: _Exchange, edge_at: int, start: int) -> None:
        vertex = exchange.vertex
        self._exchange = exchange
        self._edge_at = edge_at
        self._edge = vertex.inputs[edge_at]
        self._count = vertex.parallelism
        self._start = start
        self._router: KeyRouter | None = None
        key = None
        if self._edge.ship is Ship.HASH:
            self._router = KeyRouter(
                select_key(self._edge), self._edge.key_type, vertex.max_parallelism, vertex.parallelism
            )
            key = self._router.serializer
        self._codec = codec_for(vertex.input_types[edge_at], key)
        self._key_at: int | None = None
        if isinstance(self._edge.key_selector, FieldKey):
            self._key_at = self._edge.key_selector.position_in(
                vertex.input_types[edge_at], self._edge.key_type
            )

    def __call__(self, records: Records) -> None:
        ship = self._edge.ship
        if self._router is not None:
            self._by_key(records, self._router)
        elif ship is Ship.BROADCAST:
            self._send_all(range(self._count), records)
        elif ship is Ship.GLOBAL or (self._count == 1 and ship is not Ship.CUSTOM):
            self._send_all([0], records)
        elif ship is Ship.FORWARD and records.subtask != ANY_SUBTASK:
            self._send_all([records.subtask % self._count], records)
        else:
            self._spread(records, ship)

    def _spread(self, records: Records, ship: Ship) -> None:
        if ship is Ship.CUSTOM:
            assert self._edge.partitioner is not None
            select = select_key(self._edge)
            with self._named("partitioner"):
                keys = [select(value) for value in records.values]
                targets = custom_targets(self._edge.partitioner, keys, self._count)
        else:
            targets = split_evenly(ship, len(records), self._count, self._start)
            self._start = (self._start + len(records)) % self._count
        for slot, (values, timestamps) in split_lists(
            targets, self._count, records.values, records.timestamps
        ):
            self._send(slot, values, timestamps, None)

    def _by_key(self, records: Records, router: KeyRouter) -> None:
        if records.column is not None and self._codec.serializer is not None:
            self._by_column(records, router)
            return
        with self._named("key selector"):
            tokens = router.tokens(records.values)
        targets = router.subtasks(tokens)
        if targets is None:
            self._send(0, records.values, records.timestamps, tokens)
            return
        parts = split_lists(targets, self._count, records.values, records.timestamps, tokens)
        for slot, (values, timestamps, part) in parts:
            self._send(slot, values, timestamps, part)

    def _by_column(self, records: Records, router: KeyRouter) -> None:
        import numpy as np
        import pyarrow as pa

        column = records.column
        assert column is not None
        keys = None
        with self._named("key selector"):
            if self._key_at is not None and router.serializer.identity_key:
                keys = column.field(self._key_at).cast(router.serializer.arrow_type())
            if keys is None or keys.null_count:
                # Only the serializer knows whether a key may be None.
                keys = router.token_column(records.values)
            targets = router.subtasks(keys if router.serializer.identity_key else keys.to_pylist())
        stamps = None if records.timestamps is None else pa.array(records.timestamps, pa.int64())
        if targets is None:
            self._exchange.send(0, self._edge_at, *self._codec.encode_column(column, stamps, keys))
            return
        for slot in range(self._count):
            chosen = np.flatnonzero(targets == slot)
            if not len(chosen):
                continue
            at = pa.array(chosen)
            part_stamps = None if stamps is None else stamps.take(at)
            encoded = self._codec.encode_column(column.take(at), part_stamps, keys.take(at))
            self._exchange.send(slot, self._edge_at, *encoded)

    def _send_all(self, slots: Iterable[int], records: Records) -> None:
        with self._named("input"):
            if records.column is not None and self._codec.serializer is not None:
                encoded = self._codec.encode_column(records.column, records.timestamps, None)
            else:
                encoded = self._codec.encode(records.batch())
        for slot in slots:
            self._exchange.send(slot, self._edge_at, *encoded)

    def _send(self, slot: int, values: Any, timestamps: Any, keys: Any) -> None:
        with self._named("input"):
            encoded = self._codec.encode(Batch(values, timestamps, keys))
        self._exchange.send(slot, self._edge_at, *encoded)

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Lets failures of the user's code on the edge say where it is."""
        vertex = self._exchange.vertex
        try:
            yield
        except Exception as exc:
            raise OperatorFailed(FailureInfo.of(exc, f"{what} of {vertex.name}", vertex.uid)) from exc


class _ToOperator:
    """Runs a fused operator and passes its output on."""

    def __init__(
        self,
        pipeline: Pipeline,
        vertex: Vertex,
        operator: Operator,
        input_index: int,
        ship: Ship = Ship.FORWARD,
    ) -> None:
        self._pipeline = pipeline
        self._vertex = vertex
        self._operator = operator
        self._input = input_index
        self._out = Output()
        self._deals = ship in _DEALING and vertex.parallelism > 1
        same_type = all([kind == vertex.output_type for kind in vertex.input_types])
        self._filter = operator if same_type and isinstance(operator, FilterOperator) else None
        self._passes = same_type and operator.passes_values
        self._normalizers = {
            tag: serializer_for(kind).normalizer()
            for tag, kind in [(None, vertex.output_type), *vertex.side_types.items()]
            if kind is not None
        }

    def __call__(self, records: Records) -> None:
        vertex = self._vertex
        try:
            outputs = self._run(records, ANY_SUBTASK if self._deals else records.subtask)
        except OperatorFailed:
            raise
        except Exception as exc:
            raise OperatorFailed(FailureInfo.of(exc, vertex.name, vertex.uid)) from exc
        for tag, output in outputs:
            self._pipeline.emit(vertex.id, tag, output)

    def _run(self, records: Records, subtask: int) -> list[tuple[str | None, Records]]:
        """Call the user's code; what comes out is of the declared types.

        Values that merely pass are so already, and their column is still theirs.
        """
        if self._filter is not None:
            return [(None, records.where(self._filter.passing(records.values), subtask))]
        self._operator.process(self._input, records.batch(), self._out)
        main, sides = self._out.drain()
        if self._passes:
            return [(None, records.sent_on(main.timestamps, subtask))]
        return [(tag, self._typed(tag, batch, subtask)) for tag, batch in [(None, main), *sides.items()]]

    def _typed(self, tag: str | None, batch: Batch, subtask: int) -> Records:
        normalize = self._normalizers.get(tag)
        values = batch.values if normalize is None else list(map(normalize, batch.values))
        return Records(values, batch.timestamps, subtask)


class Pipeline:
    """Pushes the records of one source partition through the graph, for one epoch."""

    def __init__(
        self,
        plan: JobPlan,
        directive: EpochDirective,
        source: int,
        partition: int,
        connect: Connect,
        release: Release,
        make_sink: Callable[[Vertex, int], TaskSink],
        clock: Clock | None = None,
    ) -> None:
        self.plan = plan
        self.directive = directive
        self.source = source
        self.partition = partition
        self.connect = connect
        self.release = release
        self.report = TaskReport(source, partition)
        self._clock = clock or SystemClock()
        self._metrics = MetricRegistry()
        self._exchanges = [_Exchange(self, vertex) for vertex in plan.in_slots()]
        self._by_vertex = {exchange.vertex.id: exchange for exchange in self._exchanges}
        self._operators: dict[int, Operator] = {}
        self._sinks: dict[int, TaskSink] = {}
        self._make_sink = make_sink
        self._consumers: dict[tuple[int, str | None], list[Callable[[Records], None]]] = {}
        self._heads: dict[tuple[int, str | None], list[int]] = {}
        self._fed_back: deque[tuple[int, Records]] = deque()
        self._stamping: dict[int, _ToOperator] = {}
        self._build()

    def push(self, source: int, records: Records) -> None:
        """Push records of a source into the graph."""
        self.report.records_in += len(records)
        stamp = self._stamping.get(source)
        if stamp is not None:
            stamp(records)
        else:
            self.emit(source, None, records)
        self._drain_feedback()

    def pull(self, source: int, slot: int) -> None:
        """Take what the source function in `slot` has buffered, and push it on."""
        self._by_vertex[source].touch(slot)

    def finish(self, closer: bool) -> TaskReport:
        """Read all answers; the `closer` also touches subtasks nobody sent to. Then the report is final."""
        for exchange in self._exchanges:
            if closer:
                exchange.open_untouched()
            exchange.flush()
        while self._drain_feedback() or any([exchange.flush() for exchange in self._exchanges]):
            pass
        for vertex_id, operator in self._operators.items():
            if isinstance(operator, TimestampsOperator):
                self.report.observed[vertex_id] = operator.max_timestamp
            operator.close()
        for sink in self._sinks.values():
            sink.close(self.report)
        self.report.metrics = self._metrics.snapshot()
        for exchange in self._exchanges:
            exchange.release()
        return self.report

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Rows that sinks have for the driver."""
        for sink in self._sinks.values():
            yield from sink.rows()

    def emit(self, vertex_id: int, tag: str | None, records: Records) -> None:
        """Send records of a vertex (already of its declared type) to everybody who reads them."""
        if not len(records):
            return
        report = self.report.records_out
        report[vertex_id] = report.get(vertex_id, 0) + len(records)
        for consumer in self._consumers.get((vertex_id, tag), ()):
            consumer(records)
        for head in self._heads.get((vertex_id, tag), ()):
            # The loop has the type of its first input; what comes back may have another, or none.
            self._fed_back.append((head, records.as_objects()))

    def _drain_feedback(self) -> bool:
        busy = bool(self._fed_back)
        while self._fed_back:
            head, records = self._fed_back.popleft()
            self.emit(head, None, records)
        return busy

    def _build(self) -> None:
        plan = self.plan
        for head, feedback in plan.feedback.items():
            for source in feedback:
                self._heads.setdefault(source, []).append(head)
        for vertex in plan.vertices.values():
            self._add_vertex(vertex)
        for vertex in plan.vertices.values():
            for at, edge in enumerate(vertex.inputs):
                self._consumers.setdefault((edge.source, edge.tag), []).append(
                    self._consumer(vertex, at, edge)
                )

    def _add_vertex(self, vertex: Vertex) -> None:
        if vertex.kind is NodeKind.SINK and vertex.placement is Placement.TASK:
            self._sinks[vertex.id] = self._make_sink(vertex, self.partition)
        elif vertex.placement is Placement.TASK:
            spec = vertex.spec
            if not isinstance(spec, SourceSpec):
                self._operators[vertex.id] = self._opened(vertex, create_operator(spec))
            elif spec.strategy is not None:
                operator = self._opened(vertex, TimestampsOperator(spec.strategy))
                self._operators[vertex.id] = operator
                self._stamping[vertex.id] = _ToOperator(self, vertex, operator, 0)

    def _opened(self, vertex: Vertex, operator: Operator) -> Operator:
        info = SubtaskInfo(
            vertex.name,
            vertex.uid,
            self.partition % vertex.parallelism,
            vertex.parallelism,
            vertex.max_parallelism,
            self.directive.attempt,
            self.plan.job_parameters,
        )
        operator.setup(
            OperatorEnvironment(
                info,
                self._clock,
                self._metrics.group(vertex.name),
                _no_backend,
                batch_mode=self.plan.batch_mode,
            )
        )
        operator.initialize(None)
        operator.open()
        watermark = self.directive.watermarks.get(vertex.id)
        if watermark is not None:
            operator.advance_watermark(watermark, Output())
        return operator

    def _consumer(self, vertex: Vertex, at: int, edge: Edge) -> Callable[[Records], None]:
        if vertex.placement is Placement.SLOT:
            return _ToSlot(self._by_vertex[vertex.id], at, self.partition % vertex.parallelism)
        if vertex.kind is NodeKind.SINK:
            write = self._sinks[vertex.id].write
            # A sink goes by the type of its first input; a union may have brought others, as objects.
            same = vertex.input_types[at] == vertex.input_types[0]
            return write if same else lambda records: write(records.as_objects())
        return _ToOperator(self, vertex, self._operators[vertex.id], edge.input_index, edge.ship)


def _lost(slot: int) -> SlotLostError:
    return SlotLostError(f"Slot {slot} is gone: its process died or its machine is unreachable.", slot=slot)


def _no_backend(_serializer: Any) -> Any:
    raise AssertionError("a fused operator has no keyed state")


def select_key(edge: Edge) -> Callable[[Any], Any]:
    """The key selector of an edge as a plain callable."""
    selector = edge.key_selector
    assert selector is not None
    return selector.get_key if isinstance(selector, KeySelector) else selector
