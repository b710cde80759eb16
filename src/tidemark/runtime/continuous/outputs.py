"""What tasks hand to the driver side of sinks and sources, sorted by the barrier it lies in front of. Pure.

A task tells of its barrier between the rows in front of it and those behind. Other tasks tell of the same barrier
earlier or later, so what belongs to checkpoint k is known when the last task has told of it.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from tidemark.protocol.tasks import TaskAcknowledged

__all__ = ["Produced", "TaskOutputs"]


@dataclass(slots=True)
class Produced:
    """Output of one or more tasks, and what they have read to its end."""

    rows: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Tag -> rows, each with its place in the order in which the driver heard of them."""
    staged: dict[int, list[Any]] = field(default_factory=dict)
    """Sink -> files."""
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Source -> split that was read to its end -> where that is."""

    def take_rows(self, tag: str) -> list[bytes]:
        """The rows of one tag in their order; they are the caller's now."""
        return [payload for _place, payload in sorted(self.rows.pop(tag, []), key=itemgetter(0))]

    def add_staged(self, staged: dict[int, list[Any]]) -> None:
        """Add files."""
        for sink, files in staged.items():
            self.staged.setdefault(sink, []).extend(files)

    def add_ended(self, ended: dict[int, dict[str, Any]]) -> None:
        """Add splits."""
        for source, splits in ended.items():
            self.ended.setdefault(source, {}).update(splits)

    def take_output(self) -> Produced:
        """Rows and files, which are the caller's now."""
        taken = Produced(self.rows, self.staged)
        self.rows, self.staged = {}, {}
        return taken

    def add(self, other: Produced) -> None:
        """Add all of another one."""
        for tag, rows in other.rows.items():
            self.rows.setdefault(tag, []).extend(rows)
        self.add_staged(other.staged)
        self.add_ended(other.ended)


class TaskOutputs:
    """Output of the tasks of one attempt that no checkpoint has yet."""

    def __init__(self, tasks: int) -> None:
        """Nothing was produced."""
        self._places = itertools.count()
        self._behind = [Produced() for _ in range(tasks)]
        """Of each task, behind its last barrier."""
        self._front: list[deque[tuple[TaskAcknowledged, Produced]]] = [deque() for _ in range(tasks)]
        """Of each task, barriers that others have not reached, each with what lies in front of it."""

    def produced(self, task: int) -> Produced:
        """Where the newest output of a task is."""
        return self._behind[task]

    def add_rows(self, task: int, rows: list[tuple[str, bytes]]) -> None:
        """A task has rows for sinks."""
        known = self._behind[task].rows
        for tag, payload in rows:
            known.setdefault(tag, []).append((next(self._places), payload))

    def acknowledge(self, event: TaskAcknowledged) -> None:
        """A task has sent its barrier."""
        produced, self._behind[event.task] = self._behind[event.task], Produced()
        produced.add_staged(event.staged)
        produced.add_ended(event.ended)
        self._front[event.task].append((event, produced))

    def take(self) -> tuple[list[TaskAcknowledged], Produced] | None:
        """The oldest barrier that every task has sent: what each said, and what lies in front of it; None if none.

        A task that was spared an aborted barrier skips it: the output in front of it counts for the next one.
        """
        while all(self._front):
            newest = max(front[0][0].checkpoint_id for front in self._front)
            skipped = False
            for front in self._front:
                while front and front[0][0].checkpoint_id < newest:
                    _event, produced = front.popleft()
                    self._return(front, _event.task, produced)
                    skipped = True
            if skipped:
                continue
            heads = [front.popleft() for front in self._front]
            whole = Produced()
            for _event, produced in heads:
                whole.add(produced)
            return [event for event, _produced in heads], whole
        return None

    def rest(self) -> Produced:
        """The output that no complete barrier covers; it is the caller's now, the barriers stay."""
        whole = Produced()
        for front, behind in zip(self._front, self._behind, strict=True):
            for produced in (*(produced for _event, produced in front), behind):
                whole.add(produced.take_output())
        return whole

    def _return(self, front: deque[tuple[TaskAcknowledged, Produced]], task: int, produced: Produced) -> None:
        """Put output in front of what follows it."""
        if front:
            event, later = front[0]
            produced.add(later)
            front[0] = (event, produced)
        else:
            produced.add(self._behind[task])
            self._behind[task] = produced
