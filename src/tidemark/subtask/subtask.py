"""One operator subtask: built, restored, opened, cut and closed in the same way wherever it runs.

Slots, fused tasks, test harnesses, `check` and the savepoint writer all drive this one. What they do between
`open` and `close` goes to `Subtask.operator` itself: nothing stands between a record and its operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.api.specs import FunctionSinkSpec, FunctionSourceSpec, SourceSpec
from tidemark.api.watermarks import WatermarkStrategy
from tidemark.checkpoint.layout import SnapshotLocation
from tidemark.checkpoint.metadata.model import SubtaskState
from tidemark.checkpoint.snapshot_writer import SnapshotWriter, SubtaskTarget
from tidemark.clock import Clock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Operator, OperatorEnvironment, RestoredState
from tidemark.operators.factory import create_operator
from tidemark.operators.sink import SinkOperator
from tidemark.operators.source import SourceOperator
from tidemark.operators.timestamps import TimestampsOperator
from tidemark.plan.vertex import SubtaskInfo, Vertex
from tidemark.protocol.batch import MIN_WATERMARK
from tidemark.protocol.deployment import BackendChoice
from tidemark.state.backend import BackendParameters, KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.snapshot import Increment, OperatorCut
from tidemark.subtask.backend_factory import create_backend

__all__ = ["Subtask", "SubtaskCut", "operator_of"]


_HEAP = BackendChoice()


def operator_of(vertex: Vertex) -> Operator:
    """The operator of a vertex: what the graph says; for sources that run elsewhere, what stamps their records."""
    match vertex.spec:
        case FunctionSourceSpec() as spec:
            return SourceOperator(spec.function, vertex.output_type)
        case SourceSpec(strategy=WatermarkStrategy() as strategy):
            return TimestampsOperator(strategy)
        case FunctionSinkSpec() as spec:
            return SinkOperator(spec.function)
    types: dict[int, Any] = {}
    for edge, kind in zip(vertex.inputs, vertex.input_types, strict=True):
        types.setdefault(edge.input_index, kind)
    return create_operator(
        vertex.spec,
        vertex.key_type() if vertex.keyed else None,
        [types[index] for index in sorted(types)] or [None],
    )


@dataclass(frozen=True, slots=True)
class SubtaskCut:
    """What one subtask froze for a snapshot; whoever has it writes or releases it."""

    info: SubtaskInfo
    checkpoint_id: int
    cut: OperatorCut
    sync_ms: int

    def write(
        self, writer: SnapshotWriter, location: SnapshotLocation, base: int | None = None
    ) -> SubtaskState:
        """Make it durable and release it, also if that fails; `base` as in `SubtaskTarget`.

        Raises:
            StorageError: The bytes could not be written.
            CheckpointError: The state is larger than the memory backend may carry.
        """
        info = self.info
        target = SubtaskTarget(self.checkpoint_id, location, info.uid, info.index, info.key_groups, base)
        return writer.write_subtask(target, self.cut, sync_ms=self.sync_ms)


class Subtask:
    """One parallel instance of an operator with everything it needs to live.

    Attributes:
        info: Which subtask of which operator it is.
        operator: Processes; see `tidemark.operators.base` for the order of calls.
    """

    def __init__(
        self,
        operator: Operator,
        info: SubtaskInfo,
        *,
        clock: Clock,
        metrics: MetricRegistry,
        backend: BackendChoice = _HEAP,
        directory: Path | None = None,
        batch_mode: bool = False,
        publish: Callable[[StateDescriptor, KeyedStateBackend], None] | None = None,
    ) -> None:
        """Put it together; nothing happens before `setup`.

        Args:
            operator: Fresh; the subtask's own from now on.
            info: Which subtask it is.
            clock: Its time.
            metrics: Where its metrics go, in a group of its name.
            backend: Where keyed state is kept. Batch mode keeps it on the heap whatever this says.
            directory: Private, for backends that keep files; they may create it and delete it.
            batch_mode: Whether records wait for the end of the input and go through key by key.
            publish: Told of every state with a queryable name; None: queryable state is off.
        """
        self.operator = operator
        self.info = info

        def make_backend(serializer: TypeSerializer[Any]) -> KeyedStateBackend:
            assert info.key_groups is not None, "an operator without a key has no keyed state"
            parameters = BackendParameters(
                serializer,
                info.max_parallelism,
                info.key_groups,
                clock,
                backend.asynchronous,
                directory,
                backend.options,
            )
            return create_backend(_HEAP if batch_mode else backend, parameters)

        self._environment = OperatorEnvironment(
            info, clock, metrics.group(info.name), make_backend, publish, batch_mode, backend.track_every
        )

    def setup(self) -> None:
        """Create backend, timers and contexts. No user code runs."""
        self.operator.setup(self._environment)

    def restore(self, state: RestoredState | None, watermark: int = MIN_WATERMARK) -> None:
        """Take over its share of a snapshot and stand at the watermark of the cut; None: a fresh start."""
        self.operator.restore_watermark(watermark)
        self.operator.initialize(state)

    def open(self) -> None:
        """Call the user's `open`."""
        self.operator.open()

    def start(self) -> None:
        """`setup`, `restore` of nothing and `open`. Whoever holds the subtask closes it, also if this fails."""
        self.setup()
        self.restore(None)
        self.open()

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> SubtaskCut:
        """Synchronous part of a snapshot; between two records, never inside one.

        Raises:
            Whatever the user's `snapshot_state` raises.
        """
        started = time.perf_counter()
        cut = self.operator.cut(checkpoint_id, timestamp, incremental=incremental)
        return SubtaskCut(self.info, checkpoint_id, cut, round((time.perf_counter() - started) * 1000))

    def close(self) -> None:
        """Call the user's `close` and release the backend. Idempotent."""
        self.operator.close()
