"""User-written sinks: one `invoke` per element."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

from tidemark.api import context as contexts
from tidemark.api.functions.base import Function
from tidemark.errors import UnsupportedOperationException

__all__ = ["RichSinkFunction", "SinkFunction"]


class SinkFunction(Function):
    """Receives every element of a stream; `invoke` may take the value alone or value and context."""

    Context: TypeAlias = contexts.SinkContext

    def __new__(cls, *args: Any, **kwargs: Any) -> SinkFunction:
        """Create an instance.

        Raises:
            UnsupportedOperationException: PyFlink's form `SinkFunction("java.class.Name")`.
        """
        if cls is SinkFunction and (args or kwargs):
            raise UnsupportedOperationException(
                "SinkFunction cannot wrap a Java class. Subclass it in Python and write invoke()."
            )
        return super().__new__(cls)

    @abstractmethod
    def invoke(self, value: Any, context: contexts.SinkContext) -> None:
        """Write one element; a one-argument `invoke(value)` is accepted too."""


RichSinkFunction = SinkFunction
