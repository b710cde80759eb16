"""Driver side of sources: what the next epoch reads, where that leaves us, and how to go back there.

`DriverSource` is what the epoch loop talks to. A position is plain data that goes into the checkpoint; after
`start(position)` the source continues exactly behind it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from tidemark.clock import Clock, has_passed
from tidemark.formats.files import FileFormat
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.runtime.sources.files import FileLengths, expand_path
from tidemark.runtime.sources.splits import FileSplit, IndexSplit, RangeSplit, SlotSplit

__all__ = [
    "CollectionSource",
    "DriverSource",
    "FilesSource",
    "FunctionSource",
    "SequenceSource",
    "SourcePoll",
    "index_of",
    "offsets_of",
    "ranges_left",
]

_Index = Annotated[int, msgspec.Meta(ge=0)]

_ELEMENTS_PER_EPOCH = 200_000
_NUMBERS_PER_EPOCH = 500_000
_SMALLEST_SHARE = 1 << 14
"""Units of a file that are worth a task."""


@dataclass(slots=True)
class SourcePoll:
    """What a source contributes to one epoch."""

    splits: list[Any] = field(default_factory=list)
    """One split per task; a task reads it by itself."""
    dataframe: Any = None
    """A Spark DataFrame to run through the graph instead of splits."""

    def numbered(self) -> Iterator[tuple[int, Any]]:
        """The splits with their partition numbers: their own, if they have one (a slot's, a share's)."""
        for at, split in enumerate(self.splits):
            yield getattr(split, "number", at), split


class DriverSource(ABC):
    """A source as the epoch loop sees it; without watermark and resources unless a subclass says so."""

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex

    @abstractmethod
    def start(self, position: Any | None) -> None:
        """Begin reading, behind `position` if there is one.

        Raises:
            DecodeError: It is no position of this kind of source (`msgspec`).
        """

    @abstractmethod
    def poll(self) -> SourcePoll | None:
        """The next piece of input, or None if there is nothing to read now."""

    @abstractmethod
    def advanced(self, positions: dict[int, Any]) -> None:
        """The epoch that read the last poll succeeded; `positions` are what its tasks reported."""

    @abstractmethod
    def position(self, checkpoint_id: int | None = None) -> Any:
        """Where the source stands, to be put into a checkpoint (this one, if it has a number yet)."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether everything has been read."""

    def watermark(self) -> tuple[int, bool]:
        """The source's own watermark, if it has one, and whether it is idle."""
        return MIN_WATERMARK, False

    def live_splits(self) -> dict[str, int] | None:
        """Splits that event time waits for, with the partition number of the task that reads each of them.

        None if no split of the source outlives an epoch.
        """
        return None

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint with the position taken before is durable."""

    def stop(self) -> None:
        """Release everything. Idempotent."""


class CollectionSource(DriverSource):
    """`from_collection`: one partition, list order; the position is an index."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._length = len(vertex.spec.elements)
        self._next = self._planned = 0

    def start(self, position: Any | None) -> None:
        """Begin at an index."""
        self._next = self._planned = index_of(position)

    def poll(self) -> SourcePoll | None:
        """The next slice."""
        if self._next >= self._length:
            return None
        self._planned = min(self._length, self._next + _ELEMENTS_PER_EPOCH)
        return SourcePoll([IndexSplit(self._next, self._planned)])

    def advanced(self, positions: dict[int, Any]) -> None:
        """The slice has been processed."""
        self._next = self._planned

    def position(self, checkpoint_id: int | None = None) -> Any:
        """Index of the next element."""
        return self._next

    @property
    def ended(self) -> bool:
        """Whether all elements have been read."""
        return self._next >= self._length


