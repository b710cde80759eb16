"""From the name of a keyed store, as a `StateBackend` gives it, to an instance."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tidemark.errors import ConfigError
from tidemark.state.backend import KeyedStateBackend

if TYPE_CHECKING:
    from tidemark.state.backend import BackendParameters

__all__ = ["create_store"]


def create_store(store: str, parameters: BackendParameters) -> KeyedStateBackend:
    """Create the keyed backend of one operator subtask.

    Args:
        store: "heap", "rocksdb", or `package.module:Class` of a `KeyedStateBackend`.
        parameters: What the store is created with.

    Raises:
        ConfigError: There is no such class, or it is no keyed state backend.
    """
    if store == "heap":
        from tidemark.backends.heap import HeapKeyedStateBackend

        return HeapKeyedStateBackend(parameters)
    if store == "rocksdb":
        from tidemark.backends.rocksdb import RocksDBKeyedStateBackend

        return RocksDBKeyedStateBackend(parameters)
    module_name, _, attribute = store.partition(":")
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ConfigError(
            f"State store '{store}' cannot be imported: {exc}. Use package.module:Class."
        ) from exc
    if not (isinstance(found, type) and issubclass(found, KeyedStateBackend)):
        raise ConfigError(f"State store '{store}' is no KeyedStateBackend class.")
    return found(parameters)
