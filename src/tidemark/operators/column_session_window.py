"""Session windows by column: the records of a batch and the open sessions of their keys meet all at once.

State is that of the record form: `merging-window-set` says which windows a key has and under which window the content
of each lies, and a savepoint of either form starts the other. Records that may be late one by one (the watermark has
passed the session each would be alone) are taken in turns with what they could meet, for the order decides what becomes
of them. Where sessions of a key merge, floating-point sums are added in another order than record by record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemark.api.windows.assigners import MergingWindowAssigner
from tidemark.operators.base import Output
from tidemark.operators.column_aggregation import Accumulators
from tidemark.operators.column_window import ColumnWindowOperator
from tidemark.operators.merging_windows import MERGING_WINDOWS
from tidemark.operators.open_sessions import OpenSessions
from tidemark.operators.session_groups import in_turns
from tidemark.protocol.batch import ColumnBatch
from tidemark.state.backend import NO_KEY

if TYPE_CHECKING:
    from tidemark.api.specs import WindowSpec
    from tidemark.state.column_keys import Keys
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["ColumnSessionOperator", "column_window_operator"]

Numbers = np.ndarray[Any, Any]


def column_window_operator(spec: WindowSpec, key_type: TypeInformation | None) -> ColumnWindowOperator:
    """The operator for a spec of which `windows_by_column` is true."""
    merges = isinstance(spec.assigner, MergingWindowAssigner)
    return (ColumnSessionOperator if merges else ColumnWindowOperator)(spec, key_type)


class ColumnSessionOperator(ColumnWindowOperator):
    """Aggregates all records of a batch with the accumulators of their sessions."""

    def _measure(self, assigner: Any) -> None:
        self._gap = int(assigner._session_gap)

    def _make_timers(self) -> None:
        lateness = self._lateness if self._event_time else 0
        self._sessions = OpenSessions(self._backend.parameters, self._domain, self._gap, lateness)
        self._window_timers = self._sessions

    def _register_states(self) -> None:
        super()._register_states()
        if self.columnar:
            self._windows: Any = self.keyed_state(MERGING_WINDOWS)
            self._sessions.restore(self._known_windows())

    def _known_windows(self) -> Iterator[tuple[Any, list[list[int]]]]:
        tokens = self._backend.keys(MERGING_WINDOWS.name)
        self._backend.start_batch(tokens)
        try:
            for self._keys.token in tokens:
                yield self._keys.token, list(self._windows.get())
        finally:
            self._keys.token = NO_KEY
            self._backend.end_batch()

    def _first_end(self, first: int) -> int:
        return first + self._gap - 1

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """Fire the sessions that are over; what is held back may put that off."""
        if self._held and self._sessions.may_be_due(watermark):
            self._let_go()
        super().advance_watermark(watermark, out)

    def _put(self, columns: ColumnBatch, out: Output) -> None:
        tokens, stamps = self._tokens_of(columns), self._stamps(columns)
        late = []
        self._backend.start_batch(None)
        try:
            operands = self._aggregation.operands(columns.values)
            for rows in self._turns(tokens, stamps):
                if rows is None:
                    late.append(self._add_to_sessions(tokens, stamps, operands, out))
                    continue
                some = tuple([each[rows] for each in operands])
                late.append(rows[self._add_to_sessions(tokens.take(pa.array(rows)), stamps[rows], some, out)])
        finally:
            self._backend.end_batch()
        dropped = np.sort(np.concatenate(late))
        if len(dropped):
            self._late_rows(columns, dropped, out)

    def _turns(self, tokens: pa.Array, stamps: Numbers) -> Iterator[Numbers | None]:
        """Records that may meet their sessions at once; None: all."""
        behind = stamps + (self._gap - 1) <= self._passed
        if not behind.any():
            yield None
            return
        groups, _, _ = self._sessions.meet(tokens, stamps)
        mixed = np.zeros(len(groups.ends), np.bool_)
        mixed[groups.of_row[behind]] = True
        # What would be late with all it could meet is late in any order.
        mixed &= self._alive(groups.ends)
        careful = mixed[groups.of_row]
        if not careful.all():
            yield np.flatnonzero(~careful)
        rows = np.flatnonzero(careful)
        if len(rows):
            for turn in in_turns(groups.of_row[rows], behind[rows]):
                yield rows[turn]

    def _alive(self, ends: Numbers) -> Numbers:
        return ends - 1 + self._lateness > self._passed

    def _add_to_sessions(
        self, tokens: pa.Array, stamps: Numbers, operands: Accumulators, out: Output
    ) -> Numbers:
        """Add records to the sessions they make, whose order does not matter; gives the rows of late ones."""
        sessions, passed = self._sessions, self._passed
        met = sessions.meet(tokens, stamps)
        groups = met[0]
        alive = self._alive(groups.ends)
        chosen = np.flatnonzero(alive)
        rows, changed, merged, into = sessions.adopt(met, chosen, passed)
        number = np.cumsum(alive) - 1
        of_row, late = number[groups.of_row], np.zeros(0, np.int64)
        if not alive.all():
            kept = alive[groups.of_row]
            late = np.flatnonzero(~kept)
            of_row, operands = of_row[kept], tuple([each[kept] for each in operands])
        if len(rows):
            taken = self._taken(merged)
            keys, held = self._held_by(rows)
            if taken is not None:
                held = self._aggregation.merged(held, number[into], taken)
            made = self._aggregation.fold(keys.of_rows(of_row), operands, held)
            self._contents.write(keys, made)
            fires = np.flatnonzero(groups.ends[chosen] - 1 <= passed)
            if len(fires):
                self._emit_sessions(rows[fires], tuple([part[fires] for part in made]), out)
            self._persist(sessions.keys_of(rows[changed]))
        return late

    def _held_by(self, rows: Numbers) -> tuple[Keys, Accumulators]:
        """Where the contents of sessions lie, and what they are; of what is not there, nothing counted."""
        keys = self._backend.column_keys(self._sessions.tokens(rows), self._sessions.places(rows))
        return keys, self._contents.read(keys)

    def _taken(self, rows: Numbers) -> Accumulators | None:
        """The contents of sessions that were merged away."""
        if not len(rows):
            return None
        keys, held = self._held_by(rows)
        self._contents.clear(keys)
        return held

    def _persist(self, keys: Numbers) -> None:
        """Write which windows keys have."""
        context, update = self._keys, self._windows.update
        try:
            for context.token, windows in self._sessions.state_of(keys):
                update(windows)
        finally:
            context.token = NO_KEY

    def _emit_sessions(self, rows: Numbers, accumulators: Accumulators, out: Output) -> None:
        starts, ends = self._sessions.bounds(rows)
        self._emit(self._sessions.tokens(rows), starts, ends, accumulators, out)

    def _fire_event_timers(self, watermark: int, out: Output) -> None:
        if self.columnar:
            self._fire_sessions(watermark, out)
        else:
            super()._fire_event_timers(watermark, out)

    def advance_processing_time(self, now: int, out: Output) -> None:
        """Fire the sessions that are over by the clock."""
        if not self.columnar:
            super().advance_processing_time(now, out)
        elif not self._event_time and not self._ended:
            self._fire_sessions(now, out)

    def _fire_sessions(self, limit: int, out: Output) -> None:
        """Emit sessions whose end has come, as one batch, and drop those that lateness does not keep."""
        sessions = self._sessions
        if not sessions.may_be_due(limit):
            return
        due = sessions.due(limit)
        if not len(due):
            return
        self._backend.start_batch(None)
        try:
            fires, over = sessions.split(due, limit)
            if len(fires):
                keys, held = self._held_by(fires)
                there = np.flatnonzero(self._contents.read(keys, with_mask=True)[1])
                self._emit_sessions(fires[there], tuple([part[there] for part in held]), out)
            if len(over):
                keys, _ = self._held_by(over)
                self._contents.clear(keys)
                self._persist(sessions.remove(over))
        finally:
            self._backend.end_batch()
