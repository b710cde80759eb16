"""A subtask in a slot: frames of records in, answering frames out, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Any

from tidemark.clock import Clock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import Output, RestoredState
from tidemark.operators.source import SourceOperator
from tidemark.plan.vertex import Vertex
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, SMALL_BATCH
from tidemark.protocol.channels import ChannelAnswer, ChannelHeader
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.frames import EMPTY, BatchHeader
from tidemark.slot.gate import Gate
from tidemark.slot.overtaken_output import OvertakenOutput
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.key_tokens import key_serializer_for
from tidemark.state.snapshot import Increment
from tidemark.subtask.subtask import Subtask, SubtaskCut, operator_of
from tidemark.subtask.task_state import TaskStateManager

__all__ = ["SlotSubtask", "SubtaskFigures"]

Publish = Callable[[StateDescriptor, KeyedStateBackend, str], None]
"""Makes a state of the operator with that uid queryable."""


@dataclass(slots=True)
class SubtaskFigures:
    """What a subtask has done in its attempt. Written by the thread of its frames, read by any."""

    records_in: int = 0
    records_out: int = 0
    busy_s: float = 0.0
    """Seconds spent on frames, encoding included."""
    since: float = field(default_factory=time.perf_counter)


class SlotSubtask(Subtask):
    """The subtask of one vertex in one slot, with the codecs of its edges and its place in time.

    Attributes:
        watermark: Where it stands; before the start that of the cut it is restored from.
        figures: What it has done in this attempt.
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
        self._overtaken = OvertakenOutput()
        self.watermark = deployment.watermarks.get(vertex.uid, MIN_WATERMARK)
        self.figures = SubtaskFigures()
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
        started = time.perf_counter()
        if self._epoch != header.epoch:
            self._epoch = header.epoch
            if header.watermark < self.watermark:
                # Time goes back only where an iteration begins another round.
                self.watermark = header.watermark
                self._ended = False
                self.operator.begin_round()
            self.advance_watermark(header.watermark)
            self.operator.advance_processing_time(self._clock.now(), self._out)
        status = self._take(header.edge, header.flags, body, between, queryable)
        sections, answer = self._drain()
        self.figures.busy_s += time.perf_counter() - started
        return ("ok", self.operator.next_processing_timer(), sections, status), answer

    def process_channel(
        self,
        header: ChannelHeader,
        body: Any,
        gate: Gate,
        between: Callable[[], None],
        queryable: Sized,
    ) -> tuple[Any, Any]:
        """Process one frame of a channel that `gate` has let in; otherwise as `process`."""
        started = time.perf_counter()
        if gate.advance(header.channel, header.watermark, header.idle):
            self.advance_watermark(gate.watermark)
        if not (gate.aligned and gate.aligning):
            # What a timer emits travels on this channel, which may be past a barrier that others are not.
            self.operator.advance_processing_time(self._clock.now(), self._out)
        status = self._take(header.edge, header.flags, body, between, queryable)
        if not gate.aligned and (barrier := gate.behind(header.channel)) is not None:
            self._overtaken.add(barrier, self._out)
        sections, answer = self._drain()
        self.figures.busy_s += time.perf_counter() - started
        timer = self.operator.next_processing_timer()
        return ChannelAnswer("ok", timer, gate.watermark, gate.idle, sections, status), answer

    def restore(self, state: RestoredState | None, watermark: int = MIN_WATERMARK) -> None:
        """As `Subtask.restore`; what had overtaken the barrier of the cut comes out first."""
        if state is not None:
            state = self._overtaken.taken_from(state, self._out)
        super().restore(state, watermark)

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> SubtaskCut:
        """As `Subtask.cut`, with what has overtaken the barrier."""
        cut = super().cut(checkpoint_id, timestamp, incremental=incremental)
        cut.cut.operator.extend(self._overtaken.cut(checkpoint_id))
        return cut

    def advance_watermark(self, watermark: int) -> None:
        """Event time has come to `watermark`: fire what is due, and end the input at the end of time."""
        if watermark <= self.watermark:
            return
        operator, out = self.operator, self._out
        ends = watermark == MAX_WATERMARK and not self._ended
        if ends:
            # Timers that are due by the clock fire in front of the end, which drops them: a subtask that was restored
            # may hear of the end first of all.
            operator.advance_processing_time(self._clock.now(), out)
        self.watermark = watermark
        operator.advance_watermark(watermark, out)
        if ends:
            self._ended = True
            for index in sorted(set(self._inputs)):
                operator.end_input(index, out)

    def _take(self, edge: int, flags: int, body: Any, between: Callable[[], None], queryable: Sized) -> Any:
        """Let the operator have the records of a frame; the status of a source function, which gets none."""
        operator, out = self.operator, self._out
        if isinstance(operator, SourceOperator):
            return operator.take(out)
        if flags != EMPTY:
            index, codec = self._inputs[edge], self._codecs[edge]
            if operator.columnar and codec.is_column(flags):
                columns = codec.decode_columns(flags, body)
                operator.process_columns(index, columns, out)
                self.figures.records_in += len(columns)
                between()
                return None
            limit = SMALL_BATCH if queryable else operator.batch_limit
            for batch in codec.decode_parts(flags, body, limit):
                operator.process(index, batch, out)
                self.figures.records_in += len(batch.values)
                between()
        return None

    def _drain(self) -> tuple[list[tuple[str | None, int, int]], Any]:
        """What the operator has emitted: (tag, flags, size) of every stream, and their bytes."""
        sections: list[tuple[str | None, int, int]] = []
        bodies: list[Any] = []
        for tag, part in self._out.parts():
            codec = self._main if tag is None else self._sides.get(tag)
            if codec is not None and len(part):
                self.figures.records_out += len(part)
                flags, data = codec.encode_part(part)
                view = memoryview(data)
                sections.append((tag, flags, view.nbytes))
                bodies.append(view)
        return sections, bodies[0] if len(bodies) == 1 else b"".join(bodies)
