"""User source functions: `run` in a thread of its own, a bounded buffer, and a lock that makes cuts safe.

The thread fills the buffer; the host takes from it once per epoch. What is in the buffer at a cut has
been emitted by the user's `run` but not processed yet, so it is part of the snapshot.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidemark.api.context import SourceContext
from tidemark.operators.base import Output, RestoredState
from tidemark.operators.function_operator import FunctionOperator
from tidemark.protocol.batch import MAX_WATERMARK, MIN_WATERMARK, Batch
from tidemark.state.descriptors import ListStateDescriptor
from tidemark.state.snapshot import Increment, OperatorCut
from tidemark.types.row import Row
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["SourceOperator"]

_log = logging.getLogger(__name__)

CAPACITY = 65536
"""Elements buffered before `collect` waits."""
_EXACT_MARKS = 64
"""With more watermarks than this in the buffer, those that make nothing late are merged into one epoch."""
_JOIN_S = 5.0
_MARK = object()


class _Cancelled(BaseException):
    """Unwinds a `run` that is blocked in `collect` when the attempt is over."""


class CheckpointLock:
    """The re-entrant lock of a source function: no snapshot is cut while it is held.

    Taking it waits for room in the buffer first, so that a full buffer never blocks somebody who holds it.
    """

    def __init__(self, wait_for_room: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._wait_for_room = wait_for_room
        self._holder: int | None = None
        self._depth = 0

    def acquire(self) -> bool:
        """Take the lock."""
        me = threading.get_ident()
        if self._holder != me:
            self._wait_for_room()
        self._lock.acquire()
        self._holder = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._depth -= 1
        if not self._depth:
            self._holder = None
        self._lock.release()

    def __enter__(self) -> CheckpointLock:
        self.acquire()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold the lock for the host, which makes the room itself and so must not wait for it."""
        with self._lock:
            self._holder = threading.get_ident()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._holder = None


class _Context(SourceContext[Any]):
    """What `run` emits through."""

    def __init__(self, operator: SourceOperator) -> None:
        self._operator = operator

    def collect(self, value: Any) -> None:
        """Emit an element without a timestamp."""
        self._operator.add((value, None))

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        """Emit an element with a timestamp."""
        self._operator.add((value, timestamp))

    def emit_watermark(self, watermark: Any) -> None:
        """Say that no element with a timestamp at or below `watermark` follows."""
        self._operator.add((_MARK, getattr(watermark, "timestamp", watermark)))

    def mark_as_temporarily_idle(self) -> None:
        """Leave this source out of the minimum of watermarks until it emits again."""
        self._operator.mark_idle()

    def get_checkpoint_lock(self) -> CheckpointLock:
        """The lock that makes an emission and an offset update one step."""
        return self._operator.lock

    def close(self) -> None:
        """Nothing is left to do; `run` returning ends the input."""


