"""Which subtask a record goes to: keys to tokens and key groups, and the other partitionings.

Works on whole batches: keys are serialised and hashed with numpy wherever their type allows it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate, compress
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.api.graph import Ship
from tidemark.errors import ConfigError
from tidemark.state.key_groups import key_groups_of, stable_hash_array, stable_hash_words
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.builtin import StringSerializer
from tidemark.state.serializers.tuples import TupleSerializer
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["KeyRouter", "hash_keys", "key_serializer_for", "layout_of", "split_evenly", "split_lists"]

_INTEGERS = {"b": ">i1", "h": ">i2", "i": ">i4", "q": ">i8"}
"""Arrays of the integers a serializer writes, by its `struct_code`."""


def key_serializer_for(key_type: TypeInformation | None) -> TypeSerializer[Any]:
    """Serializer of keys; canonical pickle when no type was given."""
    from tidemark.state.serializers.registry import serializer_for

    return serializer_for(key_type if key_type is not None else Types.PICKLED_BYTE_ARRAY())


def layout_of(serializer: TypeSerializer[Any]) -> np.dtype[Any] | None:
    """How the bytes of a key lie in memory, filled up to whole words; None: keys are no (tuples of) integers."""
    fields = serializer.fields if isinstance(serializer, TupleSerializer) else (serializer,)
    kinds = [_INTEGERS.get(getattr(field, "struct_code", ""), "") for field in fields]
    if not kinds or "" in kinds:
        return None
    offsets = [0, *accumulate([np.dtype(kind).itemsize for kind in kinds])]
    names = [f"f{i}" for i in range(len(kinds))]
    whole = -(-offsets[-1] // 8) * 8
    return np.dtype({"names": names, "formats": kinds, "offsets": offsets[:-1], "itemsize": whole})


def _integer_columns(keys: Sequence[Any] | pa.Array, width: int) -> list[np.ndarray[Any, Any]] | None:
    """The integers of (tuples of) `width` integers, column by column; None if one is missing."""
    if not isinstance(keys, pa.Array):
        return list(np.array(keys, np.int64).reshape(len(keys), width).T)
    columns = keys.flatten() if pa.types.is_struct(keys.type) else [keys]
    if any(column.null_count for column in columns):
        return None
    return [column.to_numpy(zero_copy_only=False) for column in columns]


def _hash_integers(
    columns: list[np.ndarray[Any, Any]], length: int, layout: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Hash keys of `length` bytes whose fields are `columns`."""
    records = np.zeros(len(columns[0]), layout)
    for name, column in zip(layout.names or (), columns, strict=True):
        records[name] = column
    words = records.view("<u8").reshape(len(records), layout.itemsize // 8)
    return stable_hash_words(words, length)


def hash_keys(
    keys: Sequence[Any] | pa.Array, serializer: TypeSerializer[Any], layout: np.dtype[Any] | None
) -> np.ndarray[Any, Any]:
    """Stable hash of each key; `layout` is that of `serializer`."""
    if layout is not None:
        columns = _integer_columns(keys, len(layout.names or ()))
        if columns is not None:
            assert serializer.fixed_width is not None
            return _hash_integers(columns, serializer.fixed_width, layout)
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
        self._layout = layout_of(self.serializer)
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._normalize = self.serializer.normalizer()

    def tokens(self, values: Sequence[Any]) -> list[Any]:
        """Key token of each value (see `tidemark.state.backend`)."""
        keys = list(map(self._selector, values))
        if self.serializer.identity_key:
            return keys if self._normalize is None else list(map(self._normalize, keys))
        return list(map(self.serializer.key_bytes, keys))

    def token_column(self, values: Sequence[Any]) -> pa.Array:
        """Like `tokens`, as an Arrow array."""
        if self.serializer.identity_key:
            return self.serializer.to_arrow(list(map(self._selector, values)))
        return pa.array(self.tokens(values), pa.binary())

    def subtasks(self, tokens: Sequence[Any] | pa.Array) -> np.ndarray[Any, Any] | None:
        """Receiving subtask of each token; None when there is only one."""
        if self._parallelism == 1:
            return None
        if self.serializer.identity_key or isinstance(tokens, pa.Array):
            hashes = hash_keys(tokens, self.serializer, self._layout)
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
