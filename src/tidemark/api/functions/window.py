"""Functions that are called when a window fires."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar

from tidemark.api import context as contexts
from tidemark.api.functions.base import Function

__all__ = ["AllWindowFunction", "ProcessAllWindowFunction", "ProcessWindowFunction", "WindowFunction"]

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluates a window of a keyed stream."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """The elements to emit for the window's content."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluates a window of a stream that is not keyed."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """The elements to emit for the window's content."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluates a window of a keyed stream, with a context."""

    Context: TypeAlias = contexts.ProcessWindowContext

    @abstractmethod
    def process(
        self, key: KEY, context: contexts.ProcessWindowContext[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """The elements to emit for the window's content."""

    def clear(self, context: contexts.ProcessWindowContext[W]) -> None:
        """Called when the window is dropped; clear per-window state here."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluates a window of a stream that is not keyed, with a context."""

    Context: TypeAlias = contexts.ProcessAllWindowContext

    @abstractmethod
    def process(
        self, context: contexts.ProcessAllWindowContext[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """The elements to emit for the window's content."""

    def clear(self, context: contexts.ProcessAllWindowContext[W]) -> None:
        """Called when the window is dropped; clear per-window state here."""
