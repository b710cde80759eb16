"""State handles: what a user function touches. A handle holds no value; it reads the current key's.

The classes here are the public vocabulary; `docs/concepts/state-and-keys.md` tells them apart. Backends subclass them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = [
    "AggregatingState",
    "AppendingState",
    "BroadcastState",
    "FoldingState",
    "ListState",
    "MapState",
    "MergingState",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "State",
    "ValueState",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Root of all handles."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove the value of the current key (and window, for window state) only."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """The stored value, else the descriptor's default, else None."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Overwrite the value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State to which values are added."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Any:
        """What has been added so far."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add one value."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state whose content of several windows can be merged."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list per key."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Iterable[T]:
        """The elements in insertion order, re-iterable; empty when nothing is stored."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Append all; None, or a None element, is a `ValueError` and changes nothing."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the list; an empty one clears it."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _MapReading(State, Generic[K, V]):
    """The reading half of a map."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value, or None when the key is absent."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether the key is present, also with a stored None."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """All entries, in no promised order; changing the map meanwhile is a `RuntimeError`."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """All keys."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """All values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no entry."""

    def entries(self) -> Iterable[tuple[K, V]]:
        """The same as `items`."""
        return self.items()

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class MapState(_MapReading[K, V]):
    """A map per key."""

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set one entry; None is stored if the value type allows it."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set many entries, from a mapping or an iterable of pairs."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Drop one entry; an absent key has no effect."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class ReducingState(MergingState[T, T]):
    """One value per key, combined by a reduce function; adding None clears."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator per key, driven by an aggregate function; adding None clears."""

    __slots__ = ()


class FoldingState(AppendingState[T, V]):
    """One folded value per key (deprecated); adding None clears."""

    __slots__ = ()


class ReadOnlyBroadcastState(_MapReading[K, V]):
    """Broadcast state as the non-broadcast side sees it; every writing method raises."""

    __slots__ = ()

    def immutable_entries(self) -> Iterable[tuple[K, V]]:
        """The same as `items`."""
        return self.items()


class BroadcastState(MapState[K, V]):
    """Broadcast state as the broadcast side sees it."""

    __slots__ = ()

    def immutable_entries(self) -> Iterable[tuple[K, V]]:
        """The same as `items`."""
        return self.items()
