"""Driver side of a `SplitSource` in epochs: which splits the tasks of the next epoch read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark.clock import Clock, has_passed
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import DriverSource, SourcePoll
from tidemark.runtime.sources.enumeration import AssignedSplit
from tidemark.runtime.sources.shares import Reached, SplitShare
from tidemark.runtime.sources.split_enumerator import SplitEnumerator
from tidemark.runtime.worker import Worker

__all__ = ["SplitDriverSource"]

_SPLITS_PER_TASK = 16
"""A reader is opened for each; the others have their turn in the next epoch."""
_PATIENCE_MS = 50
_MOST_PATIENCE_MS = 400
_REST = 4
"""How many times its patience a split without records is left alone: an epoch lasts as long as its slowest task, so
quiet splits cost the others a fifth of their time at most."""


@dataclass(slots=True)
class _Turn:
    """A split that has not ended."""

    number: int
    assigned: AssignedSplit
    patience_ms: int = _PATIENCE_MS
    rested_at: int = 0
    rest_ms: int = 0
    """How long it is left alone from then on."""
    asked: int = 0
    """Number of the poll in which it was last asked."""


class SplitDriverSource(DriverSource):
    """Deals the splits of a user's source out to the tasks of each epoch."""

    def __init__(self, vertex: Vertex, clock: Clock, worker: Worker) -> None:
        """Prepare the source.

        Args:
            vertex: The source.
            clock: When splits are looked for, and asked again.
            worker: Runs the user's code.
        """
        super().__init__(vertex)
        self._clock = clock
        self._worker = worker
        self._enumerator = SplitEnumerator(vertex, clock)
        self._turns: dict[str, _Turn] = {}
        self._positions: dict[str, Any] = {}
        self._ended: set[str] = set()
        self._dealt = 0
        self._polls = 0
        self._started = False

    def start(self, position: Any | None) -> None:
        """Find the splits."""
        self._turns, self._positions, self._ended = {}, {}, set()
        self._dealt = 0
        self._started = True
        self._add(self._enumerator.start(position))

    def _add(self, assigned: list[AssignedSplit]) -> None:
        for split in assigned:
            self._positions.pop(split.id, None)
            self._ended.discard(split.id)
            self._turns[split.id] = _Turn(self._dealt % self.vertex.parallelism, split)
            self._dealt += 1

    def poll(self) -> SourcePoll | None:
        """A share for each task that has splits to ask, those first that have waited longest."""
        now = self._clock.now()
        if self._enumerator.is_due(now):
            self._add(self._worker.call(self._enumerator.discover, now))
        self._polls += 1
        shares: dict[int, list[_Turn]] = {}
        for turn in sorted(self._turns.values(), key=lambda turn: turn.asked):
            mine = shares.setdefault(turn.number, [])
            if has_passed(turn.rest_ms, turn.rested_at, now) and len(mine) < _SPLITS_PER_TASK:
                mine.append(turn)
        splits = [
            SplitShare(
                number,
                tuple(turn.assigned for turn in turns),
                tuple(turn.patience_ms for turn in turns),
            )
            for number, turns in sorted(shares.items())
            if turns
        ]
        return SourcePoll(splits) if splits else None

    def advanced(self, positions: dict[int, Any]) -> None:
        """The tasks say how far they came in each split."""
        now = self._clock.now()
        for reached in positions.values():
            for split_id, came in reached.items():
                self._take(split_id, came, now)

    def _take(self, split_id: str, came: Reached, now: int) -> None:
        self._positions[split_id] = came.position
        if came.ended:
            self._ended.add(split_id)
            del self._turns[split_id]
            return
        turn = self._turns[split_id]
        turn.asked = self._polls
        turn.assigned = AssignedSplit(split_id, turn.assigned.split, came.position)
        if came.quiet:
            turn.rested_at, turn.rest_ms = now, _REST * turn.patience_ms
            turn.patience_ms = min(_MOST_PATIENCE_MS, 2 * turn.patience_ms)
        else:
            turn.rest_ms, turn.patience_ms = 0, _PATIENCE_MS

    def position(self, checkpoint_id: int | None = None) -> Any:
        """Every split with its position."""
        return self._enumerator.position(self._positions, self._ended, checkpoint_id)

    @property
    def ended(self) -> bool:
        """Whether all splits have ended and no others can come."""
        return not self._turns and self._enumerator.bounded

    def live_splits(self) -> dict[str, int] | None:
        """Those that have not ended."""
        return {key: turn.number for key, turn in self._turns.items()}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the user's source."""
        self._worker.call(self._enumerator.notify_checkpoint_complete, checkpoint_id)

    def stop(self) -> None:
        """Let the user's source release what it holds, without waiting for it."""
        if self._started:
            self._started = False
            self._worker.post(self._enumerator.stop)
