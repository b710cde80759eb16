"""State handles: what a user function touches. A handle holds no value; it reads the current key's.

The classes here are the public vocabulary; `docs/concepts/state-and-keys.md` tells them apart. Backends subclass them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from tidemark.errors import UnsupportedOperationException

if TYPE_CHECKING:
    from tidemark.state.column_keys import Keys, KeySet

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


def _only_by_column(method: str) -> NoReturn:
    raise UnsupportedOperationException(
        f"{method}() reaches the state of many keys and exists in a BatchProcessFunction only; see "
        "KeyedStream.process_batch()."
    )


class State(ABC):
    """Root of all handles."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove the value of the current key (and window, for window state) only."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    def read(self, keys: KeySet, default: Any = None, with_mask: bool = False) -> Any:
        """The values of many keys; in a `BatchProcessFunction` only. Beyond Flink.

        Numbers and booleans come as a numpy array, tuples as a tuple of such columns, everything else as an Arrow
        array of the type.

        Args:
            keys: `keys`, or a part of it such as `keys[mask]`.
            default: For keys without a value; without one the descriptor's default, else 0, else null.
            with_mask: Whether to return `(values, present)`, with a boolean array that says which keys have a value.
        """
        _only_by_column("read")

    def write(self, keys: KeySet, values: Any) -> None:
        """Overwrite the values of many keys; in a `BatchProcessFunction` only. Beyond Flink.

        Takes what `read` gives, one value per key; a null clears its key.
        """
        _only_by_column("write")

    @abstractmethod
    def value(self) -> T | None:
        """The stored value, else the descriptor's default, else None."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Overwrite the value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State to which values are added."""

    __slots__ = ()

    def append(self, keys: Keys, values: Any) -> None:
        """Add one value per row to the key of the row, in order; in a `BatchProcessFunction` only. Beyond Flink."""
        _only_by_column("append")

    def read(self, keys: KeySet) -> Any:
        """What many keys hold, as an Arrow array; in a `BatchProcessFunction` only. Beyond Flink.

        Of list state the lists, else what `get` would give, null where nothing was added.
        """
        _only_by_column("read")

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

    def write(self, keys: KeySet, values: Any) -> None:
        """Replace the lists of many keys by those of an Arrow list array; in a `BatchProcessFunction` only."""
        _only_by_column("write")

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

    def read(self, keys: Keys, map_keys: Any) -> Any:
        """For each row the entry of its key, as an Arrow array; in a `BatchProcessFunction` only. Beyond Flink.

        Args:
            keys: The keys of the batch.
            map_keys: One per row. Where there is no such entry the answer is null.
        """
        _only_by_column("read")

    def write(self, keys: Keys, map_keys: Any, values: Any) -> None:
        """Set an entry of its key for each row, in order; in a `BatchProcessFunction` only. Beyond Flink."""
        _only_by_column("write")

    def discard(self, keys: Keys, map_keys: Any) -> None:
        """Drop an entry of its key for each row, if it is there; in a `BatchProcessFunction` only. Beyond Flink."""
        _only_by_column("discard")

    def read_all(self, keys: KeySet) -> Any:
        """All entries of many keys; in a `BatchProcessFunction` only. Beyond Flink.

        Returns:
            Position of the key among `keys`, map key and value of every entry: a numpy and two Arrow arrays.
        """
        _only_by_column("read_all")

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
