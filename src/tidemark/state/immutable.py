"""State that can be read and not written: what reader functions and clients of queryable state get."""

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

__all__ = ["immutable_state"]


class _ImmutableState(State):
    """Passes reads on to `source`, which has the reading methods of the kind; `refusal` answers all others."""

    __slots__ = ("_refusal", "_source")

    def __init__(self, source: Any, refusal: str) -> None:
        self._source = source
        self._refusal = refusal

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise UnsupportedOperationException(self._refusal)

    clear = __setitem__ = __delitem__ = _refuse

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r})"


class ImmutableValueState(_ImmutableState, ValueState[Any]):
    """A value."""

    __slots__ = ()

    def value(self) -> Any:
        """The value, else the descriptor's default, else None."""
        return self._source.value()

    get = value
    update = _ImmutableState._refuse


class ImmutableListState(_ImmutableState, ListState[Any]):
    """A list."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """The elements in insertion order, in a list of the caller's own."""
        return list(self._source.get())

    add = add_all = update = _ImmutableState._refuse


class ImmutableMapState(_ImmutableState, MapState[Any, Any]):
    """A map."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        """The value, or None when the key is absent."""
        return self._source.get(key)

    def contains(self, key: Any) -> bool:
        """Whether the key is present."""
        return bool(self._source.contains(key))

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries."""
        return self._source.items()  # type: ignore[no-any-return]

    def keys(self) -> Iterable[Any]:
        """All keys."""
        return self._source.keys()  # type: ignore[no-any-return]

    def values(self) -> Iterable[Any]:
        """All values."""
        return self._source.values()  # type: ignore[no-any-return]

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return bool(self._source.is_empty())

    put = put_all = remove = __setitem__ = __delitem__ = _ImmutableState._refuse


class _ImmutableAppendingState(_ImmutableState):
    __slots__ = ()

    def get(self) -> Any:
        """What has been added."""
        return self._source.get()

    add = _ImmutableState._refuse


class ImmutableReducingState(_ImmutableAppendingState, ReducingState[Any]):
    """A reduced value."""

    __slots__ = ()


class ImmutableAggregatingState(_ImmutableAppendingState, AggregatingState[Any, Any]):
    """The result of an aggregate function."""

    __slots__ = ()


class ImmutableFoldingState(_ImmutableAppendingState, FoldingState[Any, Any]):
    """A folded value."""

    __slots__ = ()


_BY_KIND: dict[StateKind, type[_ImmutableState]] = {
    StateKind.VALUE: ImmutableValueState,
    StateKind.LIST: ImmutableListState,
    StateKind.MAP: ImmutableMapState,
    StateKind.REDUCING: ImmutableReducingState,
    StateKind.AGGREGATING: ImmutableAggregatingState,
    StateKind.FOLDING: ImmutableFoldingState,
}


def immutable_state(kind: StateKind, source: Any, refusal: str) -> State:
    """A state of that kind over `source`; every writing method raises.

    Args:
        kind: Kind of the state.
        source: A handle, or anything with its reading methods.
        refusal: What a caller is told who tries to write.
    """
    return _BY_KIND[kind](source, refusal)
