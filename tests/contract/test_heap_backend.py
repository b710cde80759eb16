"""The heap backend against the backend contract, with full and with incremental checkpoints."""

from __future__ import annotations

from dataclasses import replace

from tests.chained_heap import ChainedHeapBackend

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.testing.backend_contract import BackendContract


class TestHeapBackend(BackendContract):
    def create(self, parameters: BackendParameters) -> KeyedStateBackend:
        return HeapKeyedStateBackend(parameters)


class TestHeapBackendWithIncrementalCheckpoints(BackendContract):
    def create(self, parameters: BackendParameters) -> KeyedStateBackend:
        return ChainedHeapBackend(replace(parameters, options={"max_changes": 3}))
