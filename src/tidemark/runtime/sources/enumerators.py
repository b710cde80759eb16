"""Enumerators of the sources that come with the library, and which one a source has."""

from __future__ import annotations

from typing import Any

from tidemark.api.specs import (
    CollectionSourceSpec,
    FileSourceSpec,
    SequenceSourceSpec,
    SocketSourceSpec,
    SourceSpec,
    SplitSourceSpec,
)
from tidemark.clock import Clock, has_passed
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import index_of, offsets_of, ranges_left
from tidemark.runtime.sources.enumeration import AssignedSplit, BringsReaders, Enumerator
from tidemark.runtime.sources.files import FileLengths, expand_path
from tidemark.runtime.sources.split_enumerator import SplitEnumerator
from tidemark.runtime.sources.splits import FileSplit, IndexSplit, RangeSplit

__all__ = ["AssignedSplit", "Enumerator", "can_run_continuously", "make_enumerator"]

_CONTINUOUS = (CollectionSourceSpec, SequenceSourceSpec, FileSourceSpec, SocketSourceSpec, SplitSourceSpec)


def can_run_continuously(spec: SourceSpec) -> bool:
    """Whether a source has splits that readers in endless tasks can read."""
    return isinstance(spec, (*_CONTINUOUS, BringsReaders))


def make_enumerator(vertex: Vertex, clock: Clock) -> Enumerator:
    """The enumerator of a source for which `can_run_continuously` holds."""
    match vertex.spec:
        case BringsReaders():
            return vertex.spec.make_enumerator(vertex)
        case CollectionSourceSpec():
            return CollectionEnumerator(vertex)
        case SequenceSourceSpec():
            return SequenceEnumerator(vertex)
        case FileSourceSpec():
            return FileEnumerator(vertex, clock)
        case SocketSourceSpec():
            return SocketEnumerator(vertex)
        case SplitSourceSpec():
            return SplitEnumerator(vertex, clock)
    raise AssertionError(f"source '{vertex.name}' cannot run continuously")


class CollectionEnumerator(Enumerator):
    """One split; positions are indexes, in the split as in the snapshot."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._first = 0

    def start(self, position: Any | None) -> list[AssignedSplit]:
        """What is left of the elements; also if nothing is, so that somebody says that it has ended."""
        self._first = index_of(position)
        length = len(self.vertex.spec.elements)
        return [AssignedSplit("0", IndexSplit(self._first, length), self._first)]

    def position(
        self, positions: dict[str, Any], ended: set[str], checkpoint_id: int | None = None
    ) -> Any | None:
        """Index of the next element."""
        return positions.get("0", self._first)


class SequenceEnumerator(Enumerator):
    """A split for each range; a split's position is its next number, a snapshot holds what is left of the ranges."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._ranges: list[tuple[int, int]] = []

    def start(self, position: Any | None) -> list[AssignedSplit]:
        """About one range per subtask."""
        self._ranges = ranges_left(self.vertex, position)
        return [
            AssignedSplit(str(at), RangeSplit(first, last), first)
            for at, (first, last) in enumerate(self._ranges)
        ]

    def position(
        self, positions: dict[str, Any], ended: set[str], checkpoint_id: int | None = None
    ) -> Any | None:
        """What is left of every range."""
        return [[positions.get(str(at), first), last] for at, (first, last) in enumerate(self._ranges)]


class SocketEnumerator(Enumerator):
    """One split without a position; the source ends with its connection."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self.bounded = True

    def start(self, position: Any | None) -> list[AssignedSplit]:
        """The connection, which is made by the reader."""
        return [AssignedSplit("0", None)]

    def position(
        self, positions: dict[str, Any], ended: set[str], checkpoint_id: int | None = None
    ) -> Any | None:
        """A socket has none."""
        return None


class FileEnumerator(Enumerator):
    """Files dealt out to about one split per subtask; a snapshot holds the offset reached in every file.

    A reader has one file open at a time. A split's position is the offset reached in each of its files so far, in their
    order. What is added to a watched directory becomes other splits, also what was appended to a file whose
    split has ended: files that were read hold the watermark back no longer.
    """

    def __init__(self, vertex: Vertex, clock: Clock) -> None:
        super().__init__(vertex)
        self._clock = clock
        self._lengths = FileLengths(vertex.spec.format)
        self._began: dict[str, int] = {}
        """Where the attempt found each file."""
        self._read: dict[str, int] = {}
        """File -> how far it was read by a split that has ended."""
        self._dealt: dict[str, list[str]] = {}
        """Split -> its files, of the whole attempt."""
        self._reading: set[str] = set()
        """Files of splits that have not ended."""
        self._listed_at = 0

    def start(self, position: Any | None) -> list[AssignedSplit]:
        """Everything that is there and has not been read."""
        self._began = offsets_of(position)
        self._read, self._dealt, self._reading = {}, {}, set()
        return self._list(self._clock.now())

    def discover(self, now_ms: int) -> list[AssignedSplit]:
        """New files of a watched directory, and what was appended to those that have been read."""
        interval = self.vertex.spec.monitor_ms
        if interval is None or not has_passed(interval, self._listed_at, now_ms):
            return []
        return self._list(now_ms)

    def _list(self, now_ms: int) -> list[AssignedSplit]:
        self._listed_at = now_ms
        found = []
        for path in sorted({path for pattern in self.vertex.spec.paths for path in expand_path(pattern)}):
            began = self._began.setdefault(path, 0)
            if path in self._reading:
                continue
            length, offset = self._lengths.of(path), self._read.get(path, began)
            if offset < length:
                found.append(FileSplit(path, offset, length - offset))
        lanes = max(1, self.vertex.parallelism)
        return [self._deal(found[at::lanes]) for at in range(min(lanes, len(found)))]

    def _deal(self, pieces: list[FileSplit]) -> AssignedSplit:
        split_id = str(len(self._dealt))
        self._dealt[split_id] = [piece.path for piece in pieces]
        self._reading.update(self._dealt[split_id])
        return AssignedSplit(split_id, tuple(pieces))

    def split_ended(self, split_id: str, position: Any) -> None:
        """Its files can be looked at again."""
        reached = self._reached(split_id, position)
        if any(offset > self._read.get(path, -1) for path, offset in reached.items()):
            self._read |= reached
            self._reading -= reached.keys()

    def _reached(self, split_id: str, position: Any) -> dict[str, int]:
        # Files that have not been begun are not in the position.
        return dict(zip(self._dealt[split_id], position, strict=False))

    def position(
        self, positions: dict[str, Any], ended: set[str], checkpoint_id: int | None = None
    ) -> Any | None:
        """Offset per file. Splits may have ended since the barrier: only what is told of it counts."""
        offsets = dict(self._began)
        for split_id, position in positions.items():
            for path, offset in self._reached(split_id, position).items():
                offsets[path] = max(offsets[path], offset)
            if split_id in ended:
                self.split_ended(split_id, position)
        return offsets
