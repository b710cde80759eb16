"""Structured Streaming DataFrames as sources: one query whose callback hands each micro-batch to the epoch loop.

The query's checkpoint directory is scratch. A position of ours is a blob of a few kB taken inside the
callback: the offsets line of the batch, plus the tail of the file source's log. Restoring writes the blob
into a fresh directory, renumbered to batch 0 and committed, under a fresh query id; the query continues
exactly behind it.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import shutil
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.errors import ExecutionError
from tidemark.operators.base import MIN_WATERMARK
from tidemark.runtime.sources.driver import SourcePoll
from tidemark.runtime.sources.scratch_fs import scratch_location
from tidemark.scratch import ScratchDirectory
from tidemark.slot.vertex import Vertex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkBatchSource", "SparkStreamSource", "pack_position", "unpack_position"]

_log = logging.getLogger(__name__)

_STOP_S = 30.0


class SparkBatchSource:
    """A bounded DataFrame: one epoch reads all of it; the position says whether that has happened."""

    bounded = True

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex
        self._done = False

    def start(self, position: Any | None) -> None:
        """Begin, unless it was read already."""
        self._done = bool(position)

    def poll(self) -> SourcePoll | None:
        """The whole frame, once."""
        return None if self._done else SourcePoll(dataframe=self.vertex.spec.options["dataframe"])

    def advanced(self, positions: dict[int, Any]) -> None:
        """The frame has been processed."""
        self._done = True

    def position(self) -> Any:
        """Whether the frame has been processed."""
        return self._done

    @property
    def ended(self) -> bool:
        """Whether the frame has been processed."""
        return self._done

    def watermark(self) -> tuple[int, bool]:
        """A frame has no watermark of its own."""
        return MIN_WATERMARK, False

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing is released by a checkpoint."""

    def stop(self) -> None:
        """Nothing is held."""


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


class SparkStreamSource:
    """`env.from_spark_stream(df)`."""

    def __init__(self, vertex: Vertex, session: SparkSession, on_input: Callable[[], None]) -> None:
        """Prepare the source.

        Args:
            vertex: The source; its options hold the streaming DataFrame.
            session: Where the query runs.
            on_input: Called in the query's thread when a micro-batch waits.
        """
        self.vertex = vertex
        self.bounded = bool(vertex.spec.bounded)
        self._session = session
        self._on_input = on_input
        self._directory: str | None = None
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
        self._directory = self._scratch.name
        if position is not None:
            unpack_position(position, self._directory)
        writer = (
            self.vertex.spec.options["dataframe"]
            .writeStream.foreachBatch(self._handover)
            .option("checkpointLocation", scratch_location(self._session, self._directory))
        )
        if self.bounded:
            writer = writer.trigger(availableNow=True)
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
        assert self._directory is not None
        self._position = pack_position(self._directory, self._current[1])
        self._current = None
        self._handover.done()

    def position(self) -> Any:
        """The blob behind the last processed micro-batch; None before the first."""
        return self._position

    @property
    def ended(self) -> bool:
        """Whether a bounded query has delivered everything."""
        if not self.bounded or self._current is not None or not self._handover.offered.empty():
            return False
        return self._query is not None and not self._query.isActive and self._query.exception() is None

    def watermark(self) -> tuple[int, bool]:
        """A frame has no watermark of its own."""
        return MIN_WATERMARK, False

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing is released by a checkpoint."""

    def stop(self) -> None:
        """Release the callback, then end the query and remove its scratch directory."""
        query, self._query = self._query, None
        if query is None:
            return
        # stop() waits for the callback, which waits for us: so it runs beside its release. An exception in the
        # callback would end the query as well, but Spark prints it over a page.
        stopping = threading.Thread(target=query.stop, daemon=True)
        stopping.start()
        self._handover.stop()
        stopping.join(_STOP_S)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _check(self) -> None:
        if self._query is not None and not self._query.isActive:
            error = self._query.exception()
            if error is not None:
                raise ExecutionError(
                    f"The Spark stream behind source '{self.vertex.name}' failed: {str(error).splitlines()[0][:500]}",
                    operator_uid=self.vertex.uid,
                ) from error


def pack_position(directory: str, batch_id: int) -> dict[str, Any]:
    """What restores the query behind batch `batch_id`; call it while the callback of that batch waits."""
    with open(os.path.join(directory, "offsets", str(batch_id))) as stream:
        offsets = stream.read()
    logs: dict[str, dict[str, str]] = {}
    sources = os.path.join(directory, "sources")
    if os.path.isdir(sources):
        # The file source numbers its own log; that number, not the batch id, says which entries belong to us.
        last = json.loads(offsets.split("\n")[2])["logOffset"]
        for name in os.listdir(sources):
            logs[name] = _log_tail(os.path.join(sources, name), last)
    return {"offsets": offsets, "sources": logs}


def _log_tail(folder: str, last: int) -> dict[str, str]:
    numbers = {
        entry: int(entry.split(".")[0])
        for entry in os.listdir(folder)
        if not entry.startswith(".") and int(entry.split(".")[0]) <= last
    }
    base = max((number for entry, number in numbers.items() if entry.endswith(".compact")), default=-1)
    kept: dict[str, str] = {}
    for entry, number in numbers.items():
        if number > base or entry == f"{base}.compact":
            with open(os.path.join(folder, entry)) as stream:
                kept[entry] = stream.read()
    return kept


def unpack_position(position: dict[str, Any], directory: str) -> None:
    """Make `directory` the checkpoint of a query that has just committed the packed batch, as batch 0."""
    files = {
        "metadata": json.dumps({"id": str(uuid.uuid4())}),
        "offsets/0": position["offsets"],
        "commits/0": "v1\n{}",
    }
    for name, entries in position["sources"].items():
        files |= {f"sources/{name}/{entry}": text for entry, text in entries.items()}
    for path, text in files.items():
        target = os.path.join(directory, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w") as stream:
            stream.write(text)
