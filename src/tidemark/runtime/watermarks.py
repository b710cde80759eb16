"""Event time across the graph: which watermark every vertex has in the next epoch. Pure.

A watermark moves one slot vertex per epoch: in epoch n a slot vertex has the minimum of what its inputs
had reached at the end of epoch n-1, so whatever an upstream vertex emitted when it fired has already
arrived when the watermark follows. Fused vertices pass watermarks on at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidemark.api.graph import NodeKind
from tidemark.api.specs import (
    FileSourceSpec,
    FunctionSourceSpec,
    SourceSpec,
    SparkSourceSpec,
    SparkStreamSourceSpec,
    TimestampsSpec,
)
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Placement, Vertex
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.rounds import Rounds
from tidemark.runtime.watermark_generators import Generator, Picture, Seen, instance_key

__all__ = ["WatermarkTracker"]


class _Mark(NamedTuple):
    """How far a stream has come, and whether it expects nothing for now."""

    time: int
    idle: bool = False


class WatermarkTracker:
    """Follows watermarks from the sources to the sinks, epoch by epoch."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._generators = {
            vertex.id: Generator(strategy)
            for vertex in plan.vertices.values()
            if (strategy := _strategy_of(vertex)) is not None
        }
        self._sources: dict[int, tuple[int, bool]] = {
            vertex.id: (MIN_WATERMARK, False) for vertex in plan.of_kind(NodeKind.SOURCE)
        }
        self._passed: dict[int, int] = {vertex.id: MIN_WATERMARK for vertex in plan.in_slots()}
        self.rounds = Rounds(plan, self._passed)
        self._feeding = {vertex: plan.sources_of(vertex) for vertex in self._generators}
        self._fused = {vertex for vertex in self._generators if plan.is_fused(vertex)}

    def marks(self) -> dict[str, int]:
        """Uid -> watermark of sources, assigners and slot vertices, to be put into a checkpoint.

        The end of input is left out: whoever restores finds it again, or has new input.
        """
        marks = {}
        for vertex in self._plan.vertices.values():
            if vertex.id in self._generators:
                mark = self._generators[vertex.id].watermark
            elif vertex.id in self._sources:
                mark = self._sources[vertex.id][0]
            elif vertex.id in self._passed:
                mark = self._passed[vertex.id]
            else:
                continue
            marks[vertex.uid] = MIN_WATERMARK if mark == MAX_WATERMARK else mark
        return marks

    def partition_marks(self) -> dict[str, bytes]:
        """Uid -> how far each partition behind a generator has come, to be put into a checkpoint."""
        uids = {source: self._plan.vertices[source].uid for source in self._sources}
        return {
            self._plan.vertices[key].uid: stored
            for key, generator in self._generators.items()
            if (stored := generator.stored(uids)) is not None
        }

    def restore(
        self, marks: dict[str, int], partitions: dict[str, bytes] | None = None, now: int = 0
    ) -> dict[str, int]:
        """Stand where a checkpoint was taken; returns the marks in force.

        If the job has a source the checkpoint does not know, time starts again: its records may be older
        than everything seen before. A checkpoint without marks of partitions (0.1.0 wrote none) leaves the
        watermark where it was, and a partition holds it back from its next record on.

        Raises:
            RestoreError: The marks of partitions are damaged.
        """
        vertices = self._plan.vertices
        if any(vertices[key].uid not in marks for key in self._sources):
            return {}
        for vertex in vertices.values():
            mark = marks.get(vertex.uid, MIN_WATERMARK)
            if vertex.id in self._generators:
                stored = (partitions or {}).get(vertex.uid)
                sources = {vertices[source].uid: source for source in self._feeding[vertex.id]}
                self._generators[vertex.id].restore(mark, stored, sources, now)
            elif vertex.id in self._sources:
                self._sources[vertex.id] = (mark, False)
            if vertex.id in self._passed:
                self._passed[vertex.id] = mark
        return marks

    def observe(self, reports: Iterable[TaskReport], now: int) -> None:
        """Take what the tasks of an epoch saw.

        A source that assigns timestamps has a watermark per partition, and so has an assigner fused to it, as far
        as partitions can be told apart; any other assigner has one per subtask, whatever sources its records
        come from.
        """
        by_source: dict[int, list[TaskReport]] = {}
        for report in reports:
            if report.source in self._sources:
                by_source.setdefault(report.source, []).append(report)
        for key, generator in self._generators.items():
            seen = [self._seen(key, s, told) for s, told in by_source.items() if s in self._feeding[key]]
            if seen:
                generator.observe(seen, now)

    def _seen(self, vertex_id: int, source: int, reports: list[TaskReport]) -> Seen:
        """What one source's tasks tell a generator."""
        spec = self._plan.vertices[source].spec
        stamps = [report.observed.get(vertex_id) for report in reports]
        fused = vertex_id in self._fused
        match spec:
            case SparkStreamSourceSpec() if spec.partition_columns and fused:
                told = [pair for report in reports for pair in report.origins.get(vertex_id, {}).items()]
                return Seen(source, Picture.PARTIAL, [(instance_key(source, value), n) for value, n in told])
            case SparkStreamSourceSpec(closed=False):
                return Seen(source, Picture.CROWD, [(None, newest) for newest in stamps])
            case SparkSourceSpec():
                numbers = [instance_key(source, report.partition) for report in reports]
                return Seen(source, Picture.CLOSED, list(zip(numbers, stamps, strict=True)))
            case FileSourceSpec() if fused:
                paths = [instance_key(source, report.split) for report in reports]
                return Seen(source, Picture.WHOLE, list(zip(paths, stamps, strict=True)))
        # The subtasks of a source function send when they have something; the others give a whole picture.
        picture = Picture.PARTIAL if isinstance(spec, FunctionSourceSpec) else Picture.WHOLE
        own = source == vertex_id
        parallelism = self._plan.vertices[vertex_id].parallelism
        subtasks = [report.partition if own else report.partition % parallelism for report in reports]
        return Seen(source, picture, list(zip(subtasks, stamps, strict=True)))

    def tick(self, now: int) -> None:
        """Let idle timeouts pass."""
        for generator in self._generators.values():
            generator.update(now)

    def source(
        self, vertex: int, watermark: int | None = None, *, idle: bool = False, ended: bool = False
    ) -> None:
        """A source said how far it is (a source function's own watermark, or its end)."""
        current, _ = self._sources[vertex]
        if ended:
            if current != MAX_WATERMARK:
                for generator in self._generators.values():
                    generator.forget(vertex)
            current = MAX_WATERMARK
        elif watermark is not None:
            current = max(current, watermark)
        self._sources[vertex] = (current, idle and not ended)

    def end_all(self) -> None:
        """Every source is at its end (stop with drain)."""
        for vertex in self._sources:
            self.source(vertex, ended=True)

    def directive(self) -> dict[int, int]:
        """Watermark of every vertex in the epoch that starts now; vertices without one are left out."""
        reached = self._reached()
        return {
            vertex.id: mark
            for vertex in self._plan.vertices.values()
            if (mark := self._input_of(vertex, reached).time) > MIN_WATERMARK
        }

    def epoch_done(self, directive: dict[int, int]) -> None:
        """The epoch with that directive is over: its watermarks have passed the slot vertices."""
        for vertex in self._passed:
            self._passed[vertex] = max(self._passed[vertex], directive.get(vertex, MIN_WATERMARK))

    def travelling(self) -> bool:
        """Whether some slot vertex has a newer watermark waiting at its input."""
        reached = self._reached()
        vertices = self._plan.vertices
        return bool(self.rounds.returning) or any(
            self._input_of(vertices[key], reached).time > passed for key, passed in self._passed.items()
        )

    def finished(self) -> bool:
        """Whether the end of all input has passed every vertex."""
        return all(mark == MAX_WATERMARK for mark in self._passed.values()) and all(
            mark == MAX_WATERMARK for mark, _idle in self._sources.values()
        )

    def lowest(self) -> int:
        """Watermark of the slowest vertex, for progress displays."""
        reached = self._reached()
        return min((mark.time for mark in reached.values() if not mark.idle), default=MIN_WATERMARK)

    def _reached(self) -> dict[int, _Mark]:
        """Output watermark of each vertex at the end of the last epoch."""
        reached: dict[int, _Mark] = {}
        for vertex in self._plan.vertices.values():
            reached[vertex.id] = self._output_of(vertex, reached)
        return reached

    def _output_of(self, vertex: Vertex, reached: dict[int, _Mark]) -> _Mark:
        incoming = self._input_of(vertex, reached)
        generator = self._generators.get(vertex.id)
        if vertex.kind is not NodeKind.SOURCE and vertex.placement is Placement.SLOT:
            passed = self._passed[vertex.id]
            return _Mark(passed, idle=incoming.idle and incoming.time <= passed)
        if generator is None or incoming.time == MAX_WATERMARK:
            return incoming
        return _Mark(generator.watermark, generator.idle)

    def _input_of(self, vertex: Vertex, reached: dict[int, _Mark]) -> _Mark:
        if vertex.kind is NodeKind.SOURCE:
            mark, idle = self._sources[vertex.id]
            return _Mark(mark, idle)
        # A feedback edge of a loop comes from further down and counts for nothing here.
        rounds = self.rounds
        if vertex.id in rounds.returning:
            return _Mark(MIN_WATERMARK)
        combined = _combined(
            [
                above._replace(time=rounds.outgoing(edge.source, vertex.id, above.time))
                for edge in vertex.inputs
                if (above := reached.get(edge.source)) is not None
            ]
        )
        if vertex.id in self._plan.supersteps:
            combined = combined._replace(time=rounds.incoming(vertex.id, combined.time))
        if vertex.placement is Placement.TASK:
            return combined
        return _Mark(max(combined.time, self._passed[vertex.id]), combined.idle)


def _combined(inputs: list[_Mark]) -> _Mark:
    """Of several inputs the slowest counts that is not idle; if all are, nobody holds the fastest back."""
    active = [mark.time for mark in inputs if not mark.idle]
    if active:
        return _Mark(min(active))
    return _Mark(max((mark.time for mark in inputs), default=MIN_WATERMARK), idle=bool(inputs))


def _strategy_of(vertex: Vertex) -> Any:
    return vertex.spec.strategy if isinstance(vertex.spec, SourceSpec | TimestampsSpec) else None
