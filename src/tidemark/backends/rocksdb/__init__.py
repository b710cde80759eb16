"""The RocksDB backend: keyed state as bytes in a local store, for state larger than memory."""

from tidemark.backends.rocksdb.backend import RocksDBKeyedStateBackend
from tidemark.backends.rocksdb.options import PredefinedOptions, RocksDBOptions

__all__ = ["PredefinedOptions", "RocksDBKeyedStateBackend", "RocksDBOptions"]