class SequenceSource(DriverSource):
    """`NumberSequenceSource`: contiguous sub-ranges, one per partition.

    The position holds the remaining ranges, so it survives a change of parallelism.
    """

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._ranges: list[tuple[int, int]] = []
        self._planned: list[tuple[int, int]] = []

    def start(self, position: Any | None) -> None:
        """Split the whole sequence, or what was left of it."""
        self._ranges = ranges_left(self.vertex, position)

    def poll(self) -> SourcePoll | None:
        """The next piece of every range."""
        if self.ended:
            return None
        share = max(1, _NUMBERS_PER_EPOCH // len(self._ranges))
        splits = [RangeSplit(first, min(last, first + share - 1)) for first, last in self._ranges]
        self._planned = [
            (split.last + 1, last) for split, (_first, last) in zip(splits, self._ranges, strict=True)
        ]
        return SourcePoll(splits)

    def advanced(self, positions: dict[int, Any]) -> None:
        """The pieces have been processed."""
        self._ranges = self._planned

    def position(self, checkpoint_id: int | None = None) -> Any:
        """What is left of every range."""
        return [list(pair) for pair in self._ranges]

    @property
    def ended(self) -> bool:
        """Whether every range is empty."""
        return all(first > last for first, last in self._ranges)


def index_of(position: Any | None) -> int:
    """Where a collection goes on, from a stored position."""
    return 0 if position is None else msgspec.convert(position, _Index)


def ranges_left(vertex: Vertex, position: Any | None) -> list[tuple[int, int]]:
    """What is left of a sequence according to a stored position, in about one range per subtask."""
    parts = vertex.parallelism
    if position is None:
        return _resplit([(vertex.spec.start, vertex.spec.end)], parts)
    pairs = msgspec.convert(position, list[tuple[int, int]])
    left = [(first, last) for first, last in pairs if first <= last]
    return left if len(left) == parts else _resplit(left, parts)


def offsets_of(position: Any | None) -> dict[str, int]:
    """How far each file has been read, from a stored position."""
    return {} if position is None else msgspec.convert(position, dict[str, _Index])


def _resplit(ranges: list[tuple[int, int]], parts: int) -> list[tuple[int, int]]:
    """Cut ranges into contiguous pieces, at least one per range and about `parts` in all."""
    total = sum(last - first + 1 for first, last in ranges)
    if total <= 0 or not ranges:
        return [(0, -1)]
    size = math.ceil(total / parts)
    pieces = []
    for first, last in ranges:
        while first <= last:
            pieces.append((first, min(last, first + size - 1)))
            first += size
    return pieces


class FilesSource(DriverSource):
    """Files, bounded or monitored; the position is how far each was read, in the units of the format."""

    def __init__(self, vertex: Vertex, clock: Clock) -> None:
        super().__init__(vertex)
        self._paths: tuple[str, ...] = vertex.spec.paths
        self._monitor_ms: int | None = vertex.spec.monitor_ms
        self._clock = clock
        self._offsets: dict[str, int] = {}
        self._format: FileFormat = vertex.spec.format
        self._lengths = FileLengths(self._format)
        self._sizes: dict[str, int] = {}
        """Of each file, in the units of the format."""
        self._begun: set[str] = set()
        self._listed_at: int | None = None

    def start(self, position: Any | None) -> None:
        """List the files; those in `position` continue at their offset."""
        self._offsets = offsets_of(position)
        self._begun = {path for path, offset in self._offsets.items() if offset}
        self._listed_at = None
        self._list()

    def _list(self) -> None:
        self._listed_at = self._clock.now()
        for pattern in self._paths:
            for path in expand_path(pattern):
                self._sizes[path] = self._lengths.of(path)
                self._offsets.setdefault(path, 0)

    def poll(self) -> SourcePoll | None:
        """The next piece of up to one file per partition.

        A file that was begun is read to its end before others are: until then it holds the watermark back.
        """
        if self._monitor_ms is not None and has_passed(
            self._monitor_ms, self._listed_at or 0, self._clock.now()
        ):
            self._list()
        waiting = sorted(path for path, size in self._sizes.items() if self._offsets[path] < size)
        if not waiting:
            return None
        waiting.sort(key=lambda path: path not in self._begun)
        chosen = waiting[: max(1, self.vertex.parallelism)]
        self._begun = set(chosen)
        share = max(_SMALLEST_SHARE, self._format.units_per_epoch // len(chosen))
        return SourcePoll([FileSplit(path, self._offsets[path], share) for path in chosen])

    def advanced(self, positions: dict[int, Any]) -> None:
        """The tasks say how far they came in each file."""
        for path, offset in positions.values():
            self._offsets[path] = offset

    def position(self, checkpoint_id: int | None = None) -> Any:
        """Offset per file."""
        return dict(self._offsets)

    @property
    def ended(self) -> bool:
        """Whether a static file set has been read."""
        return self.vertex.spec.bounded and all(
            self._offsets[path] >= size for path, size in self._sizes.items()
        )


class FunctionSource(DriverSource):
    """A `SourceFunction` that runs in slots; its position is its own operator state."""

    def __init__(
        self, vertex: Vertex, statuses: Callable[[], dict[int, dict[str, Any]]], depth: int = 1
    ) -> None:
        """Watch the slots.

        Args:
            vertex: The source.
            statuses: Gives the latest `SourceOperator.status` of every subtask of this source.
            depth: How many epochs a watermark takes to reach the last operator behind the source.
        """
        super().__init__(vertex)
        self._statuses = statuses
        self._depth = depth
        self._held = 0
        self._taken: dict[int, dict[str, Any]] = {}

    def start(self, position: Any | None) -> None:
        """The operators were started by the deployment."""
        self._taken = {}
        self._held = 0

    def poll(self) -> SourcePoll | None:
        """Take from every slot that has something, but not while a watermark is on its way."""
        for slot, status in self._statuses().items():
            if slot not in self._taken or not status["ready"]:
                self._taken[slot] = status
        if self._held:
            self._held -= 1
            return None
        ready = [slot for slot, status in self._statuses().items() if status["ready"]]
        return SourcePoll([SlotSplit(slot) for slot in sorted(ready)]) if ready else None

    def advanced(self, positions: dict[int, Any]) -> None:
        """The slots said how they stand after the take."""
        self._taken.update(positions)
        if any(status.get("barred") for status in positions.values()):
            # It arrives at the first operator with the next epoch, and one further with each one after.
            self._held = max(0, self._depth - 1)

    def position(self, checkpoint_id: int | None = None) -> Any:
        """Kept by the source operators themselves."""
        return None

    @property
    def ended(self) -> bool:
        """Whether every subtask's `run` returned and its buffer is empty."""
        return len(self._taken) == self.vertex.parallelism and all(s["ended"] for s in self._taken.values())

    def watermark(self) -> tuple[int, bool]:
        """Minimum over the subtasks that are not idle."""
        if len(self._taken) < self.vertex.parallelism:
            return MIN_WATERMARK, False
        live = [status["watermark"] for status in self._taken.values() if not status["idle"]]
        return (min(live), False) if live else (MIN_WATERMARK, True)
