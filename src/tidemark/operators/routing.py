"""Which subtask a record goes to: keys to tokens and key groups, and the other partitionings.

Works on whole batches: keys are serialised and hashed with numpy wherever their type allows it. For a handful of
records calling numpy costs more than it saves; they take a way of their own to the same subtasks.
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
from tidemark.state.key_groups import assign_to_key_group, key_groups_of
from tidemark.state.key_hashing import hash_tokens, layout_of
from tidemark.state.key_tokens import KeyTokens, key_serializer_for
from tidemark.types.typeinfo import TypeInformation

__all__ = ["FEW", "KeyRouter", "custom_targets", "split_evenly", "split_few", "split_lists", "taken"]


FEW = 64
"""Fewer records than this are routed one by one: one in 2 us instead of 90, a hundred in the same time."""


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
        groups = np.arange(max_parallelism)
        self._owners = (groups * parallelism // max_parallelism).astype(np.uint16)
        """Subtask of each key group."""
        self.key_tokens = KeyTokens(self.serializer)
        self._token_bytes: Callable[[Any], bytes] = self.key_tokens.to_bytes or bytes

    def tokens(self, values: Sequence[Any]) -> list[Any]:
        """Key token of each value."""
        return self.key_tokens.of(list(map(self._selector, values)))

    def token_column(self, values: Sequence[Any]) -> pa.Array:
        """Like `tokens`, as an Arrow array."""
        # Going into a column normalises keys, so that they count as stored ones.
        return self.key_tokens.to_arrow(self.key_tokens.of_stored(list(map(self._selector, values))))

    def subtasks(self, tokens: Sequence[Any] | pa.Array) -> np.ndarray[Any, Any] | None:
        """Receiving subtask of each token; None when there is only one."""
        if self._parallelism == 1:
            return None
        hashes = hash_tokens(tokens, self.serializer, self._layout)
        return self._owners.take(key_groups_of(hashes, self._max_parallelism))

    def few_subtasks(self, tokens: Sequence[Any]) -> list[int]:
        """What `subtasks` says of tokens, found one by one."""
        count, groups, token_bytes = self._parallelism, self._max_parallelism, self._token_bytes
        return [assign_to_key_group(token_bytes(token), groups) * count // groups for token in tokens]


def taken(column: pa.Array, rows: np.ndarray[Any, Any]) -> pa.Array:
    """What `column.take` gives, in a third of the time: fields one by one, and numbers by numpy."""
    if not column.null_count:
        kind = column.type
        if pa.types.is_struct(kind) and kind.num_fields:
            fields = [taken(field, rows) for field in column.flatten()]
            return pa.StructArray.from_arrays(fields, fields=list(kind))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return pa.array(column.to_numpy().take(rows), kind)
    return column.take(pa.array(rows))


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


def split_few(targets: list[int], *columns: list[Any] | None) -> list[tuple[int, list[list[Any] | None]]]:
    """What `split_lists` gives, found one by one."""
    places: dict[int, list[int]] = {}
    for at, target in enumerate(targets):
        places.setdefault(target, []).append(at)
    if len(places) == 1:
        return [(targets[0], list(columns))]
    return [
        (target, [None if c is None else [c[at] for at in places[target]] for c in columns])
        for target in sorted(places)
    ]


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
