"""One frame after the other from a connection, in steps that never wait."""

from __future__ import annotations

import selectors
import ssl
from collections.abc import Generator
from typing import Any, TypeAlias

from tidemark.wire import PREFIX, Connection, Stream, WireClosed, grown

__all__ = ["FrameReader"]

_Frame: TypeAlias = tuple[Any, bytearray]


class FrameReader:
    """Receives the frames of a connection as their bytes arrive; the socket does not block meanwhile."""

    def __init__(self, connection: Connection) -> None:
        """Begin with the first frame of `connection`."""
        self.connection = connection
        self._steps: Generator[int, None, _Frame] | None = None
        self._frame: _Frame | None = None

    @property
    def socket(self) -> Stream:
        """What to watch."""
        return self.connection.socket

    def advance(self) -> int:
        """The event (of `selectors`) to wait for before the next call; 0 when a frame is there.

        Raises:
            WireClosed: The peer is gone, or what it sent is no frame of ours.
        """
        try:
            if self._steps is None:
                self.socket.setblocking(False)
                self._steps = self._receive()
            return next(self._steps)
        except StopIteration as done:
            self._steps, self._frame = None, done.value
        except OSError as exc:
            raise WireClosed(f"{self.connection.address} is gone: {exc}") from exc
        # The answer may be larger than what fits into the buffers of the socket.
        self.socket.setblocking(True)
        return 0

    def take(self) -> _Frame:
        """Header and body of the frame that is there."""
        assert self._frame is not None
        frame, self._frame = self._frame, None
        return frame

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _receive(self) -> Generator[int, None, _Frame]:
        prefix = yield from self._exactly(PREFIX.size)
        head_len, body_len = self.connection.lengths(prefix)
        head = yield from self._exactly(head_len)
        header = self.connection.header(head)
        return header, (yield from self._exactly(body_len))

    def _exactly(self, size: int) -> Generator[int, None, bytearray]:
        buffer, at = grown(bytearray(), size), 0
        while at < size:
            if at == len(buffer):
                buffer = grown(buffer, size)
            try:
                with memoryview(buffer) as view:
                    got = self.socket.recv_into(view[at:])
            except (BlockingIOError, ssl.SSLWantReadError):
                yield selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                yield selectors.EVENT_WRITE
            else:
                if got == 0:
                    raise WireClosed(f"{self.connection.address} closed the connection")
                at += got
        return buffer
