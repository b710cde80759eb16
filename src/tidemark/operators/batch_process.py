"""The operator of batch functions: columns in, one call for all keys, columns out.

In batch mode batches are processed as they come, while event time stands at its beginning; what the keys of a
bounded input wait for happens together when it ends, and their state goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.api.functions.batch import BatchContext
from tidemark.api.time_domain import TimeDomain
from tidemark.errors import ConfigError
from tidemark.operators.base import Output
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.record_batches import BatchShape, stamp_column
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, Batch, ColumnBatch
from tidemark.state.backend import NO_KEY
from tidemark.state.column_keys import KeySet
from tidemark.state.namespace import NamespaceKind

if TYPE_CHECKING:
    from tidemark.api.output_tag import OutputTag
    from tidemark.operators.contexts import KeyedTimerService
    from tidemark.state.backend import KeyContext
    from tidemark.state.column_keys import Keys
    from tidemark.state.descriptors import StateDescriptor
    from tidemark.state.primitives import State
    from tidemark.state.timers import DueTimer
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["BatchProcessOperator"]


class BatchProcessOperator(KeyedOperator):
    """Runs a `BatchProcessFunction`."""

    columnar = True

    def __init__(
        self,
        function: Any,
        key_type: TypeInformation | None,
        input_type: TypeInformation,
        output_type: TypeInformation,
    ) -> None:
        """Wrap a function; the types are those of the streams."""
        super().__init__([function], key_type)
        self._function = function
        self._input = BatchShape(input_type)
        self._output = BatchShape(output_type)

    def _make_contexts(self) -> None:
        self._context = _BatchContext(self._service, self._keys, self._output)

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID
    ) -> State:
        """Register a state by column."""
        self._backend.column_state(descriptor)
        return super().keyed_state(descriptor, namespace)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process records that came as objects."""
        columns = self._input.batch(batch, self._backend.parameters.tokens)
        self.process_columns(input_index, columns, out)

    def process_columns(self, input_index: int, columns: ColumnBatch, out: Output) -> None:
        """Call the function; processing-time timers it registered in the past fire behind it."""
        if not len(columns):
            return
        assert columns.keys is not None
        batch, keys = self._input.record_batch(columns.values), columns.keys
        self._call(
            lambda found, ctx: self._function.process_batch(batch, found, ctx), keys, columns.timestamps, out
        )
        if self._buffer is None and self._timers.next_processing_time() is not None:
            self.advance_processing_time(self._clock.now(), out)

    def _call(
        self,
        call: Callable[[Keys, BatchContext], Any],
        tokens: pa.Array,
        stamps: pa.Array | None,
        out: Output,
        domain: TimeDomain | None = None,
    ) -> None:
        backend, context = self._backend, self._context
        backend.start_batch(None)
        try:
            keys = backend.column_keys(tokens)
            context.begin(out, stamps, domain)
            result = call(keys, context)
            if result is not None:
                columns = self._output.columns(result, None)
                if stamps is not None and len(columns) == len(stamps):
                    columns.timestamps = stamps
                out.emit_columns(columns)
        finally:
            self._keys.token = NO_KEY
            backend.end_batch()

    def _fire_event_timers(self, watermark: int, out: Output) -> None:
        timers = self._timers
        if timers.has_due_event(watermark):
            for due in timers.advance_event_together(watermark):
                self._fire(TimeDomain.EVENT_TIME, due, out)
        timers.watermark = watermark

    def advance_processing_time(self, now: int, out: Output) -> None:
        """Fire all processing-time timers that are due, and those they register for now or earlier."""
        if self._buffer is None and not self._ended:
            while (due := self._timers.pop_processing(now)) is not None:
                self._fire(TimeDomain.PROCESSING_TIME, due, out)

    def _fire(self, domain: TimeDomain, due: Iterable[DueTimer], out: Output) -> None:
        timers = list(due)
        tokens = self._backend.parameters.tokens.to_arrow([token for _, token, _ in timers])
        times = np.array([time for time, _, _ in timers], np.int64)
        self._call(
            lambda keys, ctx: self._function.on_timers(keys, times, ctx), tokens, pa.array(times), out, domain
        )

    def end_input(self, input_index: int, out: Output) -> None:
        """The input ended; in batch mode what keys wait for happens now, and their state goes."""
        self._open_inputs.discard(input_index)
        if self._buffer is None or not self._ended:
            return
        self._service.watermark = MAX_WATERMARK
        self._fire_event_timers(MAX_WATERMARK, out)
        # Once: a timer that registers the next one would keep its key for ever.
        due = self._timers.pop_processing(MAX_WATERMARK)
        if due is not None:
            self._fire(TimeDomain.PROCESSING_TIME, due, out)
        self._timers.drop_processing()
        self._drop_all()

    def _drop_all(self) -> None:
        backend = self._backend
        for name, (handle, _) in self._handles.items():
            tokens = backend.keys(name)
            if tokens:
                backend.start_batch(None)
                handle.clear(backend.column_keys(backend.parameters.tokens.to_arrow(tokens)))
                backend.end_batch()


