"""Functions of one call per element: map, filter, reduce, aggregate, key selection and their kin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from tidemark.api.functions.base import Function
from tidemark.state.primitives import State

__all__ = [
    "AggregateFunction",
    "AsyncFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "DeltaFunction",
    "FilterFunction",
    "FlatMapFunction",
    "FoldFunction",
    "KeySelector",
    "KeyedStateFunction",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "ReduceFunction",
    "RichAggregateFunction",
    "RichCoFlatMapFunction",
    "RichCoMapFunction",
    "RichFilterFunction",
    "RichFlatMapFunction",
    "RichFoldFunction",
    "RichMapFunction",
    "RichReduceFunction",
]

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class MapFunction(Function):
    """One output per input."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The element to emit; None is emitted as None."""


class CoMapFunction(Function):
    """At most one output per input of two connected streams; None emits nothing."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Called for elements of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Called for elements of the second stream."""


class FlatMapFunction(Function):
    """Any number of outputs per input."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """An iterable of elements to emit, or None for nothing."""


class CoFlatMapFunction(Function):
    """Any number of outputs per input of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Called for elements of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Called for elements of the second stream."""


class FilterFunction(Function):
    """Keeps the elements for which it answers with something true."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether to keep the element."""


class ReduceFunction(Function):
    """Combines two elements into one of the same type; must be associative."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """The combination of both."""


class AggregateFunction(Function):
    """Adds elements to an accumulator and draws a result from it."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A fresh accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with `value` added; must be returned even if changed in place."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result of what was added."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """An accumulator that holds what both held."""


class FoldFunction(Function):
    """Folds elements into a value of another type. Deprecated: use `AggregateFunction`."""

    @abstractmethod
    def fold(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with `value` folded in."""


class KeySelector(Function):
    """Extracts the key of an element; must be deterministic."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key."""


class NullByteKeySelector(KeySelector):
    """Gives every element the same key; the key of all-windows."""

    def get_key(self, value: Any) -> int:
        """Always 0."""
        return 0


class Partitioner(Function):
    """Chooses the receiving subtask by key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Index of the subtask, in `[0, num_partitions)`."""


class KeyedStateFunction(ABC):
    """Visits one key's state in `apply_to_keyed_state`."""

    @abstractmethod
    def process(self, key: Any, state: State) -> None:
        """Called once per key, with that key current."""


class DeltaFunction(Function):
    """Updates one element of the solution set of a delta iteration (`iterate_delta`)."""

    @abstractmethod
    def update(self, element: Any, work: list[Any]) -> tuple[Any, Iterable[Any] | None]:
        """What becomes of an element in one round.

        Args:
            element: The element of the solution set with this key; None if there is none.
            work: The elements of the workset with this key, at least one.

        Returns:
            The new element, None if it stays as it is, and elements of the workset of the next round.
        """


class AsyncFunction(Function, Generic[IN, OUT]):
    """Emits what a coroutine returns (`AsyncDataStream`)."""

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The elements to emit for `value`."""

    def timeout(self, value: IN) -> list[OUT]:
        """The elements to emit when `async_invoke` took too long; raises by default."""
        raise TimeoutError(f"The asynchronous call for {value!r} has timed out.")


RichMapFunction = MapFunction
RichCoMapFunction = CoMapFunction
RichFlatMapFunction = FlatMapFunction
RichCoFlatMapFunction = CoFlatMapFunction
RichFilterFunction = FilterFunction
RichReduceFunction = ReduceFunction
RichAggregateFunction = AggregateFunction
RichFoldFunction = FoldFunction
