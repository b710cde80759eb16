"""Harnesses that drive one operator subtask in this process, without a JVM (spec 23).

They use the operators, backends, snapshot writer and rescaling code of a real job; only the host is
missing. Time stands still unless the test moves it. Exceptions of user code come out as they are.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemark.api.checkpoint_storage import JobManagerCheckpointStorage
from tidemark.api.graph import OperatorKind, OperatorSpec
from tidemark.api.output_tag import OutputTag
from tidemark.api.state_backends import StateBackend, backend_by_name
from tidemark.checkpoint.snapshot_writer import WriterOptions
from tidemark.clock import Clock, ManualClock
from tidemark.config import Configuration, Options, RuntimeExecutionMode
from tidemark.errors import IllegalStateError
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Batch,
    Operator,
    OperatorEnvironment,
    Output,
    RestoredState,
    SubtaskInfo,
)
from tidemark.operators.factory import create_operator
from tidemark.operators.function_kinds import one_input_kind, two_input_kind
from tidemark.operators.key_tokens import token_maker, type_or_pickled
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.stateless import method_of
from tidemark.operators.stores import create_store
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.serializers.base import TypeSerializer
from tidemark.testing.snapshot import OperatorSnapshot
from tidemark.types.typeinfo import TypeInformation, to_type_info

__all__ = ["BroadcastHarness", "OneInputHarness", "TwoInputHarness"]

UID = "harness"


class _Harness:
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
        self._info = SubtaskInfo(UID, UID, subtask_index, parallelism, max_parallelism)
        self._key_groups = compute_key_group_range_for_operator_index(
            max_parallelism, parallelism, subtask_index
        )
        self._operator = spec if isinstance(spec, Operator) else create_operator(spec, self._key_type)
        self._keyed = isinstance(self._operator, KeyedOperator)
        self._token = token_maker(type_or_pickled(self._key_type))
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
        self._operator.setup(
            OperatorEnvironment(
                self._info,
                self._clock,
                self._metrics.group(UID),
                self._make_backend,
                batch_mode=configuration.get(Options.RUNTIME_MODE) is RuntimeExecutionMode.BATCH,
            )
        )

    def _resolve(self, chosen: StateBackend | None) -> StateBackend:
        backend = chosen or backend_by_name(self._configuration)
        return backend.configured(self._configuration) if self._configuration.key_set() else backend

    def _make_backend(self, key_serializer: TypeSerializer[Any]) -> KeyedStateBackend:
        parameters = BackendParameters(
            key_serializer,
            self._info.max_parallelism,
            self._key_groups,
            self._clock,
            self._backend.is_using_asynchronous_snapshots(),
            self._scratch / "store",
            self._backend.store_options(),
        )
        return create_store(self._backend.store, parameters)

    def initialize_state(self, snapshot: OperatorSnapshot) -> None:
        """Start from `snapshot`; before `open`.

        Raises:
            IllegalStateError: The harness is open already.
        """
        if self._initialized:
            raise IllegalStateError("initialize_state() comes before open(), and once.")
        scratch = self._scratch / "restore"
        groups = self._key_groups if self._keyed else None
        self._initialize(snapshot.restored(groups, self._info.max_parallelism, scratch))

    def _initialize(self, restored: RestoredState | None) -> None:
        self._initialized = True
        self._operator.initialize(restored)

    def open(self) -> None:
        """Start the function; processing-time timers that became due since the snapshot fire."""
        if self._opened:
            return
        if not self._initialized:
            self._initialize(None)
        self._opened = True
        self._operator.open()
        self._drive(lambda out: self._operator.advance_processing_time(self._clock.now(), out))

    def _drive(self, call: Callable[[Output], None]) -> None:
        """Run one call of the operator and keep what it emits, also if it raises."""
        if not self._opened:
            self.open()
        out = Output()
        try:
            call(out)
        finally:
            main, sides = out.drain()
            self._output += _records(main)
            for tag, batch in sides.items():
                self._side.setdefault(tag, []).extend(_records(batch))

    def _process(
        self, input_index: int, value: Any, timestamp: int | None, select: Callable[[Any], Any] | None
    ) -> None:
        keys = None if select is None else [self._token(select(value))]
        batch = Batch([value], None if timestamp is None else [timestamp], keys)
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
        return self._snapshot(checkpoint_id, timestamp, incremental, is_savepoint=False)

    def savepoint(self, checkpoint_id: int = 1, timestamp: int = 0) -> OperatorSnapshot:
        """Take a savepoint: always in the canonical format, for any backend."""
        return self._snapshot(checkpoint_id, timestamp, False, is_savepoint=True)

    def _snapshot(
        self, checkpoint_id: int, timestamp: int, incremental: bool, *, is_savepoint: bool
    ) -> OperatorSnapshot:
        if not self._opened:
            self.open()
        cut = self._operator.cut(checkpoint_id, timestamp, incremental=incremental)
        snapshot = OperatorSnapshot.of_cut(
            cut,
            self._info,
            self._key_groups if self._keyed else None,
            self._writer_options(),
            checkpoint_id,
            is_savepoint=is_savepoint,
        )
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
            self._operator.close()
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


class OneInputHarness(_Harness):
    """Drives an operator of one input."""

    def __init__(
        self,
        function: Any,
        key_selector: Any = None,
        key_type: Any = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        max_parallelism: int = 128,
        state_backend: StateBackend | None = None,
        clock: Clock | None = None,
        configuration: Configuration | dict[str, Any] | None = None,
    ) -> None:
        """Wrap a function.

        Args:
            function: Any user function of one input, a callable (a map), or an `Operator`.
            key_selector: Callable or `KeySelector`; makes the stream keyed.
            key_type: Type of the key; None means pickled.
            parallelism: Number of subtasks the operator is said to have.
            subtask_index: Which of them this is.
            max_parallelism: Number of key groups.
            state_backend: None means what the configuration says, else `MemoryStateBackend`.
            clock: None means a `ManualClock` at 0.
            configuration: Settings, as a job would read them.
        """
        self._select = _selector(key_selector)
        super().__init__(
            _one_input_spec(function, keyed=key_selector is not None),
            key_type,
            parallelism,
            subtask_index,
            max_parallelism,
            state_backend,
            clock,
            configuration,
        )

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element."""
        self._process(0, value, timestamp, self._select)


