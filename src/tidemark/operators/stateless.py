"""Operators on streams without keys: map, flat_map, filter, process.

They run fused in a Spark task or, when their function holds operator state, in a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

from tidemark.operators.base import Output
from tidemark.operators.contexts import ElementContext, SupportsElement
from tidemark.operators.emission import (
    finish_unstamped,
    open_timestamps,
    refuse_one_value,
    route_tagged,
    stamps_of,
)
from tidemark.operators.function_operator import FunctionOperator
from tidemark.protocol.batch import Batch

__all__ = [
    "FilterOperator",
    "FlatMapOperator",
    "MapOperator",
    "ProcessOperator",
    "flat_map_plain",
    "method_of",
    "process_plain",
]


def method_of(function: Any, name: str) -> Callable[..., Any]:
    """The method `name` of a function object, or the callable itself.

    Raises:
        TypeError: It is neither.
    """
    method = getattr(function, name, None)
    if callable(method):
        return method  # type: ignore[no-any-return]
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise TypeError(f"Expected a callable or an object with {name}(), got {type(function).__name__}.")


class MapOperator(FunctionOperator):
    """One output per input."""

    def __init__(self, function: Any) -> None:
        super().__init__([function])
        self._call = method_of(function, "map")

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Map every record."""
        if batch.timestamps is not None:
            stamps = open_timestamps(out)
            stamps += batch.timestamps
        out.values.extend(map(self._call, batch.values))
        finish_unstamped(out)


def flat_map_plain(call: Callable[[Any], Any], batch: Batch, out: Output) -> None:
    """Drive `call(value)` over a batch of a stream without keys; results are iterables or None."""
    values = out.values
    append = values.append
    if batch.timestamps is None:
        for value in batch.values:
            result = call(value)
            if result is not None:
                for item in result:
                    append(item)
        finish_unstamped(out)
        return
    start, stamps = len(values), open_timestamps(out)
    ends: list[int] = []
    for value in batch.values:
        result = call(value)
        if result is not None:
            for item in result:
                append(item)
        ends.append(len(values))
    stamps += stamps_of(batch.timestamps, start, ends)


class FlatMapOperator(FunctionOperator):
    """Any number of outputs per input."""

    def __init__(self, function: Any) -> None:
        super().__init__([function])
        self._call = method_of(function, "flat_map")

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Emit the elements of every result."""
        flat_map_plain(self._call, batch, out)


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function is true."""

    def __init__(self, function: Any) -> None:
        super().__init__([function])
        self._call = method_of(function, "filter")

    def passing(self, values: list[Any]) -> list[bool]:
        """Which of the values pass."""
        return list(map(bool, map(self._call, values)))

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Emit the records that pass."""
        keep = self.passing(batch.values)
        if batch.timestamps is not None:
            stamps = open_timestamps(out)
            stamps.extend(compress(batch.timestamps, keep))
        out.values.extend(compress(batch.values, keep))
        finish_unstamped(out)


def process_plain(
    call: Callable[[Any, Any], Any], context: SupportsElement, batch: Batch, out: Output
) -> None:
    """Drive `call(value, context)` over a batch of a stream without keys."""
    values = out.values
    append, start = values.append, len(values)
    context.out = out
    if batch.timestamps is None:
        context.stamp = None
        for value in batch.values:
            result = call(value, context)
            if result is not None:
                for item in result:
                    append(item)
        finish_unstamped(out)
    else:
        stamps = open_timestamps(out)
        ends: list[int] = []
        for value, context.stamp in zip(batch.values, batch.timestamps, strict=True):
            result = call(value, context)
            if result is not None:
                for item in result:
                    append(item)
            ends.append(len(values))
        stamps += stamps_of(batch.timestamps, start, ends)
    if len(values) > start:
        refuse_one_value(result)
        route_tagged(out, start)


class ProcessOperator(FunctionOperator):
    """Process function of a stream without keys."""

    def __init__(self, function: Any) -> None:
        super().__init__([function])
        self._call = method_of(function, "process_element")

    def _make_contexts(self) -> None:
        self._context = ElementContext(self._service)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Call `process_element` for every record."""
        process_plain(self._call, self._context, batch, out)
