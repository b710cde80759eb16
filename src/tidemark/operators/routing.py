"""Which subtask a record goes to: keys to tokens and key groups, and the other partitionings.

Works on whole batches: keys are serialised and hashed with numpy wherever their type allows it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.api.graph import Ship
from tidemark.errors import ConfigError
from tidemark.state.key_groups import key_groups_of, stable_hash_array, stable_hash_words
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.builtin import StringSerializer
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["KeyRouter", "hash_keys", "key_serializer_for", "split_evenly", "split_lists"]

_FIXED_WIDTH = {Types.LONG(): 8, Types.INT(): 4, Types.SHORT(): 2, Types.BYTE(): 1}


def key_serializer_for(key_type: TypeInformation | None) -> TypeSerializer[Any]:
    """Serializer of keys; canonical pickle when no type was given."""
    from tidemark.state.serializers.registry import serializer_for

    return serializer_for(key_type if key_type is not None else Types.PICKLED_BYTE_ARRAY())


def hash_keys(
    keys: Sequence[Any] | pa.Array, serializer: TypeSerializer[Any], width: int
) -> np.ndarray[Any, Any]:
    """Stable hash of each key; `width` > 0 says that keys are integers of that many bytes."""
    if width:
        if isinstance(keys, pa.Array):
            numbers = keys.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        else:
            numbers = np.array(keys, dtype=np.int64)
        # A key's bytes are its big-endian two's complement; the hash reads them as a little-endian word.
        words = numbers.byteswap().view(np.uint64) >> np.uint64(64 - 8 * width)
        return stable_hash_words(words, width)
    if isinstance(serializer, StringSerializer):
        texts = keys if isinstance(keys, pa.Array) else pa.array(keys, type=pa.string())
        if not texts.null_count:
            return stable_hash_array(texts)
    if isinstance(keys, pa.Array):
        keys = serializer.from_arrow(keys)
    key_bytes = serializer.key_bytes
    return stable_hash_array(pa.array([key_bytes(key) for key in keys], type=pa.large_binary()))


class KeyRouter:
    """Turns values into key tokens and receiving subtasks for one HASH edge."""

    def __init__(
        self,
        selector: Callable[[Any], Any],
        key_type: TypeInformation | None,
        max_parallelism: int,
        parallelism: int,
    ) -> None:
        self.serializer = key_serializer_for(key_type)
        self._selector = selector
        self._width = _FIXED_WIDTH.get(key_type, 0) if key_type is not None else 0
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._normalize = self.serializer.normalizer()

    def tokens(self, values: Sequence[Any]) -> list[Any]:
        """Key token of each value (see `tidemark.state.backend`)."""
        keys = list(map(self._selector, values))
        return self.tokens_of_keys(keys)

    def tokens_of_keys(self, keys: list[Any]) -> list[Any]:
        """Tokens of already selected keys."""
        if self.serializer.identity_key:
            return keys if self._normalize is None else list(map(self._normalize, keys))
        return list(map(self.serializer.key_bytes, keys))

    def subtasks(self, tokens: Sequence[Any] | pa.Array) -> np.ndarray[Any, Any] | None:
        """Receiving subtask of each token; None when there is only one."""
        if self._parallelism == 1:
            return None
        if self.serializer.identity_key or isinstance(tokens, pa.Array):
            hashes = hash_keys(tokens, self.serializer, self._width)
        else:
            hashes = stable_hash_array(pa.array(tokens, type=pa.large_binary()))
        groups = key_groups_of(hashes, self._max_parallelism)
        return np.asarray(groups.astype(np.int64) * self._parallelism // self._max_parallelism)


def split_lists(
    targets: np.ndarray[Any, Any], count: int, *columns: list[Any] | None
) -> list[tuple[int, list[list[Any] | None]]]:
    """Split parallel lists by `targets`, keeping order; only non-empty parts are returned."""
    parts: list[tuple[int, list[list[Any] | None]]] = []
    for target in range(count):
        mask = targets == target
        if not mask.any():
            continue
        if mask.all():
            return [(target, list(columns))]
        chosen = mask.tolist()
        parts.append((target, [None if c is None else list(compress(c, chosen)) for c in columns]))
    return parts


def split_evenly(ship: Ship, length: int, count: int, start: int) -> np.ndarray[Any, Any]:
    """Receiving subtasks of `length` records under a keyless partitioning, beginning at subtask `start`."""
    if ship is Ship.SHUFFLE:
        return np.array([random.randrange(count) for _ in range(length)], dtype=np.int64)
    return (np.arange(length, dtype=np.int64) + start) % count


def custom_targets(
    partitioner: Callable[[Any, int], int], keys: Sequence[Any], count: int
) -> np.ndarray[Any, Any]:
    """Receiving subtasks chosen by the user.

    Raises:
        ConfigError: The partitioner answered outside of `[0, count)`.
    """
    targets = [partitioner(key, count) for key in keys]
    for target in targets:
        if not isinstance(target, int) or not 0 <= target < count:
            raise ConfigError(
                f"The custom partitioner returned {target!r}; it must return an int in [0, {count})."
            )
    return np.array(targets, dtype=np.int64)
