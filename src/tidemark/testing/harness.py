"""Harnesses that drive one operator subtask in this process, without a JVM.

They use the operators, backends, snapshot writer and rescaling code of a real job; only the host is
missing. Time stands still unless the test moves it. Exceptions of user code come out as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemark.api.functions import BatchProcessFunction
from tidemark.api.specs import (
    BatchSpec,
    BroadcastProcessSpec,
    FunctionSpec,
    OperatorKind,
    OperatorSpec,
    ReduceSpec,
)
from tidemark.api.state_backends import StateBackend
from tidemark.clock import Clock
from tidemark.config import Configuration
from tidemark.operators.base import Operator
from tidemark.operators.function_kinds import one_input_kind, two_input_kind
from tidemark.operators.stateless import method_of
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.testing.subtask_harness import SubtaskHarness
from tidemark.types.typeinfo import to_type_info

__all__ = ["BroadcastHarness", "OneInputHarness", "TwoInputHarness"]


class OneInputHarness(SubtaskHarness):
    """Drives an operator of one input."""

    def __init__(
        self,
        function: Any,
        key_selector: Any = None,
        key_type: Any = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        max_parallelism: int = 128,
        state_backend: StateBackend | None = None,
        clock: Clock | None = None,
        configuration: Configuration | dict[str, Any] | None = None,
        input_type: Any = None,
        output_type: Any = None,
    ) -> None:
        """Wrap a function.

        Args:
            function: Any user function of one input, a callable (a map), or an `Operator`.
            key_selector: Callable or `KeySelector`; makes the stream keyed.
            key_type: Type of the key; None means pickled.
            parallelism: Number of subtasks the operator is said to have.
            subtask_index: Which of them this is.
            max_parallelism: Number of key groups.
            state_backend: None means what the configuration says, else `MemoryStateBackend`.
            clock: None means a `ManualClock` at 0.
            configuration: Settings, as a job would read them.
            input_type: Type of the elements of a `BatchProcessFunction`.
            output_type: Type of the rows it returns; None: that of the elements.
        """
        self._select = _selector(key_selector)
        super().__init__(
            _one_input_spec(function, key_selector is not None, input_type, output_type),
            key_type,
            parallelism,
            subtask_index,
            max_parallelism,
            state_backend,
            clock,
            configuration,
        )

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element."""
        self._process(0, value, timestamp, self._select)

    def process_elements(self, values: Sequence[Any], timestamps: Sequence[int] | None = None) -> None:
        """Process elements as one batch."""
        self._process_all(0, list(values), None if timestamps is None else list(timestamps), self._select)


class TwoInputHarness(SubtaskHarness):
    """Drives an operator of two inputs; it is keyed if both selectors are given."""

    def __init__(
        self,
        function: Any,
        key_selector1: Any = None,
        key_selector2: Any = None,
        key_type: Any = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        max_parallelism: int = 128,
        state_backend: StateBackend | None = None,
        clock: Clock | None = None,
        configuration: Configuration | dict[str, Any] | None = None,
    ) -> None:
        """Wrap a co-function; the other arguments as in `OneInputHarness`."""
        keyed = key_selector1 is not None and key_selector2 is not None
        self._selects = (_selector(key_selector1), _selector(key_selector2)) if keyed else (None, None)
        super().__init__(
            FunctionSpec(two_input_kind(function), function, keyed),
            key_type,
            parallelism,
            subtask_index,
            max_parallelism,
            state_backend,
            clock,
            configuration,
        )
        self._inputs = 2
        self._watermarks = [MIN_WATERMARK, MIN_WATERMARK]

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the first input."""
        self._process(0, value, timestamp, self._selects[0])

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the second input."""
        self._process(1, value, timestamp, self._selects[1])

    def process_watermark1(self, t: int) -> None:
        """The watermark of the first input is `t`; the operator's is the lower of both."""
        self._watermarks[0] = t
        self.process_watermark(min(self._watermarks))

    def process_watermark2(self, t: int) -> None:
        """The watermark of the second input is `t`; the operator's is the lower of both."""
        self._watermarks[1] = t
        self.process_watermark(min(self._watermarks))


class BroadcastHarness(SubtaskHarness):
    """Drives an operator with a broadcast input."""

    def __init__(
        self,
        function: Any,
        broadcast_descriptors: Sequence[Any],
        key_selector: Any = None,
        key_type: Any = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        max_parallelism: int = 128,
        state_backend: StateBackend | None = None,
        clock: Clock | None = None,
        configuration: Configuration | dict[str, Any] | None = None,
    ) -> None:
        """Wrap a broadcast function.

        Args:
            function: A `BroadcastProcessFunction`, or a keyed one with `key_selector`.
            broadcast_descriptors: What a job would pass to `broadcast(...)`; one descriptor or several.
            key_selector: Key of the data side.
            key_type: As in `OneInputHarness`, like the rest.
            parallelism: Number of subtasks.
            subtask_index: Which of them this is.
            max_parallelism: Number of key groups.
            state_backend: Where keyed state is kept.
            clock: Source of time.
            configuration: Settings.
        """
        several = isinstance(broadcast_descriptors, (list, tuple))
        descriptors: list[Any] = list(broadcast_descriptors) if several else [broadcast_descriptors]
        self._select = _selector(key_selector)
        super().__init__(
            BroadcastProcessSpec(function, key_selector is not None, tuple(descriptors)),
            key_type,
            parallelism,
            subtask_index,
            max_parallelism,
            state_backend,
            clock,
            configuration,
        )
        self._inputs = 2

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the data side."""
        self._process(0, value, timestamp, self._select)

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the broadcast side."""
        self._process(1, value, timestamp, None)


def _selector(key_selector: Any) -> Callable[[Any], Any] | None:
    return None if key_selector is None else method_of(key_selector, "get_key")


def _one_input_spec(function: Any, keyed: bool, input_type: Any, output_type: Any) -> OperatorSpec | Operator:
    if isinstance(function, Operator):
        return function
    if isinstance(function, BatchProcessFunction):
        if input_type is None or not keyed:
            raise TypeError("A BatchProcessFunction needs a key_selector and the input_type of its elements.")
        read = to_type_info(input_type)
        written = read if output_type is None else to_type_info(output_type)
        return BatchSpec(OperatorKind.PROCESS_BATCH, function, read, written, keyed=True)
    kind = one_input_kind(function, keyed=keyed)
    return ReduceSpec(function) if kind is OperatorKind.REDUCE else FunctionSpec(kind, function, keyed)
