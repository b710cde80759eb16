"""The window operator: assigners put records into windows, triggers say when to evaluate them.

Content, trigger state and the merging-window map are keyed state under the window's namespace. With a
reduce or aggregate function a window holds one accumulator, otherwise the list of its records. A window
is dropped when the watermark (or the clock) passes its end plus the allowed lateness.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from tidemark.api.time_domain import TimeDomain
from tidemark.api.windows.assigners import (
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidemark.api.windows.sessions import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)
from tidemark.api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger, TriggerResult
from tidemark.api.windows.window import TimeWindow
from tidemark.operators.base import Output
from tidemark.operators.emission import emit_result
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.merging_windows import MERGING_WINDOWS, MergingWindowSet, session_runs
from tidemark.operators.stateless import method_of
from tidemark.operators.window_contexts import AssignerContext, EvaluationContext, WindowTriggerContext
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, Batch
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.api.specs import WindowSpec
    from tidemark.api.windows.window import Window
    from tidemark.state.namespace import Namespace
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["WindowOperator", "contents_of"]

_PLAIN: dict[type[Any], tuple[type[Any], ...]] = {
    EventTimeTrigger: (TumblingEventTimeWindows, SlidingEventTimeWindows),
    ProcessingTimeTrigger: (TumblingProcessingTimeWindows, SlidingProcessingTimeWindows),
}
"""Triggers and the assigners with which they do nothing but wait for the end of the window."""
_PLAIN_SESSIONS: dict[type[Any], tuple[type[Any], ...]] = {
    EventTimeTrigger: (EventTimeSessionWindows, DynamicEventTimeSessionWindows),
    ProcessingTimeTrigger: (ProcessingTimeSessionWindows, DynamicProcessingTimeSessionWindows),
}
"""The same for sessions."""
CONTENTS = "window-contents"
"""Name of the state that holds what is in a window."""


def contents_of(spec: WindowSpec) -> StateDescriptor:
    """Descriptor of what a window holds."""
    element = spec.element_type or Types.PICKLED_BYTE_ARRAY()
    if spec.reduce is not None:
        return ReducingStateDescriptor(CONTENTS, spec.reduce, element)
    if spec.aggregate is not None:
        accumulator = spec.accumulator_type or Types.PICKLED_BYTE_ARRAY()
        return AggregatingStateDescriptor(CONTENTS, spec.aggregate, accumulator)
    return ListStateDescriptor(CONTENTS, element)


class WindowOperator(KeyedOperator):
    """Groups the records of each key into windows; `all_windows` puts all records under one key."""

    def __init__(self, spec: WindowSpec, key_type: TypeInformation | None) -> None:
        """Build the operator.

        Raises:
            TypeError: The windows merge and the trigger cannot follow.
        """
        key_type = Types.BYTE() if spec.all_windows else key_type
        super().__init__([spec.window_function, spec.reduce, spec.aggregate], key_type)
        self._spec = spec
        self._assigner = spec.assigner
        self._trigger = spec.trigger or spec.assigner.get_default_trigger()
        self._merges = isinstance(spec.assigner, MergingWindowAssigner)
        if self._merges and not self._trigger.can_merge():
            raise TypeError(
                f"{type(self._trigger).__name__} cannot be used with {type(self._assigner).__name__}, whose "
                "windows merge. Use a trigger whose can_merge() is true."
            )
        self._event_time = spec.assigner.is_event_time()
        self._lateness = spec.allowed_lateness
        self.timer_namespace = spec.assigner.namespace_kind()
        self._incremental = spec.reduce is not None or spec.aggregate is not None
        kind = spec.function_kind
        self._function = None if kind is None else method_of(spec.window_function, kind)
        self._clear_function = getattr(spec.window_function, "clear", None) if kind == "process" else None
        plain = _PLAIN_SESSIONS if self._merges else _PLAIN
        self._plain_windows = type(self._assigner) in plain.get(type(self._trigger), ())

    def _make_contexts(self) -> None:
        metrics = self._environment.metrics
        self._assigner_context = AssignerContext(self._service, self._runtime_context)
        self._trigger_context = WindowTriggerContext(self._service, self._timers, self._window_state, metrics)
        self._evaluation = EvaluationContext(
            self._service, self._runtime_context, self._window_state, merging=self._merges
        )
        self._late_records = metrics.counter("numLateRecordsDropped")
        tokens = self._backend.parameters.tokens
        self._all_token = tokens.of([0])[0] if self._spec.all_windows else None

    def _register_states(self) -> None:
        self._contents: Any = self.keyed_state(contents_of(self._spec), self.timer_namespace)
        # Stores of users may know only what the public handles can do.
        self._plain_windows = self._plain_windows and hasattr(self._contents, "add_all")
        if self._merges:
            assigner = cast("MergingWindowAssigner[Any, Any]", self._assigner)
            self._merging = MergingWindowSet(assigner, cast("Any", self.keyed_state(MERGING_WINDOWS)))

    def _window_state(self, descriptor: StateDescriptor, namespace: Namespace) -> Any:
        handle: Any = self.keyed_state(descriptor, self.timer_namespace)
        handle.set_namespace(namespace)
        return handle

    @property
    def batch_limit(self) -> int:
        """Any number where the records of a window are added together."""
        return sys.maxsize if self._plain_windows else super().batch_limit

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Put the records into their windows; all-windows take records without keys."""
        if self._spec.all_windows:
            batch = Batch(batch.values, batch.timestamps, [self._all_token] * len(batch))
        super().process(input_index, batch, out)

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        assert batch.keys is not None
        stamps: Iterable[int | None] = repeat(None) if batch.timestamps is None else batch.timestamps
        if self._plain_windows and not self._backend.wants_records:
            # The clock is read once per batch, as everywhere.
            process = self._process_sessions if self._merges else self._process_plain
            process(
                batch, stamps if self._event_time else repeat(self._service.current_processing_time()), out
            )
            return
        add = self._observed(self._add_merging if self._merges else self._add)
        keys = self._keys
        for keys.token, value, stamp in zip(batch.keys, batch.values, stamps):  # noqa: B905
            add(value, stamp, out)

    def _process_plain(self, batch: Batch, stamps: Iterable[int | None], out: Output) -> None:
        """The same for tumbling and sliding windows with their own trigger, without detours.

        No timer fires before the batch is over, so the records of a window are added together at its end.
        """
        assert batch.keys is not None
        assigner: Any = self._assigner
        size, offset = assigner._size, assigner._offset
        slide = getattr(assigner, "_slide", size)
        lateness, watermark = 0, MIN_WATERMARK
        if self._event_time:
            lateness, watermark = self._lateness, self._service.watermark
        groups: dict[tuple[Any, int], list[Any]] = {}
        for token, value, stamp in zip(batch.keys, batch.values, stamps):  # noqa: B905
            if stamp is None:
                assigner.assign_windows(value, None, self._assigner_context)
                continue
            start = stamp - (stamp - offset) % slide
            late = True
            while start + size > stamp:
                # `_is_late` and `_is_element_late`, written out for every record.
                last = start + size - 1
                if last > watermark:
                    late = False
                    group = groups.get((token, start))
                    if group is None:
                        groups[token, start] = [value]
                    else:
                        group.append(value)
                elif last + lateness > watermark:
                    late = False
                    self._keys.token = token
                    self._add_behind(value, (start, start + size), out)
                start -= slide
            if late and stamp + lateness <= watermark:
                self._late(value, stamp, out)
        self._add_groups(groups, size)

    def _add_groups(self, groups: dict[tuple[Any, int], list[Any]], size: int) -> None:
        keys, contents, timers = self._keys, self._contents, self._timers
        choose, add_all = contents.set_namespace, contents.add_all
        lateness = self._lateness if self._event_time else 0
        register = timers.register_event_timer if self._event_time else timers.register_processing_timer
        for (token, start), values in groups.items():
            end = start + size
            namespace = (start, end)
            keys.token = token
            choose(namespace)
            add_all(values)
            register(end - 1, namespace)
            if lateness:
                register(end - 1 + lateness, namespace)

    def _add_behind(self, value: Any, namespace: Namespace, out: Output) -> None:
        """Add to a window the watermark has passed but lateness keeps: it fires at once."""
        self._contents.set_namespace(namespace)
        self._contents.add(value)
        window = self._assigner.window_from_namespace(namespace)
        self._fire_window(window, namespace, out)
        self._arm_cleanup(window, namespace)

    def _add(self, value: Any, stamp: int | None, out: Output) -> None:
        late = True
        for window in self._assigner.assign_windows(value, stamp, self._assigner_context):
            if self._is_late(window):
                continue
            late = False
            namespace = window.to_namespace()
            self._contents.set_namespace(namespace)
            self._contents.add(value)
            self._trigger_context.namespace = namespace
            self._act(
                self._trigger.on_element(value, stamp, window, self._trigger_context), window, namespace, out
            )
            self._arm_cleanup(window, namespace)
        if late and self._is_element_late(stamp):
            self._late(value, stamp, out)

    def _process_sessions(self, batch: Batch, stamps: Iterable[int | None], out: Output) -> None:
        """The same for sessions with their own trigger: those of a batch merge before they meet the state.

        That gives the same sessions as one record after the other, provided that none is behind the
        watermark by itself; the keys of such records take the long way.
        """
        assert batch.keys is not None
        assigner: Any = self._assigner
        gap, gap_of = getattr(assigner, "_session_gap", None), assigner._gap
        watermark = self._service.watermark if self._event_time else MIN_WATERMARK
        by_key: dict[Any, list[tuple[Any, int, int]]] = {}
        behind = set()
        for token, value, stamp in zip(batch.keys, batch.values, stamps):  # noqa: B905
            if stamp is None:
                assigner.assign_windows(value, None, self._assigner_context)
                continue
            end = stamp + (gap_of(value) if gap is None else gap)
            if end <= watermark + 1:
                behind.add(token)
            elements = by_key.get(token)
            if elements is None:
                by_key[token] = [(value, stamp, end)]
            else:
                elements.append((value, stamp, end))
        keys, merging = self._keys, self._merging
        for keys.token, elements in by_key.items():
            if keys.token in behind:
                for value, stamp, _end in elements:
                    self._add_merging(value, stamp, out)
                continue
            merging.load()
            for start, end, values in session_runs(elements):
                self._join(TimeWindow(start, end), values, start, out)
            merging.persist()

    def _add_merging(self, value: Any, stamp: int | None, out: Output) -> None:
        self._merging.load()
        late = True
        for assigned in self._assigner.assign_windows(value, stamp, self._assigner_context):
            late = not self._join(assigned, [value], stamp, out) and late
        self._merging.persist()
        if late and self._is_element_late(stamp):
            self._late(value, stamp, out)

    def _join(self, assigned: Window, values: list[Any], stamp: int | None, out: Output) -> bool:
        """Add records to a session and those it touches; False if that session is gone already."""
        merging = self._merging
        window = merging.add(assigned, self._merge)
        if self._is_late(window):
            merging.retire(window)
            return False
        state_window = merging.state_window(window)
        assert state_window is not None
        self._contents.set_namespace(state_window.to_namespace())
        if len(values) == 1:
            self._contents.add(values[0])
        else:
            self._contents.add_all(values)
        self._trigger_context.namespace = window.to_namespace()
        result = self._trigger.on_element(values[-1], stamp, window, self._trigger_context)
        self._act(result, window, state_window.to_namespace(), out)
        self._arm_cleanup(window, window.to_namespace())
        return True

    def _merge(
        self, result: Window, merged: list[Window], state_window: Window, others: list[Window]
    ) -> None:
        context = self._trigger_context
        context.namespace = result.to_namespace()
        context.merged = [window.to_namespace() for window in merged if window != result]
        self._trigger.on_merge(result, context)
        for window in merged:
            if window != result:
                context.namespace = window.to_namespace()
                self._trigger.clear(window, context)
                self._disarm_cleanup(window)
        if others:
            self._contents.merge_namespaces(
                state_window.to_namespace(), [window.to_namespace() for window in others]
            )

    def _act(self, result: TriggerResult, window: Window, state_namespace: Namespace, out: Output) -> None:
        if result is TriggerResult.CONTINUE:
            return
        if result.is_fire():
            self._fire_window(window, state_namespace, out)
        if result.is_purge():
            self._contents.set_namespace(state_namespace)
            self._contents.clear()

    def _fire_window(self, window: Window, state_namespace: Namespace, out: Output) -> None:
        contents = self._contents
        contents.set_namespace(state_namespace)
        content = contents.get()
        if content is None or (not self._incremental and not content):
            return
        elements = [content] if self._incremental else content
        function, spec = self._function, self._spec
        if function is None:
            result = elements
        else:
            context = self._evaluation
            context.current, context.out = window, out
            subject = context if spec.function_kind == "process" else window
            if spec.all_windows:
                result = function(subject, elements)
            else:
                result = function(self.current_key(), subject, elements)
        emit_result(result, window.max_timestamp(), out)

    def _on_timer(self, domain: TimeDomain, namespace: Namespace, timestamp: int, out: Output) -> None:
        window = self._assigner.window_from_namespace(namespace)
        state_namespace = namespace
        if self._merges:
            self._merging.load()
            state_window = self._merging.state_window(window)
            if state_window is None:
                # A trigger left a timer behind when its window was merged into another.
                return
            state_namespace = state_window.to_namespace()
        event = domain is TimeDomain.EVENT_TIME
        context = self._trigger_context
        context.namespace = namespace
        fire = self._trigger.on_event_time if event else self._trigger.on_processing_time
        self._act(fire(timestamp, window, context), window, state_namespace, out)
        if event == self._event_time and timestamp == self._cleanup_time(window):
            self._drop_window(window, namespace, state_namespace, out)
        if self._merges:
            self._merging.persist()

    def _drop_window(
        self, window: Window, namespace: Namespace, state_namespace: Namespace, out: Output
    ) -> None:
        self._contents.set_namespace(state_namespace)
        self._contents.clear()
        self._trigger_context.namespace = namespace
        self._trigger.clear(window, self._trigger_context)
        if self._clear_function is not None:
            self._evaluation.current, self._evaluation.out = window, out
            self._clear_function(self._evaluation)
        if self._merges:
            self._merging.retire(window)

    def _cleanup_time(self, window: Window) -> int:
        end = window.max_timestamp()
        return min(end + self._lateness, MAX_WATERMARK) if self._event_time else end

    def _arm_cleanup(self, window: Window, namespace: Namespace) -> None:
        at = self._cleanup_time(window)
        # A window without end is never dropped, not even by the watermark at the end of input.
        if at < MAX_WATERMARK:
            timers = self._timers
            register = timers.register_event_timer if self._event_time else timers.register_processing_timer
            register(at, namespace)

    def _disarm_cleanup(self, window: Window) -> None:
        timers = self._timers
        delete = timers.delete_event_timer if self._event_time else timers.delete_processing_timer
        delete(self._cleanup_time(window), window.to_namespace())

    def _is_late(self, window: Window) -> bool:
        return self._event_time and self._cleanup_time(window) <= self._service.watermark

    def _is_element_late(self, stamp: int | None) -> bool:
        return self._event_time and stamp is not None and stamp + self._lateness <= self._service.watermark

    def _late(self, value: Any, stamp: int | None, out: Output) -> None:
        tag = self._spec.late_tag
        if tag is None:
            self._late_records.inc()
        else:
            out.emit_side(tag.tag_id, value, stamp)
