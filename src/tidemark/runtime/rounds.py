"""Iterations in rounds (supersteps), as the watermark tracker sees them. Pure.

A round is the end of input on its way through the operators of a loop. The head is told that one begins with a
time shortly before the end (`ROUND`), everything behind it with the end itself. When the end has passed the whole loop,
the next round begins: head and loop stand at the beginning of time for one epoch. After the last round the head,
too, gets the end, and only then does whoever reads the loop from outside.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.plan.job_plan import JobPlan
from tidemark.plan.vertex import Placement
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK
from tidemark.protocol.reports import TaskReport

__all__ = ["ROUND", "Rounds"]

ROUND = MAX_WATERMARK - 1


class Rounds:
    """Which round each iteration is in."""

    def __init__(self, plan: JobPlan, passed: dict[int, int]) -> None:
        """Follow the iterations of a plan; `passed` is the tracker's, by slot vertex."""
        self._loops = plan.supersteps
        self._passed = passed
        self._head_of = {vertex: head for head, loop in self._loops.items() for vertex in loop.inside}
        self._in_slots = {
            head: [v for v in loop.inside if plan.vertices[v].placement is Placement.SLOT]
            for head, loop in self._loops.items()
        }
        self._begun = dict.fromkeys(self._loops, 0)
        self._fed_back = dict.fromkeys(self._loops, 0)
        self._unsettled = dict.fromkeys(self._loops, 0)
        self._finished: set[int] = set()
        self.returning: set[int] = set()
        """Slot vertices that stand at the beginning of time in the next epoch."""

    def incoming(self, head: int, mark: int) -> int:
        """What the head of an iteration gets instead of the watermark of its input."""
        if mark < MAX_WATERMARK:
            return mark
        return MAX_WATERMARK if head in self._finished else ROUND

    def outgoing(self, source: int, reader: int, mark: int) -> int:
        """What `reader` gets instead of the watermark of `source`."""
        head = source if source in self._loops else self._head_of.get(source)
        if head is None:
            return mark
        if reader not in self._loops[head].inside:
            return MAX_WATERMARK if self._passed[head] == MAX_WATERMARK else MIN_WATERMARK
        if source != head:
            return mark
        return MAX_WATERMARK if self._passed[head] >= ROUND else MIN_WATERMARK

    def observe(self, reports: Iterable[TaskReport]) -> None:
        """An epoch is over: count what came back, and begin the next round of loops that are through."""
        self.returning = set()
        for report in reports:
            for head, count in report.fed_back.items():
                self._fed_back[head] += count
            for head, count in report.unsettled.items():
                self._unsettled[head] += count
        for head in self._loops:
            over = self._passed[head] == ROUND and all(
                self._passed[vertex] == MAX_WATERMARK for vertex in self._in_slots[head]
            )
            if over and head not in self._finished:
                self._next_round(head)

    def _next_round(self, head: int) -> None:
        loop = self._loops[head]
        self._begun[head] += 1
        settled = bool(loop.criterion) and not self._unsettled[head]
        if self._begun[head] >= loop.max_iterations or settled or not self._fed_back[head]:
            self._finished.add(head)
            return
        self._fed_back[head] = self._unsettled[head] = 0
        self.returning |= {head, *self._in_slots[head]}
        for vertex in self.returning:
            self._passed[vertex] = MIN_WATERMARK
