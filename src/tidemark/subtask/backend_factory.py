"""From the choice of a keyed backend to an instance: the one place that knows the stores by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tidemark.errors import ConfigError
from tidemark.state.backend import KeyedStateBackend

if TYPE_CHECKING:
    from tidemark.protocol.deployment import BackendChoice
    from tidemark.state.backend import BackendParameters

__all__ = ["create_backend"]


def create_backend(choice: BackendChoice, parameters: BackendParameters) -> KeyedStateBackend:
    """Create the keyed backend of one operator subtask.

    Raises:
        ConfigError: There is no such class, or it is no keyed state backend.
    """
    if choice.custom is not None:
        return choice.custom.create_keyed_state_backend(parameters)  # type: ignore[no-any-return]
    if choice.store == "heap":
        from tidemark.backends.heap import HeapKeyedStateBackend

        return HeapKeyedStateBackend(parameters)
    if choice.store == "rocksdb":
        from tidemark.backends.rocksdb import RocksDBKeyedStateBackend

        return RocksDBKeyedStateBackend(parameters)
    module_name, _, attribute = choice.store.partition(":")
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ConfigError(
            f"State store '{choice.store}' cannot be imported: {exc}. Use package.module:Class."
        ) from exc
    if not (isinstance(found, type) and issubclass(found, KeyedStateBackend)):
        raise ConfigError(f"State store '{choice.store}' is no KeyedStateBackend class.")
    return found(parameters)
