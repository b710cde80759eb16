"""Driver side of sinks: what an epoch produced, held back until the guarantee of the sink allows it out.

A transactional sink follows the checkpoint: `take` after every successful epoch, `prepare(k)` at barrier k
(its answer is stored in the checkpoint), `commit(k)` once k is complete, `restore` after a failure.
Committing is idempotent, because a crash between the commit point and the commit makes it happen twice.
A sink whose output outlives the driver is claimed before it is used (`claim`), and whoever has lost its claim
to a newer driver publishes nothing.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tidemark.checkpoint.metadata.model import CheckpointMetadata
from tidemark.plan.vertex import Vertex

__all__ = ["CollectSink", "DriverSink", "Following", "ImmediateSink", "PrintSink", "TransactionalSink"]

Following = Callable[[int], Sequence[CheckpointMetadata] | None]
"""Reads every checkpoint of a snapshot's job behind the snapshot, up to an id; None if one of them is not there."""


class DriverSink(Protocol):
    """A sink as the epoch loop sees it."""

    vertex: Vertex

    @property
    def publishes(self) -> bool:
        """Whether output becomes visible with checkpoints, so that leaving one behind would repeat it."""

    def claim(
        self,
        lineage: str,
        restored: CheckpointMetadata | None,
        *,
        repeat: bool = False,
        following: Following | None = None,
    ) -> None:
        """Make sure, at the start of every attempt, that this driver is the one that may publish here.

        Args:
            lineage: Id of the first job of the chain of restores.
            restored: The snapshot the attempt starts from.
            repeat: Whether output that was published beyond the snapshot may come again.
            following: Given if such output is to be taken back; finds the checkpoints that list it.

        Raises:
            FencedError: A newer driver of the lineage owns the sink, or has published beyond the snapshot.
            StorageError: The sink's place cannot be reached.
        """

    def verify_claim(self) -> None:
        """Make sure that no newer driver has taken the sink since `claim`.

        Raises:
            FencedError: One has. This driver must not complete a checkpoint nor publish anything.
            StorageError: The sink's place cannot be reached.
        """

    @property
    def staging(self) -> str | None:
        """Where tasks put what the driver will publish; None if they send it instead."""

    @property
    def claimed_at(self) -> tuple[str, str] | None:
        """Base path, and directory below it, of what was claimed; None if nothing was."""

    def take(self, rows: Iterable[bytes], staged: list[Any], epoch: int) -> None:
        """An epoch succeeded: rows its tasks sent, files they staged."""

    def prepare(self, checkpoint_id: int) -> bytes:
        """Barrier: everything taken so far belongs to this checkpoint. The answer is stored in it."""

    def commit(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: let out what belongs to it and to earlier ones."""

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Go back to a checkpoint (None: to the start): drop what came later, commit what it holds."""

    def withdraw(self, prepared: bytes, kept: bytes = b"") -> bool:
        """Take back what was published for a checkpoint that is about to be left for an older one; idempotent.

        Args:
            prepared: What that checkpoint stores of this sink; empty to ask whether it can be done at all.
            kept: What the older one stores of it; output that both list stays.

        Returns:
            False if output of this sink cannot be taken back; then all of it is still there.

        Raises:
            MetadataError: The list names what this sink cannot have written; nothing was touched.
            FencedError: A newer driver owns the sink.
            StorageError: Some of it may be gone.
        """

    def go_back(self, left: Sequence[CheckpointMetadata], target: CheckpointMetadata) -> None:
        """Take back, in a running job, all that checkpoints left for an older snapshot have published.

        Called before the attempt that starts from `target`, if every sink that publishes can `withdraw`. Idempotent:
        after a crash amid it, or an error, it is done again.

        Args:
            left: Those checkpoints.
            target: The snapshot the job goes on from.

        Raises:
            FencedError: A newer driver owns the sink.
            StorageError: Some of it may be gone.
        """

    def finish(self) -> None:
        """Let out everything: the end of the job, or of an epoch without checkpointing."""

    def conclude(self) -> None:
        """The job's snapshots are about to be deleted: let out what they cover and was to be let out later."""

    def close(self, *, restorable: bool = False) -> None:
        """The job is over, whichever way; `restorable` if there are still snapshots to start it from again."""


class UnclaimedSink:
    """A sink whose output needs no owner: it goes where nobody else writes, or where anybody may."""

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex

    @property
    def staging(self) -> str | None:
        """Tasks send what they have."""
        return None

    @property
    def claimed_at(self) -> tuple[str, str] | None:
        """Nothing is claimed."""
        return None

    def claim(
        self,
        lineage: str,
        restored: CheckpointMetadata | None,
        *,
        repeat: bool = False,
        following: Following | None = None,
    ) -> None:
        """Nothing is claimed."""

    def verify_claim(self) -> None:
        """Nothing is claimed."""

    def withdraw(self, prepared: bytes, kept: bytes = b"") -> bool:
        """What was let out is in other hands."""
        return False

    def go_back(self, left: Sequence[CheckpointMetadata], target: CheckpointMetadata) -> None:
        """Nothing can be taken back."""

    def conclude(self) -> None:
        """What a complete checkpoint covers is out."""


class ImmediateSink(UnclaimedSink):
    """A sink that holds nothing back: what an epoch made is out when the epoch is over."""

    publishes = False

    def prepare(self, checkpoint_id: int) -> bytes:
        """Nothing is held back."""
        return b""

    def commit(self, checkpoint_id: int) -> None:
        """Nothing is held back."""

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """What is out stays out; epochs after the checkpoint come again."""

    def finish(self) -> None:
        """Nothing is held back."""

    def close(self, *, restorable: bool = False) -> None:
        """Nothing to release."""


class PrintSink(ImmediateSink):
    """Prints lines on the driver's standard output after every epoch; at-least-once."""

    def __init__(self, vertex: Vertex, write: Callable[[str], Any] | None = None) -> None:
        super().__init__(vertex)
        self._write = write or (lambda text: sys.stdout.write(text))
        identifier = vertex.spec.identifier
        self._identifier = identifier

    def take(self, rows: Iterable[bytes], staged: list[Any], epoch: int) -> None:
        """Print what the tasks formatted."""
        for row in rows:
            subtask, texts = pickle.loads(row)
            prefix = self._prefix(subtask)
            self._write("".join([f"{prefix}{text}\n" for text in texts]))
        sys.stdout.flush()

    def _prefix(self, subtask: int) -> str:
        parts = [self._identifier] if self._identifier else []
        if self.vertex.parallelism > 1:
            parts.append(str(subtask + 1))
        return f"{':'.join(parts)}> " if parts else ""


class TransactionalSink(UnclaimedSink):
    """Holds items back between the epoch that made them and the checkpoint that covers them."""

    publishes = True

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._pending: list[Any] = []
        self._prepared: dict[int, list[Any]] = {}

    def prepare(self, checkpoint_id: int) -> bytes:
        """Assign everything taken so far to the checkpoint; earlier unfinished ones are covered too."""
        self._prepared[checkpoint_id] = self._pending
        self._pending = []
        covered = [item for key in sorted(self._prepared) for item in self._prepared[key]]
        return self.dump(covered)

    def commit(self, checkpoint_id: int) -> None:
        """Let out what this checkpoint and earlier ones cover."""
        for key in sorted(key for key in self._prepared if key <= checkpoint_id):
            self.publish(self._prepared[key])
            del self._prepared[key]

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Commit what the checkpoint covers, drop the rest."""
        if checkpoint_id is not None:
            self.commit(checkpoint_id)
        self._prepared, self._pending = {}, []

    def finish(self) -> None:
        """Let out everything."""
        self.commit(max(self._prepared, default=0))
        self.publish(self._pending)
        self._pending = []

    def close(self, *, restorable: bool = False) -> None:
        """Drop what was never committed."""
        self._prepared, self._pending = {}, []

    def dump(self, items: list[Any]) -> bytes:
        """What the checkpoint stores of prepared items."""
        return b""

    def publish(self, items: list[Any]) -> None:
        """Make items visible; idempotent."""
        raise AssertionError(f"{type(self).__name__} must say how items become visible")


class CollectSink(TransactionalSink):
    """Hands records to `execute_and_collect`, exactly once for as long as this driver lives."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._buffer = vertex.spec.buffer

    def take(self, rows: Iterable[bytes], staged: list[Any], epoch: int) -> None:
        """Hold back the records of an epoch."""
        self._pending += [pickle.loads(row) for row in rows]

    def publish(self, items: list[Any]) -> None:
        """Put records where the iterator takes them."""
        for values, timestamps in items:
            self._buffer.add(values, timestamps)