class _BatchContext(BatchContext):
    """The one context of an operator, begun anew for every call."""

    def __init__(self, service: KeyedTimerService, keys: KeyContext, shape: BatchShape) -> None:
        self._service = service
        self._keys = keys
        self._shape = shape
        self._sides: dict[str, BatchShape] = {}
        self.begin(Output(), None, None)

    def begin(self, out: Output, stamps: pa.Array | None, domain: TimeDomain | None) -> None:
        """Stand for another call."""
        self._out, self._stamps, self._domain = out, stamps, domain

    @property
    def timestamps(self) -> np.ndarray[Any, Any] | None:
        stamps = self._stamps
        if stamps is None:
            return None
        numbers: np.ndarray[Any, Any] = stamps.fill_null(MIN_WATERMARK).to_numpy(zero_copy_only=False)
        return numbers

    def current_watermark(self) -> int:
        return self._service.current_watermark()

    def current_processing_time(self) -> int:
        return self._service.current_processing_time()

    def time_domain(self) -> TimeDomain | None:
        return self._domain

    def emit(self, batch: Any, timestamps: Any = None) -> None:
        self._out.emit_columns(self._shape.columns(batch, stamp_column(timestamps)))

    def output(self, tag: OutputTag, batch: Any, timestamps: Any = None) -> None:
        shape = self._sides.get(tag.tag_id)
        if shape is None:
            if tag.type_info is None:
                raise ConfigError(
                    f"Side output '{tag.tag_id}' has no declared type, which rows need: OutputTag(name, type)."
                )
            shape = self._sides[tag.tag_id] = BatchShape(tag.type_info)
        self._out.emit_side_columns(tag.tag_id, shape.columns(batch, stamp_column(timestamps)))

    def register_event_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        self._each(self._service.register_event_time_timer, keys, timestamps)

    def register_processing_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        self._each(self._service.register_processing_time_timer, keys, timestamps)

    def delete_event_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        self._each(self._service.delete_event_time_timer, keys, timestamps)

    def delete_processing_time_timers(self, keys: KeySet, timestamps: Any) -> None:
        self._each(self._service.delete_processing_time_timer, keys, timestamps)

    def _each(self, call: Callable[[int], None], keys: KeySet, timestamps: Any) -> None:
        if not isinstance(keys, KeySet):
            raise TypeError(f"Timers are registered for keys of the batch, not for {type(keys).__name__}.")
        times = np.broadcast_to(np.asarray(timestamps), (len(keys),))
        if times.dtype.kind not in "iu":
            raise ConfigError(f"Timers need times in milliseconds (integers), not {times.dtype}.")
        context = self._keys
        try:
            for context.token, time in zip(keys.tokens, times.tolist(), strict=True):
                call(time)
        finally:
            context.token = NO_KEY
