"""What a query returns: a state object over a value of its own, which refuses to be written to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from tidemark.state.immutable import immutable_state
from tidemark.state.primitives import State

__all__ = ["result_state"]

_REFUSAL = "The result of a query is a read-only copy of the job's state. State is changed by the job only."


class _Content:
    """Content of a state without map keys, as it was when it was read."""

    __slots__ = ("_content", "_default", "_get_result")

    def __init__(
        self, content: Any, default: Any = None, get_result: Callable[[Any], Any] | None = None
    ) -> None:
        self._content = content
        self._default = default
        self._get_result = get_result

    def value(self) -> Any:
        return self._content if self._content is not None else copy.deepcopy(self._default)

    def get(self) -> Any:
        return self._content if self._get_result is None else self._get_result(self._content)

    def __repr__(self) -> str:
        return repr(self._content)


class _Entries(dict[Any, Any]):
    """Content of a map state as it was when it was read."""

    def contains(self, key: Any) -> bool:
        return key in self

    def is_empty(self) -> bool:
        return not self


def result_state(descriptor: StateDescriptor, content: Any) -> State:
    """The state object for content that `StateCodec.decode` returned."""
    source: _Content | _Entries
    if descriptor.kind is StateKind.MAP:
        source = _Entries(content)
    elif isinstance(descriptor, ValueStateDescriptor):
        source = _Content(content, descriptor.default_value)
    elif isinstance(descriptor, AggregatingStateDescriptor):
        # The client has its own aggregate function; the job sent the accumulator.
        source = _Content(content, get_result=descriptor.agg_function.get_result)
    else:
        source = _Content(content)
    return immutable_state(descriptor.kind, source, _REFUSAL)
