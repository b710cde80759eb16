"""Removing expired state from a RocksDB store, the part of Flink's compaction filter.

`rocksdict` lets no Python code run inside a compaction, so the clean-up is a pass of our own over the
states with time-to-live. A pass begins when as much has been written as makes RocksDB compact its
youngest level, when the periodic time of a state is over, or when somebody asks for a compaction. It goes
on by a bounded number of rows at the end of each batch, so no batch waits for it, and what it deletes
is dropped from the files by RocksDB's own next compaction. Rows are judged by the stamp in front of
them; nothing is deserialised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidemark.backends.rocksdb.cut import stamp_of
from tidemark.backends.rocksdb.keys import decode_segment, encode_segment, state_prefix
from tidemark.backends.rocksdb.scope import RowTable
from tidemark.backends.rocksdb.store import RocksStore, Row, after
from tidemark.state.backend import BackendParameters, KeyContext
from tidemark.state.descriptors import StateKind
from tidemark.state.expiry import Expiry

__all__ = ["CompactionCleanup", "ExpiringState"]

logger = logging.getLogger("tidemark.backends.rocksdb.compaction_filter")

_STEP_ROWS: Final = 1000
_SEEK_COST: Final = 10
"""A seek to the next key group takes about as long as looking at ten rows."""
_WRITE_BUFFERS_PER_PASS: Final = 4


@dataclass(frozen=True, slots=True)
class ExpiringState:
    """A registered state with time-to-live whose configuration allows clean-up in compactions."""

    name: str
    kind: StateKind
    table: RowTable
    expiry: Expiry
    query_time_after: int
    periodic: int | None
    """Milliseconds after which a pass begins even if little was written."""
    settle: Callable[[bytes], None] | None = None
    """Takes out what is expired at the address of a row, where that is reported."""


class CompactionCleanup:
    """The passes over one store."""

    def __init__(self, store: RocksStore, context: KeyContext, parameters: BackendParameters) -> None:
        self._store = store
        self._context = context
        self._clock = parameters.clock
        self._key_groups = parameters.key_groups
        self._states: list[ExpiringState] = []
        self._todo: list[tuple[ExpiringState, int]] = []
        self._resume: bytes | None = None
        self._now = 0
        self._judged = 0
        """Entries of `_judging` that may still be judged by `_now`."""
        self._judging: ExpiringState | None = None
        self._pass_at_bytes = 0
        self._last_pass = self._clock.now()

    def watch(self, state: ExpiringState) -> None:
        """Include a state in the next passes."""
        self._states.append(state)

    def after_batch(self, bytes_written: int) -> None:
        """Go on with the current pass, or begin one if it is time.

        Args:
            bytes_written: What has been written to the store since it was opened.
        """
        if not self._states:
            return
        if not self._todo and self._is_due(bytes_written):
            self.begin(bytes_written)
        if self._todo:
            self._step(_STEP_ROWS)

    def next_pass(self) -> int | None:
        """When the next look for something that is reported is due."""
        periods = [state.periodic for state in self._states if state.settle and state.periodic]
        if not periods:
            return None
        return self._clock.now() if self._todo else self._last_pass + min(periods)

    def begin(self, bytes_written: int) -> None:
        """Begin a pass with the next step, whatever was left of the last one."""
        groups = range(self._key_groups[1], self._key_groups[0] - 1, -1)
        self._todo = [(state, group) for state in reversed(self._states) for group in groups]
        self._resume = None
        self._judged = 0
        self._pass_at_bytes = bytes_written
        self._last_pass = self._clock.now()

    @property
    def is_amid_pass(self) -> bool:
        """Whether the pass has not come to its end."""
        return bool(self._todo)

    def run(self, bytes_written: int) -> None:
        """A whole pass, now."""
        self.begin(bytes_written)
        while self._todo:
            self._step(_STEP_ROWS)

    def _is_due(self, bytes_written: int) -> bool:
        volume = _WRITE_BUFFERS_PER_PASS * self._store.options.write_buffer_size
        if bytes_written - self._pass_at_bytes >= volume:
            return True
        periods = [state.periodic for state in self._states if state.periodic is not None]
        return bool(periods) and self._clock.now() - self._last_pass >= min(periods)

    def _step(self, budget: int) -> None:
        while budget > 0 and self._todo:
            state, group = self._todo[-1]
            prefix = state_prefix(group, state.table.state_id)
            rows: list[Row] = []
            first = self._resume or prefix
            self._resume = None
            budget -= _SEEK_COST
            for row in self._store.scan(first, after(prefix)):
                if budget <= 0:
                    self._resume = row[0]
                    break
                rows.append(row)
                budget -= 1
            if self._resume is None:
                self._todo.pop()
            if rows:
                self._drop_expired(state, rows)

    def _drop_expired(self, state: ExpiringState, rows: list[Row]) -> None:
        if state.settle is not None:
            self._settle_expired(state, state.settle, rows)
            return
        batch = self._store.new_batch()
        dropped = seen = 0
        for row, raw in rows:
            if state.kind is not StateKind.LIST:
                seen += 1
                if state.expiry.is_expired(stamp_of(raw), self._time(state, 1)):
                    batch.delete(row)
                    dropped += 1
                continue
            units = decode_segment(raw)
            seen += len(units)
            now = self._time(state, len(units))
            dropped += self._filter_segment(batch, row, units, state.expiry, now)
        if dropped:
            self._store.write(batch)
            state.table.invalidate()
            logger.debug(
                "Dropped %d of %d entries of state '%s', expired at %d.", dropped, seen, state.name, self._now
            )

    def _settle_expired(self, state: ExpiringState, settle: Callable[[bytes], None], rows: list[Row]) -> None:
        for row, raw in rows:
            units = decode_segment(raw) if state.kind is StateKind.LIST else [raw]
            now = self._time(state, len(units))
            if any(state.expiry.is_expired(stamp_of(unit), now) for unit in units):
                settle(row)

    def _time(self, state: ExpiringState, entries: int) -> int:
        """The time by which the next entries are judged; the clock is read again after so many of them."""
        if self._judged <= 0 or state is not self._judging:
            self._judging = state
            self._now = self._context.time_of(state.expiry, self._clock)
            self._judged = state.query_time_after
        self._judged -= entries
        return self._now

    @staticmethod
    def _filter_segment(batch: Any, row: bytes, units: list[bytes], expiry: Expiry, now: int) -> int:
        live = [unit for unit in units if not expiry.is_expired(stamp_of(unit), now)]
        if not live:
            batch.delete(row)
        elif len(live) < len(units):
            batch.put(row, encode_segment(live))
        return len(units) - len(live)
