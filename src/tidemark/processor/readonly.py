"""State handles that can be read and not written: what reader functions get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from tidemark.errors import UnsupportedOperationException
from tidemark.state.descriptors import StateKind
from tidemark.state.primitives import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

__all__ = ["read_only"]


def _refuse() -> NoReturn:
    raise UnsupportedOperationException(
        "State is read-only here: a reader function looks at a savepoint and cannot change it. Write a new "
        "one with SavepointWriter."
    )


class _ReadOnly(State):
    """Passes reads on to a handle."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def clear(self) -> NoReturn:
        """Refuse."""
        _refuse()


class _ReadOnlyValue(_ReadOnly, ValueState[Any]):
    __slots__ = ()

    def value(self) -> Any:
        return self._handle.value()

    def update(self, value: Any) -> NoReturn:
        _refuse()


class _ReadOnlyList(_ReadOnly, ListState[Any]):
    __slots__ = ()

    def get(self) -> Iterable[Any]:
        return list(self._handle.get())

    def add(self, value: Any) -> NoReturn:
        _refuse()

    def add_all(self, values: Iterable[Any]) -> NoReturn:
        _refuse()

    def update(self, values: Iterable[Any]) -> NoReturn:
        _refuse()


class _ReadOnlyMap(_ReadOnly, MapState[Any, Any]):
    __slots__ = ()

    def get(self, key: Any) -> Any:
        return self._handle.get(key)

    def contains(self, key: Any) -> bool:
        return bool(self._handle.contains(key))

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._handle.items()  # type: ignore[no-any-return]

    def keys(self) -> Iterable[Any]:
        return self._handle.keys()  # type: ignore[no-any-return]

    def values(self) -> Iterable[Any]:
        return self._handle.values()  # type: ignore[no-any-return]

    def is_empty(self) -> bool:
        return bool(self._handle.is_empty())

    def put(self, key: Any, value: Any) -> NoReturn:
        _refuse()

    def put_all(self, mapping: Any) -> NoReturn:
        _refuse()

    def remove(self, key: Any) -> NoReturn:
        _refuse()


class _ReadOnlyAppending(_ReadOnly):
    __slots__ = ()

    def get(self) -> Any:
        """What has been added."""
        return self._handle.get()

    def add(self, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()


class _ReadOnlyReducing(_ReadOnlyAppending, ReducingState[Any]):
    __slots__ = ()


class _ReadOnlyAggregating(_ReadOnlyAppending, AggregatingState[Any, Any]):
    __slots__ = ()


class _ReadOnlyFolding(_ReadOnlyAppending, FoldingState[Any, Any]):
    __slots__ = ()


_BY_KIND: dict[StateKind, type[_ReadOnly]] = {
    StateKind.VALUE: _ReadOnlyValue,
    StateKind.LIST: _ReadOnlyList,
    StateKind.MAP: _ReadOnlyMap,
    StateKind.REDUCING: _ReadOnlyReducing,
    StateKind.AGGREGATING: _ReadOnlyAggregating,
    StateKind.FOLDING: _ReadOnlyFolding,
}


def read_only(kind: StateKind, handle: State) -> State:
    """A view of `handle` that refuses to write."""
    return _BY_KIND[kind](handle)
