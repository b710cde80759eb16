"""The handle of a result that is not there yet, in the shape PyFlink and the Java client give it."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["CompletableFuture"]

_LOOK_UP_S = 0.5

T = TypeVar("T")
R = TypeVar("R")


class CompletableFuture(Generic[T]):
    """A value that is set later, from any thread. May also be awaited."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    @staticmethod
    def completed(value: R) -> CompletableFuture[R]:
        """A future that has its value already."""
        future: CompletableFuture[R] = CompletableFuture()
        future.set_result(value)
        return future

    @staticmethod
    def failed(error: BaseException) -> CompletableFuture[Any]:
        """A future that has failed already."""
        future: CompletableFuture[Any] = CompletableFuture()
        future.set_exception(error)
        return future

    @staticmethod
    def wrap(future: concurrent.futures.Future[R]) -> CompletableFuture[R]:
        """The same future in this shape."""
        wrapped: CompletableFuture[R] = CompletableFuture()
        wrapped._future = future
        return wrapped

    def result(self, timeout: float | None = None) -> T:
        """Wait for the value (`timeout` in seconds) and return it.

        Raises:
            BaseException: What the future failed with.
            TimeoutError: The value did not come in time.
        """
        if timeout is None:
            # A signal that the kernel hands to another thread wakes nobody: look up now and then, or Ctrl-C
            # would wait for the job.
            while not self._future.done():
                concurrent.futures.wait([self._future], _LOOK_UP_S)
        return self._future.result(timeout)

    def get(self, timeout: float | None = None) -> T:
        """The same as `result`, under Java's name."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what the future failed with, or None."""
        return self._future.exception(timeout)

    def done(self) -> bool:
        """Whether it has a value, has failed or was cancelled."""
        return self._future.done()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._future.cancelled()

    def cancel(self) -> bool:
        """Give up on the value; False if it is too late."""
        return self._future.cancel()

    def set_result(self, result: T) -> bool:
        """Complete with a value; False if the future was complete already."""
        try:
            self._future.set_result(result)
        except concurrent.futures.InvalidStateError:
            return False
        return True

    def set_exception(self, exception: BaseException) -> bool:
        """Complete with a failure; False if the future was complete already."""
        try:
            self._future.set_exception(exception)
        except concurrent.futures.InvalidStateError:
            return False
        return True

    def add_done_callback(self, function: Callable[[CompletableFuture[T]], Any]) -> None:
        """Call `function(self)` once complete, however it ended."""
        self._future.add_done_callback(lambda _: function(self))

    def then_accept(self, function: Callable[[T], Any]) -> CompletableFuture[None]:
        """Call `function(value)` on success only; the returned future tells how that went."""

        def discard(value: T) -> None:
            function(value)

        return self.then_apply(discard)

    def then_apply(self, function: Callable[[T], R]) -> CompletableFuture[R]:
        """A future of `function(value)`; fails as this one fails."""
        following: CompletableFuture[R] = CompletableFuture()

        def complete(_: CompletableFuture[T]) -> None:
            if self.cancelled():
                following.cancel()
                return
            error = self.exception()
            if error is not None:
                following.set_exception(error)
                return
            try:
                following.set_result(function(self.result()))
            except BaseException as exc:
                following.set_exception(exc)

        self.add_done_callback(complete)
        return following

    def __await__(self) -> Generator[Any, None, T]:
        # Imported here because asyncio is slow to load and most programs never await.
        import asyncio

        return asyncio.wrap_future(self._future).__await__()
