"""How the elements of a "collect" sink reach the program: a buffer in the driver, and an iterator over it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.api.job import JobClient

__all__ = ["CloseableIterator", "CollectBuffer"]


class CollectBuffer:
    """Where an executor puts what a collect sink received. Lives in the driver; a pickled copy is empty."""

    def __init__(self) -> None:
        self._elements: deque[tuple[Any, int | None]] = deque()
        self._changed = threading.Condition()
        self._ended = False

    def add(self, values: Sequence[Any], timestamps: Sequence[int | None] | None = None) -> None:
        """Append elements in order; any thread."""
        with self._changed:
            self._elements.extend(zip(values, timestamps or [None] * len(values), strict=True))
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing follows: the job has ended, however."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> tuple[Any] | None:
        """Wait for the next element, as a one-tuple; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._elements or self._ended)
            return (self._elements.popleft()[0],) if self._elements else None

    def drain(self) -> tuple[list[Any], list[int | None]]:
        """Take all elements that are here now, with their timestamps."""
        with self._changed:
            taken = list(self._elements)
            self._elements.clear()
        return [value for value, _ in taken], [timestamp for _, timestamp in taken]

    def __reduce__(self) -> tuple[type[CollectBuffer], tuple[()]]:
        return CollectBuffer, ()


class CloseableIterator(Iterator[Any]):
    """The elements of a running job, in order of arrival. Closing it early cancels the job.

    An error of the job is raised by `next` after the last element that arrived.
    """

    def __init__(self, buffer: CollectBuffer, submit: Callable[[], JobClient]) -> None:
        self._buffer = buffer
        self._client = submit()
        self._exhausted = False
        self._client.get_job_execution_result().add_done_callback(lambda _: buffer.end())

    def __next__(self) -> Any:
        if self._exhausted:
            raise StopIteration
        taken = self._buffer.take()
        if taken is not None:
            return taken[0]
        self._exhausted = True
        self._client.get_job_execution_result().result()
        raise StopIteration

    def next(self) -> Any:
        """The next element.

        Raises:
            StopIteration: There is none.
        """
        return self.__next__()

    def close(self) -> None:
        """Stop reading; a job that still runs is cancelled."""
        if self._exhausted:
            return
        self._exhausted = True
        if not self._client.get_job_execution_result().done():
            self._client.cancel().result()

    def get_job_client(self) -> JobClient:
        """Handle of the job that produces the elements."""
        return self._client

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
