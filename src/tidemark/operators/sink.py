"""User-written sinks: `invoke(value)` or `invoke(value, context)` for every record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tidemark.operators.base import Output
from tidemark.operators.contexts import FunctionSinkContext
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.stateless import method_of
from tidemark.protocol.batch import Batch

__all__ = ["SinkOperator"]


class SinkOperator(FunctionOperator):
    """Hands every record to a `SinkFunction`; emits nothing."""

    def __init__(self, function: Any) -> None:
        """Wrap a `SinkFunction` or a callable."""
        super().__init__([function])
        self._call = method_of(function, "invoke")
        self._with_context = _takes_context(self._call)

    def _make_contexts(self) -> None:
        self._context = FunctionSinkContext(self._service)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Invoke the sink for every record, in order."""
        call, context = self._call, self._context
        if not self._with_context:
            for value in batch.values:
                call(value)
            return
        if batch.timestamps is None:
            context.stamp = None
            for value in batch.values:
                call(value, context)
            return
        for value, context.stamp in zip(batch.values, batch.timestamps, strict=True):
            call(value, context)


def _takes_context(call: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        # Built-in callables such as list.append may not tell; a plain callable is a one-argument sink.
        return False
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 2 or "context" in signature.parameters
