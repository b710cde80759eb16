"""Tumbling and sliding windows by column: batches are combined by key and window, due windows leave as one batch.

Sessions, which are built on this, are in `column_session_window`.

State and timers are those of the record form (`operators.window`), under the same names and of the same types: a
savepoint of either starts the other. Batch mode, and backends that keep no columns, use that form; so do windows with
a trigger of their own, for which this operator is not made.

Small batches, for which numpy's fixed costs would be most of the work, are held back until they are many, or something
has to see them: a cut, or a watermark that completes one of their windows. Nothing leaves earlier anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.api.windows.assigners import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidemark.api.windows.column_aggregate import AllWindowRow, ColumnAggregate, WindowRow
from tidemark.api.windows.sessions import EventTimeSessionWindows, ProcessingTimeSessionWindows
from tidemark.api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from tidemark.errors import SerializationError
from tidemark.operators.base import OperatorEnvironment, Output
from tidemark.operators.column_aggregation import Accumulators, ColumnAggregation
from tidemark.operators.record_batches import BatchShape
from tidemark.operators.window import WindowOperator, contents_of
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, Batch, ColumnBatch
from tidemark.state.column_timers import ColumnTimers, DueWindow, by_key
from tidemark.state.operator_state import OperatorStateStore
from tidemark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

if TYPE_CHECKING:
    from tidemark.api.specs import WindowSpec
    from tidemark.operators.base import RestoredState
    from tidemark.state.column_keys import Keys
    from tidemark.state.snapshot import Increment, OperatorCut
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["ColumnWindowOperator", "windows_by_column"]

Numbers = np.ndarray[Any, Any]

_TRIGGERS: dict[type[Any], type[Any]] = {
    TumblingEventTimeWindows: EventTimeTrigger,
    SlidingEventTimeWindows: EventTimeTrigger,
    EventTimeSessionWindows: EventTimeTrigger,
    TumblingProcessingTimeWindows: ProcessingTimeTrigger,
    SlidingProcessingTimeWindows: ProcessingTimeTrigger,
    ProcessingTimeSessionWindows: ProcessingTimeTrigger,
}
"""Windows that end at a time of their own, and the triggers that do nothing but wait for it."""
_SMALL = 4096
"""Batches of fewer records are held back."""
_HELD = 8192
"""So many records at most."""
_FARTHEST = 1 << 62
"""Timestamps beyond could not be calculated with in 64 bits; they are 146 million years away."""


def windows_by_column(spec: WindowSpec) -> bool:
    """Whether windows are aggregated by column and fire at their end only."""
    return (
        isinstance(spec.aggregate, ColumnAggregate)
        and isinstance(spec.window_function, WindowRow | AllWindowRow)
        and (spec.trigger is None or type(spec.trigger) is _TRIGGERS.get(type(spec.assigner)))
        and type(spec.assigner) in _TRIGGERS
    )


class ColumnWindowOperator(WindowOperator):
    """Aggregates all records of a batch with the accumulators of their windows."""

    def __init__(self, spec: WindowSpec, key_type: TypeInformation | None) -> None:
        """Build the operator for a spec of which `windows_by_column` is true."""
        super().__init__(spec, key_type)
        assert spec.element_type is not None
        self._input = BatchShape(spec.element_type)
        self._output = BatchShape(spec.window_function.row_type)
        self._names = spec.window_function.row_type.get_field_names()
        self._aggregation = ColumnAggregation(spec.aggregate)
        self._domain = EVENT_TIMERS if self._event_time else PROCESSING_TIMERS
        self._held: list[ColumnBatch] = []
        self._held_records = 0
        self._held_until = MAX_WATERMARK
        self._measure(spec.assigner)

    def _measure(self, assigner: Any) -> None:
        """Find out how long windows are."""
        self._size, self._offset = int(assigner._size), int(assigner._offset)
        self._slide = int(getattr(assigner, "_slide", self._size))

    def setup(self, environment: OperatorEnvironment) -> None:
        """Attach to the host, which decides whether there are columns."""
        super().setup(environment)
        self.columnar = not environment.batch_mode and self._backend.by_column
        self._make_timers()

    def _make_timers(self) -> None:
        parameters = self._backend.parameters
        self._window_timers: Any = ColumnTimers(parameters.key_serializer, parameters.max_parallelism)

    def _restore(self, restored: RestoredState) -> None:
        if not self.columnar:
            super()._restore(restored)
            return
        restored.fill(self._backend, self._window_timers)
        self._operator_state = OperatorStateStore(restored.operator)

    def _register_states(self) -> None:
        if self.columnar:
            self._backend.column_state(contents_of(self._spec), self.timer_namespace)
        super()._register_states()

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Aggregate records that came as objects."""
        if not self.columnar:
            super().process(input_index, batch, out)
            return
        self.process_columns(input_index, self._input.batch(batch, self._backend.parameters.tokens), out)

    def process_columns(self, input_index: int, columns: ColumnBatch, out: Output) -> None:
        """Put the records into their windows, at once or later."""
        if not len(columns) or self._holds(columns):
            return
        self._let_go()
        self._put(columns, out)
        if not self._event_time:
            self.advance_processing_time(self._clock.now(), out)

    def _holds(self, columns: ColumnBatch) -> bool:
        """Keep a small batch for later, if none of its records is behind the watermark."""
        stamps = columns.timestamps
        if len(columns) >= _SMALL or not self._event_time or stamps is None or stamps.null_count:
            return False
        first = int(pc.min(stamps).as_py())
        if first <= self._service.watermark or abs(first) > _FARTHEST:
            return False
        self._held.append(columns)
        self._held_records += len(columns)
        self._held_until = min(self._held_until, self._first_end(first))
        if self._held_records > _HELD:
            self._let_go()
        return True

    def _first_end(self, first: int) -> int:
        """The last moment of the window that ends first behind the first record."""
        return first + (self._offset + self._size - 1 - first) % self._slide

    def _let_go(self) -> None:
        """Put what was held back into windows; all of these are in front of the watermark, so that none fires."""
        held, self._held, self._held_records, self._held_until = self._held, [], 0, MAX_WATERMARK
        if held:
            parts = zip(*[(each.values, each.timestamps, each.keys) for each in held], strict=True)
            values, stamps, keys = [None if part[0] is None else pa.concat_arrays(part) for part in parts]
            self._put(ColumnBatch(values, held[0].serializer, stamps, keys), Output())

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """Fire the windows that are complete."""
        if watermark >= self._held_until:
            self._let_go()
        super().advance_watermark(watermark, out)

    def _put(self, columns: ColumnBatch, out: Output) -> None:
        tokens, stamps = self._tokens_of(columns), self._stamps(columns)
        rows, starts = self._assigned(stamps)
        self._backend.start_batch(None)
        try:
            operands = self._aggregation.operands(columns.values)
            if len(starts) == len(stamps) and int(starts.min()) + self._size - 1 > self._passed:
                self._add_rows(tokens, rows, starts, operands)
            else:
                self._sort_out(columns, tokens, stamps, rows, starts, operands, out)
        finally:
            self._backend.end_batch()

    def _tokens_of(self, columns: ColumnBatch) -> pa.Array:
        if self._spec.all_windows:
            return pa.array(np.zeros(len(columns), np.int8))
        assert columns.keys is not None
        return columns.keys

    @property
    def _passed(self) -> int:
        """The event time that has passed; windows by the clock know none."""
        return self._service.watermark if self._event_time else MIN_WATERMARK

    def _stamps(self, columns: ColumnBatch) -> Numbers:
        if not self._event_time:
            # The clock is read once per batch, as everywhere.
            return np.full(len(columns), self._service.current_processing_time(), np.int64)
        stamps = columns.timestamps
        if stamps is None or stamps.null_count:
            self._assigner.assign_windows(None, None, self._assigner_context)
        assert stamps is not None
        numbers: Numbers = stamps.to_numpy(zero_copy_only=False)
        if int(numbers.min()) <= MIN_WATERMARK:
            self._assigner.assign_windows(None, MIN_WATERMARK, self._assigner_context)
        if int(numbers.min()) < -_FARTHEST or int(numbers.max()) > _FARTHEST:
            raise SerializationError(
                "A timestamp is more than 146 million years away from 1970. Timestamps are milliseconds; look at the "
                "timestamp assigner."
            )
        return numbers

    def _assigned(self, stamps: Numbers) -> tuple[Numbers | None, Numbers]:
        """Rows and starts of their windows, row by row, those of a row from the last one; None: each row has one."""
        size, slide = self._size, self._slide
        last = stamps - (stamps - self._offset) % slide
        if slide == size:
            return None, last
        starts = last[:, None] - slide * np.arange(-(-size // slide), dtype=np.int64)
        rows, places = np.nonzero(starts + size > stamps[:, None])
        return rows, starts[rows, places]

    def _add_rows(
        self, tokens: pa.Array, rows: Numbers | None, starts: Numbers, operands: Accumulators
    ) -> None:
        """Add rows to windows in front of the watermark."""
        keys, operands = self._keys_of(tokens, rows, starts, operands)
        held, present = self._contents.read(keys, with_mask=True)
        self._contents.write(keys, self._aggregation.fold(keys, operands, held))
        if not present.all():
            self._arm(keys, ~present, starts, [0, self._lateness] if self._lateness else [0])

    def _keys_of(
        self, tokens: pa.Array, rows: Numbers | None, starts: Numbers, operands: Accumulators
    ) -> tuple[Keys, Accumulators]:
        """Windows of keys, and what the rows bring to them."""
        if rows is not None:
            tokens = tokens.take(pa.array(rows))
            operands = tuple([each[rows] for each in operands])
        return self._backend.column_keys(tokens, (starts, starts + self._size)), operands

    def _arm(self, keys: Keys, new: Numbers, starts: Numbers, delays: list[int]) -> None:
        """Register timers for new windows of keys."""
        begin, tokens = keys.first(starts)[new], keys[new].token_column
        for delay in delays:
            self._window_timers.register(self._domain, delay, begin, begin + self._size, tokens)

    def _sort_out(
        self,
        columns: ColumnBatch,
        tokens: pa.Array,
        stamps: Numbers,
        rows: Numbers | None,
        starts: Numbers,
        operands: Accumulators,
        out: Output,
    ) -> None:
        """Some rows are late, or in no window."""
        rows = np.arange(len(stamps)) if rows is None else rows
        watermark = self._passed
        lasts = starts + (self._size - 1)
        ahead = lasts > watermark
        behind = ~ahead & (lasts > watermark - self._lateness)
        if ahead.any():
            self._add_rows(tokens, rows[ahead], starts[ahead], operands)
        if behind.any():
            self._add_behind_watermark(tokens, rows[behind], starts[behind], operands, out)
        if self._event_time:
            late = stamps <= watermark - self._lateness
            late[rows[ahead | behind]] = False
            if late.any():
                self._late_rows(columns, np.flatnonzero(late), out)

    def _add_behind_watermark(
        self, tokens: pa.Array, rows: Numbers, starts: Numbers, operands: Accumulators, out: Output
    ) -> None:
        """Add rows to windows the watermark has passed but lateness keeps: each fires at once."""
        keys, operands = self._keys_of(tokens, rows, starts, operands)
        held, present = self._contents.read(keys, with_mask=True)
        running = self._aggregation.running(keys, operands, held)
        self._contents.write(keys, tuple([keys.last(each) for each in running]))
        if not present.all():
            self._arm(keys, ~present, starts, [self._lateness])
        self._emit(tokens.take(pa.array(rows)), starts, starts + self._size, running, out)

    def _late_rows(self, columns: ColumnBatch, rows: Numbers, out: Output) -> None:
        tag = self._spec.late_tag
        if tag is None:
            self._late_records.inc(len(rows))
            return
        at = pa.array(rows)
        assert columns.timestamps is not None
        late = ColumnBatch(columns.values.take(at), columns.serializer, columns.timestamps.take(at))
        if tag.type_info is None or tag.type_info == self._spec.element_type:
            out.emit_side_columns(tag.tag_id, late)
            return
        batch = late.batch()
        assert batch.timestamps is not None
        for value, stamp in zip(batch.values, batch.timestamps, strict=True):
            out.emit_side(tag.tag_id, value, stamp)

    def _emit(
        self, tokens: pa.Array, starts: Numbers, ends: Numbers, accumulators: Accumulators, out: Output
    ) -> None:
        columns = [pa.array(starts), pa.array(ends), *self._aggregation.results(accumulators)]
        if not self._spec.all_windows:
            columns.insert(0, self._backend.parameters.tokens.key_column(tokens))
        rows = dict(zip(self._names, columns, strict=True))
        out.emit_columns(self._output.columns(rows, pa.array(ends - 1)))

    def _fire_event_timers(self, watermark: int, out: Output) -> None:
        if self.columnar:
            self._fire_windows(self._window_timers.pop(EVENT_TIMERS, watermark), out)
        else:
            super()._fire_event_timers(watermark, out)

    def advance_processing_time(self, now: int, out: Output) -> None:
        """Fire the windows that end by the clock and are due."""
        if not self.columnar:
            super().advance_processing_time(now, out)
        elif not self._ended:
            self._fire_windows(self._window_timers.pop(PROCESSING_TIMERS, now), out)

    def next_processing_timer(self) -> int | None:
        """When a window ends by the clock."""
        if not self.columnar:
            return super().next_processing_timer()
        return None if self._ended else self._window_timers.first_time(PROCESSING_TIMERS)

    def _fire_windows(self, due: list[DueWindow], out: Output) -> None:
        """Emit windows whose end has come, as one batch, and drop those that lateness does not keep."""
        if not due:
            return
        times, starts, ends, tokens = by_key(due)
        self._backend.start_batch(None)
        try:
            keys = self._backend.column_keys(tokens, (starts, ends))
            held, present = self._contents.read(keys, with_mask=True)
            fires = np.flatnonzero((times == ends - 1) & present[keys.codes])
            if len(fires):
                at = keys.codes[fires]
                accumulators = tuple([part[at] for part in held])
                self._emit(tokens.take(pa.array(fires)), starts[fires], ends[fires], accumulators, out)
            gone = np.zeros(len(keys), np.bool_)
            gone[keys.codes[times == ends - 1 + (self._lateness if self._event_time else 0)]] = True
            if gone.any():
                self._contents.clear(keys[gone])
        finally:
            self._backend.end_batch()

    def erase_key(self, key: bytes) -> dict[str, int]:
        """Forget a key, given by its canonical bytes: state and timers; rows of each that held any."""
        self._let_go()
        from_bytes = self._backend.parameters.tokens.from_bytes
        token = key if from_bytes is None else from_bytes(key)
        return {**super().erase_key(key), **self._window_timers.erase(token)}

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Freeze state and timers, with all that was held back, which is bounded."""
        self._let_go()
        cut = super().cut(checkpoint_id, timestamp, incremental=incremental)
        if self.columnar:
            cut.timers = self._window_timers.cut()
        return cut
