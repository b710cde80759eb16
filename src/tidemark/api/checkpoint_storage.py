"""Where checkpoints go, as users say it; plain settings, `tidemark.checkpoint` does the rest."""

from __future__ import annotations

import os
import re
from abc import ABC
from typing import TYPE_CHECKING, Any

from tidemark.config import Options
from tidemark.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.api.state_backends import StateBackend
    from tidemark.config import Configuration

__all__ = [
    "CheckpointStorage",
    "CustomCheckpointStorage",
    "FileSystemCheckpointStorage",
    "JobManagerCheckpointStorage",
    "path_text",
    "resolve_checkpoint_storage",
]

DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024
MAX_FILE_STATE_THRESHOLD = 1024 * 1024
_DEFAULT_THRESHOLD = 1024
_DEFAULT_WRITE_BUFFER = 4096


class CheckpointStorage(ABC):  # noqa: B024 - subclasses differ in their settings, not in methods
    """Root of all storages."""


class _PathStorage(CheckpointStorage):
    """The part built-in storages share: optional directories."""

    def __init__(self, checkpoint_path: str | None, savepoint_path: str | None) -> None:
        self._checkpoint_path = checkpoint_path
        self._savepoint_path = savepoint_path

    def get_checkpoint_path(self) -> str | None:
        """Directory of checkpoints, None if unset."""
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Default directory of savepoints, None if unset."""
        return self._savepoint_path

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._checkpoint_path))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._checkpoint_path!r})"


class JobManagerCheckpointStorage(_PathStorage):
    """Keeps checkpoints in the driver's memory, and their metadata in `checkpoint_path` if there is one."""

    DEFAULT_MAX_STATE_SIZE = DEFAULT_MAX_STATE_SIZE

    def __init__(self, checkpoint_path: Any = None, max_state_size: int | None = None) -> None:
        """Create a storage.

        Raises:
            ConfigError: `max_state_size` is not positive.
        """
        super().__init__(path_text(checkpoint_path), None)
        if max_state_size is not None and max_state_size <= 0:
            raise ConfigError(f"max_state_size must be positive, not {max_state_size}.")
        self._max_state_size = DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size

    def get_max_state_size(self) -> int:
        """Largest keyed, or operator, state of one subtask in bytes."""
        return self._max_state_size


