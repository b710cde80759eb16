"""The asynchronous part of a snapshot: one operator subtask's frozen state becomes files and handles.

Runs in a thread of the slot. What it returns goes into the acknowledgement; the driver puts the
acknowledgements of all slots together and writes `_metadata`, which makes the snapshot exist.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tidemark.checkpoint.format.native import NativeFiles
from tidemark.checkpoint.format.write import write_table
from tidemark.checkpoint.layout import SnapshotLocation, native_prefix, table_path
from tidemark.checkpoint.local_copies import LocalCopies
from tidemark.checkpoint.metadata.model import NativeHandle, SubtaskState
from tidemark.checkpoint.storage.base import Storage
from tidemark.errors import CheckpointError, FailureReason
from tidemark.state.snapshot import NativeCut, OperatorCut, StateTable

__all__ = ["SnapshotWriter", "SubtaskTarget", "WriterOptions"]


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How snapshots are written.

    Attributes:
        inline_threshold: State of a checkpoint with fewer bytes goes into the metadata; None puts all of it there.
        compression: Compress table files with zstd.
        max_state_size: Most bytes of keyed state, and likewise of operator state, of one subtask.
        frame_size: Most bytes of all state of one subtask.
    """

    inline_threshold: int | None = 1024
    compression: bool = False
    max_state_size: int | None = None
    frame_size: int | None = None

    @classmethod
    def in_memory(cls, max_state_size: int, frame_size: int) -> WriterOptions:
        """For the memory backend: all state travels to the driver inside the acknowledgement."""
        return cls(inline_threshold=None, max_state_size=max_state_size, frame_size=frame_size)


@dataclass(frozen=True, slots=True)
class SubtaskTarget:
    """Which snapshot of which subtask is written, and where to.

    Attributes:
        checkpoint_id: Number of the snapshot.
        location: Directories of the snapshot.
        uid: The operator.
        index: The subtask.
        key_groups: Key groups of the subtask, first and last; None without a key.
        base: The completed checkpoint whose shared files may be referred to, as the coordinator said.
    """

    checkpoint_id: int
    location: SnapshotLocation
    uid: str
    index: int
    key_groups: tuple[int, int] | None = None
    base: int | None = None


