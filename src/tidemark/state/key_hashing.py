"""Stable hashes of many keys at once: as columns wherever their type allows it, by their bytes where not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.state.key_groups import key_groups_of, stable_hash_array, stable_hash_words
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.builtin import StringSerializer
from tidemark.state.serializers.tuples import TupleSerializer

__all__ = ["hash_keys", "hash_tokens", "key_group_column", "layout_of"]

_INTEGERS = {"b": ">i1", "h": ">i2", "i": ">i4", "q": ">i8"}
"""Arrays of the integers a serializer writes, by its `struct_code`."""


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


def hash_tokens(
    tokens: Sequence[Any] | pa.Array, serializer: TypeSerializer[Any], layout: np.dtype[Any] | None
) -> np.ndarray[Any, Any]:
    """Stable hash of the key behind each token (see `tidemark.state.key_tokens`)."""
    if serializer.identity_key:
        return hash_keys(tokens, serializer, layout)
    return stable_hash_array(
        tokens if isinstance(tokens, pa.Array) else pa.array(tokens, type=pa.large_binary())
    )


def key_group_column(
    keys: pa.Array, serializer: TypeSerializer[Any], max_parallelism: int
) -> np.ndarray[Any, Any]:
    """Key group (uint16) of every key of a canonical key column."""
    return key_groups_of(hash_keys(keys, serializer, layout_of(serializer)), max_parallelism)