class FileSystemCheckpointStorage(_PathStorage):
    """Keeps checkpoints in files."""

    MAX_FILE_STATE_THRESHOLD = MAX_FILE_STATE_THRESHOLD

    def __init__(
        self,
        checkpoint_path: Any = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        """Create a storage; -1 and None mean the configured value.

        Raises:
            ConfigError: No path, a threshold above 1 MiB, or another negative number.
        """
        if not checkpoint_path:
            raise ConfigError("FileSystemCheckpointStorage needs a checkpoint_path.")
        super().__init__(path_text(checkpoint_path), None)
        self._threshold = checked_threshold(file_state_size_threshold)
        self._write_buffer = checked_write_buffer(write_buffer_size)

    def get_min_file_size_threshold(self) -> int:
        """State chunks smaller than this, in bytes, are stored inside the metadata file."""
        return _DEFAULT_THRESHOLD if self._threshold is None else self._threshold

    def get_write_buffer_size(self) -> int:
        """Buffer of checkpoint streams in bytes."""
        return _DEFAULT_WRITE_BUFFER if self._write_buffer is None else self._write_buffer

    def configured(self, configuration: Configuration) -> FileSystemCheckpointStorage:
        """A copy that takes what was left open from the configuration."""
        buffer = self._write_buffer
        return FileSystemCheckpointStorage(
            self._checkpoint_path,
            _threshold(self._threshold, configuration),
            configuration.get(Options.WRITE_BUFFER_SIZE) if buffer is None else buffer,
        )


class CustomCheckpointStorage(_PathStorage):
    """Keeps checkpoints wherever an object that follows `tidemark.checkpoint.storage.Storage` puts them.

    Driver and slots all write and read with it, so it travels to the slots as a pickle and must reach the same
    place from every machine.
    """

    def __init__(
        self, storage: Any, checkpoint_path: Any, file_state_size_threshold: int | None = None
    ) -> None:
        """Wrap `storage`; paths handed to it start with `checkpoint_path`. -1 and None mean the configured threshold.

        Raises:
            ConfigError: A threshold above 1 MiB, or another negative number.
        """
        super().__init__(path_text(checkpoint_path), None)
        self.storage = storage
        self._threshold = checked_threshold(file_state_size_threshold)

    def get_min_file_size_threshold(self) -> int:
        """State chunks smaller than this, in bytes, are stored inside the metadata file."""
        return _DEFAULT_THRESHOLD if self._threshold is None else self._threshold

    def configured(self, configuration: Configuration) -> CustomCheckpointStorage:
        """A copy that takes what was left open from the configuration."""
        threshold = _threshold(self._threshold, configuration)
        return CustomCheckpointStorage(self.storage, self._checkpoint_path, threshold)


def resolve_checkpoint_storage(
    configuration: Configuration, backend: StateBackend, programmed: Any
) -> CheckpointStorage:
    """The storage a job uses, complete: set in the program, fixed by the backend, or configured.

    Args:
        configuration: The effective configuration.
        backend: The job's backend, already configured.
        programmed: What `CheckpointConfig.get_checkpoint_storage()` returns: storage, directory or None.

    Raises:
        ConfigError: `execution.checkpointing.storage` names no storage, or the directory is missing.
    """
    if isinstance(programmed, FileSystemCheckpointStorage | CustomCheckpointStorage):
        return programmed.configured(configuration)
    if isinstance(programmed, CheckpointStorage):
        return programmed
    if programmed is not None:
        return FileSystemCheckpointStorage(programmed).configured(configuration)
    fixed = backend.get_checkpoint_storage()
    if fixed is not None:
        return fixed
    directory = configuration.get(Options.CHECKPOINTS_DIR)
    named = configuration.get(Options.CHECKPOINTING_STORAGE)
    kind = (named or ("filesystem" if directory else "jobmanager")).strip().lower()
    if kind == "jobmanager":
        return JobManagerCheckpointStorage(directory)
    if kind != "filesystem":
        raise ConfigError(
            f"Unknown checkpoint storage {named!r}. Use jobmanager or filesystem.",
            key=Options.CHECKPOINTING_STORAGE.key,
        )
    if not directory:
        raise ConfigError(
            f"Checkpoint storage 'filesystem' needs a directory. Set '{Options.CHECKPOINTS_DIR.key}'.",
            key=Options.CHECKPOINTS_DIR.key,
        )
    return FileSystemCheckpointStorage(directory).configured(configuration)


def path_text(path: Any) -> str | None:
    """A path or URI as text, without repeated and trailing slashes.

    Raises:
        TypeError: Neither `str` nor path-like.
    """
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"Expected a path or URI, not {path!r} ({type(path).__name__}).")
    scheme, separator, rest = os.fspath(path).rpartition("://")
    authority, slash, inner = rest.partition("/") if separator else ("", "", rest)
    inner = re.sub("/+", "/", slash + inner)
    return scheme + separator + authority + (inner.rstrip("/") or inner[: not separator])


def checked_threshold(threshold: int | None) -> int | None:
    """The inline threshold, None for "not given" (which -1 means too).

    Raises:
        ConfigError: Negative or above 1 MiB.
    """
    if threshold is None or threshold == -1:
        return None
    if not 0 <= threshold <= MAX_FILE_STATE_THRESHOLD:
        raise ConfigError(
            f"file_state_size_threshold must be between 0 and {MAX_FILE_STATE_THRESHOLD} bytes, "
            f"not {threshold}."
        )
    return threshold


def _threshold(programmed: int | None, configuration: Configuration) -> int:
    if programmed is not None:
        return programmed
    return min(configuration.get(Options.MEMORY_THRESHOLD), MAX_FILE_STATE_THRESHOLD)


def checked_write_buffer(size: int | None) -> int | None:
    """The write buffer size, None for "not given" (which -1 means too).

    Raises:
        ConfigError: Negative.
    """
    if size is None or size == -1:
        return None
    if size < 0:
        raise ConfigError(f"write_buffer_size must not be negative, not {size}.")
    return size
