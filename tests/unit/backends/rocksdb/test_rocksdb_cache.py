from __future__ import annotations

from tidemark.backends.rocksdb.cache import MISS, GenerationCache


def add(cache: GenerationCache, values: dict[str, int], size: int) -> None:
    cache.young.update(values)
    cache.grown(len(values), size)


def test_what_was_added_last_is_known_longest() -> None:
    cache = GenerationCache(4000)

    for n in range(100):
        add(cache, {f"k{n}": n}, 100)

    assert cache.get("k99") == 99
    assert cache.get("k0") is MISS
    assert 0 < len(cache) <= 16


def test_a_batch_that_is_too_large_is_not_kept() -> None:
    cache = GenerationCache(4000)
    add(cache, {"a": 1}, 10)

    add(cache, {"a": 2, "b": 3}, 10_000)

    assert cache.get("a") is MISS
    assert cache.get("b") is MISS


def test_a_cache_of_size_zero_keeps_nothing() -> None:
    cache = GenerationCache(0)

    add(cache, {"a": 1}, 1)

    assert cache.get("a") is MISS


def test_a_cleared_cache_knows_nothing() -> None:
    cache = GenerationCache(1000)
    add(cache, {"a": 1}, 1)

    cache.clear()

    assert cache.get("a") is MISS
    assert repr(MISS) == "MISS"
