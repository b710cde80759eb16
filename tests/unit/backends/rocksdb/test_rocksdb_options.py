from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tidemark.backends.rocksdb import PredefinedOptions, RocksDBOptions
from tidemark.backends.rocksdb.options import native_options
from tidemark.backends.rocksdb.store import RocksStore
from tidemark.errors import ConfigError


def test_single_options_win_over_the_predefined_set() -> None:
    options = RocksDBOptions.from_dict(
        {"predefined": "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "block_cache_size": 1 << 20}
    )

    assert options.predefined is PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM
    assert options.block_cache_size == 1 << 20
    assert options.write_buffer_size == 64 << 20


def test_an_enum_with_the_same_names_chooses_the_predefined_set() -> None:
    class Public(Enum):
        FLASH_SSD_OPTIMIZED = 3

    chosen = RocksDBOptions.from_dict({"predefined": Public.FLASH_SSD_OPTIMIZED})

    assert chosen.predefined is PredefinedOptions.FLASH_SSD_OPTIMIZED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 1}, "Unknown RocksDB option 'speed'"),
        ({"predefined": "FASTEST"}, "Unknown predefined"),
        ({"block_size": 0}, "'block_size' must be positive"),
        ({"read_cache_size": -1}, "must not be negative"),
        ({"compression": "rar"}, "must be one of"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RocksDBOptions.from_dict(options)


@pytest.mark.parametrize("predefined", list(PredefinedOptions))
@pytest.mark.parametrize("bounded", [False, True])
def test_every_set_of_options_opens_a_store(
    tmp_path: Path, predefined: PredefinedOptions, bounded: bool
) -> None:
    options = RocksDBOptions.from_dict({"predefined": predefined, "cache_index_and_filter_blocks": bounded})

    store = RocksStore(tmp_path / "db", options)
    batch = store.new_batch()
    batch.put(b"a", b"1")
    store.write(batch)
    store.compact()

    assert store.get(b"a") == b"1"
    store.close()


def test_the_factory_has_the_last_word() -> None:
    seen = []

    changed = native_options(RocksDBOptions(options_factory=seen.append))

    assert seen == [changed]
