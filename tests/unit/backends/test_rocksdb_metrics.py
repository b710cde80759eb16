"""RocksDB's own figures: off by default, each by its name, unknown ones refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark import Configuration, EmbeddedRocksDBStateBackend
from tidemark.backends.rocksdb.options import RocksDBOptions
from tidemark.backends.rocksdb.store import RocksStore
from tidemark.config.rocksdb_metrics import METRICS_PREFIX, PROPERTIES, TICKERS
from tidemark.errors import ConfigError


def wanted(**values: str) -> tuple[str, ...]:
    given = {METRICS_PREFIX + name.replace("_", "-"): value for name, value in values.items()}
    backend = EmbeddedRocksDBStateBackend().configured(Configuration.from_dict(given))
    return backend.store_options().get("metrics", ())


def test_nothing_is_reported_unless_it_is_switched_on() -> None:
    assert wanted() == ()
    assert wanted(estimate_num_keys="true", block_cache_hit="true", background_errors="false") == (
        "block-cache-hit",
        "estimate-num-keys",
    )
    assert wanted(enabled="true") == tuple(sorted(PROPERTIES))


def test_a_figure_rocksdb_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no metric 'column-family-as-variable'"):
        wanted(column_family_as_variable="true")


def test_every_figure_of_the_list_can_be_had(tmp_path: Path) -> None:
    names = (*PROPERTIES, *TICKERS)
    store = RocksStore(tmp_path / "db", RocksDBOptions.from_dict({"metrics": names}))
    batch = store.new_batch()
    for number in range(100):
        batch.put(b"key%d" % number, b"value")
    store.write(batch)
    store.compact()
    assert store.get(b"key1") == b"value"

    found = store.metrics(names)
    store.close()

    levels = {f"num-files-at-level{level}" for level in range(7)}
    assert set(found) == ({*names} - {"num-files-at-level"}) | levels
    assert found["estimate-num-keys"] == 100
    assert found["bytes-read"] > 0
    assert found["bytes-written"] > 0
    assert sum(found[level] for level in levels) == 1
