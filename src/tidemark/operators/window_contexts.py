"""What assigners, triggers and window functions get while a window operator calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.api.context import ProcessWindowContext
from tidemark.api.windows.contexts import OnMergeContext, WindowAssignerContext
from tidemark.errors import UnsupportedOperationException
from tidemark.operators.base import Output
from tidemark.operators.detach import detached
from tidemark.operators.runtime_context import KeyedStateAccess

if TYPE_CHECKING:
    from tidemark.api.functions import KeyedStateStore, RuntimeContext
    from tidemark.api.output_tag import OutputTag
    from tidemark.api.windows.window import Window
    from tidemark.operators.contexts import KeyedTimerService
    from tidemark.state.descriptors import StateDescriptor
    from tidemark.state.namespace import Namespace
    from tidemark.state.timers import InternalTimers

__all__ = ["AssignerContext", "EvaluationContext", "WindowTriggerContext"]

WindowStateLookup = Callable[["StateDescriptor", "Namespace"], Any]
"""From a descriptor and a window's namespace to the handle, with that window chosen."""


class AssignerContext(WindowAssignerContext):
    """Context of `assign_windows`."""

    __slots__ = ("_runtime_context", "_service")

    def __init__(self, service: KeyedTimerService, runtime_context: RuntimeContext) -> None:
        self._service = service
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        """Now, from the injected clock."""
        return self._service.current_processing_time()

    def get_runtime_context(self) -> RuntimeContext:
        """The operator's runtime context."""
        return self._runtime_context


class WindowTriggerContext(OnMergeContext):
    """Context of every trigger callback; the operator sets `namespace` (and `merged`) before a call."""

    __slots__ = ("_lookup", "_metrics", "_service", "_timers", "merged", "namespace")

    def __init__(
        self,
        service: KeyedTimerService,
        timers: InternalTimers,
        lookup: WindowStateLookup,
        metrics: Any,
    ) -> None:
        self._service = service
        self._timers = timers
        self._lookup = lookup
        self._metrics = metrics
        self.namespace: Namespace = ()
        self.merged: Sequence[Namespace] = ()

    def get_current_processing_time(self) -> int:
        """Now, from the injected clock."""
        return self._service.current_processing_time()

    def get_current_watermark(self) -> int:
        """The watermark of this operator."""
        return self._service.watermark

    def get_metric_group(self) -> Any:
        """Metric group of the operator."""
        return self._metrics

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` for this key and window when the clock reaches `time`."""
        self._timers.register_processing_timer(time, self.namespace)

    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` for this key and window when the watermark reaches `time`."""
        self._timers.register_event_timer(time, self.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        """Forget that timer of this key and window."""
        self._timers.delete_processing_timer(time, self.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        """Forget that timer of this key and window."""
        self._timers.delete_event_timer(time, self.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """State of this key in this window."""
        return self._lookup(state_descriptor, self.namespace)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge the state of the merged windows into this window's."""
        state = self._lookup(state_descriptor, self.namespace)
        merge = getattr(state, "merge_namespaces", None)
        if merge is None:
            raise UnsupportedOperationException(
                f"State '{state_descriptor.name}' cannot be merged. Use list, reducing or aggregating state."
            )
        merge(self.namespace, self.merged)


class EvaluationContext(ProcessWindowContext[Any]):
    """Context of `ProcessWindowFunction` and its all-window twin; the operator sets window and output."""

    __slots__ = ("_global_state", "_service", "_window_state", "current", "out")

    def __init__(
        self,
        service: KeyedTimerService,
        global_state: KeyedStateStore,
        lookup: WindowStateLookup,
        *,
        merging: bool,
    ) -> None:
        self._service = service
        self._global_state = global_state
        self.current: Window
        self.out = Output()

        def window_state(descriptor: StateDescriptor) -> Any:
            if merging:
                raise UnsupportedOperationException(
                    f"State '{descriptor.name}': merging windows have no state of their own. "
                    "Use global_state()."
                )
            return lookup(descriptor, self.current.to_namespace())

        self._window_state = KeyedStateAccess(window_state)

    def window(self) -> Any:
        """The window being evaluated or dropped."""
        return self.current

    def current_processing_time(self) -> int:
        """Now, from the injected clock."""
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        """The watermark of this operator."""
        return self._service.watermark

    def window_state(self) -> KeyedStateStore:
        """State of this key in this window."""
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        """State of this key, shared by all its windows."""
        return self._global_state

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit to a side output."""
        self.out.emit_side(tag.tag_id, detached(value), self.current.max_timestamp())
