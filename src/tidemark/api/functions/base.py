"""What every user function is, and what the runtime gives it: the runtime context and state stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from tidemark.errors import IllegalStateError

if TYPE_CHECKING:
    from tidemark.state.descriptors import (
        AggregatingStateDescriptor,
        FoldingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from tidemark.state.primitives import (
        AggregatingState,
        BroadcastState,
        FoldingState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )

__all__ = ["Function", "KeyedStateStore", "OperatorStateStore", "RichFunction", "RuntimeContext"]

_CONTEXT_ATTRIBUTE = "_tidemark_runtime_context"


class KeyedStateStore(ABC):
    """Hands out handles of keyed state by descriptor."""

    __slots__ = ()

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Handle of a value state.

        Raises:
            RuntimeError: The function does not run on a keyed stream.
            ConfigError: The name is taken by another kind or type of state.
        """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Handle of a list state."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Handle of a map state."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Handle of a reducing state."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Handle of an aggregating state."""

    @abstractmethod
    def get_folding_state(self, state_descriptor: FoldingStateDescriptor) -> FoldingState[Any, Any]:
        """Handle of a folding state (deprecated kind)."""


class OperatorStateStore(ABC):
    """Hands out operator state: bound to one parallel instance, redistributed as the accessor says."""

    __slots__ = ()

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list that is cut into even pieces when the parallelism changes.

        Raises:
            ConfigError: The name is in use under another mode, or the descriptor has a time-to-live.
        """

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of which every instance gets the whole after a restore."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same on every instance."""

    @abstractmethod
    def get_registered_state_names(self) -> set[str]:
        """Names of all list states."""

    @abstractmethod
    def get_registered_broadcast_state_names(self) -> set[str]:
        """Names of all broadcast states."""


class RuntimeContext(KeyedStateStore):
    """What a function may ask about its subtask, and where it gets its keyed state."""

    __slots__ = ()

    @abstractmethod
    def get_task_name(self) -> str:
        """Name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """0-based index of this parallel instance."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """0 on the first run, one more per restart."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Name, index + 1 and parallelism, as in `Map (3/6)`."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter of the `ExecutionConfig`."""

    @abstractmethod
    def get_metrics_group(self) -> Any:
        """Where the function registers its own metrics."""


class Function(ABC):  # noqa: B024 - kinds of functions add the abstract methods
    """Root of all user functions. In Python every function is a rich one.

    Nothing here depends on `__init__`: subclasses need not call it (rule R7).
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per subtask and start, after state is restored and before the first element."""

    def close(self) -> None:
        """Called exactly once per subtask and start, also after a failure."""

    def get_runtime_context(self) -> RuntimeContext:
        """The context of the subtask this instance runs in.

        Raises:
            IllegalStateError: The function does not run yet.
        """
        context = self.__dict__.get(_CONTEXT_ATTRIBUTE)
        if context is None:
            raise IllegalStateError(
                f"{type(self).__name__} has no runtime context yet. "
                "It exists from initialize_state()/open() on, not in the constructor."
            )
        return cast("RuntimeContext", context)

    def set_runtime_context(self, runtime_context: RuntimeContext) -> None:
        """Attach the context; called by the runtime before any other method."""
        self.__dict__[_CONTEXT_ATTRIBUTE] = runtime_context


RichFunction = Function
