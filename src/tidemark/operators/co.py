"""Operators of two connected streams; one function instance, and one keyed state, serve both inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.operators.base import Output
from tidemark.operators.contexts import ElementContext
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.keyed import KeyedProcessOperator, flat_map_keyed, process_keyed
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.stateless import flat_map_plain, method_of, process_plain
from tidemark.protocol.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemark.types.typeinfo import TypeInformation

__all__ = [
    "CoFlatMapOperator",
    "CoMapOperator",
    "CoProcessOperator",
    "KeyedCoFlatMapOperator",
    "KeyedCoMapOperator",
    "KeyedCoProcessOperator",
]


def _both(function: Any, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return method_of(function, f"{name}1"), method_of(function, f"{name}2")


def _as_flat(call: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...] | None]:
    """A `map1`/`map2` as a flat map: None emits nothing."""

    def flat(value: Any) -> tuple[Any, ...] | None:
        result = call(value)
        return None if result is None else (result,)

    return flat


class CoFlatMapOperator(FunctionOperator):
    """`flat_map1` and `flat_map2` without keys."""

    def __init__(self, function: Any) -> None:
        super().__init__([function])
        self._calls = _both(function, "flat_map")

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Call the method of the batch's input for every record."""
        flat_map_plain(self._calls[input_index], batch, out)


class CoMapOperator(CoFlatMapOperator):
    """`map1` and `map2` without keys; None emits nothing."""

    def __init__(self, function: Any) -> None:
        FunctionOperator.__init__(self, [function])
        first, second = _both(function, "map")
        self._calls = _as_flat(first), _as_flat(second)


class CoProcessOperator(FunctionOperator):
    """`process_element1` and `process_element2` without keys."""

    def __init__(self, function: Any) -> None:
        super().__init__([function])
        self._calls = _both(function, "process_element")

    def _make_contexts(self) -> None:
        self._context = ElementContext(self._service)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Call the method of the batch's input for every record."""
        process_plain(self._calls[input_index], self._context, batch, out)


class KeyedCoFlatMapOperator(KeyedOperator):
    """`flat_map1` and `flat_map2` with keyed state."""

    inputs = 2

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        super().__init__([function], key_type)
        self._calls = _both(function, "flat_map")

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        flat_map_keyed(self._observed(self._calls[input_index]), self._keys, batch, out, self._must_copy())


class KeyedCoMapOperator(KeyedCoFlatMapOperator):
    """`map1` and `map2` with keyed state; None emits nothing."""

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        KeyedOperator.__init__(self, [function], key_type)
        first, second = _both(function, "map")
        self._calls = _as_flat(first), _as_flat(second)


class KeyedCoProcessOperator(KeyedProcessOperator):
    """`process_element1`, `process_element2` and `on_timer` with keyed state."""

    inputs = 2

    def __init__(self, function: Any, key_type: TypeInformation | None) -> None:
        KeyedOperator.__init__(self, [function], key_type)
        self._calls = _both(function, "process_element")
        self._timer_call = getattr(function, "on_timer", None)

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        call = self._observed(self._calls[input_index])
        process_keyed(call, self._keys, self._context, batch, out, self._must_copy())
