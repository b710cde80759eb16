"""The savepoint that is being written: what is carried over is copied, `_metadata` comes last.

Files of operators nobody touches are copied byte by byte; their handles, checksums included, stay valid.
Shared files of incremental checkpoints become private ones, so that the result can be moved as a whole.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from tidemark.checkpoint.layout import SnapshotLocation, native_prefix, savepoint_location
from tidemark.checkpoint.metadata import (
    CheckpointMetadata,
    FileHandle,
    OperatorState,
    SubtaskState,
    write_metadata,
)
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage, within
from tidemark.errors import ConfigError, StorageError
from tidemark.paths import absolute, join, name_of, parent
from tidemark.state_processor.open_snapshot import OpenSnapshot

__all__ = ["NewSavepoint"]

_COPIES = 4
_CHUNK = 1 << 20


class NewSavepoint:
    """A directory that becomes a savepoint with `commit`; used as a context, it is removed on an error."""

    def __init__(self, path: str, storage: Storage | None = None) -> None:
        """Claim a path.

        Raises:
            ConfigError: Something is there already.
        """
        self._sources = storage or FileSystemStorage()
        self.location: SnapshotLocation = savepoint_location(absolute(path))
        self.storage = within(self._sources, parent(self.directory))
        if self.storage.exists(self.location.directory):
            raise ConfigError(f"{path} exists already. Choose a new path for the savepoint.")
        self._copies: dict[str, tuple[str, str]] = {}
        """Where a file goes, the directory it comes from, and its path there."""

    @property
    def directory(self) -> str:
        """Where it is written."""
        return self.location.directory

    def carry(self, snapshot: OpenSnapshot, operator: OperatorState) -> OperatorState:
        """Take over an operator as it is; its files are copied by `commit`."""
        subtasks = [self.carry_subtask(snapshot, operator.uid, subtask) for subtask in operator.subtasks]
        return replace(operator, subtasks=tuple(subtasks))

    def carry_subtask(self, snapshot: OpenSnapshot, uid: str, subtask: SubtaskState) -> SubtaskState:
        """Take over one subtask as it is."""
        for table in subtask.tables:
            if table.path is not None:
                self._copies[table.path] = snapshot.location.directory, table.path
        native = subtask.native
        if native is not None:
            prefix = native_prefix(uid, subtask.index)
            files = tuple(self._carry_file(snapshot, prefix, file) for file in native.files)
            native = replace(native, files=files)
        return replace(subtask, native=native)

    def _carry_file(self, snapshot: OpenSnapshot, prefix: str, file: FileHandle) -> FileHandle:
        if file.path is None:
            return file
        location = snapshot.location
        if not file.shared:
            self._copies[file.path] = location.directory, file.path
            return file
        target = f"{prefix}{file.path}"
        self._copies[target] = parent(location.shared), join(name_of(location.shared), file.path)
        return replace(file, path=target, shared=False)

    def commit(self, metadata: CheckpointMetadata) -> str:
        """Copy what was carried over and write `_metadata`; from then on the savepoint exists.

        Raises:
            StorageError: A file could not be copied.
        """
        with ThreadPoolExecutor(_COPIES) as pool:
            for done in [pool.submit(self._copy, target, *source) for target, source in self._copies.items()]:
                done.result()
        write_metadata(self.storage, self.directory, replace(metadata, is_savepoint=True))
        return self.directory

    def _copy(self, target: str, directory: str, source: str) -> None:
        with (
            within(self._sources, directory).open(join(directory, source)) as reading,
            self.storage.create(join(self.directory, target)) as writing,
        ):
            shutil.copyfileobj(reading, writing, _CHUNK)

    def __enter__(self) -> NewSavepoint:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            with suppress(StorageError):
                self.storage.delete_tree(self.directory)
