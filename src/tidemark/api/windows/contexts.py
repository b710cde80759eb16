"""What triggers and assigners are handed during a call; `tidemark.operators` has the objects behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemark.state.descriptors import StateDescriptor

if TYPE_CHECKING:
    from tidemark.api.functions.base import RuntimeContext

__all__ = ["MergeCallback", "OnMergeContext", "TriggerContext", "WindowAssignerContext"]


class TriggerContext(ABC):
    """What a trigger may use; everything is scoped to the current key and window."""

    __slots__ = ()

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Milliseconds since the epoch, from the job's clock."""

    @abstractmethod
    def get_current_watermark(self) -> int:
        """The operator's watermark."""

    @abstractmethod
    def get_metric_group(self) -> Any:
        """Metric group of the operator."""

    @abstractmethod
    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` when the clock reaches `time`."""

    @abstractmethod
    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` when the watermark reaches `time`."""

    @abstractmethod
    def delete_processing_time_timer(self, time: int) -> None:
        """Forget that timer; absent: no effect."""

    @abstractmethod
    def delete_event_time_timer(self, time: int) -> None:
        """Forget that timer; absent: no effect."""

    @abstractmethod
    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """State of the current key in the current window."""


class OnMergeContext(TriggerContext):
    """What a trigger may use while windows merge."""

    __slots__ = ()

    @abstractmethod
    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge that state of all merged windows into the resulting window's."""


class WindowAssignerContext(ABC):
    """What an assigner may use."""

    __slots__ = ()

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Milliseconds since the epoch, from the job's clock."""

    @abstractmethod
    def get_runtime_context(self) -> RuntimeContext:
        """The operator's runtime context; its keyed state is that of the key, not of a window."""


class MergeCallback(ABC):
    """Where a merging assigner reports what it merged."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        """`to_be_merged` become `merge_result`."""
