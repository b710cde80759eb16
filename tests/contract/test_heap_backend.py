"""The heap backend against the backend contract."""

from __future__ import annotations

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.testing.backend_contract import BackendContract


class TestHeapBackend(BackendContract):
    def create(self, parameters: BackendParameters) -> KeyedStateBackend:
        return HeapKeyedStateBackend(parameters)
