"""Structured Streaming DataFrames as sources: one query whose callback hands each micro-batch to the epoch loop.

The query's checkpoint directory is scratch. A position of ours is a blob of a few kB taken from it inside the
callback (`spark_position`); a fresh query started on what it unpacks to continues exactly behind it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tidemark.errors import ExecutionError
from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import DriverSource, SourcePoll
from tidemark.runtime.sources.scratch_fs import scratch_location
from tidemark.runtime.sources.spark_callbacks import protect_callbacks
from tidemark.runtime.sources.spark_file_log import source_roots
from tidemark.runtime.sources.spark_position import pack_initial_position, pack_position, unpack_position
from tidemark.scratch import ScratchDirectory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkBatchSource", "SparkStreamSource"]


_STOP_S = 30.0
_PLAN_S = 120.0
_PLAN_POLL_S = 0.02
_WAITING = "Waiting for data to arrive"
"""What a query says that has looked at its sources and found nothing new."""


class SparkBatchSource(DriverSource):
    """A bounded DataFrame: one epoch reads all of it; the position says whether that has happened."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._done = False

    def start(self, position: Any | None) -> None:
        """Begin, unless it was read already."""
        self._done = position is not None and msgspec.convert(position, bool)

    def poll(self) -> SourcePoll | None:
        """The whole frame, once."""
        return None if self._done else SourcePoll(dataframe=self.vertex.spec.dataframe)

    def advanced(self, positions: dict[int, Any]) -> None:
        """The frame has been processed."""
        self._done = True

    def position(self, checkpoint_id: int | None = None) -> Any:
        """Whether the frame has been processed."""
        return self._done

    @property
    def ended(self) -> bool:
        """Whether the frame has been processed."""
        return self._done


class _Handover:
    """Passes micro-batches from the query's thread to the epoch loop, one at a time."""

    def __init__(self, on_offer: Callable[[], None]) -> None:
        self.offered: queue.Queue[tuple[Any, int]] = queue.Queue()
        self._on_offer = on_offer
        self._taken = threading.Semaphore(0)
        self._stopped = threading.Event()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """The `foreachBatch` callback: offer, then wait until the epoch is done."""
        if self._stopped.is_set():
            return
        self.offered.put((frame, batch_id))
        self._on_offer()
        self._taken.acquire()

    def done(self) -> None:
        """The epoch with the offered batch succeeded."""
        self._taken.release()

    def stop(self) -> None:
        """Let the callback return; it takes no batch any more."""
        self._stopped.set()
        self._taken.release()


class SparkStreamSource(DriverSource):
    """`env.from_spark_stream(df)` of a streaming frame."""

    def __init__(self, vertex: Vertex, session: SparkSession, on_input: Callable[[], None]) -> None:
        """Prepare the source.

        Args:
            vertex: The source; its options hold the streaming DataFrame.
            session: Where the query runs.
            on_input: Called in the query's thread when a micro-batch waits.
        """
        super().__init__(vertex)
        self._session = session
        self._on_input = on_input
        self._scratch: ScratchDirectory | None = None
        self._query: Any = None
        self._handover = _Handover(self._on_input)
        self._position: Any = None
        self._current: tuple[Any, int] | None = None

    def start(self, position: Any | None) -> None:
        """Start a fresh query behind `position`."""
        self._handover = _Handover(self._on_input)
        self._position = position
        self._current = None
        self._scratch = ScratchDirectory("tidemark-query-")
        directory = self._scratch.name
        if position is not None:
            roots = source_roots(self._session, self.vertex.spec.dataframe)
            unpack_position(position, directory, self.vertex.uid, roots)
        protect_callbacks(self._session)
        writer = self.vertex.spec.dataframe.writeStream.foreachBatch(self._handover).option(
            "checkpointLocation", scratch_location(self._session, directory)
        )
        self._query = writer.start()

    def poll(self) -> SourcePoll | None:
        """The micro-batch that is waiting, if any.

        Raises:
            ExecutionError: The query failed.
        """
        if self._current is None:
            try:
                self._current = self._handover.offered.get_nowait()
            except queue.Empty:
                self._check()
                return None
        return SourcePoll(dataframe=self._current[0])

    def advanced(self, positions: dict[int, Any]) -> None:
        """Remember the position behind the batch and let the query go on."""
        assert self._current is not None
        assert self._scratch is not None
        self._position = pack_position(self._scratch.name, self._current[1])
        self._current = None
        self._handover.done()

    def position(self, checkpoint_id: int | None = None) -> Any:
        """The blob behind the last processed micro-batch; before the first, where the query has begun.

        Raises:
            ExecutionError: The query failed, or cannot say in time where it begins.
        """
        if self._position is None and self._query is not None:
            assert self._scratch is not None
            self._await_begin()
            self._position = pack_initial_position(self._scratch.name)
        return self._position

    def _await_begin(self) -> None:
        """Wait until the query has fixed the offsets it begins at: it has planned its first trigger."""
        deadline = time.monotonic() + _PLAN_S
        while self._current is None and self._handover.offered.empty() and self._query.isActive:
            if self._query.status["message"] == _WAITING:
                return
            if time.monotonic() > deadline:
                raise ExecutionError(
                    f"The Spark stream behind source '{self.vertex.name}' has not looked at its input within "
                    f"{_PLAN_S:.0f} s, so no checkpoint can say where it begins. See that the system it reads from "
                    f"answers. It is busy with: {self._query.status['message']}",
                    operator_uid=self.vertex.uid,
                )
            time.sleep(_PLAN_POLL_S)
        self._check()

    @property
    def ended(self) -> bool:
        """A stream has no end."""
        return False

    def stop(self) -> None:
        """Release the callback, then end the query and remove its scratch directory."""
        query, self._query = self._query, None
        if query is None:
            # One that is still about to start, in a thread that was left behind, hands nothing over.
            self._handover.stop()
            return
        # stop() waits for the callback, which waits for us: so it runs beside its release. An exception in the
        # callback would end the query as well, but Spark prints it over a page.
        stopping = threading.Thread(target=query.stop, daemon=True)
        stopping.start()
        self._handover.stop()
        stopping.join(_STOP_S)
        if self._scratch is not None:
            self._scratch.cleanup()

    def _check(self) -> None:
        if self._query is not None and not self._query.isActive:
            error = self._query.exception()
            if error is not None:
                raise ExecutionError(
                    f"The Spark stream behind source '{self.vertex.name}' failed: {str(error).splitlines()[0][:500]}",
                    operator_uid=self.vertex.uid,
                ) from error
