"""The `RuntimeContext` that operators hand to user functions: who am I, and where is my keyed state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tidemark.api.functions import KeyedStateStore, RuntimeContext
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from tidemark.metrics.registry import MetricGroup
    from tidemark.plan.vertex import SubtaskInfo
    from tidemark.state.primitives import (
        AggregatingState,
        FoldingState,
        ListState,
        MapState,
        ReducingState,
        State,
        ValueState,
    )

__all__ = ["KeyedStateAccess", "OperatorRuntimeContext"]


class KeyedStateAccess(KeyedStateStore):
    """The six getters of keyed state, over anything that turns a descriptor into a handle."""

    def __init__(self, lookup: Callable[[StateDescriptor], State] | None) -> None:
        self._lookup = lookup

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Handle of a value state."""
        return cast("ValueState[Any]", self._state(state_descriptor, ValueStateDescriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Handle of a list state."""
        return cast("ListState[Any]", self._state(state_descriptor, ListStateDescriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Handle of a map state."""
        return cast("MapState[Any, Any]", self._state(state_descriptor, MapStateDescriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Handle of a reducing state."""
        return cast("ReducingState[Any]", self._state(state_descriptor, ReducingStateDescriptor))

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Handle of an aggregating state."""
        return cast("AggregatingState[Any, Any]", self._state(state_descriptor, AggregatingStateDescriptor))

    def get_folding_state(self, state_descriptor: FoldingStateDescriptor) -> FoldingState[Any, Any]:
        """Handle of a folding state."""
        return cast("FoldingState[Any, Any]", self._state(state_descriptor, FoldingStateDescriptor))

    def _state(self, descriptor: StateDescriptor, expected: type[StateDescriptor]) -> State:
        if not isinstance(descriptor, expected):
            raise TypeError(f"Expected a {expected.__name__}, got {descriptor!r}.")
        if self._lookup is None:
            raise RuntimeError(
                f"Keyed state '{descriptor.name}' needs a KeyedStream: call key_by() before this function."
            )
        return self._lookup(descriptor)


class OperatorRuntimeContext(KeyedStateAccess, RuntimeContext):
    """Facts about one subtask, its metrics, and its keyed state if it has any."""

    def __init__(
        self,
        info: SubtaskInfo,
        metrics: MetricGroup,
        lookup: Callable[[StateDescriptor], State] | None = None,
    ) -> None:
        super().__init__(lookup)
        self._info = info
        self._metrics = metrics

    def get_task_name(self) -> str:
        """Name of the operator."""
        return self._info.name

    def get_task_name_with_subtasks(self) -> str:
        """Name with position, such as `Name (3/6)`."""
        return f"{self._info.name} ({self._info.index + 1}/{self._info.parallelism})"

    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism of the operator."""
        return self._info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups of the operator."""
        return self._info.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Position of this subtask, from 0."""
        return self._info.index

    def get_attempt_number(self) -> int:
        """0 on the first run, one more after each restart."""
        return self._info.attempt

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter."""
        return self._info.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Where the function registers its own metrics."""
        return self._metrics
