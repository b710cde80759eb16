"""User-written sources: a `run` loop that emits through a `SourceContext`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tidemark.api import context as contexts
from tidemark.api.functions.base import Function
from tidemark.errors import UnsupportedOperationException

__all__ = [
    "ParallelSourceFunction",
    "RichParallelSourceFunction",
    "RichSourceFunction",
    "SourceFunction",
]


class SourceFunction(Function):
    """A source that runs in one parallel instance."""

    SourceContext = contexts.SourceContext

    def __new__(cls, *args: Any, **kwargs: Any) -> SourceFunction:
        """Create an instance.

        Raises:
            UnsupportedOperationException: PyFlink's form `SourceFunction("java.class.Name")`.
        """
        if cls is SourceFunction and (args or kwargs):
            raise UnsupportedOperationException(
                "SourceFunction cannot wrap a Java class. Subclass it in Python and write run() and cancel()."
            )
        return super().__new__(cls)

    @abstractmethod
    def run(self, ctx: contexts.SourceContext[Any]) -> None:
        """Emit elements until the input ends or `cancel` is called; returning is the end of input."""

    def cancel(self) -> None:
        """Called from another thread; must make `run` return."""


class ParallelSourceFunction(SourceFunction):
    """A source that runs once per parallel instance."""


class RichParallelSourceFunction(ParallelSourceFunction):
    """Kept as a name: every function is rich."""


RichSourceFunction = SourceFunction
