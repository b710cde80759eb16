"""State backends as users choose them: where working state is kept and where checkpoints go."""

from __future__ import annotations

from tidemark.api.state_backends.base import CustomStateBackend, StateBackend, StateBackendFactory
from tidemark.api.state_backends.heap import FsStateBackend, HashMapStateBackend, MemoryStateBackend
from tidemark.api.state_backends.rocksdb import (
    EmbeddedRocksDBStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
)
from tidemark.api.state_backends.selection import backend_by_name, resolve_state_backend

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "StateBackend",
    "StateBackendFactory",
    "backend_by_name",
    "resolve_state_backend",
]
