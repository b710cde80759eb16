"""Event time across the graph: which watermark every vertex has in the next epoch. Pure.

A watermark moves one slot vertex per epoch: in epoch n a slot vertex has the minimum of what its inputs
had reached at the end of epoch n-1, so whatever an upstream vertex emitted when it fired has already
arrived when the watermark follows. Fused vertices pass watermarks on at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidemark.api.graph import NodeKind
from tidemark.api.specs import FunctionSourceSpec, SourceSpec, TimestampsSpec
from tidemark.operators.base import MAX_WATERMARK, MIN_WATERMARK
from tidemark.runtime.plan import JobPlan
from tidemark.runtime.reports import TaskReport
from tidemark.slot.vertex import Placement, Vertex

__all__ = ["WatermarkTracker"]


@dataclass(slots=True)
class _Generator:
    """Watermark of one vertex that assigns timestamps, from what each of its parallel instances has seen."""

    strategy: Any
    newest: dict[int, int] = field(default_factory=dict)
    """Instance -> newest timestamp; instances that no longer exist hold nothing back."""
    active: dict[int, int] = field(default_factory=dict)
    """Instance -> when it last had a record."""
    owners: dict[int, int] = field(default_factory=dict)
    """Instance -> the source whose records it saw last."""
    watermark: int = MIN_WATERMARK
    idle: bool = False

    def observe(self, seen: dict[tuple[int, int], int | None], whole: set[int], now: int) -> None:
        """Take what tasks saw.

        Args:
            seen: (source, instance) -> newest timestamp, None if there was no record.
            whole: Sources all of whose partitions are in `seen`; what they leave out is gone.
            now: The time.
        """
        for (source, instance), newest in seen.items():
            if newest is not None:
                self.newest[instance] = max(newest, self.newest.get(instance, newest))
                self.active[instance] = now
                self.owners[instance] = source
        instances = {instance for _source, instance in seen}
        self._keep([i for i in self.newest if i in instances or self.owners[i] not in whole])
        self.update(now)

    def forget(self, source: int) -> None:
        """A source ended: its instances hold nothing back any more."""
        self._keep([i for i in self.newest if self.owners[i] != source])

    def _keep(self, instances: list[int]) -> None:
        if len(instances) != len(self.newest):
            self.newest = {instance: self.newest[instance] for instance in instances}

    def update(self, now: int) -> None:
        """Let the watermark follow the slowest instance that is not idle."""
        timeout = self.strategy.idle_timeout_ms
        live = [
            self.strategy.watermark_after(newest)
            for instance, newest in self.newest.items()
            if timeout is None or now - self.active[instance] < timeout
        ]
        marks = [mark for mark in live if mark is not None]
        self.idle = timeout is not None and bool(self.active) and not live
        if marks:
            self.watermark = max(self.watermark, min(marks))


class WatermarkTracker:
    """Follows watermarks from the sources to the sinks, epoch by epoch."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._generators = {
            vertex.id: _Generator(strategy)
            for vertex in plan.vertices.values()
            if (strategy := _strategy_of(vertex)) is not None
        }
        self._sources: dict[int, tuple[int, bool]] = {
            vertex.id: (MIN_WATERMARK, False) for vertex in plan.of_kind(NodeKind.SOURCE)
        }
        self._passed: dict[int, int] = {vertex.id: MIN_WATERMARK for vertex in plan.in_slots()}
        self._feeding = {vertex: plan.sources_of(vertex) for vertex in self._generators}

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

    def restore(self, marks: dict[str, int]) -> dict[str, int]:
        """Stand where a checkpoint was taken; returns the marks in force.

        If the job has a source the checkpoint does not know, time starts again: its records may be older
        than everything seen before.
        """
        vertices = self._plan.vertices
        if any(vertices[key].uid not in marks for key in self._sources):
            return {}
        for vertex in vertices.values():
            mark = marks.get(vertex.uid, MIN_WATERMARK)
            if vertex.id in self._generators:
                self._generators[vertex.id].watermark = mark
            elif vertex.id in self._sources:
                self._sources[vertex.id] = (mark, False)
            if vertex.id in self._passed:
                self._passed[vertex.id] = mark
        return marks

    def observe(self, reports: Iterable[TaskReport], now: int) -> None:
        """Take what the tasks of an epoch saw.

        A source that assigns timestamps has a watermark per partition; an assigner further down has one per
        subtask, whatever sources its records come from.
        """
        reports = [report for report in reports if report.source in self._sources]
        sources = {report.source for report in reports}
        # The subtasks of a source function send when they have something; the others give a whole picture.
        whole = {
            source
            for source in sources
            if not isinstance(self._plan.vertices[source].spec, FunctionSourceSpec)
        }
        for vertex_id, generator in self._generators.items():
            vertex = self._plan.vertices[vertex_id]
            feeding = self._feeding[vertex_id]
            seen: dict[tuple[int, int], int | None] = {}
            for report in reports:
                if report.source not in feeding:
                    continue
                own = report.source == vertex_id
                instance = report.partition if own else report.partition % vertex.parallelism
                stamps = (report.observed.get(vertex_id), seen.get((report.source, instance)))
                seen[report.source, instance] = max((s for s in stamps if s is not None), default=None)
            if seen:
                generator.observe(seen, whole, now)

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
            if (mark := self._input_of(vertex, reached)) > MIN_WATERMARK
        }

    def epoch_done(self, directive: dict[int, int]) -> None:
        """The epoch with that directive is over: its watermarks have passed the slot vertices."""
        for vertex in self._passed:
            self._passed[vertex] = max(self._passed[vertex], directive.get(vertex, MIN_WATERMARK))

    def travelling(self) -> bool:
        """Whether some slot vertex has a newer watermark waiting at its input."""
        reached = self._reached()
        vertices = self._plan.vertices
        return any(self._input_of(vertices[key], reached) > passed for key, passed in self._passed.items())

    def finished(self) -> bool:
        """Whether the end of all input has passed every vertex."""
        return all(mark == MAX_WATERMARK for mark in self._passed.values()) and all(
            mark == MAX_WATERMARK for mark, _idle in self._sources.values()
        )

    def lowest(self) -> int:
        """Watermark of the slowest vertex, for progress displays."""
        reached = self._reached()
        return min((mark for mark in reached.values() if mark is not None), default=MIN_WATERMARK)

    def _reached(self) -> dict[int, int | None]:
        """Output watermark of each vertex at the end of the last epoch; None means idle."""
        reached: dict[int, int | None] = {}
        for vertex in self._plan.vertices.values():
            reached[vertex.id] = self._output_of(vertex, reached)
        return reached

    def _output_of(self, vertex: Vertex, reached: dict[int, int | None]) -> int | None:
        generator = self._generators.get(vertex.id)
        if vertex.kind is NodeKind.SOURCE:
            mark, idle = self._sources[vertex.id]
            if mark == MAX_WATERMARK or generator is None:
                return None if idle else mark
            return None if generator.idle else generator.watermark
        if vertex.placement is Placement.SLOT:
            return self._passed[vertex.id]
        incoming = self._input_of(vertex, reached)
        if generator is None or incoming == MAX_WATERMARK:
            return incoming
        return None if generator.idle else generator.watermark

    def _input_of(self, vertex: Vertex, reached: dict[int, int | None]) -> int:
        marks = [mark for edge in vertex.inputs if (mark := reached.get(edge.source)) is not None]
        if vertex.placement is Placement.SLOT and vertex.kind is not NodeKind.SOURCE:
            return max(min(marks), self._passed[vertex.id]) if marks else self._passed[vertex.id]
        if vertex.kind is NodeKind.SOURCE:
            mark, _idle = self._sources[vertex.id]
            return mark
        return min(marks) if marks else MIN_WATERMARK


def _strategy_of(vertex: Vertex) -> Any:
    return vertex.spec.strategy if isinstance(vertex.spec, SourceSpec | TimestampsSpec) else None
