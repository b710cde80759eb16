"""Driver side of `socket_text_stream` in epochs: the driver reads the socket, tasks get the text.

A connection outlives an epoch, which tasks do not. There is no position: what was read is not sent again.
"""

from __future__ import annotations

from typing import Any

from tidemark.plan.vertex import Vertex
from tidemark.runtime.sources.driver import DriverSource, SourcePoll
from tidemark.runtime.sources.socket_lines import SocketLines
from tidemark.runtime.sources.splits import TextSplit
from tidemark.runtime.worker import Worker

__all__ = ["SocketSource"]

_RECORDS_PER_EPOCH = 10_000
_CHARACTERS_PER_EPOCH = 1 << 20
"""They travel with the description of the epoch, to every task."""


class SocketSource(DriverSource):
    """Takes what has arrived since the last epoch."""

    def __init__(self, vertex: Vertex, worker: Worker) -> None:
        """Prepare the source; `worker` may wait for the network."""
        super().__init__(vertex)
        self._worker = worker
        self._lines: SocketLines | None = None
        self._over = False

    def start(self, position: Any | None) -> None:
        """Connect anew."""
        self.stop()
        self._over = False
        self._lines = SocketLines(self.vertex.spec)

    def poll(self) -> SourcePoll | None:
        """What has arrived."""
        texts = self._worker.call(self._arrived)
        return SourcePoll([TextSplit(tuple(texts))]) if texts else None

    def _arrived(self) -> list[str]:
        texts: list[str] = []
        characters = 0
        while self._lines is not None and characters < _CHARACTERS_PER_EPOCH:
            more = self._lines.read(_RECORDS_PER_EPOCH - len(texts), 0.0)
            if not more:
                # Not over before the last records have gone through the graph.
                self._over = more is None and not texts
                break
            texts += more
            characters += sum(map(len, more))
        return texts

    def advanced(self, positions: dict[int, Any]) -> None:
        """There is nothing to remember."""

    def position(self, checkpoint_id: int | None = None) -> Any:
        """A socket has none."""
        return None

    @property
    def ended(self) -> bool:
        """Whether the other side has closed the connection for good."""
        return self._over

    def stop(self) -> None:
        """Close the connection."""
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()
