"""Process functions: elements, timers, side outputs and broadcast state.

Each callback may be a generator, return an iterable, or return None (rule R5).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeAlias, TypeVar

from tidemark.api import context as contexts
from tidemark.api.functions.base import Function

__all__ = [
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CoProcessFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "ProcessFunction",
]

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")


class ProcessFunction(Function):
    """Elements of a stream that is not keyed."""

    Context: TypeAlias = contexts.ProcessContext

    @abstractmethod
    def process_element(self, value: Any, ctx: contexts.ProcessContext) -> Iterable[Any] | None:
        """Called for every element."""


class KeyedProcessFunction(Function):
    """Elements and timers of a keyed stream."""

    Context: TypeAlias = contexts.KeyedProcessContext
    OnTimerContext: TypeAlias = contexts.OnTimerContext

    @abstractmethod
    def process_element(self, value: Any, ctx: contexts.KeyedProcessContext) -> Iterable[Any] | None:
        """Called for every element, with its key current."""

    def on_timer(self, timestamp: int, ctx: contexts.OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer fires, with its key current."""
        return None


class CoProcessFunction(Function):
    """Elements of two connected streams that are not keyed."""

    Context: TypeAlias = contexts.ProcessContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: contexts.ProcessContext) -> Iterable[Any] | None:
        """Called for elements of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: contexts.ProcessContext) -> Iterable[Any] | None:
        """Called for elements of the second stream."""


class KeyedCoProcessFunction(Function):
    """Elements and timers of two connected keyed streams, over the same keyed state."""

    Context: TypeAlias = contexts.KeyedProcessContext
    OnTimerContext: TypeAlias = contexts.OnTimerContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: contexts.KeyedProcessContext) -> Iterable[Any] | None:
        """Called for elements of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: contexts.KeyedProcessContext) -> Iterable[Any] | None:
        """Called for elements of the second stream."""

    def on_timer(self, timestamp: int, ctx: contexts.OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer fires, with its key current."""
        return None


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast functions are."""

    BaseContext = contexts.BroadcastBaseContext
    Context: Any = contexts.BroadcastContext
    ReadOnlyContext: Any = contexts.BroadcastReadOnlyContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """A stream that is not keyed, connected with a broadcast stream."""

    Context: TypeAlias = contexts.BroadcastContext
    ReadOnlyContext: TypeAlias = contexts.BroadcastReadOnlyContext

    @abstractmethod
    def process_element(self, value: IN1, ctx: contexts.BroadcastReadOnlyContext) -> Iterable[OUT] | None:
        """Called for elements of the data side."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: contexts.BroadcastContext) -> Iterable[OUT] | None:
        """Called on every parallel instance for every broadcast element."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """A keyed stream connected with a broadcast stream."""

    Context: TypeAlias = contexts.KeyedBroadcastContext
    ReadOnlyContext: TypeAlias = contexts.KeyedBroadcastReadOnlyContext
    OnTimerContext: TypeAlias = contexts.KeyedBroadcastOnTimerContext

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: contexts.KeyedBroadcastReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Called for elements of the data side, with their key current."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: contexts.KeyedBroadcastContext
    ) -> Iterable[OUT] | None:
        """Called on every parallel instance for every broadcast element; no key is current."""

    def on_timer(self, timestamp: int, ctx: contexts.KeyedBroadcastOnTimerContext) -> Iterable[OUT] | None:
        """Called when a timer fires, with its key current."""
        return None
