"""The driver side of a source in continuous execution: which splits there are, and what a snapshot stores of them.

An `Enumerator` is what `DriverSource` is in epochs, and stores positions in the same form: a
snapshot taken in one mode starts in the other. `enumerators` has one for each kind of source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tidemark.errors import TidemarkError
from tidemark.plan.vertex import Vertex
from tidemark.protocol.failure import FailureInfo

__all__ = ["AssignedSplit", "BringsReaders", "ChecksPositions", "Enumerator", "naming"]


@dataclass(frozen=True, slots=True)
class AssignedSplit:
    """A split for one reader, and where it begins; plain data on its way to a task.

    Attributes:
        id: Unique in the attempt.
        split: What the kind of source has to know of it.
        position: As a reader's `position` gave it; None: from the beginning.
    """

    id: str
    split: Any
    position: Any | None = None


@runtime_checkable
class BringsReaders(Protocol):
    """The spec of a source that has an enumerator and readers of its own."""

    def make_enumerator(self, vertex: Vertex) -> Enumerator:
        """The driver side."""

    def open_reader(self, vertex: Vertex, assigned: AssignedSplit, subtask: int) -> Any:
        """The task side: a `Reader` of a split."""


@runtime_checkable
class ChecksPositions(Protocol):
    """A `SplitSource` that looks, at every barrier, whether what was read is what it took it for."""

    def check_positions(self, positions: Mapping[str, Any]) -> None:
        """Refuse positions, by split, before a checkpoint stores them."""


class Enumerator(ABC):
    """Hands out the splits of one source; may run user code, so it is called where that may block.

    Attributes:
        vertex: The source.
        bounded: Whether there are no other splits than those that `start` gives; the source has then ended when
            all of them have, though nobody may know when that will be.
    """

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex
        self.bounded: bool = vertex.spec.bounded

    @abstractmethod
    def start(self, position: Any | None) -> list[AssignedSplit]:
        """The splits to begin with, behind a stored position if there is one; forgets everything before.

        Raises:
            DecodeError: It is no position of this kind of source (`msgspec`; see `positions.start_source`).
        """

    def discover(self, now_ms: int) -> list[AssignedSplit]:
        """Splits that are new since the last call; cheap if it is too early to look."""
        return []

    def split_ended(self, split_id: str, position: Any) -> None:
        """The reader of a split came to its end there, and all it read has been handed on.

        Only lets an enumerator know sooner what the next `position` tells it anyway.
        """

    @abstractmethod
    def position(
        self, positions: dict[str, Any], ended: set[str], checkpoint_id: int | None = None
    ) -> Any | None:
        """What a snapshot stores: the same as `DriverSource.position` for the same records.

        Args:
            positions: At the barrier, of every split of the attempt that a reader has been opened for, those
                that have ended included. One that is missing stands where it was handed out.
            ended: Splits whose readers came to their end before the barrier; they stay in it for good.
            checkpoint_id: Under which `notify_checkpoint_complete` will speak of it.

        Returns:
            The position; None if the source has none.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The snapshot with that position is durable."""

    def stop(self) -> None:
        """Release everything. Idempotent."""


@contextmanager
def naming(vertex: Vertex) -> Iterator[None]:
    """Errors of user code that runs in the driver name the source."""
    try:
        yield
    except TidemarkError:
        raise
    except Exception as exc:
        raise FailureInfo.of(exc, vertex.name, vertex.uid).error() from exc
