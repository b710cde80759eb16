"""The RocksDB backend against the backend contract."""

from __future__ import annotations

from dataclasses import replace

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.testing.backend_contract import BackendContract


class TestRocksDBBackend(BackendContract):
    def create(self, parameters: BackendParameters) -> KeyedStateBackend:
        return RocksDBKeyedStateBackend(parameters)


class TestRocksDBBackendWithoutReadCache(BackendContract):
    """Nothing is kept between batches, so that every read is one of the store."""

    def create(self, parameters: BackendParameters) -> KeyedStateBackend:
        return RocksDBKeyedStateBackend(replace(parameters, options={"read_cache_size": 0}))