class SnapshotWriter:
    """Writes the cuts of one slot. One per slot and attempt, because it knows what that attempt uploaded."""

    def __init__(
        self,
        storage: Storage,
        options: WriterOptions | None = None,
        local: LocalCopies | None = None,
    ) -> None:
        """Write to `storage`, and with local recovery also to `local`."""
        self._storage = storage
        self._local = local
        self._options = options or WriterOptions()
        self._native: dict[tuple[str, int], NativeFiles] = {}
        self._lock = threading.Lock()

    def seed(self, uid: str, index: int, checkpoint_id: int, handles: tuple[NativeHandle, ...]) -> None:
        """Let the next incremental checkpoint refer to the files this subtask was restored from.

        Only call this if `checkpoint_id` is a checkpoint of this very job, under the same directory.
        """
        self._files_of(uid, index).seed(checkpoint_id, handles)

    def write_subtask(self, target: SubtaskTarget, cut: OperatorCut, *, sync_ms: int = 0) -> SubtaskState:
        """Write everything in `cut` and release it, also if that fails.

        Raises:
            StorageError: Something could not be written; the checkpoint must be declined.
            CheckpointError: `SIZE_LIMIT`: more state than the memory backend may carry.
        """
        started = time.perf_counter()
        inline_below = 0 if target.location.savepoint else self._options.inline_threshold
        try:
            native, written = self._write_native(target, cut)
            tables = cut.timers if native is not None else cut.tables()
            handles = tuple(
                write_table(
                    table,
                    self._storage,
                    target.location.directory,
                    table_path(target.uid, table.meta, target.index),
                    inline_threshold=inline_below,
                    compression=self._options.compression,
                    tee=self._tee(target, table),
                )
                for table in tables
            )
        finally:
            cut.release()
        keyed_size = sum(handle.state_size for handle in handles) + (native.size if native is not None else 0)
        operator_size = sum(len(element) for part in cut.operator for element in part.elements)
        self._check_limits(target, keyed_size, operator_size)
        return SubtaskState(
            target.index,
            target.key_groups,
            handles,
            native,
            tuple(cut.operator),
            state_size=keyed_size + operator_size,
            written_size=written + sum(handle.file_size for handle in handles) + operator_size,
            sync_ms=sync_ms,
            async_ms=round((time.perf_counter() - started) * 1000),
        )

    def _write_native(self, target: SubtaskTarget, cut: OperatorCut) -> tuple[NativeHandle | None, int]:
        if cut.keyed is None or cut.keyed.native is None:
            return None, 0
        copies: dict[str, Path] = {}

        def tee(sink: BinaryIO, name: str) -> AbstractContextManager[BinaryIO]:
            if self._local is None:
                return nullcontext(sink)
            path = f"native/{uuid.uuid4().hex}"
            copies[name] = self._local.directory(target.checkpoint_id) / path
            return self._local.tee(sink, target.checkpoint_id, path)

        native = cut.keyed.native
        handle, written = self._files_of(target.uid, target.index).upload(
            native,
            cut.keyed.metas,
            self._storage,
            target.location.directory,
            target.location.shared,
            native_prefix(target.uid, target.index),
            checkpoint_id=target.checkpoint_id,
            base=target.base,
            inline_threshold=self._options.inline_threshold,
            tee=tee,
        )
        if self._local is not None:
            self._keep_native(self._local, target, native, handle, copies)
        return handle, written

    def _keep_native(
        self,
        local: LocalCopies,
        target: SubtaskTarget,
        native: NativeCut,
        handle: NativeHandle,
        copies: dict[str, Path],
    ) -> None:
        """Keep a copy of each native file here: the backend's own, what was written, or the copy its base has."""
        for file in handle.files:
            content = native.files[file.name]
            if file.inline is not None:
                continue
            if isinstance(content, Path):
                local.link(target.checkpoint_id, content, file)
            elif file.name in copies:
                local.link(target.checkpoint_id, copies[file.name], file)
                copies[file.name].unlink(missing_ok=True)
            elif target.base is not None:
                local.link(target.checkpoint_id, local.native_path(target.base, file), file)

    def _tee(
        self, target: SubtaskTarget, table: StateTable
    ) -> Callable[[BinaryIO], AbstractContextManager[BinaryIO]]:
        if self._local is None:
            return nullcontext
        path = table_path(target.uid, table.meta, target.index)
        return partial(self._local.tee, checkpoint_id=target.checkpoint_id, path=path)

    def _files_of(self, uid: str, index: int) -> NativeFiles:
        with self._lock:
            return self._native.setdefault((uid, index), NativeFiles())

    def _check_limits(self, target: SubtaskTarget, keyed_size: int, operator_size: int) -> None:
        most, frame = self._options.max_state_size, self._options.frame_size
        for what, size in (("keyed", keyed_size), ("operator", operator_size)):
            if most is not None and size > most:
                raise _too_large(target, f"{what} state", size, most, "max_state_size of the memory backend")
        total = keyed_size + operator_size
        if frame is not None and total > frame:
            raise _too_large(target, "state", total, frame, "akka.framesize")


def _too_large(target: SubtaskTarget, what: str, size: int, limit: int, setting: str) -> CheckpointError:
    return CheckpointError(
        f"Checkpoint {target.checkpoint_id}: the {what} of operator '{target.uid}', subtask {target.index}, "
        f"has a size of {size} bytes, but the limit is {limit} bytes ({setting}). Use a file-based backend "
        "such as FsStateBackend or RocksDBStateBackend, or raise the limit.",
        reason=FailureReason.SIZE_LIMIT,
        checkpoint_id=target.checkpoint_id,
    )