class SourceOperator(FunctionOperator):
    """Runs one `SourceFunction`."""

    def __init__(self, function: Any, element_type: TypeInformation | None = None) -> None:
        """Wrap a source function.

        Args:
            function: The user's `SourceFunction`.
            element_type: Declared type of its elements; None means they are pickled in snapshots.
        """
        super().__init__([function])
        self._buffered = ListStateDescriptor(
            "_source_buffer",
            Types.ROW([element_type or Types.PICKLED_BYTE_ARRAY(), Types.LONG(), Types.BOOLEAN()]),
        )
        self._function = function
        self._buffer: deque[tuple[Any, int | None]] = deque()
        self._marks = 0
        self._room = threading.Condition()
        self._ready = threading.Event()
        """Set while there may be something to take."""
        self._closed = False
        self._done = False
        self._idle = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._watermark = MIN_WATERMARK
        self.lock = CheckpointLock(self._wait_for_room)
        self.on_ready: Callable[[], None] = lambda: None
        """Called when there is something to take, or to learn from `status`."""

    def initialize(self, restored: RestoredState | None) -> None:
        """Take back what was buffered at the cut, then let the user restore."""
        super().initialize(restored)
        saved = self._operator_state.get_list_state(self._buffered)
        for value, timestamp, is_mark in saved.get():
            self._buffer.append((_MARK if is_mark else value, timestamp))
            self._marks += is_mark
        parallelism = self._environment.info.parallelism
        self._done = list(self._operator_state.get_list_state(_FINISHED).get()) == [parallelism]

    def restore_watermark(self, watermark: int) -> None:
        """Go on from the watermark of the cut."""
        super().restore_watermark(watermark)
        self._watermark = watermark

    def open(self) -> None:
        """Call the user's `open` and start `run`."""
        super().open()
        if self._done:
            self._tell()
            return
        name = f"source {self._environment.info.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Sources have no input."""
        raise AssertionError("a source has no input")

    def add(self, item: tuple[Any, int | None]) -> None:
        """Buffer one element or watermark, atomically with respect to cuts."""
        with self.lock:
            if self._closed:
                raise _Cancelled
            was_empty = not self._buffer
            self._idle = False
            self._buffer.append(item)
            if item[0] is _MARK:
                self._marks += 1
        if was_empty:
            self._tell()

    def mark_idle(self) -> None:
        """See `SourceContext.mark_as_temporarily_idle`."""
        self._idle = True
        self._tell()

    def wait_ready(self, timeout: float) -> None:
        """Wait until there is something to take, `timeout` seconds at most; from any thread."""
        self._ready.wait(timeout)

    def _tell(self) -> None:
        self._ready.set()
        self.on_ready()

    def take(self, out: Output) -> dict[str, Any]:
        """Move what one epoch may have into `out` and say how the source stands.

        `barred` in the answer means that a watermark was taken which has to arrive everywhere before the
        records behind it are taken.

        Raises:
            Exception: What the user's `run` raised.
        """
        buffer = self._buffer
        # First: whatever is added from here on is told again.
        self._ready.clear()
        before = len(out.values)
        exact = self._marks <= _EXACT_MARKS
        watermark = self._watermark
        for _ in range(len(buffer)):
            value, timestamp = buffer[0]
            if value is _MARK:
                buffer.popleft()
                self._marks -= 1
                watermark = max(watermark, timestamp or MIN_WATERMARK)
                if exact:
                    break
                continue
            if watermark > self._watermark and timestamp is not None and timestamp <= watermark:
                break
            buffer.popleft()
            out.emit(value, timestamp)
        with self._room:
            self._room.notify_all()
        if not buffer and self._error is not None:
            raise self._error
        raised = watermark > self._watermark
        self._watermark = watermark
        if buffer:
            self._ready.set()
        return {
            **self.status(),
            "taken": len(out.values) - before,
            "barred": raised and (exact or self._next_is_late()),
        }

    def _next_is_late(self) -> bool:
        if not self._buffer:
            return False
        value, timestamp = self._buffer[0]
        return value is not _MARK and timestamp is not None and timestamp <= self._watermark

    def status(self) -> dict[str, Any]:
        """Watermark, whether there is something to take, whether the input ended, whether it is idle."""
        ended = self._done and not self._buffer
        return {
            "watermark": MAX_WATERMARK if ended else self._watermark,
            "ready": bool(self._buffer) or self._error is not None,
            "ended": ended,
            "idle": self._idle and not self._buffer,
        }

    def cut(self, checkpoint_id: int, timestamp: int, *, incremental: Increment | None = None) -> OperatorCut:
        """Snapshot the user's state and the buffer at one point of `run`."""
        with self.lock.frozen():
            self._operator_state.get_list_state(self._buffered).update(
                [Row(None if v is _MARK else v, stamp, v is _MARK) for v, stamp in self._buffer]
            )
            parallelism = self._environment.info.parallelism
            self._operator_state.get_list_state(_FINISHED).update([parallelism] if self._done else [])
            return super().cut(checkpoint_id, timestamp, incremental=incremental)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the user under the lock, so that the call never runs beside an emission."""
        with self.lock.frozen():
            super().notify_checkpoint_complete(checkpoint_id)

    def cancel(self) -> None:
        """Ask `run` to return."""
        try:
            self._function.cancel()
        except Exception:
            _log.warning("cancel() of source '%s' failed", self._environment.info.name, exc_info=True)

    def disconnect(self) -> None:
        """Take nothing from `run` any more, without waiting for it; its next emission unwinds it."""
        self._closed = True
        with self._room:
            self._room.notify_all()

    def close(self) -> None:
        """Stop `run`, wait for it a little, then close the user's function."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.disconnect()
            self.cancel()
            thread.join(_JOIN_S)
            if thread.is_alive():
                _log.warning(
                    "Source '%s' did not return from run() within %s s after cancel(); its thread is abandoned.",
                    self._environment.info.name,
                    _JOIN_S,
                )
        super().close()

    def _run(self) -> None:
        try:
            self._function.run(_Context(self))
        except _Cancelled:
            return
        except BaseException as exc:
            if self._closed:
                return
            self._error = exc
        else:
            self._done = True
        self._tell()

    def _wait_for_room(self) -> None:
        if len(self._buffer) < CAPACITY:
            return
        with self._room:
            self._room.wait_for(lambda: len(self._buffer) < CAPACITY or self._closed)


_FINISHED = ListStateDescriptor("_source_finished", Types.LONG())
