"""Event time on the channels of one task: what it may claim towards every vertex. Pure.

A claim towards a vertex is the slowest of the vertex's inputs on this task's way: splits of a source, and what the
subtasks of a slot vertex have answered to this task. What came with an answer is passed on before its watermark
counts, so a claim never overtakes a record.
"""

from __future__ import annotations

from tidemark.api.graph import NodeKind
from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.runtime.watermark_generators import (
    Generator,
    NamedMark,
    Picture,
    Seen,
    instance_key,
    unpack_named,
)
from tidemark.runtime.watermarks import Mark, combined, strategy_of

__all__ = ["ChannelTime"]

_HERE = 0
"""Instance of an assigner behind a slot vertex: the records of this task."""
_OVER = Mark(MAX_WATERMARK)


class ChannelTime:
    """Follows the time of one task.

    Attributes:
        changed: Whether a claim may have moved since the last call of `claims`.
    """

    def __init__(self, plan: JobPlan, marks: dict[str, int], partitions: dict[str, bytes], now: int) -> None:
        """Stand where the snapshot of the attempt was taken.

        Args:
            plan: The job.
            marks: Uid -> watermark of the snapshot.
            partitions: Uid -> stored marks of the partitions behind a generator.
            now: Processing time (ms).

        Raises:
            RestoreError: The marks of partitions are damaged.
        """
        self._plan = plan
        self._uids = {vertex.id: vertex.uid for vertex in plan.of_kind(NodeKind.SOURCE)}
        self._generators: dict[int, Generator] = {}
        self._stored: dict[int, dict[tuple[str, object], int]] = {}
        for vertex in plan.vertices.values():
            strategy = strategy_of(vertex)
            if strategy is None:
                continue
            self._generators[vertex.id] = Generator(strategy, marks.get(vertex.uid, MIN_WATERMARK))
            stored = partitions.get(vertex.uid)
            self._stored[vertex.id] = {
                (uid, _hashable(instance)): newest
                for uid, instance, newest in (unpack_named(stored) if stored else ())
            }
        self._groups = {
            key: generator.strategy.alignment.group
            for key, generator in self._generators.items()
            if key in self._uids and generator.strategy.alignment is not None
        }
        """Source -> its alignment group."""
        self._limits: dict[str, int] = {}
        self._fused = {key for key in self._generators if plan.is_fused(key)}
        self._feeding = {key: plan.sources_of(key) for key in self._generators}
        self._splits: dict[int, dict[str, int]] = {source: {} for source in self._uids}
        """Source -> split that is being read -> its own watermark, if it has one."""
        self._assigned: set[int] = set()
        """Sources that have given this task its first splits, perhaps none."""
        self._complete: set[int] = set()
        """Sources that give this task no further splits."""
        self._functions: dict[int, dict[int, Mark]] = {}
        """Source function -> slot this task pulls from -> how far it said it is."""
        self._passed: dict[int, list[Mark]] = {
            vertex.id: [Mark(marks.get(vertex.uid, MIN_WATERMARK))] * vertex.parallelism
            for vertex in plan.in_slots()
            if vertex.kind is not NodeKind.SOURCE
        }
        self._restored = {v.id: marks.get(v.uid, MIN_WATERMARK) for v in plan.of_kind(NodeKind.SOURCE)}
        self._now = now
        self.changed = True

    # Sources

    def open_split(self, source: int, split: str) -> None:
        """This task reads a split from now on; until it has a record it holds back what it held back before."""
        self._splits[source][split] = MIN_WATERMARK
        for key in self._fused:
            if source in self._feeding[key]:
                newest = self._stored[key].get((self._uids[source], split), MIN_WATERMARK)
                self._generators[key].expect_one(source, instance_key(source, split), newest, self._now)
        self.changed = True

    def close_split(self, source: int, split: str) -> None:
        """A split has been read to its end."""
        self._splits[source].pop(split, None)
        for key in self._fused:
            self._generators[key].leave_out(instance_key(source, split))
        self.changed = True

    def assigned(self, source: int) -> None:
        """The source has given this task its splits; without any it holds nothing back from now on."""
        self._assigned.add(source)
        self.changed = True

    def marked(self, source: int, split: str, watermark: int) -> bool:
        """A split says itself how far event time is; True if that is new."""
        if watermark <= self._splits[source][split]:
            return False
        self._splits[source][split] = watermark
        self.changed = True
        return True

    def complete(self, source: int) -> None:
        """The source has no further splits for this task."""
        self._complete.add(source)
        self.changed = True

    def end_all(self) -> None:
        """Every source ends here (stop with drain)."""
        for source in self._uids:
            self._complete.add(source)
            self._functions.pop(source, None)
            for split in list(self._splits[source]):
                self.close_split(source, split)
        self.changed = True

    def has_ended(self, source: int) -> bool:
        """Whether the source has nothing for this task any more."""
        pulled = self._functions.get(source, {}).values()
        return (
            source in self._complete
            and not self._splits[source]
            and all(mark.time == MAX_WATERMARK for mark in pulled)
        )

    def pull(self, source: int, slot: int) -> None:
        """This task pulls from the source function in `slot`."""
        self._functions.setdefault(source, {})[slot] = Mark(self._restored[source])

    def pulled(self, source: int, slot: int, watermark: int, idle: bool) -> None:
        """The source function in `slot` said how far it is."""
        known = self._functions[source][slot]
        mark = Mark(max(known.time, watermark), idle)
        if mark != known:
            self._functions[source][slot] = mark
            self.changed = True

    def stamped(self, vertex: int, source: int | None, split: str | None, newest: int) -> None:
        """An assigner saw a timestamp: of a split if it is fused to the source, else of this task."""
        if split is not None and source is not None and vertex in self._fused:
            seen = Seen(source, Picture.PARTIAL, [(instance_key(source, split), newest)])
        else:
            seen = Seen(next(iter(self._feeding[vertex])), Picture.PARTIAL, [(_HERE, newest)])
        self._generators[vertex].take([seen], self._now)

    # Alignment of sources

    def groups(self) -> dict[str, int]:
        """Alignment group -> watermark of the slowest of its sources here that is being read and not idle."""
        marks: dict[str, int] = {}
        for source, group in self._groups.items():
            generator = self._generators[source]
            if self._splits[source] and not generator.idle:
                marks[group] = min(generator.watermark, marks.get(group, MAX_WATERMARK))
        return marks

    def update_intervals(self) -> list[int]:
        """How often (ms) the groups of this task's sources are to be looked at."""
        return [self._generators[source].strategy.alignment.update_interval_ms for source in self._groups]

    def limit(self, group: str, watermark: int) -> None:
        """No source of a group may be read beyond this watermark."""
        self._limits[group] = watermark

    def is_ahead(self, source: int, split: str) -> bool:
        """Whether a split has run too far ahead of the slowest source of its group."""
        limit = self._limits.get(self._groups.get(source, ""))
        return limit is not None and self._generators[source].mark_of(instance_key(source, split)) > limit

    # Slots

    def passed(self, vertex: int, slot: int, watermark: int, idle: bool) -> None:
        """A subtask of a slot vertex answered; everything that came with the answer has been passed on."""
        marks = self._passed[vertex]
        known = marks[slot]
        mark = Mark(max(known.time, watermark), idle)
        if mark != known:
            marks[slot] = mark
            self.changed = True

    def tick(self, now: int) -> None:
        """The watermark interval has passed: generators emit."""
        self._now = now
        for generator in self._generators.values():
            before = generator.watermark, generator.idle
            generator.update(now)
            self.changed |= before != (generator.watermark, generator.idle)

    # Claims

    def claims(self) -> dict[int, Mark]:
        """What may be claimed towards every vertex now."""
        self.changed = False
        reached: dict[int, Mark] = {}
        claims: dict[int, Mark] = {}
        for vertex in self._plan.vertices.values():
            claim = claims[vertex.id] = self._claim(vertex, reached)
            reached[vertex.id] = self._reached(vertex, claim)
        return claims

    def may_have_moved(self, vertex: int, slot: int, claim: Mark) -> bool:
        """Whether a subtask may be further than it has said: other tasks move it, too."""
        return self._passed[vertex][slot].time < claim.time or claim.idle

    def has_ended_everywhere(self) -> bool:
        """Whether no source has anything for this task any more."""
        return all(self.has_ended(source) for source in self._uids)

    def is_over(self) -> bool:
        """Whether the end of time has passed every vertex, as far as this task knows."""
        return self.has_ended_everywhere() and all(
            mark.time == MAX_WATERMARK for marks in self._passed.values() for mark in marks
        )

    def partition_marks(self) -> dict[int, list[NamedMark]]:
        """Generator -> marks of its splits, for a snapshot."""
        return {key: generator.named_marks(self._uids) for key, generator in self._generators.items()}

    def marks(self, claims: dict[int, Mark] | None = None) -> dict[int, tuple[int, bool]]:
        """Sources, assigners and slot vertices -> how far they are on this channel.

        Args:
            claims: Those of the last call of `claims`, for displays; a snapshot needs those of now.
        """
        claims = self.claims() if claims is None else claims
        marks = {}
        for vertex in self._plan.vertices.values():
            if vertex.id in self._generators:
                generator = self._generators[vertex.id]
                over = claims[vertex.id].time == MAX_WATERMARK
                marks[vertex.id] = (MAX_WATERMARK, False) if over else (generator.watermark, generator.idle)
            elif vertex.id in self._uids or vertex.id in self._passed:
                marks[vertex.id] = (claims[vertex.id].time, claims[vertex.id].idle)
        return marks

    def _claim(self, vertex: Vertex, reached: dict[int, Mark]) -> Mark:
        if vertex.kind is NodeKind.SOURCE:
            return self._source(vertex.id)
        # A feedback edge of a loop comes from further down and counts for nothing here.
        return combined([reached[edge.source] for edge in vertex.inputs if edge.source in reached])

    def _source(self, source: int) -> Mark:
        if self.has_ended(source):
            return _OVER
        pulled = self._functions.get(source)
        if pulled:
            return combined(list(pulled.values()))
        splits = self._splits[source]
        # Nothing to read for now: whatever this task gets later is behind what others have then.
        idle = not splits and source in self._assigned
        return Mark(min(splits.values(), default=MIN_WATERMARK), idle)

    def _reached(self, vertex: Vertex, claim: Mark) -> Mark:
        if vertex.id in self._passed:
            marks = self._passed[vertex.id]
            idle = all(mark.idle for mark in marks)
            return Mark(min(mark.time for mark in marks), idle and claim.idle)
        generator = self._generators.get(vertex.id)
        if generator is None or claim.time == MAX_WATERMARK:
            return claim
        return Mark(generator.watermark, generator.idle or claim.idle)


def _hashable(instance: object) -> object:
    return tuple(instance) if isinstance(instance, list) else instance
