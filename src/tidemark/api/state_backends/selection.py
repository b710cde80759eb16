"""Which backend a job uses: the one in the program, else the one named by `state.backend`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tidemark.api.state_backends.base import StateBackend
from tidemark.api.state_backends.heap import FsStateBackend, HashMapStateBackend, MemoryStateBackend
from tidemark.api.state_backends.rocksdb import EmbeddedRocksDBStateBackend, RocksDBStateBackend
from tidemark.config import Configuration, Options
from tidemark.errors import ConfigError

__all__ = ["backend_by_name", "resolve_state_backend"]

_BY_NAME: dict[str, Callable[[], StateBackend]] = {
    "jobmanager": MemoryStateBackend,
    "memory": MemoryStateBackend,
    "filesystem": FsStateBackend,
    "rocksdb": RocksDBStateBackend,
    "hashmap": HashMapStateBackend,
    "org.apache.flink.runtime.state.memory.MemoryStateBackendFactory": MemoryStateBackend,
    "org.apache.flink.runtime.state.filesystem.FsStateBackendFactory": FsStateBackend,
    "org.apache.flink.contrib.streaming.state.RocksDBStateBackendFactory": RocksDBStateBackend,
}

_WITHOUT_DIRECTORY: dict[Callable[[], StateBackend], Callable[[], StateBackend]] = {
    FsStateBackend: HashMapStateBackend,
    RocksDBStateBackend: EmbeddedRocksDBStateBackend,
}
"""Backends that are bound to a directory -> those that keep state in the same way, and leave snapshots to others."""


def resolve_state_backend(
    configuration: Configuration, programmed: StateBackend | None, *, needs_directory: bool = True
) -> StateBackend:
    """The backend a job uses, complete: set in the program, named by `state.backend`, or memory.

    Args:
        configuration: The effective configuration.
        programmed: What was set in the program.
        needs_directory: Whether a backend that is only named has to know where checkpoints go; not if the program says
            that, or if there are none.

    Raises:
        ConfigError: The name is unknown or cannot be imported, or a setting is missing.
    """
    backend = programmed or backend_by_name(configuration, needs_directory=needs_directory)
    return backend.configured(configuration)


def backend_by_name(configuration: Configuration, *, needs_directory: bool = True) -> StateBackend:
    """The backend named by `state.backend`; `MemoryStateBackend` when nothing is named.

    Raises:
        ConfigError: The name is unknown or cannot be imported.
    """
    named = configuration.get(Options.STATE_BACKEND)
    if not named:
        return MemoryStateBackend()
    maker = _BY_NAME.get(named.strip()) or _BY_NAME.get(named.strip().lower())
    if maker is not None and not needs_directory and not configuration.get(Options.CHECKPOINTS_DIR):
        maker = _WITHOUT_DIRECTORY.get(maker, maker)
    return maker() if maker is not None else _from_factory(named.strip(), configuration)


def _from_factory(name: str, configuration: Configuration) -> StateBackend:
    known = "jobmanager, filesystem, rocksdb, hashmap or package.module:Factory"
    module_name, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module_name or not attribute:
        raise ConfigError(f"Unknown state backend '{name}'. Use {known}.", key=Options.STATE_BACKEND.key)
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as exc:
        raise ConfigError(
            f"State backend factory '{name}' cannot be imported ({exc}). Use {known}.",
            key=Options.STATE_BACKEND.key,
        ) from exc
    factory = found() if isinstance(found, type) else found
    create = getattr(factory, "create_from_config", None)
    backend = create(configuration) if callable(create) else None
    if not isinstance(backend, StateBackend):
        raise ConfigError(
            f"State backend '{name}' is no factory: it needs create_from_config(configuration) "
            "that returns a StateBackend.",
            key=Options.STATE_BACKEND.key,
        )
    return backend
