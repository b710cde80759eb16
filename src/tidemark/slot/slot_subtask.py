"""A subtask in a slot: frames of records in, answering frames out, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

from tidemark.clock import Clock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Output
from tidemark.operators.source import SourceOperator
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, SMALL_BATCH
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.frames import EMPTY, BatchHeader
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.key_tokens import key_serializer_for
from tidemark.subtask.subtask import Subtask, operator_of
from tidemark.subtask.task_state import TaskStateManager

__all__ = ["SlotSubtask"]

Publish = Callable[[StateDescriptor, KeyedStateBackend, str], None]
"""Makes a state of the operator with that uid queryable."""


class SlotSubtask(Subtask):
    """The subtask of one vertex in one slot, with the codecs of its edges and its place in time.

    Attributes:
        watermark: Where it stands; before the start that of the cut it is restored from.
    """

    def __init__(
        self,
        vertex: Vertex,
        deployment: Deployment,
        state: TaskStateManager,
        clock: Clock,
        metrics: MetricRegistry,
        publish: Publish,
    ) -> None:
        """Build it from what is deployed."""

        def publish_own(descriptor: StateDescriptor, backend: KeyedStateBackend) -> None:
            publish(descriptor, backend, vertex.uid)

        super().__init__(
            operator_of(vertex),
            vertex.subtask(deployment.slot, deployment.attempt, deployment.job_parameters),
            clock=clock,
            metrics=metrics,
            backend=deployment.backend,
            directory=state.directory(vertex),
            batch_mode=deployment.batch_mode,
            publish=publish_own if deployment.queryable else None,
        )
        key = key_serializer_for(vertex.key_type()) if vertex.keyed else None
        self._codecs = [codec_for(kind, key) for kind in vertex.input_types]
        self._main = codec_for(vertex.output_type)
        self._sides = {tag: codec_for(kind) for tag, kind in vertex.side_types.items()}
        self._inputs = [edge.input_index for edge in vertex.inputs]
        self._clock = clock
        self._out = Output()
        self.watermark = deployment.watermarks.get(vertex.uid, MIN_WATERMARK)
        self._epoch = -1
        self._ended = False

    def process(
        self, header: BatchHeader, body: Any, between: Callable[[], None], queryable: Sized
    ) -> tuple[Any, Any]:
        """Process one frame.

        Args:
            header: Says what the frame is.
            body: Its records.
            between: Called after every part of the records.
            queryable: What somebody may ask for between parts, which are small if there is anything.

        Returns:
            Header and body of the answer.
        """
        operator, out = self.operator, self._out
        if self._epoch != header.epoch:
            self._epoch = header.epoch
            self._begin_epoch(header.watermark)
        status = None
        if isinstance(operator, SourceOperator):
            status = operator.take(out)
        elif header.flags != EMPTY:
            index = self._inputs[header.edge]
            limit = SMALL_BATCH if queryable else operator.batch_limit
            for batch in self._codecs[header.edge].decode_parts(header.flags, body, limit):
                operator.process(index, batch, out)
                between()
        main, sides = out.drain()
        sections: list[tuple[str | None, int, int]] = []
        bodies: list[Any] = []
        for tag, codec, batch in [
            (None, self._main, main),
            *((t, self._sides.get(t), b) for t, b in sides.items()),
        ]:
            if codec is not None and batch.values:
                flags, data = codec.encode(batch)
                view = memoryview(data)
                sections.append((tag, flags, view.nbytes))
                bodies.append(view)
        answer = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        return ("ok", operator.next_processing_timer(), sections, status), answer

    def _begin_epoch(self, watermark: int) -> None:
        operator, out = self.operator, self._out
        if watermark < self.watermark:
            # Time goes back only where an iteration begins another round.
            self.watermark = watermark
            self._ended = False
            operator.begin_round()
        if watermark > self.watermark:
            self.watermark = watermark
            operator.advance_watermark(watermark, out)
            if watermark == MAX_WATERMARK and not self._ended:
                self._ended = True
                for index in sorted(set(self._inputs)):
                    operator.end_input(index, out)
        operator.advance_processing_time(self._clock.now(), out)
