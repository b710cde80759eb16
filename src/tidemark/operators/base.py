"""What an operator is: events in, outputs out. Slots, the local executor and the harness all drive this.

Order of calls, for every start of a subtask::

    setup(environment) -> initialize(restored) -> open()
    -> { process | advance_watermark | advance_processing_time | end_input | cut | notify_* }* -> close()

One call at a time. Whoever drives an operator calls `cut` only between two other calls, never inside one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tidemark.protocol.batch import SMALL_BATCH, Batch, ColumnBatch
from tidemark.state.descriptors import StateKind
from tidemark.state.snapshot import Increment, OperatorCut, OperatorStatePart, StateMeta

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.clock import Clock
    from tidemark.metrics.registry import MetricGroup
    from tidemark.plan.vertex import SubtaskInfo
    from tidemark.state.backend import KeyedStateBackend
    from tidemark.state.column_timers import ColumnTimers
    from tidemark.state.descriptors import StateDescriptor
    from tidemark.state.serializers.base import TypeSerializer
    from tidemark.state.timers import InternalTimers

__all__ = [
    "NativeRestore",
    "Operator",
    "OperatorEnvironment",
    "Output",
    "RestoredState",
]


class Output:
    """Collects what an operator emits; whoever drives the operator drains it after each call.

    `timestamps` stays None until the first record with a timestamp is emitted; then it is parallel to
    `values`. `side` maps a tag id to another Output. `done` is what was emitted before `values`, as columns and
    the records between them.
    """

    __slots__ = ("done", "side", "timestamps", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.timestamps: list[int | None] | None = None
        self.side: dict[str, Output] = {}
        self.done: list[Batch | ColumnBatch] = []

    def emit(self, value: Any, timestamp: int | None) -> None:
        """Add one record."""
        if timestamp is not None and self.timestamps is None:
            self.timestamps = [None] * len(self.values)
        self.values.append(value)
        if self.timestamps is not None:
            self.timestamps.append(timestamp)

    def emit_side(self, tag_id: str, value: Any, timestamp: int | None) -> None:
        """Add one record to a side output."""
        side = self.side.get(tag_id)
        if side is None:
            side = self.side[tag_id] = Output()
        side.emit(value, timestamp)

    def emit_columns(self, columns: ColumnBatch) -> None:
        """Add records that are columns of the stream's declared type."""
        if self.values:
            self.done.append(Batch(self.values, self.timestamps))
            self.values, self.timestamps = [], None
        self.done.append(columns)

    def emit_side_columns(self, tag_id: str, columns: ColumnBatch) -> None:
        """Add columns to a side output, of its declared type."""
        self.side.setdefault(tag_id, Output()).emit_columns(columns)

    def parts(self) -> list[tuple[str | None, Batch | ColumnBatch]]:
        """Take everything collected so far, in order: the parts of the main output, then those of side outputs."""
        parts: list[tuple[str | None, Batch | ColumnBatch]] = [(None, part) for part in self.done]
        if self.values:
            parts.append((None, Batch(self.values, self.timestamps)))
        for tag, side in self.side.items():
            parts += [(tag, part) for _, part in side.parts()]
        self.values, self.timestamps, self.side, self.done = [], None, {}, []
        return parts

    def drain(self) -> tuple[Batch, dict[str, Batch]]:
        """Take everything collected so far, of an operator that emits no columns: the main batch, then side batches."""
        main = Batch(self.values, self.timestamps)
        sides = {tag: side.drain()[0] for tag, side in self.side.items()}
        self.values, self.timestamps, self.side = [], None, {}
        return main, sides

    def __bool__(self) -> bool:
        return bool(self.values) or bool(self.side) or bool(self.done)


@dataclass(slots=True)
class OperatorEnvironment:
    """What the host (slot, local executor, harness) gives an operator."""

    info: SubtaskInfo
    clock: Clock
    metrics: MetricGroup
    make_backend: Callable[[TypeSerializer[Any]], KeyedStateBackend]
    """Creates the keyed backend of this subtask; called once, by keyed operators only."""
    publish: Callable[[StateDescriptor, KeyedStateBackend], None] | None = None
    """Called for every state that is registered with a queryable name; None: queryable state is off."""
    batch_mode: bool = False
    """Everything of a key at once, in the order of time, when the bounded input has ended."""
    track_every: int = 0
    """One of so many accesses to a keyed state is timed; 0: none."""


@dataclass(slots=True)
class NativeRestore:
    """One backend-native snapshot, its files already on local disk."""

    kind: str
    files: dict[str, Path]
    extra: bytes
    metas: list[StateMeta]


@dataclass(slots=True)
class RestoredState:
    """What a subtask gets back: already redistributed, only rows of its own key groups.

    An operator that had no state in the snapshot still gets an (empty) instance: the job *is* restored.
    """

    tables: list[tuple[StateMeta, Iterable[pa.RecordBatch]]] = field(default_factory=list)
    native: list[NativeRestore] = field(default_factory=list)
    operator: list[OperatorStatePart] = field(default_factory=list)

    def fill(self, backend: KeyedStateBackend, timers: InternalTimers | ColumnTimers | None = None) -> None:
        """Hand keyed state to a fresh backend, native snapshots first, and timers to whoever keeps them."""
        for native in self.native:
            backend.restore_native(native.kind, native.files, native.extra, native.metas)
        for meta, batches in self.tables:
            if meta.kind is not StateKind.TIMER:
                backend.restore_table(meta, batches)
            elif timers is not None:
                timers.restore_table(meta, batches)


class Operator(ABC):
    """One parallel instance of an operator."""

    passes_values: ClassVar[bool] = False
    """Whether `process` emits just the values it was given; only their timestamps may be others."""

    columnar: bool = False
    """Whether it wants batches as columns (`process_columns`) and emits columns."""

    @property
    def batch_limit(self) -> int:
        """How many records one call of `process` should get at most; see `SMALL_BATCH`."""
        return SMALL_BATCH

    @abstractmethod
    def setup(self, environment: OperatorEnvironment) -> None:
        """Attach to the host; creates backend, timers and runtime context. No user code runs."""

    @abstractmethod
    def initialize(self, restored: RestoredState | None) -> None:
        """Load state (None: a fresh start) and call `initialize_state` / `restore_state`; comes before `open`."""

    @abstractmethod
    def open(self) -> None:
        """Call the user's `open`."""

    @abstractmethod
    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process the records of a batch in order."""

    def process_columns(self, input_index: int, columns: ColumnBatch, out: Output) -> None:
        """Process the records of a batch in order; only of a `columnar` operator."""
        raise AssertionError(f"{type(self).__name__} does not take columns.")

    def restore_watermark(self, watermark: int) -> None:
        """Stand where the operator stood at the cut; nothing fires. Called after `setup`."""

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """The combined watermark rose to `watermark`: fire what is due. Never goes back."""

    def advance_processing_time(self, now: int, out: Output) -> None:
        """The clock shows `now`: fire processing-time timers that are due."""

    def next_processing_timer(self) -> int | None:
        """Time of the earliest processing-time timer, or None."""
        return None

    def end_input(self, input_index: int, out: Output) -> None:
        """No record will come on this input any more (bounded input)."""

    def begin_round(self) -> None:
        """Supersteps: the round is over, the input begins anew; what was not emitted is gone. Batch mode only."""

    @abstractmethod
    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Synchronous part of a snapshot: `snapshot_state` of the user, then freeze all state."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete for the whole job."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""

    @abstractmethod
    def close(self) -> None:
        """Call the user's `close` and release the backend. Idempotent."""
