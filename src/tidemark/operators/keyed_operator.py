"""What all keyed operators share: backend, current key, timers, and the order of things in batch mode.

A subclass writes `_process` (the loop over one batch) and, if it has timers, sets `_timer_call` and
`_timer_context`, or writes `_on_timer`. Everything
that happens once per batch and not once per record lives here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tidemark.api.time_domain import TimeDomain
from tidemark.operators.base import OperatorEnvironment, Output
from tidemark.operators.contexts import KeyedTimerService
from tidemark.operators.emission import emit_result
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.key_buffer import KeyBuffer, StillClock
from tidemark.operators.runtime_context import KeyedStateAccess, OperatorRuntimeContext
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, SMALL_BATCH, Batch
from tidemark.state.backend import NO_KEY, KeyedStateBackend
from tidemark.state.descriptors import StateDescriptor
from tidemark.state.expired_state import ExpiredState
from tidemark.state.expiry import lives_by_event_time
from tidemark.state.key_tokens import key_serializer_for
from tidemark.state.latency import track_latency
from tidemark.state.namespace import Namespace, NamespaceKind
from tidemark.state.operator_state import OperatorStateStore
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.timers import DueTimer, InternalTimers

if TYPE_CHECKING:
    from tidemark.operators.base import RestoredState
    from tidemark.state.primitives import State
    from tidemark.state.snapshot import Increment, OperatorCut
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["KeyedOperator"]


class KeyedOperator(FunctionOperator):
    """An operator whose input is split by key."""

    inputs = 1
    """Number of inputs that have to end before the operator has ended."""
    timer_namespace = NamespaceKind.VOID

    _service: KeyedTimerService

    def __init__(self, functions: Iterable[Any], key_type: TypeInformation | None) -> None:
        """Wrap user functions.

        Args:
            functions: Every user function of the operator.
            key_type: Type of the key; None means pickled.
        """
        super().__init__(functions)
        self._key_type = key_type
        self._handles: dict[str, tuple[Any, NamespaceKind]] = {}
        self._open_inputs = set(range(self.inputs))
        self._buffer: KeyBuffer | None = None
        self._backend_closed = False
        self._changeable_state = False
        self._live_by_event_time = False
        self._running: Batch | None = None
        self._first_batch = True
        self._timer_call: Callable[[int, Any], Any] | None = None
        self._timer_context: Any = None

    def setup(self, environment: OperatorEnvironment) -> None:
        """Attach to the host; creates backend and timers."""
        self._backend: KeyedStateBackend = environment.make_backend(key_serializer_for(self._key_type))
        self._keys = self._backend.context
        self._read_key = self._backend.parameters.tokens.to_key
        self._timers = InternalTimers(
            self._keys,
            self._backend.parameters.max_parallelism,
            self._backend.parameters.key_serializer,
            self.timer_namespace,
        )
        self._clock = environment.clock
        if environment.batch_mode:
            self._buffer = KeyBuffer()
            self._clock = StillClock(environment.clock)
        super().setup(environment)

    def _make_service(self, environment: OperatorEnvironment) -> KeyedTimerService:
        return KeyedTimerService(self._clock, self._timers)

    def _make_runtime_context(self, environment: OperatorEnvironment) -> OperatorRuntimeContext:
        return OperatorRuntimeContext(environment.info, environment.metrics, self.keyed_state)

    def _keyed_state_access(self) -> KeyedStateAccess | None:
        return self._runtime_context

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: NamespaceKind = NamespaceKind.VOID
    ) -> State:
        """Register a state with the backend, or find it again; queryable ones are published."""
        handle = self._backend.state(descriptor, namespace)
        if descriptor.name not in self._handles:
            if lives_by_event_time(descriptor):
                self._live_by_event_time = True
                # Registered by a record whose timestamp nobody has kept: the newest of its batch, this once.
                stamps = None if self._running is None else self._running.timestamps
                self._keys.event.access_at(
                    max((stamp for stamp in stamps or () if stamp is not None), default=None)
                )
            self._handles[descriptor.name] = (handle, namespace)
            if self._environment.track_every:
                group = self._environment.metrics.add_group(descriptor.name)
                track_latency(handle, descriptor.kind, group, self._environment.track_every)
            self._changeable_state |= not serializer_for(descriptor.type_info).immutable
            publish = self._environment.publish
            if publish is not None and descriptor.is_queryable():
                publish(descriptor, self._backend)
        return handle

    @property
    def backend(self) -> KeyedStateBackend:
        """The backend of this subtask."""
        return self._backend

    @property
    def batch_limit(self) -> int:
        """All at once for a backend that fetches the keys of a batch together."""
        return sys.maxsize if self._backend.prefetches else SMALL_BATCH

    def current_key(self) -> Any:
        """The user's key of the current element or timer."""
        read = self._read_key
        return self._keys.token if read is None else read(self._keys.token)

    def _restore(self, restored: RestoredState) -> None:
        restored.fill(self._backend, self._timers)
        self._operator_state = OperatorStateStore(restored.operator)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process a batch; processing-time timers it registered in the past fire at its end."""
        if self._buffer is not None:
            self._buffer.add(input_index, batch)
            return
        self._run(input_index, batch, out)
        if self._timers.next_processing_time() is not None:
            self.advance_processing_time(self._clock.now(), out)

    def _run(self, input_index: int, batch: Batch, out: Output) -> None:
        backend = self._backend
        backend.start_batch(batch.keys)
        self._running = batch
        try:
            if self._live_by_event_time:
                self._process_stamped(input_index, batch, out)
            else:
                self._process(input_index, batch, out)
        finally:
            self._keys.token = NO_KEY
            self._keys.event.access_at(None)
            self._running = None
            backend.end_batch()
        if backend.expired:
            self._report_expired(out)

    def _process_stamped(self, input_index: int, batch: Batch, out: Output) -> None:
        """Records of one timestamp at a time, for states that are stamped with it."""
        event = self._keys.event
        for timestamp, part in batch.runs():
            event.access_at(timestamp)
            self._process(input_index, part, out)

    def _report_expired(self, out: Output) -> None:
        """Tell what has expired, and what expires while that is told."""
        backend, keys = self._backend, self._keys
        while backend.expired:
            units = backend.expired[:]
            backend.expired.clear()
            backend.start_batch([unit.token for unit in units])
            try:
                for unit in units:
                    keys.token = unit.token
                    told = ExpiredState(
                        unit.state_name,
                        self.current_key(),
                        unit.value,
                        unit.last_access,
                        unit.expired_at,
                        unit.map_key,
                    )
                    emit_result(unit.callback(told), unit.expired_at if unit.event_time else None, out)
            finally:
                keys.token = NO_KEY
                backend.end_batch()

    def _look_for_expired(self, out: Output, *, everywhere: bool = False) -> None:
        """Time has moved and no record came: look at some of the state whose expiry is reported, or at all of it."""
        backend = self._backend
        if backend.expired is None:
            return
        if everywhere:
            backend.look_everywhere()
        looking = True
        while looking:
            backend.start_batch(None)
            backend.end_batch()
            self._report_expired(out)
            looking = everywhere and backend.is_looking

    def _process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Run user code over the records; the loop sets `self._keys.token` for each."""
        raise AssertionError(f"{type(self).__name__} does not process batches.")

    def _on_timer(self, domain: TimeDomain, namespace: Namespace, timestamp: int, out: Output) -> None:
        """A timer fired; its key is current. Calls the function's `on_timer` if there is one."""
        if self._timer_call is None:
            return
        context = self._timer_context
        context.out, context.stamp, context.domain = out, timestamp, domain
        emit_result(self._timer_call(timestamp, context), timestamp, out)

    def restore_watermark(self, watermark: int) -> None:
        """Stand at the watermark of the cut: what is late stays late, what waited for the next one waits."""
        super().restore_watermark(watermark)
        self._timers.watermark = watermark
        self._keys.event.stand_at(watermark)

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """Fire the event-time timers that are due; in batch mode time belongs to the keys."""
        if self._buffer is None and watermark > self._service.watermark:
            self._service.watermark = watermark
            self._fire_event_timers(watermark, out)
            self._keys.event.stand_at(watermark)
            # At the end of time nobody looks again: everything expires, and is told.
            self._look_for_expired(out, everywhere=watermark == MAX_WATERMARK)

    def advance_processing_time(self, now: int, out: Output) -> None:
        """Fire the processing-time timers that are due."""
        if self._buffer is None and not self._ended:
            due = self._timers.next_processing_time()
            if due is not None and due <= now:
                self._fire(TimeDomain.PROCESSING_TIME, self._timers.advance_processing(now), out)
            expiry = self._backend.next_expiry()
            if expiry is not None and expiry <= now:
                self._look_for_expired(out)

    def next_processing_timer(self) -> int | None:
        """Time of the earliest processing-time timer, or when to look for state whose expiry is reported.

        None once the input has ended.
        """
        if self._ended or self._buffer is not None:
            return None
        timer = self._timers.next_processing_time()
        expiry = self._backend.next_expiry()
        return timer if expiry is None else expiry if timer is None else min(timer, expiry)

    def _fire_event_timers(self, watermark: int, out: Output) -> None:
        timers = self._timers
        if timers.has_due_event(watermark):
            self._fire(TimeDomain.EVENT_TIME, self._in_order(timers.advance_event(watermark)), out)
        timers.watermark = watermark

    def _in_order(self, due: Iterable[DueTimer]) -> Iterator[DueTimer]:
        """Let timers stand at their own time while they fire.

        What a callback registers for later is then in front of the watermark and fires in its turn, within
        this advance; what it registers for its own time or earlier waits for the next one.
        """
        for timer in due:
            self._timers.watermark = timer[0]
            yield timer

    def _fire(self, domain: TimeDomain, due: Iterable[DueTimer], out: Output) -> None:
        backend, keys, on_timer = self._backend, self._keys, self._on_timer
        event = keys.event
        backend.start_batch(None)
        try:
            for timestamp, token, namespace in due:
                keys.token = token
                if domain is TimeDomain.EVENT_TIME and timestamp > event.now:
                    event.stand_at(timestamp)
                on_timer(domain, namespace, timestamp, out)
        finally:
            keys.token = NO_KEY
            backend.end_batch()
        if backend.expired:
            self._report_expired(out)

    @property
    def _ended(self) -> bool:
        return not self._open_inputs

    def end_input(self, input_index: int, out: Output) -> None:
        """An input ended. After the last one batch mode runs; streaming drops processing-time timers."""
        self._open_inputs.discard(input_index)
        if self._ended and self._buffer is not None:
            for token, runs in self._buffer.drain():
                self._run_key(token, runs, out)
            self._service.watermark = MAX_WATERMARK

    def begin_round(self) -> None:
        """Wait for all inputs again."""
        super().begin_round()
        self._open_inputs = set(range(self.inputs))
        self._timers.watermark = MIN_WATERMARK
        self._keys.event.stand_at(MIN_WATERMARK)

    def _run_key(self, token: Any, runs: Iterator[tuple[int, Batch]], out: Output) -> None:
        """Batch mode: everything of one key, from its first element to the end of its state."""
        assert isinstance(self._clock, StillClock)
        self._clock.catch_up()
        self._service.watermark = self._timers.watermark = MIN_WATERMARK
        self._keys.event.stand_at(MIN_WATERMARK)
        for input_index, batch in runs:
            self._run(input_index, batch, out)
        self._service.watermark = MAX_WATERMARK
        self._fire_event_timers(MAX_WATERMARK, out)
        # Taken before they fire: a timer that registers the next one would keep its key for ever.
        pending = list(self._timers.advance_processing(MAX_WATERMARK))
        if pending:
            self._fire(TimeDomain.PROCESSING_TIME, pending, out)
        self._timers.drop_processing()
        self._keys.event.stand_at(MAX_WATERMARK)
        self._drop_key(token)
        if self._backend.expired:
            self._report_expired(out)

    def erase_key(self, key: bytes) -> dict[str, int]:
        """Forget a key, given by its canonical bytes: state and timers; rows of each that held any.

        Between two other calls only. A key of another subtask is found nowhere.
        """
        from_bytes = self._backend.parameters.tokens.from_bytes
        token = key if from_bytes is None else from_bytes(key)
        return {**self._backend.erase(token), **self._timers.erase(token)}

    def _drop_key(self, token: Any) -> None:
        if not self._handles:
            return
        self._backend.start_batch([token])
        self._keys.token = token
        try:
            for name, (handle, namespace) in self._handles.items():
                if namespace is NamespaceKind.VOID:
                    handle.clear()
                    continue
                for window in self._backend.namespaces(name, token):
                    handle.set_namespace(window)
                    handle.clear()
        finally:
            self._keys.token = NO_KEY
            self._backend.end_batch()

    def _must_copy(self) -> bool:
        """Whether emitted objects may also lie in state; the first batch may register states as it goes."""
        first, self._first_batch = self._first_batch, False
        return first or self._changeable_state

    def _observed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, preceded by the backend's per-record clean-up if some state asked for it."""
        if not self._backend.wants_records:
            return call
        record_processed = self._backend.record_processed

        def observed(*arguments: Any) -> Any:
            record_processed()
            return call(*arguments)

        return observed

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Call `snapshot_state`, then freeze operator state, keyed state and timers."""
        cut = super().cut(checkpoint_id, timestamp, incremental=incremental)
        cut.keyed = self._backend.cut(incremental=incremental)
        cut.timers = self._timers.cut()
        return cut

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the backend, then listeners."""
        self._backend.notify_checkpoint_complete(checkpoint_id)
        super().notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        """Call the user's `close` and release the backend."""
        try:
            super().close()
        finally:
            if not self._backend_closed and hasattr(self, "_backend"):
                self._backend_closed = True
                self._backend.close()
