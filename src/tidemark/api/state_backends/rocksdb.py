"""Backends that keep working state as bytes in a local RocksDB store."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Self

from tidemark.api.checkpoint_storage import CheckpointStorage, path_text
from tidemark.api.state_backends.base import FileSettings, StateBackend
from tidemark.config import Configuration, Options
from tidemark.config.memory import SlotMemory
from tidemark.config.options import find_option
from tidemark.config.rocksdb_metrics import METRICS_PREFIX, PROPERTIES, TICKERS
from tidemark.errors import ConfigError
from tidemark.paths import local_path

__all__ = ["EmbeddedRocksDBStateBackend", "PredefinedOptions", "RocksDBStateBackend"]


class PredefinedOptions(Enum):
    """Ready-made RocksDB settings for a kind of disk."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """State as bytes in a local RocksDB store; checkpoints go where the checkpoint storage says."""

    _store = "rocksdb"

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        """Create a backend; None leaves incremental checkpoints to the configuration.

        Raises:
            TypeError: Neither None, True nor False.
        """
        if not (
            enable_incremental_checkpointing is None or isinstance(enable_incremental_checkpointing, bool)
        ):
            raise TypeError(
                "enable_incremental_checkpointing must be None, True or False, "
                f"not {enable_incremental_checkpointing!r}."
            )
        self._incremental = enable_incremental_checkpointing
        self._ttl_compaction_filter = False
        self._metrics: tuple[str, ...] = ()
        self._paths: tuple[str, ...] = ()
        self._predefined = PredefinedOptions.DEFAULT
        self._options_factory: Callable[[Any], Any] | None = None
        self._transfer_threads = 4
        self._memory_per_slot: int | None = None

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether checkpoints hold only new files."""
        return self._incremental is True

    def enable_ttl_compaction_filter(self) -> EmbeddedRocksDBStateBackend:
        """Drop expired state during compaction."""
        self._ttl_compaction_filter = True
        return self

    def is_ttl_compaction_filter_enabled(self) -> bool:
        """Whether expired state is dropped during compaction."""
        return self._ttl_compaction_filter

    def set_db_storage_paths(self, *paths: str) -> EmbeddedRocksDBStateBackend:
        """Keep the local stores in these directories of the worker; none: the worker's temp directory."""
        self._paths = tuple([local_path(path_text(path) or "") for path in paths])
        return self

    def get_db_storage_paths(self) -> list[str] | None:
        """The directories, None if unset."""
        return list(self._paths) or None

    def set_predefined_options(self, options: PredefinedOptions) -> EmbeddedRocksDBStateBackend:
        """Choose a set of ready-made settings.

        Raises:
            TypeError: Not a `PredefinedOptions`.
        """
        if not isinstance(options, PredefinedOptions):
            raise TypeError(f"Expected PredefinedOptions, not {options!r}.")
        self._predefined = options
        return self

    def get_predefined_options(self) -> PredefinedOptions:
        """The chosen set."""
        return self._predefined

    def set_options(self, options_factory: Callable[[Any], Any]) -> EmbeddedRocksDBStateBackend:
        """Give the last word on settings to `options_factory(rocksdict.Options)`.

        It returns options, or None if it changed its argument in place.

        Raises:
            TypeError: Not callable (PyFlink's Java class names do not work here).
        """
        if not callable(options_factory):
            raise TypeError(
                f"set_options needs a callable that takes rocksdict.Options, not {options_factory!r}."
            )
        self._options_factory = options_factory
        return self

    def get_options(self) -> Callable[[Any], Any] | None:
        """The factory, None if unset."""
        return self._options_factory

    def set_number_of_transfer_threads(
        self, number_of_transfering_threads: int
    ) -> EmbeddedRocksDBStateBackend:
        """Use that many threads to move files to and from checkpoint storage.

        Raises:
            ConfigError: Below 1.
        """
        number = number_of_transfering_threads
        if number < 1:
            raise ConfigError(f"The number of transfer threads must be at least 1, not {number}.")
        self._transfer_threads = number
        return self

    def get_number_of_transfer_threads(self) -> int:
        """Threads that move files."""
        return self._transfer_threads

    set_number_of_transfering_threads = set_number_of_transfer_threads
    get_number_of_transfering_threads = get_number_of_transfer_threads

    def store_options(self) -> dict[str, Any]:
        """Settings for the RocksDB store."""
        options: dict[str, Any] = {
            "predefined": self._predefined.name,
            "ttl_compaction_filter_enabled": self._ttl_compaction_filter,
        }
        if self._metrics:
            options["metrics"] = self._metrics
        if self._options_factory is not None:
            options["options_factory"] = self._options_factory
        if self._memory_per_slot is not None:
            options["memory_per_slot"] = self._memory_per_slot
        return options

    def configured(self, configuration: Configuration) -> Self:
        """A copy with what was left open (incremental, clean-up, directories, memory) filled in."""
        changed = super().configured(configuration)
        if changed._incremental is None:
            changed._incremental = configuration.get(Options.INCREMENTAL)
        if configuration.get(Options.ROCKSDB_TTL_COMPACTION_FILTER):
            changed._ttl_compaction_filter = True
        if not changed._paths and (directories := configuration.get(Options.ROCKSDB_LOCAL_DIR)):
            changed._paths = tuple([part.strip() for part in directories.split(",") if part.strip()])
        changed._metrics = _wanted_metrics(configuration)
        if changed._memory_per_slot is None:
            fixed = configuration.get(Options.ROCKSDB_MEMORY_PER_SLOT)
            changed._memory_per_slot = fixed if fixed is not None else SlotMemory.of(configuration).managed
        return changed


def _wanted_metrics(configuration: Configuration) -> tuple[str, ...]:
    """Flink's names of the figures that were switched on.

    Raises:
        ConfigError: RocksDB has no figure of that name here.
    """
    wanted = set(PROPERTIES) if configuration.get(Options.ROCKSDB_METRICS) else set()
    for key in configuration.key_set():
        name = key.removeprefix(METRICS_PREFIX)
        if name in (key, "enabled"):
            continue
        option = find_option(key)
        if option is None:
            known = ", ".join([*PROPERTIES, *TICKERS])
            raise ConfigError(f"RocksDB has no metric '{name}' here. There are: {known}.", key=key)
        if configuration.get(option):
            wanted.add(name)
    return tuple(sorted(wanted))


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """State as bytes in a local RocksDB store, checkpoints in files."""

    def __init__(
        self, checkpoint_data_uri: Any = None, enable_incremental_checkpointing: bool | None = None
    ) -> None:
        """Create a backend; without a URI `state.checkpoints.dir` is used.

        Raises:
            TypeError: `enable_incremental_checkpointing` is not None, True or False.
        """
        super().__init__(enable_incremental_checkpointing)
        self._files = FileSettings(checkpoint_data_uri, None, None, None)

    def get_checkpoint_path(self) -> str | None:
        """Directory of checkpoints, None if it comes from the configuration."""
        return self._files.checkpoint_path

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Files in the checkpoint directory."""
        return self._files.storage()

    def configured(self, configuration: Configuration) -> Self:
        """A copy with directory and sizes from the configuration where they are open."""
        changed = super().configured(configuration)
        changed._files = changed._files.configured("RocksDBStateBackend", configuration)
        return changed
