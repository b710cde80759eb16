"""One task's way through the whole graph: fused operators, exchanges with slots, sinks.

Records are pushed in at a source; what slots answer is pushed on. Records of one task reach a slot in order. In
epochs a `Pipeline` lives for one source partition in one epoch, in a Spark task or in the local executor; in
continuous execution a `Flow` lives as long as the attempt (`runtime.continuous.task`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from tidemark.api.graph import Edge, NodeKind, Ship
from tidemark.api.specs import SourceSpec
from tidemark.clock import Clock, SystemClock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, Output
from tidemark.operators.stateless import FilterOperator
from tidemark.operators.timestamps import TimestampsOperator
from tidemark.paths import use_file_systems
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Placement, Vertex
from tidemark.protocol.batch import Batch
from tidemark.protocol.codec import codec_for
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.protocol.reports import EpochDirective, TaskReport
from tidemark.runtime.exchange import Connect, Exchange, FrameSender, Release, ToSlot
from tidemark.runtime.records import ANY_SUBTASK, Records
from tidemark.runtime.sources.readers import Aside
from tidemark.state.serializers.registry import serializer_for
from tidemark.subtask.subtask import Subtask, operator_of

__all__ = ["Flow", "Pipeline", "TaskSink"]


class TaskSink(Protocol):
    """Takes the records of a sink vertex inside the task."""

    def write(self, records: Records) -> None:
        """Take some records."""

    def rows(self) -> list[tuple[str, bytes]]:
        """Rows for the driver collected since the last call."""

    def close(self, report: TaskReport) -> None:
        """Finish; may add to the report."""


_DEALING = {Ship.REBALANCE, Ship.RESCALE, Ship.SHUFFLE}
"""Partitionings under which any subtask may get a record."""


class _ToOperator:
    """Runs a fused operator and passes its output on."""

    def __init__(
        self,
        pipeline: Flow,
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
        self._stamper = operator if same_type and isinstance(operator, TimestampsOperator) else None
        self.stamps_columns = self._stamper is not None and self._stamper.reads_columns(vertex.output_type)
        """Whether it gives timestamps to columns as they are."""
        kinds = set(vertex.input_types)
        self._serializer = codec_for(kinds.pop()).serializer if len(kinds) == 1 else None
        self._normalizers = {
            tag: serializer_for(kind).normalizer()
            for tag, kind in [(None, vertex.output_type), *vertex.side_types.items()]
            if kind is not None
        }

    @property
    def takes_columns(self) -> bool:
        """Whether records that come as columns are not made objects here, nor in the task behind it at once."""
        if self.stamps_columns:
            return self._pipeline.takes_columns(self._vertex.id)
        return self._operator.columnar and self._serializer is not None

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
        if self._operator.columnar:
            return self._run_columns(records, subtask)
        if self._stamper is not None and self.stamps_columns and records.column is not None:
            done, stamps = self._stamper.stamp(records.column, records.stamp_column, self._vertex.output_type)
            if done:
                return [(None, records.sent_on(stamps, subtask))]
        if self._filter is not None:
            return [(None, records.where(self._filter.passing(records.values), subtask))]
        self._operator.process(self._input, records.batch(), self._out)
        main, sides = self._out.drain()
        if self._passes:
            return [(None, records.sent_on(main.timestamps, subtask))]
        return [(tag, self._typed(tag, batch, subtask)) for tag, batch in [(None, main), *sides.items()]]

    def _run_columns(self, records: Records, subtask: int) -> list[tuple[str | None, Records]]:
        """The same for an operator that takes and gives columns."""
        if self._serializer is None:
            self._operator.process(self._input, records.batch(), self._out)
        else:
            self._operator.process_columns(self._input, records.columns(self._serializer), self._out)
        outputs: list[tuple[str | None, Records]] = []
        for tag, part in self._out.parts():
            if isinstance(part, Batch):
                outputs.append((tag, self._typed(tag, part, subtask)))
            else:
                outputs.append((tag, Records(None, part.timestamps, subtask, part.values, part.serializer)))
        return outputs

    def _typed(self, tag: str | None, batch: Batch, subtask: int) -> Records:
        normalize = self._normalizers.get(tag)
        values = batch.values if normalize is None else list(map(normalize, batch.values))
        return Records(values, batch.timestamps, subtask)


class Flow:
    """The part of a graph that one task runs itself, between its sources, the slots and its sinks.

    Attributes:
        plan: The whole job.
        partition: Number of the task.
        report: What the driver will be told.
    """

    def __init__(
        self,
        plan: JobPlan,
        partition: int,
        attempt: int,
        report: TaskReport,
        slots: Mapping[int, FrameSender],
        make_sink: Callable[[Vertex, int], TaskSink],
        clock: Clock | None = None,
    ) -> None:
        """Build and open every fused operator.

        Args:
            plan: The whole job.
            partition: Number of the task.
            attempt: Of the job.
            report: What is counted goes here.
            slots: Slot vertex -> what sends records to it.
            make_sink: Makes the task side of a sink for this task.
            clock: Processing time.
        """
        self.plan = plan
        self.partition = partition
        self.report = report
        self._attempt = attempt
        self._senders = slots
        self._clock = clock or SystemClock()
        self._metrics = MetricRegistry()
        self._operators: dict[int, Operator] = {}
        self._sinks: dict[int, TaskSink] = {}
        self._make_sink = make_sink
        self._consumers: dict[tuple[int, str | None], list[Callable[[Records], None]]] = {}
        self._heads: dict[tuple[int, str | None], list[int]] = {}
        self._fed_back: deque[tuple[int, Records]] = deque()
        self._into_rounds: dict[int, ToSlot] = {}
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
        self.drain_feedback()

    def takes_columns(self, vertex_id: int) -> bool:
        """Whether everybody who reads the records of a vertex takes them as columns."""
        stamp = self._stamping.get(vertex_id)
        if (stamp is not None and not stamp.stamps_columns) or (vertex_id, None) in self._heads:
            return False
        consumers = self._consumers.get((vertex_id, None), ())
        return bool(consumers) and all([getattr(each, "takes_columns", False) for each in consumers])

    def take_aside(self, source: int, aside: Aside) -> None:
        """Take what a reader of a source came upon beside its records."""
        for tag, records in aside.sides.items():
            self.report.records_in += len(records)
            self.emit(source, tag, records)
        group = self._metrics.group(self.plan.vertices[source].name)
        for name, count in aside.counts.items():
            group.counter(name).inc(count)
        self.drain_feedback()

    def stamped(self, *, fused: bool) -> Iterator[tuple[int, int]]:
        """Assigners, fused to their sources or not, that saw timestamps since the last call, and the newest one."""
        for vertex_id, operator in self._operators.items():
            if isinstance(operator, TimestampsOperator) and self.plan.is_fused(vertex_id) is fused:
                newest = operator.take_max_timestamp()
                if newest is not None:
                    yield vertex_id, newest

    def advance_watermark(self, vertex_id: int, watermark: int) -> None:
        """Tell a fused operator how far event time has come; without effect on other vertices."""
        operator = self._operators.get(vertex_id)
        if operator is not None:
            operator.advance_watermark(watermark, Output())

    def metrics(self) -> dict[str, Any]:
        """Metrics of the user's fused functions."""
        return self._metrics.snapshot()

    def close(self) -> None:
        """Close every fused operator."""
        for operator in self._operators.values():
            operator.close()

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
        if tag is not None:
            side = self.report.side_records
            side[vertex_id, tag] = side.get((vertex_id, tag), 0) + len(records)
        for consumer in self._consumers.get((vertex_id, tag), ()):
            consumer(records)
        for head in self._heads.get((vertex_id, tag), ()):
            # The loop has the type of its first input; what comes back may have another, or none.
            self._fed_back.append((head, records.as_objects()))

    def drain_feedback(self) -> bool:
        """Send on what came back to the heads of loops; True if there was something."""
        busy = bool(self._fed_back)
        while self._fed_back:
            head, records = self._fed_back.popleft()
            into_slots = self._into_rounds.get(head)
            if into_slots is None:
                self.emit(head, None, records)
            else:
                _count(self.report.fed_back, head, records)
                into_slots(records)
        return busy

    def _build(self) -> None:
        plan = self.plan
        use_file_systems(plan.file_systems)
        for head, feedback in plan.feedback.items():
            for source in feedback:
                self._heads.setdefault(source, []).append(head)
        for vertex in plan.vertices.values():
            self._add_vertex(vertex)
        for head, rounds in plan.supersteps.items():
            self._into_rounds[head] = ToSlot(
                self._senders[head], 0, self.partition % plan.vertices[head].parallelism
            )
            for source in rounds.criterion:
                count = partial(_count, self.report.unsettled, head)
                self._consumers.setdefault(source, []).append(count)
        for vertex in plan.vertices.values():
            for at, edge in enumerate(vertex.inputs):
                self._consumers.setdefault((edge.source, edge.tag), []).append(
                    self._consumer(vertex, at, edge)
                )

    def _add_vertex(self, vertex: Vertex) -> None:
        if vertex.kind is NodeKind.SINK and vertex.placement is Placement.TASK:
            self._sinks[vertex.id] = self._make_sink(vertex, self.partition)
        elif vertex.placement is Placement.TASK:
            source = isinstance(vertex.spec, SourceSpec)
            if not source or vertex.spec.strategy is not None:
                operator = self._operators[vertex.id] = self._started(vertex)
                if source:
                    self._stamping[vertex.id] = _ToOperator(self, vertex, operator, 0)

    def _started(self, vertex: Vertex) -> Operator:
        plan = self.plan
        info = vertex.subtask(self.partition % vertex.parallelism, self._attempt, plan.job_parameters)
        subtask = Subtask(
            operator_of(vertex), info, clock=self._clock, metrics=self._metrics, batch_mode=plan.batch_mode
        )
        subtask.start()
        return subtask.operator

    def _consumer(self, vertex: Vertex, at: int, edge: Edge) -> Callable[[Records], None]:
        if vertex.placement is Placement.SLOT:
            return ToSlot(self._senders[vertex.id], at, self.partition % vertex.parallelism)
        if vertex.kind is NodeKind.SINK:
            write = self._sinks[vertex.id].write
            # A sink goes by the type of its first input; a union may have brought others, as objects.
            same = vertex.input_types[at] == vertex.input_types[0]
            return write if same else lambda records: write(records.as_objects())
        return _ToOperator(self, vertex, self._operators[vertex.id], edge.input_index, edge.ship)


