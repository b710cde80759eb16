"""Asynchronous calls: elements under way wait here, and are part of every snapshot.

A thread of the subtask runs an event loop; the operator only hands elements to it and emits what is done. Between
two epochs elements may be under way. Results come out with the next records or, when there are none, with the
processing-time timer that an operator with elements under way always has. A watermark, and the end of the input,
wait for all elements in front of them, so that no result is late because its call took long.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tidemark.api.specs import AsyncWaitSpec
from tidemark.operators.base import Output
from tidemark.operators.emission import emit_result
from tidemark.operators.function_operator import FunctionOperator
from tidemark.protocol.batch import Batch
from tidemark.state.descriptors import ListStateDescriptor
from tidemark.types.row import Row
from tidemark.types.typeinfo import TypeInformation, Types

if TYPE_CHECKING:
    from tidemark.state.operator_state import OperatorListState
    from tidemark.state.snapshot import Increment, OperatorCut

__all__ = ["AsyncWaitOperator"]

STATE_NAME = "async-wait-elements"
"""Operator state: elements under way, with their timestamps, in their order."""
_POLL_MS = 20
"""How long results may lie there while no records come."""
_JOIN_S = 10.0


class _Element:
    """An element under way."""

    __slots__ = ("future", "stamp", "value")

    def __init__(self, value: Any, stamp: int | None, future: Future[Any]) -> None:
        self.value = value
        self.stamp = stamp
        self.future = future


class AsyncWaitOperator(FunctionOperator):
    """Calls a coroutine for every element and emits what they return."""

    def __init__(self, spec: AsyncWaitSpec, element_type: TypeInformation | None) -> None:
        super().__init__([spec.function])
        self._spec = spec
        self._predicate = spec.retry.get_retry_predicate()
        self._element_type = element_type or Types.PICKLED_BYTE_ARRAY()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._numbers = itertools.count()
        self._under_way: dict[int, _Element] = {}
        """In the order of arrival."""
        self._done: SimpleQueue[int] = SimpleQueue()
        """Unordered: numbers of elements whose call is over."""

    def _register_states(self) -> None:
        kind = Types.ROW([self._element_type, Types.LONG()])
        state: Any = self._operator_state.get_list_state(ListStateDescriptor(STATE_NAME, kind))
        self._state: OperatorListState = state

    def open(self) -> None:
        """Start the loop, let the function open, begin again what was under way at the cut."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"tidemark-async-{self._environment.info.name}", daemon=True
        )
        self._thread.start()
        super().open()
        for value, stamp in self._state.get():
            self._begin(value, stamp)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Begin a call for every record, waiting for others to end where there is no place."""
        stamps: Iterable[int | None] = batch.timestamps or itertools.repeat(None)
        for value, stamp in zip(batch.values, stamps, strict=False):
            while len(self._under_way) >= self._spec.capacity:
                self._emit_one(out)
            self._begin(value, stamp)
        self._emit_done(out)

    def _begin(self, value: Any, stamp: int | None) -> None:
        assert self._loop is not None, "a subtask is opened before it processes"
        number = next(self._numbers)
        future = asyncio.run_coroutine_threadsafe(self._call(value), self._loop)
        self._under_way[number] = _Element(value, stamp, future)
        if not self._spec.ordered:
            future.add_done_callback(lambda _future: self._done.put(number))

    async def _call(self, value: Any) -> Any:
        """What is emitted for an element."""
        limit = self._spec.timeout_ms
        try:
            async with asyncio.timeout(limit / 1000 if limit else None) as deadline:
                return await self._attempts(value)
        except TimeoutError:
            if not deadline.expired():
                raise
            return self._spec.function.timeout(value)

    async def _attempts(self, value: Any) -> Any:
        retry, predicate = self._spec.retry, self._predicate
        for attempt in itertools.count(1):
            try:
                result = await self._spec.function.async_invoke(value)
            except Exception as error:
                again = predicate.exception_predicate()
                if again is None or not again(error) or not retry.can_retry(attempt):
                    raise
            else:
                unwanted = predicate.result_predicate()
                if unwanted is None or not unwanted(result) or not retry.can_retry(attempt):
                    return result
            await asyncio.sleep(retry.get_backoff_time_millis(attempt) / 1000)
        raise AssertionError("counting has no end")

    # Results

    def _emit_one(self, out: Output) -> None:
        """Wait for the next element to be over, and emit it."""
        number = next(iter(self._under_way)) if self._spec.ordered else self._done.get()
        self._emit(number, out)

    def _emit_done(self, out: Output) -> None:
        """Emit what is over already."""
        while self._is_ready():
            self._emit_one(out)

    def _is_ready(self) -> bool:
        if self._spec.ordered:
            first = next(iter(self._under_way.values()), None)
            return first is not None and first.future.done()
        return not self._done.empty()

    def _emit(self, number: int, out: Output) -> None:
        element = self._under_way[number]
        result = element.future.result()
        if result is not None and (isinstance(result, str | bytes) or not isinstance(result, Iterable)):
            raise TypeError(
                f"async_invoke() and timeout() of {type(self._spec.function).__name__} must return a list of "
                f"results, not {result!r}."
            )
        emit_result(result, element.stamp, out)
        del self._under_way[number]

    def _emit_all(self, out: Output) -> None:
        while self._under_way:
            self._emit_one(out)

    # Time

    def advance_watermark(self, watermark: int, out: Output) -> None:
        """Emit everything in front of the watermark first."""
        if watermark > self._service.watermark:
            self._emit_all(out)
        super().advance_watermark(watermark, out)

    def advance_processing_time(self, now: int, out: Output) -> None:
        """Emit what is over."""
        self._emit_done(out)

    def next_processing_timer(self) -> int | None:
        """Soon, while elements are under way."""
        if not self._under_way:
            return None
        return self._environment.clock.now() + (0 if self._is_ready() else _POLL_MS)

    def end_input(self, input_index: int, out: Output) -> None:
        """Wait for everything."""
        self._emit_all(out)

    # Life

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Freeze the elements under way; those whose results are not emitted yet are among them."""
        self._state.load([Row(element.value, element.stamp) for element in self._under_way.values()])
        return super().cut(checkpoint_id, timestamp, incremental=incremental)

    def close(self) -> None:
        """Cancel what is under way, end the loop, let the function close."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            futures = [element.future for element in self._under_way.values()]
            for future in futures:
                future.cancel()
            wait(futures, _JOIN_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)
            if not thread.is_alive():
                loop.close()
        super().close()
