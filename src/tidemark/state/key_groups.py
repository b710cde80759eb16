"""Key groups: the unit in which keyed state is spread over subtasks and moved when a job is rescaled.

`key group = stable_hash(key bytes) mod G` and `subtask = key group * parallelism // G`. The hash is part
of the on-disk format and never changes. It reads the key as little-endian 64-bit words, the last one
padded with zeros, all arithmetic modulo 2**64:

    h = len * P1
    for each word w:  h = (h ^ w) * P2;  h = h ^ (h >> 32)
    h = (h ^ (h >> 29)) * P3;  h = h ^ (h >> 32)

The scalar form and the vectorised ones below agree bit for bit; `tests/unit/state/test_key_groups.py`
holds golden vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.errors import ConfigError

__all__ = [
    "MAX_KEY_GROUPS",
    "assign_to_key_group",
    "compute_default_max_parallelism",
    "compute_key_group_range_for_operator_index",
    "compute_operator_index_for_key_group",
    "key_groups_of",
    "stable_hash",
    "stable_hash_array",
    "stable_hash_words",
]

MAX_KEY_GROUPS = 1 << 15

_P1 = 0x9E3779B97F4A7C15
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_MASK = (1 << 64) - 1


def stable_hash(key: bytes) -> int:
    """Hash `key` to an unsigned 64-bit integer, the same in every process, machine and version."""
    h = len(key) * _P1 & _MASK
    for at in range(0, len(key), 8):
        h = (h ^ int.from_bytes(key[at : at + 8], "little")) * _P2 & _MASK
        h ^= h >> 32
    h = (h ^ (h >> 29)) * _P3 & _MASK
    return h ^ (h >> 32)


def stable_hash_words(words: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Hash keys of `length` bytes given as little-endian words (uint64): a word or a row of words per key."""
    h: Any = np.uint64(length * _P1 & _MASK)
    with np.errstate(over="ignore"):
        for word in words.T if words.ndim == 2 else [words]:
            # The first one makes an array, which is worked on in place.
            h = np.bitwise_xor(h, word, out=h if isinstance(h, np.ndarray) else None)
            h *= np.uint64(_P2)
            h ^= h >> np.uint64(32)
        return _finish(h)


def stable_hash_array(keys: pa.Array) -> np.ndarray[Any, Any]:
    """Hash every element of a binary or string array (nulls hash as the empty key)."""
    if pa.types.is_string(keys.type):
        keys = keys.cast(pa.binary())
    elif pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type):
        keys = keys.cast(pa.large_binary())
    wide = pa.types.is_large_binary(keys.type)
    count = len(keys)
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int64 if wide else np.int32)[
        keys.offset : keys.offset + count + 1
    ].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data_buffer = keys.buffers()[2]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    with np.errstate(over="ignore"):
        h = lengths.astype(np.uint64) * np.uint64(_P1)
        longest = int(lengths.max()) if count else 0
        # Eight zero bytes behind the data, so that the last word of the last key can be read whole.
        padded = np.concatenate([data, np.zeros(8, np.uint8)])
        for at in range(0, longest, 8):
            live = np.nonzero(lengths > at)[0] if at else np.nonzero(lengths)[0]
            h[live] = _mix_word(h[live], padded, starts[live] + at, lengths[live] - at)
        return _finish(h)


def _mix_word(
    h: np.ndarray[Any, Any], data: np.ndarray[Any, Any], at: np.ndarray[Any, Any], left: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    word = np.zeros(len(h), np.uint64)
    for byte in range(8):
        value = data[at + byte].astype(np.uint64) << np.uint64(8 * byte)
        word |= np.where(left > byte, value, np.uint64(0))
        if not (left > byte + 1).any():
            break
    h = (h ^ word) * np.uint64(_P2)
    return h ^ (h >> np.uint64(32))


def _finish(h: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The last steps, in place."""
    h ^= h >> np.uint64(29)
    h *= np.uint64(_P3)
    h ^= h >> np.uint64(32)
    return np.asarray(h)


def key_groups_of(hashes: np.ndarray[Any, Any], max_parallelism: int) -> np.ndarray[Any, Any]:
    """Key group of each hash, as uint16 (32768 groups at most)."""
    if max_parallelism & (max_parallelism - 1) == 0:
        # The same number, without a division per key.
        return (hashes & np.uint64(max_parallelism - 1)).astype(np.uint16)
    return (hashes % np.uint64(max_parallelism)).astype(np.uint16)


def assign_to_key_group(key_bytes: bytes, max_parallelism: int) -> int:
    """Key group of one serialised key."""
    return stable_hash(key_bytes) % max_parallelism


def compute_operator_index_for_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """Subtask that owns `key_group`."""
    return key_group * parallelism // max_parallelism


def compute_key_group_range_for_operator_index(
    max_parallelism: int, parallelism: int, operator_index: int
) -> tuple[int, int]:
    """First and last key group (both included) of subtask `operator_index`.

    Raises:
        ConfigError: There are more subtasks than key groups.
    """
    if parallelism > max_parallelism:
        raise ConfigError(
            f"Parallelism {parallelism} exceeds the maximum parallelism {max_parallelism}. "
            "Lower the parallelism or raise the maximum with set_max_parallelism()."
        )
    first = (operator_index * max_parallelism + parallelism - 1) // parallelism
    last = ((operator_index + 1) * max_parallelism - 1) // parallelism
    return first, last


def compute_default_max_parallelism(parallelism: int) -> int:
    """Number of key groups of an operator whose maximum parallelism nobody set."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << max(wanted - 1, 0).bit_length(), 128), MAX_KEY_GROUPS)