class Pipeline(Flow):
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
        self.directive = directive
        self.source = source
        self.connect = connect
        self.release = release
        self._exchanges = {vertex.id: Exchange(self, vertex) for vertex in plan.in_slots()}
        report = TaskReport(source, partition)
        super().__init__(plan, partition, directive.attempt, report, self._exchanges, make_sink, clock)
        for vertex_id, watermark in directive.watermarks.items():
            self.advance_watermark(vertex_id, watermark)

    def push_from(self, origin: tuple[Any, ...], source: int, records: Records) -> None:
        """Push records that all come from one partition of the external system, and report timestamps as its."""
        self.push(source, records)
        for vertex_id, newest in self.stamped(fused=True):
            known = self.report.origins.setdefault(vertex_id, {})
            known[origin] = max(newest, known.get(origin, newest))

    def pull(self, source: int, slot: int) -> None:
        """Take what the source function in `slot` has buffered, and push it on."""
        self._exchanges[source].touch(slot)

    def finish(self, closer: bool) -> TaskReport:
        """Read all answers; the `closer` also touches subtasks nobody sent to. Then the report is final."""
        exchanges = list(self._exchanges.values())
        for exchange in exchanges:
            if closer:
                exchange.open_untouched()
            exchange.flush()
        while self.drain_feedback() or any([exchange.flush() for exchange in exchanges]):
            pass
        for vertex_id, operator in self._operators.items():
            if isinstance(operator, TimestampsOperator):
                self.report.observed[vertex_id] = operator.max_timestamp
        self.close()
        for sink in self._sinks.values():
            sink.close(self.report)
        self.report.metrics = self.metrics()
        for exchange in exchanges:
            exchange.release()
        return self.report


def _count(counts: dict[int, int], head: int, records: Records) -> None:
    counts[head] = counts.get(head, 0) + len(records)
