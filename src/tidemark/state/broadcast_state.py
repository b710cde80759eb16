"""Broadcast state: a map that every parallel instance keeps for itself.

The broadcast side gets `HeapBroadcastState`, everybody else a `ReadOnlyBroadcastView` of the same content.
It is operator state, so it always lives in memory and is serialised at the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.primitives import BroadcastState, ReadOnlyBroadcastState
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.compatibility import dump_serializer_snapshot
from tidemark.state.snapshot import OperatorStatePart, Redistribution

__all__ = ["HeapBroadcastState", "ReadOnlyBroadcastView"]


class _BroadcastReading:
    """The map behind a broadcast state and everything that reads it."""

    __slots__ = ()

    _entries: dict[Hashable, Any]
    _name: str
    _changes: list[int]
    _token_of: Callable[[Any], Any] | None
    _key_of: Callable[[Any], Any] | None

    def _token(self, key: Any) -> Hashable:
        token_of = self._token_of
        token: Hashable = key if token_of is None else token_of(key)
        return token

    def get(self, key: Any) -> Any:
        """The value, or None."""
        return self._entries.get(self._token(key))

    def contains(self, key: Any) -> bool:
        """Whether the key is present, also with a stored None."""
        return self._token(key) in self._entries

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries."""
        return _View(self, None)

    def keys(self) -> Iterable[Any]:
        """All keys."""
        return _View(self, 0)

    def values(self) -> Iterable[Any]:
        """All values."""
        return _View(self, 1)

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        key_of = self._key_of
        entries = self._entries.items()
        return iter(entries) if key_of is None else ((key_of(token), value) for token, value in entries)


class _View:
    """Entries, keys or values of a broadcast state; may be iterated over repeatedly."""

    __slots__ = ("_part", "_state")

    def __init__(self, state: _BroadcastReading, part: int | None) -> None:
        self._state = state
        self._part = part

    def __iter__(self) -> Iterator[Any]:
        state, part = self._state, self._part
        seen = state._changes[0]
        for pair in state._pairs():
            yield pair if part is None else pair[part]
            if state._changes[0] != seen:
                raise RuntimeError(f"The broadcast state '{state._name}' was changed while iterated over.")

    def __repr__(self) -> str:
        return repr(list(self))


class HeapBroadcastState(_BroadcastReading, BroadcastState[Any, Any]):
    """Broadcast state as the broadcast side sees it."""

    __slots__ = (
        "_changes",
        "_entries",
        "_key_of",
        "_key_serializer",
        "_name",
        "_normalize",
        "_token_of",
        "_tokens",
        "_value_serializer",
    )

    def __init__(self, name: str, key: TypeSerializer[Any], value: TypeSerializer[Any]) -> None:
        """Start empty."""
        self._name = name
        self._key_serializer = key
        self._value_serializer = value
        self._tokens = KeyTokens(key)
        self._token_of, self._key_of = self._tokens.of_key, self._tokens.to_key
        self._normalize = value.normalizer()
        self._entries = {}
        self._changes = [0]

    def put(self, key: Any, value: Any) -> None:
        """Set one entry."""
        self.put_all([(key, value)])

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Set many entries, or none of them if one is not acceptable."""
        if dict_value is None:
            raise ConfigError(f"Broadcast state '{self._name}': put_all needs a mapping or pairs, not None.")
        pairs: Any = dict_value.items() if isinstance(dict_value, Mapping) else dict_value
        normalize = self._normalize
        entries = {self._token(key): value if normalize is None else normalize(value) for key, value in pairs}
        self._changes[0] += 1
        self._entries.update(entries)

    def remove(self, key: Any) -> None:
        """Drop one entry, if it is there."""
        self._changes[0] += 1
        self._entries.pop(self._token(key), None)

    def clear(self) -> None:
        """Drop all entries."""
        self._changes[0] += 1
        self._entries.clear()

    def read_only(self) -> ReadOnlyBroadcastView:
        """The same content without any way to change it."""
        return ReadOnlyBroadcastView(self)

    def num_entries(self) -> int:
        """How many keys there are."""
        return len(self._entries)

    def part(self) -> OperatorStatePart:
        """The content, serialised now."""
        key, value = self._key_serializer, self._value_serializer
        elements: list[bytes] = []
        for written, held in zip(
            self._tokens.all_bytes(list(self._entries)), self._entries.values(), strict=True
        ):
            elements += (written, value.to_bytes(held))
        return OperatorStatePart(
            self._name,
            Redistribution.BROADCAST,
            tuple(elements),
            dump_serializer_snapshot(value),
            dump_serializer_snapshot(key),
        )

    def load(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Take over restored entries."""
        token = self._token
        self._entries.clear()
        self._entries.update({token(key): value for key, value in pairs})


class ReadOnlyBroadcastView(_BroadcastReading, ReadOnlyBroadcastState[Any, Any]):
    """Broadcast state as the other side sees it: it always shows what the broadcast side has written."""

    __slots__ = ("_changes", "_entries", "_key_of", "_name", "_token_of")

    def __init__(self, state: HeapBroadcastState) -> None:
        """Look at `state`."""
        self._name = state._name
        self._entries = state._entries
        self._changes = state._changes
        self._token_of = state._token_of
        self._key_of = state._key_of

    def _refuse(self, *_: Any) -> NoReturn:
        raise UnsupportedOperationException(
            f"Broadcast state '{self._name}' can only be changed while a broadcast element is processed; "
            "here it is read-only."
        )

    put = put_all = remove = clear = __setitem__ = __delitem__ = _refuse
