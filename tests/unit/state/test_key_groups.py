from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidemark.errors import ConfigError
from tidemark.state.key_groups import (
    MAX_KEY_GROUPS,
    assign_to_key_group,
    compute_default_max_parallelism,
    compute_key_group_range_for_operator_index,
    compute_operator_index_for_key_group,
    key_groups_of,
    stable_hash,
    stable_hash_array,
    stable_hash_words,
)

# Part of the on-disk format: these numbers never change.
GOLDEN = {
    b"": 0x0,
    b"a": 0x89A5018EBE79126,
    b"12345678": 0x1045D4239ED7A6D8,
    b"123456789": 0x488AB8153F4B477E,
    b"\x00\x00\x00\x00\x00\x00\x00\x01": 0x3B8FA3CA1B1AED0B,
    b"\xff" * 16: 0x38B085E0397E48F,
    "é".encode(): 0x52FFA3987A6C61F1,
}


def test_the_hash_is_the_one_every_snapshot_was_written_with() -> None:
    assert {key: stable_hash(key) for key in GOLDEN} == GOLDEN


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_arrays_hash_like_single_keys(arrow_type: pa.DataType) -> None:
    keys = [bytes(range(length)) for length in range(40)] + list(GOLDEN)
    array = pa.array([b"skipped", *keys], arrow_type)[1:]

    assert stable_hash_array(array).tolist() == [stable_hash(key) for key in keys]


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string()])
def test_texts_hash_like_their_utf8_bytes(arrow_type: pa.DataType) -> None:
    texts = ["", "a", "é", "a longer text than one word"]

    hashes = stable_hash_array(pa.array(texts, arrow_type))

    assert hashes.tolist() == [stable_hash(text.encode()) for text in texts]


def test_an_empty_array_has_no_hashes() -> None:
    assert stable_hash_array(pa.array([], pa.binary())).tolist() == []


def test_words_hash_like_their_bytes() -> None:
    numbers = np.array([1, -1, 1 << 40], dtype=np.int64)

    hashes = stable_hash_words(numbers.astype(">i8").view("<u8").astype(np.uint64), 8)

    assert hashes.tolist() == [stable_hash(int(n).to_bytes(8, "big", signed=True)) for n in numbers]


def test_key_groups_are_the_hash_modulo_their_number() -> None:
    hashes = np.array([stable_hash(key) for key in GOLDEN], dtype=np.uint64)

    assert key_groups_of(hashes, 128).tolist() == [assign_to_key_group(key, 128) for key in GOLDEN]


def test_ranges_are_those_of_the_specification() -> None:
    ranges = [compute_key_group_range_for_operator_index(128, 3, index) for index in range(3)]

    assert ranges == [(0, 42), (43, 85), (86, 127)]


@pytest.mark.parametrize(("groups", "parallelism"), [(128, 1), (128, 3), (7, 7), (10, 4), (32768, 1000)])
def test_every_group_lies_in_the_range_of_its_subtask(groups: int, parallelism: int) -> None:
    ranges = [compute_key_group_range_for_operator_index(groups, parallelism, i) for i in range(parallelism)]

    assert [group for first, last in ranges for group in range(first, last + 1)] == list(range(groups))
    for group in range(groups):
        first, last = ranges[compute_operator_index_for_key_group(groups, parallelism, group)]
        assert first <= group <= last


def test_more_subtasks_than_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="exceeds"):
        compute_key_group_range_for_operator_index(4, 5, 0)


@pytest.mark.parametrize(
    ("parallelism", "groups"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (172, 512), (30000, MAX_KEY_GROUPS)],
)
def test_default_number_of_groups(parallelism: int, groups: int) -> None:
    assert compute_default_max_parallelism(parallelism) == groups
