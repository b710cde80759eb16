"""Driver side of sinks: what an epoch produced, held back until the guarantee of the sink allows it out.

A transactional sink follows the checkpoint: `take` after every successful epoch, `prepare(k)` at barrier k
(its answer is stored in the checkpoint), `commit(k)` once k is complete, `restore` after a failure.
Committing is idempotent, because a crash between the commit point and the commit makes it happen twice.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from tidemark.runtime.sinks.files import (
    StagedFile,
    publish_file,
    remove_staged,
    staging_token,
    sweep_staged,
    withdraw_file,
)
from tidemark.slot.vertex import Vertex

__all__ = ["CollectSink", "DriverSink", "FilesSink", "PrintSink", "TransactionalSink"]


class DriverSink(Protocol):
    """A sink as the epoch loop sees it."""

    vertex: Vertex
    publishes: bool
    """Whether output becomes visible with checkpoints; otherwise it is written at once, at least once."""

    def take(self, rows: Iterable[bytes], staged: list[Any], epoch: int) -> None:
        """An epoch succeeded: rows its tasks sent, files they staged."""

    def prepare(self, checkpoint_id: int) -> bytes:
        """Barrier: everything taken so far belongs to this checkpoint. The answer is stored in it."""

    def commit(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: let out what belongs to it and to earlier ones."""

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Go back to a checkpoint (None: to the start): drop what came later, commit what it holds."""

    def withdraw(self, prepared: bytes, kept: bytes) -> bool:
        """Take back what was published for a checkpoint, given what it stored; idempotent.

        Args:
            prepared: From `prepare` of the checkpoint that is left behind; empty to ask whether it can be done.
            kept: From `prepare` of the checkpoint that is restored: what it lists stays.

        Returns:
            Whether this sink can take output back at all.
        """

    def finish(self) -> None:
        """Let out everything: the end of the job, or of an epoch without checkpointing."""

    def close(self) -> None:
        """The job is over, whichever way."""


class PrintSink:
    """Prints lines on the driver's standard output after every epoch; at-least-once."""

    publishes = False

    def __init__(self, vertex: Vertex, write: Callable[[str], Any] | None = None) -> None:
        self.vertex = vertex
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

    def prepare(self, checkpoint_id: int) -> bytes:
        """Nothing is held back."""
        return b""

    def commit(self, checkpoint_id: int) -> None:
        """Nothing is held back."""

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Printed lines cannot be taken back."""

    def withdraw(self, prepared: bytes, kept: bytes) -> bool:
        """Printed lines cannot be taken back."""
        return False

    def finish(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing to release."""


class TransactionalSink:
    """Holds items back between the epoch that made them and the checkpoint that covers them."""

    publishes = True

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex
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
        if prepared:
            self.republish(prepared)
        for items in (*self._prepared.values(), self._pending):
            self.discard(items)
        self._prepared, self._pending = {}, []

    def withdraw(self, prepared: bytes, kept: bytes) -> bool:
        """What was handed over cannot be taken back, unless a sink says otherwise."""
        return False

    def finish(self) -> None:
        """Let out everything."""
        self.commit(max(self._prepared, default=0))
        self.publish(self._pending)
        self._pending = []

    def close(self) -> None:
        """Drop what was never committed."""
        for items in (*self._prepared.values(), self._pending):
            self.discard(items)
        self._prepared, self._pending = {}, []

    def dump(self, items: list[Any]) -> bytes:
        """What the checkpoint stores of prepared items."""
        return b""

    def publish(self, items: list[Any]) -> None:
        """Make items visible; idempotent."""
        raise AssertionError(f"{type(self).__name__} must say how items become visible")

    def republish(self, prepared: bytes) -> None:
        """Make visible what a checkpoint stored; idempotent."""

    def discard(self, items: list[Any]) -> None:
        """Remove items that will never be visible."""


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


class FilesSink(TransactionalSink):
    """Renames staged files to their final names; exactly-once."""

    def __init__(self, vertex: Vertex, base_path: str, job_id: str) -> None:
        super().__init__(vertex)
        self._base_path = base_path
        self._token = staging_token(job_id, vertex.id)

    def restore(self, checkpoint_id: int | None, prepared: bytes) -> None:
        """Commit what the checkpoint covers; whatever else this sink staged goes."""
        super().restore(checkpoint_id, prepared)
        sweep_staged(self._base_path, self._token)

    def withdraw(self, prepared: bytes, kept: bytes) -> bool:
        """Delete the files, published or still staged."""
        stays = {item.final for item in _staged_files(kept)}
        for item in _staged_files(prepared):
            if item.final not in stays:
                withdraw_file(item)
        return True

    def close(self) -> None:
        """Remove what was never committed, and what tasks left that died."""
        super().close()
        sweep_staged(self._base_path, self._token)

    def take(self, rows: Iterable[bytes], staged: list[StagedFile], epoch: int) -> None:
        """Remember the files of an epoch."""
        self._pending += staged

    def dump(self, items: list[StagedFile]) -> bytes:
        """The list of files."""
        return msgspec.msgpack.encode(items)

    def publish(self, items: list[StagedFile]) -> None:
        """Rename each file."""
        for item in items:
            publish_file(item)

    def republish(self, prepared: bytes) -> None:
        """Rename what has not been renamed yet."""
        self.publish(_staged_files(prepared))

    def discard(self, items: list[StagedFile]) -> None:
        """Remove files that belong to no checkpoint."""
        for item in items:
            remove_staged(item)


def _staged_files(prepared: bytes) -> list[StagedFile]:
    return msgspec.msgpack.decode(prepared, type=list[StagedFile]) if prepared else []
