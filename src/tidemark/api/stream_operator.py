"""Operators of the user's own (`transform`): what functions do not see, such as watermarks and raw state.

Order of calls, for every start of a subtask::

    initialize_state -> open -> { process_element | on_*_time | process_watermark | snapshot_state | notify_* }*
    -> end_input (bounded input) -> close
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from tidemark.api.context import TimerService
from tidemark.api.functions.base import RuntimeContext
from tidemark.api.output_tag import OutputTag
from tidemark.api.raw_state import StateInitializationContext, StateSnapshotContext
from tidemark.errors import IllegalStateError

__all__ = [
    "InternalTimer",
    "OneInputStreamOperator",
    "OperatorOutput",
    "StreamOperator",
    "StreamRecord",
    "TwoInputStreamOperator",
    "Watermark",
]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """An element with its timestamp."""

    value: Any
    timestamp: int | None = None

    def get_value(self) -> Any:
        """The element."""
        return self.value

    def get_timestamp(self) -> int | None:
        """Its timestamp, None if it has none."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Whether it has one."""
        return self.timestamp is not None


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far event time has come."""

    timestamp: int

    def get_timestamp(self) -> int:
        """No element up to here is to be expected any more."""
        return self.timestamp


@dataclass(frozen=True, slots=True)
class InternalTimer:
    """A timer that is due."""

    timestamp: int
    key: Any

    def get_timestamp(self) -> int:
        """When it was to fire."""
        return self.timestamp

    def get_key(self) -> Any:
        """The key it belongs to, which is the current one."""
        return self.key


class OperatorOutput(ABC):
    """Where an operator sends its results."""

    @abstractmethod
    def collect(self, record: Any) -> None:
        """Emit a `StreamRecord` as it is, or any other value with the timestamp of the current element or timer."""

    @abstractmethod
    def collect_side(self, output_tag: OutputTag, record: Any) -> None:
        """The same to a side output."""


class OperatorHost(Protocol):
    """What runs an operator."""

    @property
    def output(self) -> OperatorOutput:
        """Where results go."""

    @property
    def runtime_context(self) -> RuntimeContext:
        """Which subtask this is."""

    @property
    def timer_service(self) -> TimerService:
        """Time and timers."""

    def current_key(self) -> Any:
        """Key of the current element or timer."""

    def current_key_group(self) -> int:
        """The key group it is in."""


class StreamOperator:
    """One parallel instance of an operator; every subtask has a copy of its own."""

    _host: OperatorHost | None = None

    def attach(self, host: OperatorHost) -> None:
        """Called by the library, first of all."""
        self._host = host

    def _attached(self) -> OperatorHost:
        if self._host is None:
            raise IllegalStateError(
                f"{type(self).__name__} does not run yet: this is there from initialize_state on."
            )
        return self._host

    @property
    def output(self) -> OperatorOutput:
        """Where results go; what the callbacks yield goes there, too."""
        return self._attached().output

    def get_runtime_context(self) -> RuntimeContext:
        """Which subtask this is, and keyed state of keyed streams."""
        return self._attached().runtime_context

    def get_timer_service(self) -> TimerService:
        """Time and, on keyed streams, timers of the current key."""
        return self._attached().timer_service

    def get_current_key(self) -> Any:
        """Key of the current element or timer.

        Raises:
            RuntimeError: The operator is not keyed.
        """
        return self._attached().current_key()

    def get_current_key_group(self) -> int:
        """The key group of the current key, for raw keyed state.

        Raises:
            RuntimeError: The operator is not keyed.
        """
        return self._attached().current_key_group()

    def initialize_state(self, context: StateInitializationContext) -> None:
        """Get or restore state; called at every start."""

    def open(self) -> None:
        """Prepare to process."""

    def process_watermark(self, mark: Watermark) -> Any:
        """Event time rose to `mark`, and timers up to it have fired; it passes on afterwards."""

    def on_event_time(self, timer: InternalTimer) -> Any:
        """An event-time timer is due."""

    def on_processing_time(self, timer: InternalTimer) -> Any:
        """A processing-time timer is due."""

    def end_input(self, input_id: int) -> Any:
        """No element will come on this input any more; inputs count from 1."""

    def snapshot_state(self, context: StateSnapshotContext) -> None:
        """Write raw state, bring other state up to date; raising declines the snapshot."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete for the whole job; an id may be skipped, never repeated."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""

    def close(self) -> None:
        """Release everything."""


class OneInputStreamOperator(StreamOperator, ABC):
    """An operator of one stream."""

    @abstractmethod
    def process_element(self, element: StreamRecord) -> Any:
        """Process an element; what it yields or returns as an iterable is emitted."""


class TwoInputStreamOperator(StreamOperator, ABC):
    """An operator of two connected streams."""

    @abstractmethod
    def process_element1(self, element: StreamRecord) -> Any:
        """Process an element of the first stream."""

    @abstractmethod
    def process_element2(self, element: StreamRecord) -> Any:
        """Process an element of the second stream."""
