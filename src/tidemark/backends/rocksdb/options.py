"""Settings of one RocksDB store: what may be tuned, and how it becomes `rocksdict` options.

The defaults bound the memory of a store to about `block_cache_size + write_buffer_size *
max_write_buffer_number`, with `read_cache_size` more for each state, and keep the unflushed part small,
because what is written behind the barrier of an incremental checkpoint waits until that part is on disk: 8 MiB
flush in well under 100 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from tidemark.config.rocksdb_metrics import TICKERS
from tidemark.errors import ConfigError

__all__ = ["MEMORY_PER_SLOT", "STORES_PER_SLOT", "PredefinedOptions", "RocksDBOptions", "native_options"]

MEMORY_PER_SLOT = "memory_per_slot"
"""Bytes for the stores of a slot together."""
STORES_PER_SLOT = "stores_per_slot"
"""How many stores share them."""

_KIB = 1024
_MIB = 1024 * 1024
_COMPRESSIONS = ("none", "snappy", "zlib", "bz2", "lz4", "lz4hc", "zstd")


class PredefinedOptions(Enum):
    """Ready-made settings for a kind of disk; single options given beside them win."""

    DEFAULT = "DEFAULT"
    SPINNING_DISK_OPTIMIZED = "SPINNING_DISK_OPTIMIZED"
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = "SPINNING_DISK_OPTIMIZED_HIGH_MEM"
    FLASH_SSD_OPTIMIZED = "FLASH_SSD_OPTIMIZED"


_PREDEFINED: dict[PredefinedOptions, dict[str, Any]] = {
    PredefinedOptions.DEFAULT: {},
    PredefinedOptions.SPINNING_DISK_OPTIMIZED: {
        "level_compaction_dynamic_level_bytes": True,
        "compression": "lz4",
        "max_background_jobs": 4,
    },
    PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM: {
        "level_compaction_dynamic_level_bytes": True,
        "compression": "lz4",
        "max_background_jobs": 4,
        "block_cache_size": 256 * _MIB,
        "block_size": 128 * _KIB,
        "write_buffer_size": 64 * _MIB,
        "max_write_buffer_number": 4,
        "target_file_size": 256 * _MIB,
        "max_bytes_for_level_base": 1024 * _MIB,
    },
    PredefinedOptions.FLASH_SSD_OPTIMIZED: {"max_background_jobs": 4, "block_size": 4 * _KIB},
}


@dataclass(frozen=True, slots=True)
class RocksDBOptions:
    """Validated settings of a store; sizes in bytes."""

    predefined: PredefinedOptions = PredefinedOptions.DEFAULT
    block_cache_size: int = 32 * _MIB
    block_size: int = 8 * _KIB
    write_buffer_size: int = 8 * _MIB
    max_write_buffer_number: int = 2
    target_file_size: int = 32 * _MIB
    level_zero_files: int = 12
    """Flushed files before they are merged into the next level. Every incremental checkpoint flushes, and a merge
    rewrites the whole level, which the checkpoint after it then uploads: with RocksDB's 4 every fourth one would."""
    max_bytes_for_level_base: int = 128 * _MIB
    level_compaction_dynamic_level_bytes: bool = True
    bloom_bits: float = 10.0
    cache_index_and_filter_blocks: bool = False
    """Count them against the block cache: a strict bound at twice the cost of a cold read. Otherwise they
    stay in memory, about 1.5 bytes per row."""
    compression: str = "none"
    max_open_files: int = -1
    max_background_jobs: int = 2
    read_cache_size: int = 16 * _MIB
    """Memory for what each state keeps known between batches; 0 turns it off."""
    max_entry_size: int = (1 << 31) - 1
    """Most bytes of a key, and of a value or list segment: more does not fit the columns of a snapshot."""
    ttl_compaction_filter_enabled: bool = False
    """Whether compactions drop expired state, for states whose TTL asks for it; off unless switched on, as in Flink."""
    metrics: tuple[str, ...] = ()
    """Figures of the store to be reported, by the names of `config.rocksdb_metrics`."""
    options_factory: Callable[[Any], Any] | None = None
    """Last word: gets the `rocksdict.Options` and returns them, or others, or None for "changed in place"."""

    def __post_init__(self) -> None:
        positive = (
            "block_cache_size", "block_size", "write_buffer_size", "max_write_buffer_number",
            "target_file_size", "level_zero_files", "max_bytes_for_level_base", "max_background_jobs",
            "max_entry_size",
        )  # fmt: skip
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(
                    f"RocksDB option '{name}' must be positive, not {getattr(self, name)}.", key=name
                )
        for name in ("read_cache_size", "bloom_bits"):
            if getattr(self, name) < 0:
                raise ConfigError(f"RocksDB option '{name}' must not be negative.", key=name)
        if self.compression not in _COMPRESSIONS:
            raise ConfigError(
                f"RocksDB option 'compression' must be one of {', '.join(_COMPRESSIONS)}, "
                f"not {self.compression!r}.",
                key="compression",
            )

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> RocksDBOptions:
        """Build from `BackendParameters.options`: the predefined set first, then single settings.

        Raises:
            ConfigError: A name is unknown or a value is out of its range.
        """
        known = {item.name for item in fields(cls)} | {MEMORY_PER_SLOT, STORES_PER_SLOT}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ConfigError(
                f"Unknown RocksDB option '{unknown[0]}'. Known: {', '.join(sorted(known))}.", key=unknown[0]
            )
        chosen = dict(options)
        predefined = _predefined(chosen.pop("predefined", PredefinedOptions.DEFAULT))
        memory, stores = chosen.pop(MEMORY_PER_SLOT, None), chosen.pop(STORES_PER_SLOT, 1)
        made = replace(cls(predefined, **_PREDEFINED[predefined]), **chosen)
        return made if memory is None else made._within(memory // stores)

    def _within(self, memory: int) -> RocksDBOptions:
        """The same with block cache and write buffers, and all that RocksDB keeps beside them, in so much memory."""
        buffers = memory // 2
        return replace(
            self,
            block_cache_size=max(1, memory - buffers),
            write_buffer_size=max(1, buffers // self.max_write_buffer_number),
            # Else the indexes and filters of all files would come on top.
            cache_index_and_filter_blocks=True,
        )


def _predefined(value: Any) -> PredefinedOptions:
    if isinstance(value, PredefinedOptions):
        return value
    # Also takes the enum of the public configuration API, which has the same member names.
    name = getattr(value, "name", value)
    try:
        return PredefinedOptions[str(name)]
    except KeyError:
        names = ", ".join(item.name for item in PredefinedOptions)
        raise ConfigError(
            f"Unknown predefined RocksDB options {name!r}. Known: {names}.", key="predefined"
        ) from None


def native_options(options: RocksDBOptions) -> Any:
    """The `rocksdict.Options` (raw mode) that these settings mean."""
    import rocksdict

    table = rocksdict.BlockBasedOptions()
    cache = rocksdict.Cache(options.block_cache_size)
    table.set_block_cache(cache)
    table.set_block_size(options.block_size)
    table.set_cache_index_and_filter_blocks(options.cache_index_and_filter_blocks)
    if options.cache_index_and_filter_blocks:
        # In pieces: a whole filter is larger than a shard of the cache and would be read again for every key.
        table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_pin_top_level_index_and_filter(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    if options.bloom_bits:
        table.set_bloom_filter(options.bloom_bits, False)
    native = rocksdict.Options(raw_mode=True)
    native.create_if_missing(True)
    native.set_block_based_table_factory(table)
    native.set_write_buffer_size(options.write_buffer_size)
    native.set_max_write_buffer_number(options.max_write_buffer_number)
    native.set_db_write_buffer_size(options.write_buffer_size * options.max_write_buffer_number)
    native.set_target_file_size_base(options.target_file_size)
    native.set_level_zero_file_num_compaction_trigger(options.level_zero_files)
    native.set_max_bytes_for_level_base(options.max_bytes_for_level_base)
    native.set_level_compaction_dynamic_level_bytes(options.level_compaction_dynamic_level_bytes)
    native.set_compression_type(getattr(rocksdict.DBCompressionType, options.compression)())
    native.set_max_open_files(options.max_open_files)
    native.set_max_background_jobs(options.max_background_jobs)
    # Many deletes in a row (cleared windows, drained queues) must not slow scans down for long.
    native.add_compact_on_deletion_collector_factory(10_000, 5_000, 0.5)
    native.set_is_fd_close_on_exec(True)
    native.set_max_log_file_size(_MIB)
    native.set_keep_log_file_num(2)
    native.set_stats_dump_period_sec(0)
    if any(name in TICKERS for name in options.metrics):
        native.enable_statistics()
    if options.options_factory is not None:
        native = options.options_factory(native) or native
    return native
