"""Whether what a snapshot refers to is really there: by name, with one listing per directory.

Somebody may move or delete a checkpoint directory under a running job, and file systems make a new one as
soon as the next file is written. A snapshot that refers to files of an earlier one would then complete without
them. Content is not looked at; checksums do that when the bytes are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemark.checkpoint.completed import CompletedSnapshot
from tidemark.checkpoint.layout import JobLayout, SnapshotLocation, savepoint_location
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.storage.base import Storage
from tidemark.paths import join, name_of, parent

__all__ = ["has_vanished", "holds_checkpoints", "holds_metadata", "missing_files"]


def missing_files(
    storage: Storage, location: SnapshotLocation, subtasks: Iterable[SubtaskState]
) -> list[str]:
    """Paths of the files these subtasks refer to that do not exist, sorted.

    Raises:
        StorageError: A directory could not be listed.
    """
    return _absent(storage, {path for subtask in subtasks for path in _paths(subtask, location)})


def has_vanished(metadata: Storage, files: Storage, snapshot: CompletedSnapshot, shared: str) -> bool:
    """Whether a completed checkpoint has lost its `_metadata` or a shared file.

    Args:
        metadata: Storage of `_metadata`.
        files: Storage of everything else.
        snapshot: The checkpoint.
        shared: The job's directory of shared files.

    Raises:
        StorageError: It could not be found out.
    """
    if not metadata.is_file(SnapshotLocation(snapshot.directory, shared).metadata_path):
        return True
    return bool(_absent(files, {join(shared, name) for name in snapshot.shared_files}))


def holds_checkpoints(storage: Storage, layout: JobLayout) -> bool:
    """Whether a job's directory holds the `_metadata` of a checkpoint, complete or not.

    Raises:
        StorageError: It could not be found out.
    """
    names = [name for name in storage.list(layout.directory) if name.startswith("chk-")]
    return any(holds_metadata(storage, join(layout.directory, name)) for name in names)


def holds_metadata(storage: Storage, directory: str) -> bool:
    """Whether the directory of a snapshot holds its `_metadata`, so that somebody could start a job from it.

    Raises:
        StorageError: It could not be found out.
    """
    return storage.is_file(savepoint_location(directory).metadata_path)


def _paths(subtask: SubtaskState, location: SnapshotLocation) -> Iterator[str]:
    for table in subtask.tables:
        if table.path is not None:
            yield join(location.directory, table.path)
    for file in subtask.native.files if subtask.native is not None else ():
        if file.path is not None:
            yield join(location.shared if file.shared else location.directory, file.path)


def _absent(storage: Storage, paths: set[str]) -> list[str]:
    there: dict[str, frozenset[str]] = {}
    absent = []
    for path in sorted(paths):
        directory = parent(path)
        if directory not in there:
            there[directory] = frozenset(storage.list(directory))
        if name_of(path) not in there[directory]:
            absent.append(path)
    return absent