class TwoInputHarness(_Harness):
    """Drives an operator of two inputs; it is keyed if both selectors are given."""

    def __init__(
        self,
        function: Any,
        key_selector1: Any = None,
        key_selector2: Any = None,
        key_type: Any = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        max_parallelism: int = 128,
        state_backend: StateBackend | None = None,
        clock: Clock | None = None,
        configuration: Configuration | dict[str, Any] | None = None,
    ) -> None:
        """Wrap a co-function; the other arguments as in `OneInputHarness`."""
        keyed = key_selector1 is not None and key_selector2 is not None
        self._selects = (_selector(key_selector1), _selector(key_selector2)) if keyed else (None, None)
        super().__init__(
            OperatorSpec(two_input_kind(function), function, keyed),
            key_type,
            parallelism,
            subtask_index,
            max_parallelism,
            state_backend,
            clock,
            configuration,
        )
        self._inputs = 2
        self._watermarks = [MIN_WATERMARK, MIN_WATERMARK]

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the first input."""
        self._process(0, value, timestamp, self._selects[0])

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the second input."""
        self._process(1, value, timestamp, self._selects[1])

    def process_watermark1(self, t: int) -> None:
        """The watermark of the first input is `t`; the operator's is the lower of both."""
        self._watermarks[0] = t
        self.process_watermark(min(self._watermarks))

    def process_watermark2(self, t: int) -> None:
        """The watermark of the second input is `t`; the operator's is the lower of both."""
        self._watermarks[1] = t
        self.process_watermark(min(self._watermarks))


class BroadcastHarness(_Harness):
    """Drives an operator with a broadcast input."""

    def __init__(
        self,
        function: Any,
        broadcast_descriptors: Sequence[Any],
        key_selector: Any = None,
        key_type: Any = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        max_parallelism: int = 128,
        state_backend: StateBackend | None = None,
        clock: Clock | None = None,
        configuration: Configuration | dict[str, Any] | None = None,
    ) -> None:
        """Wrap a broadcast function.

        Args:
            function: A `BroadcastProcessFunction`, or a keyed one with `key_selector`.
            broadcast_descriptors: What a job would pass to `broadcast(...)`; one descriptor or several.
            key_selector: Key of the data side.
            key_type: As in `OneInputHarness`, like the rest.
            parallelism: Number of subtasks.
            subtask_index: Which of them this is.
            max_parallelism: Number of key groups.
            state_backend: Where keyed state is kept.
            clock: Source of time.
            configuration: Settings.
        """
        several = isinstance(broadcast_descriptors, (list, tuple))
        descriptors = list(broadcast_descriptors) if several else [broadcast_descriptors]
        self._select = _selector(key_selector)
        super().__init__(
            OperatorSpec(
                OperatorKind.BROADCAST_PROCESS,
                function,
                key_selector is not None,
                {"descriptors": descriptors},
            ),
            key_type,
            parallelism,
            subtask_index,
            max_parallelism,
            state_backend,
            clock,
            configuration,
        )
        self._inputs = 2

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the data side."""
        self._process(0, value, timestamp, self._select)

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the broadcast side."""
        self._process(1, value, timestamp, None)


def _selector(key_selector: Any) -> Callable[[Any], Any] | None:
    return None if key_selector is None else method_of(key_selector, "get_key")


def _one_input_spec(function: Any, *, keyed: bool) -> OperatorSpec | Operator:
    if isinstance(function, Operator):
        return function
    return OperatorSpec(one_input_kind(function, keyed=keyed), function, keyed)


def _records(batch: Batch) -> list[tuple[Any, int | None]]:
    stamps = batch.timestamps or [None] * len(batch)
    return list(zip(batch.values, stamps, strict=True))
