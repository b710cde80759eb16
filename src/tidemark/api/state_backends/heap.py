"""Backends that keep working state as objects in worker memory."""

from __future__ import annotations

from typing import Any, Self

from tidemark.api.checkpoint_storage import CheckpointStorage, JobManagerCheckpointStorage, path_text
from tidemark.api.state_backends.base import FileSettings, StateBackend
from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError

__all__ = ["FsStateBackend", "HashMapStateBackend", "MemoryStateBackend"]


class _HeapBackend(StateBackend):
    """State as objects in worker memory."""

    def __init__(self, using_asynchronous_snapshots: bool | None) -> None:
        if not (using_asynchronous_snapshots is None or isinstance(using_asynchronous_snapshots, bool)):
            raise TypeError(
                "using_asynchronous_snapshots must be None, True or False, "
                f"not {using_asynchronous_snapshots!r}."
            )
        self._asynchronous = using_asynchronous_snapshots
        self._incremental = False
        self._max_changes: int | None = None

    def is_using_asynchronous_snapshots(self) -> bool:
        """Whether state is written while the stream goes on; yes unless switched off."""
        return self._asynchronous is not False

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether checkpoints hold only what changed (`state.backend.incremental`)."""
        return self._incremental

    def store_options(self) -> dict[str, Any]:
        """How long a chain of incremental checkpoints may become."""
        return {} if self._max_changes is None else {"max_changes": self._max_changes}

    def configured(self, configuration: Configuration) -> Self:
        """A copy with the configured choices of asynchronous and incremental snapshots.

        Raises:
            ConfigError: A number of changes is negative.
        """
        changed = super().configured(configuration)
        if changed._asynchronous is None:
            changed._asynchronous = configuration.get(Options.STATE_BACKEND_ASYNC)
        changed._incremental = configuration.get(Options.INCREMENTAL)
        if changed._incremental:
            option = Options.HEAP_MAX_CHANGES
            changed._max_changes = configuration.get(option)
            if changed._max_changes < 0:
                raise ConfigError(
                    f"{option.key} must not be negative, but is {changed._max_changes}.", key=option.key
                )
        return changed


class HashMapStateBackend(_HeapBackend):
    """State as objects in worker memory; checkpoints go where the checkpoint storage says."""

    def __init__(self) -> None:
        super().__init__(None)


class MemoryStateBackend(_HeapBackend):
    """State as objects in worker memory, checkpoints in the driver's; the default.

    The seeds' form `MemoryStateBackend(max_state_size, asynchronous)` is accepted too.
    """

    DEFAULT_MAX_STATE_SIZE = JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE

    def __init__(
        self,
        checkpoint_path: Any = None,
        savepoint_path: Any = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Create a backend.

        Raises:
            TypeError: `using_asynchronous_snapshots` is not None, True or False.
            ConfigError: `max_state_size` is not positive.
        """
        if isinstance(checkpoint_path, bool):
            checkpoint_path, using_asynchronous_snapshots = None, checkpoint_path
        elif isinstance(checkpoint_path, int):
            max_state_size = checkpoint_path
            checkpoint_path = None
            if isinstance(savepoint_path, bool):
                savepoint_path, using_asynchronous_snapshots = None, savepoint_path
        super().__init__(using_asynchronous_snapshots)
        self._storage = JobManagerCheckpointStorage(checkpoint_path, max_state_size)
        self._savepoint_path = path_text(savepoint_path)

    def get_max_state_size(self) -> int:
        """Largest keyed, or operator, state of one subtask in bytes."""
        return self._storage.get_max_state_size()

    def get_checkpoint_path(self) -> str | None:
        """Directory of checkpoint metadata, None if unset."""
        return self._storage.get_checkpoint_path()

    def get_savepoint_path(self) -> str | None:
        """Default directory of savepoints, None if unset."""
        return self._savepoint_path

    def get_checkpoint_storage(self) -> CheckpointStorage:
        """Driver memory."""
        return self._storage

    def configured(self, configuration: Configuration) -> Self:
        """A copy with the configured directory for metadata."""
        changed = super().configured(configuration)
        changed._storage = JobManagerCheckpointStorage(
            changed.get_checkpoint_path() or configuration.get(Options.CHECKPOINTS_DIR),
            changed.get_max_state_size(),
        )
        return changed


class FsStateBackend(_HeapBackend):
    """State as objects in worker memory, checkpoints in files.

    The seeds' form `FsStateBackend(uri, asynchronous)` is accepted too.
    """

    def __init__(
        self,
        checkpoint_directory_uri: Any = None,
        default_savepoint_directory_uri: Any = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Create a backend; without a URI `state.checkpoints.dir` is used.

        Raises:
            TypeError: `using_asynchronous_snapshots` is not None, True or False.
            ConfigError: A size is out of range.
        """
        if isinstance(default_savepoint_directory_uri, bool):
            using_asynchronous_snapshots = default_savepoint_directory_uri
            default_savepoint_directory_uri = None
        super().__init__(using_asynchronous_snapshots)
        self._files = FileSettings(
            checkpoint_directory_uri,
            default_savepoint_directory_uri,
            file_state_size_threshold,
            write_buffer_size,
        )

    def get_checkpoint_path(self) -> str | None:
        """Directory of checkpoints, None if it comes from the configuration."""
        return self._files.checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Default directory of savepoints, None if unset."""
        return self._files.savepoint_path

    def get_min_file_size_threshold(self) -> int:
        """State chunks smaller than this, in bytes, are stored inside the metadata file."""
        return 1024 if self._files.threshold is None else self._files.threshold

    def get_write_buffer_size(self) -> int:
        """Buffer of checkpoint streams in bytes."""
        return 4096 if self._files.write_buffer is None else self._files.write_buffer

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Files in the checkpoint directory."""
        return self._files.storage()

    def configured(self, configuration: Configuration) -> Self:
        """A copy with directory and sizes from the configuration where they are open."""
        changed = super().configured(configuration)
        changed._files = changed._files.configured("FsStateBackend", configuration)
        return changed
