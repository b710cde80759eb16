"""Drives operators of the user's own (`transform`), with keys and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tidemark.api.output_tag import OutputTag
from tidemark.api.stream_operator import (
    InternalTimer,
    OneInputStreamOperator,
    OperatorOutput,
    StreamOperator,
    StreamRecord,
    Watermark,
)
from tidemark.api.time_domain import TimeDomain
from tidemark.operators.base import Output
from tidemark.operators.detach import detached
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.keyed_operator import KeyedOperator
from tidemark.operators.raw_contexts import RawInitialization, RawSnapshot, RawStates
from tidemark.protocol.batch import Batch
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.namespace import Namespace

if TYPE_CHECKING:
    from tidemark.operators.base import OperatorEnvironment, RestoredState
    from tidemark.state.snapshot import Increment, OperatorCut
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["KeyedOwnOperator", "OwnOperator"]


class _Collector(OperatorOutput):
    """Emits with the timestamp of the current element or timer."""

    def __init__(self) -> None:
        self.out = Output()
        self.stamp: int | None = None

    def collect(self, record: Any) -> None:
        if isinstance(record, StreamRecord):
            self.out.emit(detached(record.value), record.timestamp)
        else:
            self.out.emit(detached(record), self.stamp)

    def collect_side(self, output_tag: OutputTag, record: Any) -> None:
        if isinstance(record, StreamRecord):
            self.out.emit_side(output_tag.tag_id, detached(record.value), record.timestamp)
        else:
            self.out.emit_side(output_tag.tag_id, detached(record), self.stamp)


class OwnOperator(FunctionOperator):
    """An operator of the user's own without keys."""

    def __init__(self, operator: StreamOperator) -> None:
        super().__init__()
        self._take_own(operator)

    def _take_own(self, operator: StreamOperator) -> None:
        self._own = operator
        self._collector = _Collector()
        self._started = False
        self._calls: list[Callable[[StreamRecord], Any]] = (
            [operator.process_element]
            if isinstance(operator, OneInputStreamOperator)
            else [operator.process_element1, operator.process_element2]  # type: ignore[attr-defined]
        )

    # What the operator sees of its host

    @property
    def output(self) -> _Collector:
        """Where results go."""
        return self._collector

    @property
    def runtime_context(self) -> Any:
        """Who it is."""
        return self._runtime_context

    @property
    def timer_service(self) -> Any:
        """Time."""
        return self._service

    def current_key(self) -> Any:
        """There is none."""
        raise RuntimeError("There is no key here: call key_by() before transform().")

    def current_key_group(self) -> int:
        """There is none."""
        raise RuntimeError("There is no key here: call key_by() before transform().")

    # Life

    def setup(self, environment: OperatorEnvironment) -> None:
        """Attach to the host."""
        super().setup(environment)
        self._own.attach(self)

    def initialize(self, restored: RestoredState | None) -> None:
        """Load state, then let the operator initialise its own."""
        super().initialize(restored)
        self._raw = RawStates(self._operator_state, self._environment.info.key_groups)
        self._started = True
        self._own.initialize_state(
            RawInitialization(
                restored is not None, self._operator_state, self._keyed_state_access(), self._raw
            )
        )

    def open(self) -> None:
        """Call the operator's `open`."""
        self._own.open()

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Call `process_element` for every record."""
        self._process_all(input_index, batch, out)

    def _process_all(self, input_index: int, batch: Batch, out: Output) -> None:
        call = self._calls[input_index]
        stamps: Iterable[int | None] = batch.timestamps or repeat(None)
        for value, stamp in zip(batch.values, stamps, strict=False):
            self._run_own(call, StreamRecord(value, stamp), stamp, out)

    def _run_own(self, call: Callable[[Any], Any], argument: Any, stamp: int | None, out: Output) -> None:
        collector = self._collector
        collector.out, collector.stamp = out, stamp
        result = call(argument)
        if result is not None:
            # One by one: what yields may collect in between.
            for item in result:
                if type(item) is tuple and len(item) == 2 and type(item[0]) is OutputTag:
                    collector.collect_side(*item)
                else:
                    collector.collect(item)

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """Let timers fire, then tell the operator."""
        before = self._service.watermark
        super().advance_watermark(watermark, out)
        if self._service.watermark > before:
            self._run_own(self._own.process_watermark, Watermark(watermark), None, out)

    def end_input(self, input_index: int, out: Output) -> None:
        """Tell the operator."""
        super().end_input(input_index, out)
        self._run_own(self._own.end_input, input_index + 1, None, out)

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Let the operator write its state, then freeze it."""
        snapshot = RawSnapshot(checkpoint_id, timestamp, self._environment.info.key_groups)
        self._own.snapshot_state(snapshot)
        self._raw.take(snapshot)
        cut = super().cut(checkpoint_id, timestamp, incremental=incremental)
        cut.operator = RawStates.written(cut.operator)
        return cut

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the operator."""
        super().notify_checkpoint_complete(checkpoint_id)
        self._own.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the operator."""
        super().notify_checkpoint_aborted(checkpoint_id)
        self._own.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Call the operator's `close`, once, if its life began."""
        try:
            if self._started:
                self._started = False
                self._own.close()
        finally:
            super().close()


class KeyedOwnOperator(OwnOperator, KeyedOperator):
    """An operator of the user's own on keyed streams."""

    def __init__(self, operator: StreamOperator, key_type: TypeInformation | None) -> None:
        self.inputs = 1 if isinstance(operator, OneInputStreamOperator) else 2
        KeyedOperator.__init__(self, (), key_type)
        self._take_own(operator)

    def current_key(self) -> Any:
        """Key of the current element or timer."""
        return KeyedOperator.current_key(self)

    def current_key_group(self) -> int:
        """The key group it is in."""
        parameters = self._backend.parameters
        return assign_to_key_group(
            parameters.key_serializer.key_bytes(self.current_key()), parameters.max_parallelism
        )

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process a batch, or keep it until the end in batch mode."""
        KeyedOperator.process(self, input_index, batch, out)

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        call, keys = self._observed(self._calls[input_index]), self._keys
        stamps: Iterable[int | None] = batch.timestamps or repeat(None)
        assert batch.keys is not None
        for keys.token, value, stamp in zip(batch.keys, batch.values, stamps, strict=False):
            self._run_own(call, StreamRecord(value, stamp), stamp, out)

    def _on_timer(self, domain: TimeDomain, namespace: Namespace, timestamp: int, out: Output) -> None:
        own = self._own
        call = own.on_event_time if domain is TimeDomain.EVENT_TIME else own.on_processing_time
        self._run_own(call, InternalTimer(timestamp, self.current_key()), timestamp, out)
