"""Keyed operators of one input: map, flat_map, filter and process with keyed state.

The loops below are the performance budget of the whole product. Per record they set the current key,
call the user's bound method and append its results; whatever can wait for the end of the batch waits:
padding of timestamps, search for side outputs, timers. (`list.extend` of a generator would be slower: it
grows the list by a guess and shrinks it again, for every record.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.operators.base import Output
from tidemark.operators.contexts import KeyedElementContext, SupportsElement, TimerContext
from tidemark.operators.detach import detached
from tidemark.operators.emission import (
    finish_unstamped,
    open_timestamps,
    refuse_one_value,
    route_tagged,
    stamps_of,
)
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.stateless import method_of
from tidemark.protocol.batch import Batch

if TYPE_CHECKING:
    from tidemark.state.backend import KeyContext
    from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "KeyedFilterOperator",
    "KeyedFlatMapOperator",
    "KeyedMapOperator",
    "KeyedProcessOperator",
    "appender",
    "flat_map_keyed",
    "process_keyed",
]


def appender(values: list[Any], copies: bool) -> Callable[[Any], None]:
    """The function that adds one result to `values`, as it is or copied (see `tidemark.operators.detach`)."""
    append = values.append
    return (lambda value: append(detached(value))) if copies else append


def process_keyed(
    call: Callable[[Any, Any], Any],
    keys: KeyContext,
    context: SupportsElement,
    batch: Batch,
    out: Output,
    copies: bool,
) -> None:
    """Drive `call(value, context)` over a keyed batch."""
    values = out.values
    append, start = appender(values, copies), len(values)
    context.out = out
    tokens = batch.keys
    assert tokens is not None
    if batch.timestamps is None:
        context.stamp = None
        for keys.token, value in zip(tokens, batch.values):  # noqa: B905
            result = call(value, context)
            if result is not None:
                for item in result:
                    append(item)
        finish_unstamped(out)
    else:
        stamps = open_timestamps(out)
        ends: list[int] = []
        mark = ends.append
        for keys.token, value, context.stamp in zip(tokens, batch.values, batch.timestamps):  # noqa: B905
            result = call(value, context)
            if result is not None:
                for item in result:
                    append(item)
            mark(len(values))
        stamps += stamps_of(batch.timestamps, start, ends)
    if len(values) > start:
        refuse_one_value(result)
        route_tagged(out, start)


def flat_map_keyed(
    call: Callable[[Any], Any], keys: KeyContext, batch: Batch, out: Output, copies: bool
) -> None:
    """Drive `call(value)` over a keyed batch; results are iterables or None."""
    values = out.values
    append = appender(values, copies)
    tokens = batch.keys
    assert tokens is not None
    if batch.timestamps is None:
        for keys.token, value in zip(tokens, batch.values):  # noqa: B905
            result = call(value)
            if result is not None:
                for item in result:
                    append(item)
        finish_unstamped(out)
        return
    start, stamps = len(values), open_timestamps(out)
    ends: list[int] = []
    mark = ends.append
    for keys.token, value in zip(tokens, batch.values):  # noqa: B905
        result = call(value)
        if result is not None:
            for item in result:
                append(item)
        mark(len(values))
    stamps += stamps_of(batch.timestamps, start, ends)


class KeyedMapOperator(KeyedOperator):
    """One output per input."""

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        super().__init__([function], key_type)
        self._call = method_of(function, "map")

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        call, keys, append = self._observed(self._call), self._keys, out.values.append
        stamps = None if batch.timestamps is None else open_timestamps(out)
        assert batch.keys is not None
        if self._must_copy():
            for keys.token, value in zip(batch.keys, batch.values):  # noqa: B905
                append(detached(call(value)))
        else:
            for keys.token, value in zip(batch.keys, batch.values):  # noqa: B905
                append(call(value))
        if stamps is not None and batch.timestamps is not None:
            stamps += batch.timestamps
        finish_unstamped(out)


class KeyedFlatMapOperator(KeyedOperator):
    """Any number of outputs per input."""

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        super().__init__([function], key_type)
        self._call = method_of(function, "flat_map")

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        flat_map_keyed(self._observed(self._call), self._keys, batch, out, self._must_copy())


class KeyedFilterOperator(KeyedOperator):
    """Keeps the records for which the function is true."""

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        super().__init__([function], key_type)
        self._call = method_of(function, "filter")

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        call, keys, values = self._observed(self._call), self._keys, out.values
        assert batch.keys is not None
        if batch.timestamps is None:
            for keys.token, value in zip(batch.keys, batch.values):  # noqa: B905
                if call(value):
                    values.append(value)
            finish_unstamped(out)
            return
        stamps = open_timestamps(out)
        for keys.token, value, stamp in zip(batch.keys, batch.values, batch.timestamps):  # noqa: B905
            if call(value):
                values.append(value)
                stamps.append(stamp)


class KeyedProcessOperator(KeyedOperator):
    """Process function with keyed state and timers."""

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        super().__init__([function], key_type)
        self._call = method_of(function, "process_element")
        self._timer_call = getattr(function, "on_timer", None)

    def _make_contexts(self) -> None:
        self._context = KeyedElementContext(self._service, self._backend)
        self._timer_context = TimerContext(self._service, self._backend)

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        process_keyed(self._observed(self._call), self._keys, self._context, batch, out, self._must_copy())
