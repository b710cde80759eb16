"""A thread for whatever may block on user code or on a storage, so that the job's own thread never does.

The job's thread hands a call over and waits for its result, but looks up now and then (`while_waiting`): it
notices there that the user cancelled, that a checkpoint is too old, that a slot is gone. A call that does not
return can be abandoned: its thread gets an `Abandoned` where it next runs Python, and others take its place.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from tidemark.job_logs import bind_thread, bound_job
from tidemark.runtime.cancellation import wait_for
from tidemark.slot.stacks import operator_stacks

__all__ = ["Abandoned", "Worker"]

T = TypeVar("T")


class Abandoned(BaseException):
    """Unwinds a thread whose job has ended or gone on without it."""


class Worker:
    """Runs calls one after the other in a daemon thread, which starts with the first call."""

    def __init__(self, name: str) -> None:
        """Nothing runs yet."""
        self._name = name
        self._lane: _Lane | None = None
        self.while_waiting: Callable[[], None] = lambda: None
        """Called in the thread that waits in `call`; what it raises ends the wait, not what was called."""

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """The result of `function(*args)`, run in the worker's thread behind everything posted before.

        What runs there already may call again: it is carried out at once.

        Raises:
            BaseException: What the function raised, or `while_waiting`.
        """
        if isinstance(threading.current_thread(), _LaneThread):
            return function(*args)
        return wait_for(self.post(function, *args), self.while_waiting)

    def post(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """The same without waiting."""
        if self._lane is None:
            self._lane = _Lane(self._name)
        future: Future[T] = Future()
        self._lane.calls.put((future, lambda: function(*args)))
        return future

    def stack(self) -> str:
        """Where the thread is now, and in which operator."""
        lane = self._lane
        return "" if lane is None else operator_stacks(lane.thread.ident)

    def abandon(self) -> None:
        """Leave the thread behind: what it runs is unwound as soon as it returns to Python, the rest never runs."""
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.abandon()

    def close(self) -> None:
        """Let the thread end after what was posted; does not wait."""
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.calls.put(None)


class _LaneThread(threading.Thread):
    """The thread of a lane, which must never wait for itself."""


class _Lane:
    """One thread with its queue; an abandoned one is replaced, never used again."""

    def __init__(self, name: str) -> None:
        self.calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._abandoned = False
        self._job = bound_job()
        self.thread = _LaneThread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def abandon(self) -> None:
        """See `Worker.abandon`."""
        self._abandoned = True
        self.calls.put(None)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self.thread.ident or 0), ctypes.py_object(Abandoned)
        )

    def _run(self) -> None:
        bind_thread(self._job)
        try:
            while not self._abandoned:
                call = self.calls.get()
                if call is None:
                    return
                self._carry_out(*call)
                # Neither result nor arguments may live until the next call.
                del call
        except Abandoned:
            return

    def _carry_out(self, future: Future[Any], function: Callable[[], Any]) -> None:
        try:
            result = function()
        except BaseException as exc:
            future.set_exception(exc)
        else:
            future.set_result(result)
