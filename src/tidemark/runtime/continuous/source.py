"""The driver side of a source in continuous execution: hands out splits, and keeps what was read of them."""

from __future__ import annotations

import itertools
from typing import Any

from tidemark.api.specs import FunctionSourceSpec
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import DriverSource, SourcePoll
from tidemark.runtime.sources.enumerators import AssignedSplit, Enumerator, make_enumerator
from tidemark.runtime.sources.factory import DriverSourceContext
from tidemark.runtime.worker import Worker

__all__ = ["EnumeratedSource", "make_continuous_source"]


def make_continuous_source(vertex: Vertex, context: DriverSourceContext) -> DriverSource:
    """Driver side of a source whose tasks last; of a function in slots there is none but its state."""
    if isinstance(vertex.spec, FunctionSourceSpec):
        return EnumeratedSource(vertex, None, context.worker)
    return EnumeratedSource(vertex, make_enumerator(vertex, context.clock), context.worker)


class EnumeratedSource(DriverSource):
    """A source whose splits are read by tasks."""

    def __init__(self, vertex: Vertex, enumerator: Enumerator | None, worker: Worker) -> None:
        """Hand out the splits that `enumerator` finds; `start` and `position_at` are called in `worker`.

        Without an enumerator there are no splits: a function in slots is pulled by tasks on their own.
        """
        super().__init__(vertex)
        self._enumerator = enumerator
        self._worker = worker
        self._started = False
        self._numbers = itertools.count()
        self._new: list[AssignedSplit] = []
        self._ended: set[str] = set()
        self._read_out: dict[str, Any] = {}
        """Splits that were read to their end in front of the last barrier, and where that is."""

    def start(self, position: Any | None) -> None:
        """Find the splits, each behind what was read of it."""
        self._numbers = itertools.count()
        self._ended = set()
        self._read_out = {}
        self._started = True
        self._new = [] if self._enumerator is None else self._enumerator.start(position)

    def take_new(self) -> list[tuple[int, AssignedSplit]]:
        """Splits nobody was given yet, numbered: the number says which task."""
        new, self._new = self._new, []
        return [(next(self._numbers), split) for split in new]

    def discover(self, now: int) -> list[tuple[int, AssignedSplit]]:
        """Splits that have appeared since; cheap if it is not time to look."""
        if self._enumerator is not None and not self.is_complete:
            self._new += self._worker.call(self._enumerator.discover, now)
        return self.take_new()

    @property
    def is_complete(self) -> bool:
        """Whether there will be no other splits than those found at the start."""
        return self._enumerator is None or self._enumerator.bounded

    def ended_splits(self, ended: dict[str, Any]) -> None:
        """A task has read these splits to their end."""
        for split, position in ended.items():
            if split not in self._ended and self._enumerator is not None:
                self._ended.add(split)
                self._enumerator.split_ended(split, position)

    def read_out(self, ended: dict[str, Any]) -> None:
        """These splits have ended, too, in front of the barrier whose position is stored next."""
        self._read_out.update(ended)

    def position_at(self, checkpoint_id: int, reached: dict[str, Any]) -> Any | None:
        """What a snapshot stores, from where every split that is being read stood at its barrier."""
        if self._enumerator is None:
            return None
        return self._enumerator.position(self._read_out | reached, set(self._read_out), checkpoint_id)

    def poll(self) -> SourcePoll | None:
        """There are no epochs."""
        return None

    def advanced(self, positions: dict[int, Any]) -> None:
        """There are no epochs."""

    def position(self, checkpoint_id: int | None = None) -> Any:
        """There is no moment at which nothing is in flight; see `position_at`."""
        return None

    @property
    def ended(self) -> bool:
        """Tasks know."""
        return False

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint with the positions taken before is durable."""
        if self._enumerator is not None:
            self._worker.call(self._enumerator.notify_checkpoint_complete, checkpoint_id)

    def stop(self) -> None:
        """Let the enumerator release what it holds, without waiting for it."""
        if self._enumerator is not None and self._started:
            self._started = False
            self._worker.post(self._enumerator.stop)
