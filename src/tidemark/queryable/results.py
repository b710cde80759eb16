"""What a query returns: state objects that hold a value of their own and refuse to be written to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tidemark.errors import UnsupportedOperationException
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from tidemark.state.primitives import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

__all__ = [
    "ImmutableAggregatingState",
    "ImmutableFoldingState",
    "ImmutableListState",
    "ImmutableMapState",
    "ImmutableReducingState",
    "ImmutableValueState",
    "immutable_state",
]


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise UnsupportedOperationException(
        "The result of a query is a read-only copy of the job's state. State is changed by the job only."
    )


class _Holding:
    """Holds the content that was read."""

    __slots__ = ("_content",)

    def __init__(self, content: Any) -> None:
        self._content = content

    def clear(self) -> NoReturn:
        """Refuse."""
        _refuse()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        _refuse()

    def __delitem__(self, key: Any) -> NoReturn:
        _refuse()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._content!r})"


class ImmutableValueState(_Holding, ValueState[Any]):
    """A value as it was when it was read."""

    __slots__ = ("_default",)

    def __init__(self, content: Any, default: Any = None) -> None:
        super().__init__(content)
        self._default = default

    def value(self) -> Any:
        """The value, else a copy of the descriptor's default, else None."""
        return self._content if self._content is not None else copy.deepcopy(self._default)

    def get(self) -> Any:
        """The same as `value`."""
        return self.value()

    def update(self, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()


class ImmutableListState(_Holding, ListState[Any]):
    """A list as it was when it was read."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """The elements in insertion order, in a list of the caller's own."""
        return list(self._content)

    def add(self, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()

    def add_all(self, values: Iterable[Any]) -> NoReturn:
        """Refuse."""
        _refuse()

    def update(self, values: Iterable[Any]) -> NoReturn:
        """Refuse."""
        _refuse()


class ImmutableMapState(_Holding, MapState[Any, Any]):
    """A map as it was when it was read."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        """The value, or None when the key is absent."""
        return self._content.get(key)

    def contains(self, key: Any) -> bool:
        """Whether the key is present."""
        return key in self._content

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries."""
        return self._content.items()  # type: ignore[no-any-return]

    def keys(self) -> Iterable[Any]:
        """All keys."""
        return self._content.keys()  # type: ignore[no-any-return]

    def values(self) -> Iterable[Any]:
        """All values."""
        return self._content.values()  # type: ignore[no-any-return]

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._content

    def put(self, key: Any, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()

    def put_all(self, mapping: Any) -> NoReturn:
        """Refuse."""
        _refuse()

    def remove(self, key: Any) -> NoReturn:
        """Refuse."""
        _refuse()


class ImmutableReducingState(_Holding, ReducingState[Any]):
    """A reduced value as it was when it was read."""

    __slots__ = ()

    def get(self) -> Any:
        """The value."""
        return self._content

    def add(self, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()


class ImmutableFoldingState(_Holding, FoldingState[Any, Any]):
    """A folded value as it was when it was read."""

    __slots__ = ()

    def get(self) -> Any:
        """The value."""
        return self._content

    def add(self, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()


class ImmutableAggregatingState(_Holding, AggregatingState[Any, Any]):
    """An accumulator as it was when it was read."""

    __slots__ = ("_get_result",)

    def __init__(self, content: Any, get_result: Callable[[Any], Any]) -> None:
        super().__init__(content)
        self._get_result = get_result

    def get(self) -> Any:
        """The result that the aggregate function of the client's descriptor makes of the accumulator."""
        return self._get_result(self._content)

    def add(self, value: Any) -> NoReturn:
        """Refuse."""
        _refuse()


_SIMPLE: dict[StateKind, Callable[[Any], State]] = {
    StateKind.LIST: ImmutableListState,
    StateKind.MAP: ImmutableMapState,
    StateKind.REDUCING: ImmutableReducingState,
    StateKind.FOLDING: ImmutableFoldingState,
}


def immutable_state(descriptor: StateDescriptor, content: Any) -> State:
    """The state object for content that `StateCodec.decode` returned."""
    if isinstance(descriptor, ValueStateDescriptor):
        return ImmutableValueState(content, descriptor.default_value)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return ImmutableAggregatingState(content, descriptor.agg_function.get_result)
    return _SIMPLE[descriptor.kind](content)
