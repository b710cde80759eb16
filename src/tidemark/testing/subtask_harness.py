"""What all harnesses share: one operator subtask, its time, its output and its snapshots.

The operator, its backend, the snapshot writer and the rescaling code are those of a real job; only the
host is missing.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemark.api.checkpoint_storage import JobManagerCheckpointStorage
from tidemark.api.output_tag import OutputTag
from tidemark.api.specs import OperatorSpec
from tidemark.api.state_backends import StateBackend, backend_by_name
from tidemark.checkpoint.snapshot_writer import WriterOptions
from tidemark.clock import Clock, ManualClock
from tidemark.config import Configuration, Options, RuntimeExecutionMode
from tidemark.errors import IllegalStateError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, Output, RestoredState
from tidemark.operators.factory import create_operator
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import MAX_WATERMARK, Batch
from tidemark.protocol.deployment import BackendChoice
from tidemark.state.key_tokens import KeyTokens, key_serializer_for
from tidemark.state.snapshot import Increment
from tidemark.subtask.subtask import Subtask
from tidemark.testing.snapshot import OperatorSnapshot
from tidemark.types.typeinfo import TypeInformation, to_type_info

__all__ = ["SubtaskHarness"]

UID = "harness"


class SubtaskHarness:
    """What all harnesses share; subclasses add the ways in."""

    def __init__(
        self,
        spec: OperatorSpec | Operator,
        key_type: Any,
        parallelism: int,
        subtask_index: int,
        max_parallelism: int,
        state_backend: StateBackend | None,
        clock: Clock | None,
        configuration: Configuration | dict[str, Any] | None,
    ) -> None:
        if state_backend is not None and not isinstance(state_backend, StateBackend):
            raise TypeError(f"state_backend must be a StateBackend, not {type(state_backend).__name__}.")
        self._key_type: TypeInformation | None = None if key_type is None else to_type_info(key_type)
        self._clock: Clock = ManualClock() if clock is None else clock
        if not isinstance(configuration, Configuration):
            configuration = Configuration.from_dict(configuration or {})
        self._configuration = configuration
        self._backend = self._resolve(state_backend)
        self._operator = spec if isinstance(spec, Operator) else create_operator(spec, self._key_type)
        self._tokens = KeyTokens(key_serializer_for(self._key_type))
        # Only stores that keep files create it; gone with the harness, closed or not.
        self._scratch = Path(tempfile.gettempdir()) / f"tidemark-harness-{uuid.uuid4().hex}"
        self._remove_scratch = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._metrics = MetricRegistry(self._clock)
        self._output: list[tuple[Any, int | None]] = []
        self._side: dict[str, list[tuple[Any, int | None]]] = {}
        self._inputs = 1
        self._watermarks: list[int] = []
        self._initialized = False
        self._opened = False
        keyed = isinstance(self._operator, KeyedOperator)
        self._subtask = Subtask(
            self._operator,
            SubtaskInfo(UID, UID, subtask_index, parallelism, max_parallelism, keyed=keyed),
            clock=self._clock,
            metrics=self._metrics,
            backend=BackendChoice.of(self._backend),
            directory=self._scratch / "store",
            batch_mode=configuration.get(Options.RUNTIME_MODE) is RuntimeExecutionMode.BATCH,
        )
        self._subtask.setup()

    def _resolve(self, chosen: StateBackend | None) -> StateBackend:
        backend = chosen or backend_by_name(self._configuration)
        return backend.configured(self._configuration) if self._configuration.key_set() else backend

    def initialize_state(self, snapshot: OperatorSnapshot) -> None:
        """Start from `snapshot`; before `open`.

        Raises:
            IllegalStateError: The harness is open already.
        """
        if self._initialized:
            raise IllegalStateError("initialize_state() comes before open(), and once.")
        info = self._subtask.info
        self._restore(snapshot.restored(info.key_groups, info.max_parallelism, self._scratch / "restore"))

    def _restore(self, state: RestoredState | None) -> None:
        self._initialized = True
        self._subtask.restore(state)

    def open(self) -> None:
        """Start the function; processing-time timers that became due since the snapshot fire."""
        if self._opened:
            return
        if not self._initialized:
            self._restore(None)
        self._opened = True
        self._subtask.open()
        self._drive(lambda out: self._operator.advance_processing_time(self._clock.now(), out))

    def _drive(self, call: Callable[[Output], None]) -> None:
        """Run one call of the operator and keep what it emits, also if it raises."""
        if not self._opened:
            self.open()
        out = Output()
        try:
            call(out)
        finally:
            for tag, part in out.parts():
                records = records_of(part if isinstance(part, Batch) else part.batch())
                if tag is None:
                    self._output += records
                else:
                    self._side.setdefault(tag, []).extend(records)

    def _process(
        self, input_index: int, value: Any, timestamp: int | None, select: Callable[[Any], Any] | None
    ) -> None:
        self._process_all(input_index, [value], None if timestamp is None else [timestamp], select)

    def _process_all(
        self,
        input_index: int,
        values: list[Any],
        timestamps: list[int | None] | list[int] | None,
        select: Callable[[Any], Any] | None,
    ) -> None:
        keys = None if select is None else self._tokens.of(list(map(select, values)))
        batch = Batch(values, None if timestamps is None else list(timestamps), keys)
        self._drive(lambda out: self._operator.process(input_index, batch, out))

    def process_watermark(self, t: int) -> None:
        """The watermark of all inputs is `t` from now on; fires what is due."""
        self._drive(lambda out: self._operator.advance_watermark(t, out))

    def set_processing_time(self, ms: int) -> None:
        """Set the injected clock and fire what is due.

        Raises:
            TypeError: The injected clock cannot be set.
        """
        if not isinstance(self._clock, ManualClock):
            raise TypeError(f"set_processing_time needs a ManualClock, not {type(self._clock).__name__}.")
        self._clock.set(ms)
        self._drive(lambda out: self._operator.advance_processing_time(ms, out))

    def end_input(self) -> None:
        """All inputs end: the watermark goes to its maximum, then the operator ends."""

        def end(out: Output) -> None:
            self._operator.advance_watermark(MAX_WATERMARK, out)
            for index in reversed(range(self._inputs)):
                self._operator.end_input(index, out)

        self._drive(end)

    def output(self) -> list[Any]:
        """The values emitted since the last call."""
        return [value for value, _ in self.output_with_timestamps()]

    def output_with_timestamps(self) -> list[tuple[Any, int | None]]:
        """The values emitted since the last call, each with its timestamp or None."""
        records, self._output = self._output, []
        return records

    def side_output(self, tag: OutputTag) -> list[Any]:
        """The values emitted to `tag` since the last call."""
        return [value for value, _ in self._side.pop(tag.tag_id, [])]

    def snapshot(self, checkpoint_id: int = 1, timestamp: int = 0) -> OperatorSnapshot:
        """Take a checkpoint: the synchronous part now, the rest when the result is used.

        Raises:
            CheckpointError: Snapshots are synchronous and there is too much state.
        """
        incremental = self._backend.is_incremental_checkpoints_enabled()
        increment = Increment(checkpoint_id) if incremental else None
        return self._snapshot(checkpoint_id, timestamp, increment, is_savepoint=False)

    def savepoint(self, checkpoint_id: int = 1, timestamp: int = 0) -> OperatorSnapshot:
        """Take a savepoint: always in the canonical format, for any backend."""
        return self._snapshot(checkpoint_id, timestamp, None, is_savepoint=True)

    def _snapshot(
        self, checkpoint_id: int, timestamp: int, incremental: Increment | None, *, is_savepoint: bool
    ) -> OperatorSnapshot:
        if not self._opened:
            self.open()
        cut = self._subtask.cut(checkpoint_id, timestamp, incremental=incremental)
        snapshot = OperatorSnapshot.of_cut(cut, self._writer_options(), is_savepoint=is_savepoint)
        if not self._backend.is_using_asynchronous_snapshots():
            snapshot.to_bytes()
        return snapshot

    def _writer_options(self) -> WriterOptions:
        storage = self._backend.get_checkpoint_storage()
        if isinstance(storage, JobManagerCheckpointStorage):
            frame = int(self._configuration.get(Options.AKKA_FRAMESIZE))
            return WriterOptions.in_memory(storage.get_max_state_size(), frame)
        return WriterOptions(inline_threshold=None)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the function that the checkpoint is complete."""
        self._operator.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the function that the checkpoint was given up."""
        self._operator.notify_checkpoint_aborted(checkpoint_id)

    def num_keyed_state_entries(self, state_name: str | None = None) -> int:
        """Physical entries of keyed state, expired ones included; 0 for operators without keys."""
        operator = self._operator
        return operator.backend.num_entries(state_name) if isinstance(operator, KeyedOperator) else 0

    def metrics(self) -> dict[str, Any]:
        """Values of all metrics of the operator, by name."""
        return {name.removeprefix(f"{UID}."): value for name, value in self._metrics.snapshot().items()}

    def close(self) -> None:
        """Close the function and delete what the harness kept on disk."""
        try:
            self._subtask.close()
        finally:
            self._remove_scratch()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def records_of(batch: Batch) -> list[tuple[Any, int | None]]:
    stamps = batch.timestamps or [None] * len(batch)
    return list(zip(batch.values, stamps, strict=True))
