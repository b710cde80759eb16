"""The vertices of a job of this process as displays show them: what slots said last, and what tasks say of their time.

A vertex in slots is measured there: busy while it works on a frame. What a task of continuous execution reads, and all
that is fused to that, is one loop, as a chain is one task in Flink: its parts share the loop's times. The loop waits
with records that a slot has not taken yet; that is where back-pressure shows. A source function sits in a slot, but is
asked for records by one of these loops, so it waits when that one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.api.graph import NodeKind
from tidemark.plan.vertex import Placement, Vertex
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.runtime.execution import JobExecution
from tidemark.runtime.progress import TaskTimes
from tidemark.web.facts import Input, Shares, SubtaskFacts, Times, VertexFacts, vertex_id

__all__ = ["VertexRates", "VertexView", "known_watermark"]

_MOMENT_MS = 200
"""Two looks that are nearer to each other tell nothing about rates."""

Barriers = Mapping[tuple[str, int], tuple[int, int]]
"""Operator uid and subtask -> start delay and alignment at the newest completed checkpoint."""


class VertexRates:
    """What grows, per second, between two looks. Used under the lock of its view."""

    def __init__(self) -> None:
        """Nobody has looked."""
        self._records: dict[tuple[str, int], tuple[int, int, int, tuple[float, float]]] = {}
        self._busy: dict[tuple[str, int], tuple[int, int, float | None]] = {}

    def records(
        self, uid: str, subtask: int, at: int, since: int, records_in: int, records_out: int
    ) -> tuple[float, float]:
        """Records in and out per second since the last look, or since `since`; -1 is the vertex as a whole."""
        place = uid, subtask
        before, old_in, old_out, known = self._records.get(place, (since, 0, 0, (0.0, 0.0)))
        if records_in < old_in or records_out < old_out:
            # The counters of another attempt.
            before, old_in, old_out = since, 0, 0
        elif at - before < _MOMENT_MS:
            return known
        seconds = max(at - before, 1) / 1000
        rates = (round((records_in - old_in) / seconds, 1), round((records_out - old_out) / seconds, 1))
        self._records[place] = (at, records_in, records_out, rates)
        return rates

    def busy(self, uid: str, subtask: int, at: int, busy_ms: int) -> float | None:
        """Share of the time since the last look that a subtask was at work; None at the first one."""
        known = self._busy.get((uid, subtask))
        share: float | None = None
        if known is not None and busy_ms >= known[1]:
            if at - known[0] < _MOMENT_MS:
                return known[2]
            share = round(min(1.0, (busy_ms - known[1]) / (at - known[0])), 4)
        self._busy[uid, subtask] = (at, busy_ms, share)
        return share


class VertexView:
    """Puts the facts of vertices together. Used under the lock of its view."""

    def __init__(self, execution: JobExecution, started_at: int) -> None:
        """Look at a job that began at `started_at`."""
        self._execution = execution
        self._started_at = started_at
        self._rates = VertexRates()
        vertices = execution.plan.vertices
        self._ids = {key: vertex_id(vertex.uid) for key, vertex in vertices.items()}
        self._loops = _in_loops(vertices)

    def facts(
        self,
        figures: Iterable[Mapping[str, Any]],
        sizes: Mapping[str, int],
        barriers: Barriers,
        now: int,
    ) -> tuple[VertexFacts, ...]:
        """All vertices.

        Args:
            figures: What slots said of their subtasks.
            sizes: Id of a vertex -> bytes of its state.
            barriers: How the barriers of the newest checkpoint came.
            now: In milliseconds.
        """
        marks = self._marks()
        told: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
        for slot in figures:
            for uid, operator in slot["operators"].items():
                told.setdefault(uid, []).append((slot, operator))
        found = []
        for vertex in self._execution.plan.vertices.values():
            if vertex.placement is Placement.SLOT:
                subtasks = tuple(
                    [
                        self._in_slot(vertex, slot, operator, barriers, now)
                        for slot, operator in told.get(vertex.uid, ())
                    ]
                )
            else:
                subtasks = self._in_tasks(vertex)
            found.append(self._vertex(vertex, subtasks, marks, sizes, now))
        return tuple(found)

    def _vertex(
        self,
        vertex: Vertex,
        subtasks: tuple[SubtaskFacts, ...],
        marks: Mapping[int, int | None],
        sizes: Mapping[str, int],
        now: int,
    ) -> VertexFacts:
        progress = self._execution.progress
        records_in, records_out = progress.records_in(vertex), progress.records_out.get(vertex.id, 0)
        rates = self._rates.records(vertex.uid, -1, now, self._started_at, records_in, records_out)
        return VertexFacts(
            id=self._ids[vertex.id],
            uid=vertex.uid,
            name=vertex.name,
            kind=vertex.kind.value,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            in_slots=vertex.placement is Placement.SLOT,
            inputs=tuple([Input(self._ids[edge.source], edge.ship.value) for edge in vertex.inputs]),
            records_in=records_in,
            records_out=records_out,
            records_in_per_second=rates[0],
            records_out_per_second=rates[1],
            watermark=marks.get(vertex.id),
            state_bytes=sizes.get(self._ids[vertex.id]),
            shares=_mean([subtask.shares for subtask in subtasks if subtask.shares is not None]),
            subtasks=subtasks,
        )

    def _in_slot(
        self,
        vertex: Vertex,
        slot: Mapping[str, Any],
        told: Mapping[str, Any],
        barriers: Barriers,
        now: int,
    ) -> SubtaskFacts:
        index, said_at = told["subtask"], now - slot["age_ms"]
        busy = self._rates.busy(vertex.uid, index, said_at, told["busy_ms"])
        since = said_at - told["lived_ms"]
        counts = told["records_in"], told["records_out"]
        rates = self._rates.records(vertex.uid, index, said_at, since, *counts)
        waits = self._pulling(vertex, index)
        waited = 0.0 if waits is None else waits[0].waiting_ms / waits[0].total
        waited_ms = 0 if waits is None else waits[1].waiting_ms
        idle_ms = max(0, told["lived_ms"] - told["busy_ms"] - waited_ms)
        return SubtaskFacts(
            index,
            *counts,
            *rates,
            times=Times(told["busy_ms"], waited_ms, idle_ms),
            shares=None if busy is None else _shares(busy, waited),
            barrier=barriers.get((vertex.uid, index)),
            watermark=told["watermark"],
            host=slot["host"],
            native=told["native"],
            held_back=told.get("held_back"),
        )

    def _pulling(self, vertex: Vertex, index: int) -> tuple[TaskTimes, TaskTimes] | None:
        """How the task lately spent its time, and in this attempt, that asks a source function for records."""
        progress = self._execution.progress
        if vertex.kind is not NodeKind.SOURCE or not progress.task_times:
            return None
        task = index % len(progress.task_times)
        recent, all_of_it = progress.recent_times.get(task), progress.task_times.get(task)
        return None if recent is None or all_of_it is None else (recent, all_of_it)

    def _in_tasks(self, vertex: Vertex) -> tuple[SubtaskFacts, ...]:
        """Nothing is known of tasks of an epoch, nor of what only takes the answers of slots."""
        if vertex.id not in self._loops:
            return ()
        progress = self._execution.progress
        recent, spent = progress.recent_times.copy(), progress.task_times.copy()
        found = []
        for index in range(vertex.parallelism):
            tasks = [task for task in recent if task % vertex.parallelism == index]
            if tasks:
                lately = _sum(recent[task] for task in tasks)
                times = _sum(spent[task] for task in tasks)
                found.append(
                    SubtaskFacts(
                        index,
                        times=Times(times.busy_ms, times.waiting_ms, times.idle_ms),
                        shares=_shares(lately.busy_ms / lately.total, lately.waiting_ms / lately.total),
                    )
                )
        return tuple(found)

    def _marks(self) -> dict[int, int | None]:
        """Watermark of every vertex; what has none of its own has the lowest of its inputs."""
        own = self._execution.marks()
        marks: dict[int, int | None] = {}
        for vertex in self._execution.plan.vertices.values():
            if vertex.uid in own:
                marks[vertex.id] = known_watermark(own[vertex.uid])
            else:
                above = [marks.get(edge.source) for edge in vertex.inputs]
                known = [mark for mark in above if mark is not None]
                marks[vertex.id] = min(known) if known and len(known) == len(above) else None
        return marks


def known_watermark(watermark: int) -> int | None:
    """None before the first one."""
    return None if watermark == MIN_WATERMARK else watermark


def _in_loops(vertices: Mapping[int, Vertex]) -> frozenset[int]:
    """Sources that tasks read, and what is fused to them."""
    found: set[int] = set()
    for vertex in vertices.values():
        reads = vertex.kind is NodeKind.SOURCE or any(edge.source in found for edge in vertex.inputs)
        if reads and vertex.placement is Placement.TASK:
            found.add(vertex.id)
    return frozenset(found)


def _sum(times: Iterable[TaskTimes]) -> TaskTimes:
    total = TaskTimes()
    for one in times:
        total = total.plus(one)
    return total


def _shares(busy: float, waiting: float) -> Shares:
    """Both are measured by different clocks, so they may be more than all of the time."""
    waiting = min(1.0, waiting)
    busy = min(busy, 1.0 - waiting)
    return Shares(round(busy, 4), round(waiting, 4), round(1.0 - busy - waiting, 4))


def _mean(shares: Sequence[Shares]) -> Shares | None:
    if not shares:
        return None
    busy = sum(share.busy for share in shares) / len(shares)
    return _shares(busy, sum(share.backpressured for share in shares) / len(shares))
