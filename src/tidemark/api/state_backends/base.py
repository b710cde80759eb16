"""What every state backend is: plain settings. The stores are in `tidemark.backends`, found by name."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from tidemark.api.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    checked_threshold,
    checked_write_buffer,
    path_text,
)
from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.state.backend import BackendParameters, KeyedStateBackend

__all__ = ["CustomStateBackend", "FileSettings", "StateBackend", "StateBackendFactory"]


class StateBackend:
    """Root of all backends. A subclass that overrides nothing keeps state in worker memory."""

    _store = "heap"

    @property
    def store(self) -> str:
        """Which keyed store to use: "heap", "rocksdb" or "custom".

        "custom" is a backend with a method `create_keyed_state_backend(BackendParameters)` that returns a
        `KeyedStateBackend`; it is called in the slots.
        """
        return "custom" if hasattr(self, "create_keyed_state_backend") else self._store

    def get_db_storage_paths(self) -> list[str] | None:
        """Directories of the worker for stores that keep files, None: the worker's temp directory."""
        return None

    def store_options(self) -> dict[str, Any]:
        """Settings for the store, as `BackendParameters.options`."""
        return {}

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """The storage this backend is bound to, or None: the configuration decides."""
        return None

    def get_savepoint_path(self) -> str | None:
        """Default directory of savepoints that this backend was given, or None."""
        return None

    def is_using_asynchronous_snapshots(self) -> bool:
        """Whether state is written while the stream goes on."""
        return True

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether checkpoints hold only what changed."""
        return False

    def configured(self, configuration: Configuration) -> Self:
        """A copy that takes what the program left open from the effective configuration.

        Raises:
            ConfigError: A setting this backend needs is nowhere to be found.
        """
        return copy.copy(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(type(self).__name__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class StateBackendFactory(ABC):
    """Makes a backend from a configuration; named by `state.backend`."""

    @abstractmethod
    def create_from_config(self, configuration: Configuration) -> StateBackend:
        """The backend."""


class CustomStateBackend(StateBackend):
    """A backend whose store is a `KeyedStateBackend` class of the user's."""

    def __init__(
        self,
        store_class: Callable[[BackendParameters], KeyedStateBackend],
        options: dict[str, Any] | None = None,
        checkpoint_storage: CheckpointStorage | None = None,
    ) -> None:
        """Wrap a store.

        Args:
            store_class: Class, or function, that makes a `KeyedStateBackend` from `BackendParameters`.
            options: Passed on as `BackendParameters.options`.
            checkpoint_storage: Where checkpoints go; None: the configuration decides.

        Raises:
            TypeError: `store_class` cannot be called (PyFlink's Java objects do not work here).
        """
        if not callable(store_class):
            raise TypeError(f"CustomStateBackend needs a KeyedStateBackend class, not {store_class!r}.")
        self._store_class = store_class
        self._options = dict(options or {})
        self._storage = checkpoint_storage

    def create_keyed_state_backend(self, parameters: BackendParameters) -> KeyedStateBackend:
        """The store of one operator subtask."""
        return self._store_class(parameters)

    def store_options(self) -> dict[str, Any]:
        """The options given."""
        return dict(self._options)

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """The storage given."""
        return self._storage


class FileSettings:
    """Directories and sizes of the backends that are bound to files."""

    def __init__(
        self, checkpoint_path: Any, savepoint_path: Any, threshold: int | None, write_buffer: int | None
    ) -> None:
        self.checkpoint_path = path_text(checkpoint_path)
        self.savepoint_path = path_text(savepoint_path)
        self.threshold = checked_threshold(threshold)
        self.write_buffer = checked_write_buffer(write_buffer)

    def storage(self) -> FileSystemCheckpointStorage | None:
        """The storage these settings mean, None without a directory."""
        if self.checkpoint_path is None:
            return None
        buffer = -1 if self.write_buffer is None else self.write_buffer
        return FileSystemCheckpointStorage(self.checkpoint_path, self.threshold, buffer)

    def configured(self, backend: str, configuration: Configuration) -> FileSettings:
        """A copy that takes what was left open from the configuration.

        Raises:
            ConfigError: There is no directory; the message names `backend`.
        """
        directory = self.checkpoint_path or configuration.get(Options.CHECKPOINTS_DIR)
        if not directory:
            raise ConfigError(
                f"{backend} has no checkpoint directory. Pass a URI or set '{Options.CHECKPOINTS_DIR.key}'.",
                key=Options.CHECKPOINTS_DIR.key,
            )
        buffer = -1 if self.write_buffer is None else self.write_buffer
        full = FileSystemCheckpointStorage(directory, self.threshold, buffer).configured(configuration)
        return FileSettings(
            directory,
            self.savepoint_path,
            full.get_min_file_size_threshold(),
            full.get_write_buffer_size(),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileSettings) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]
