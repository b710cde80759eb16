"""Text from a socket, cut into records: what `socket_text_stream` reads, in the driver or in a task."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections import deque

from tidemark.api.specs import SocketSourceSpec
from tidemark.errors import ExecutionError

__all__ = ["SocketLines"]

_log = logging.getLogger(__name__)

_CONNECT_S = 10.0
_RECONNECT_S = 0.5
_CHUNK = 1 << 16


class SocketLines:
    """One connection, made again as often as the source allows. Used by one thread."""

    def __init__(self, spec: SocketSourceSpec) -> None:
        """Connect.

        Raises:
            ExecutionError: Nobody listens there.
        """
        self._spec = spec
        self._delimiter = spec.delimiter.encode()
        self._begun = b""
        """Of a record whose end has not come yet."""
        self._ready: deque[str] = deque()
        self._lost = 0
        self._retry_at = 0.0
        self._over = False
        self._socket: socket.socket | None = self._connect()

    def _connect(self) -> socket.socket:
        host, port = self._spec.host, self._spec.port
        try:
            connection = socket.create_connection((host, port), _CONNECT_S)
        except OSError as exc:
            raise ExecutionError(
                f"The socket source cannot connect to {host}:{port}: {exc}. Start the server before the job."
            ) from exc
        connection.setblocking(False)
        return connection

    def read(self, max_records: int, timeout_s: float) -> list[str] | None:
        """The next records, empty if there are none within the time; None once the connection is closed for good.

        Raises:
            ExecutionError: The connection was lost and cannot be made again.
        """
        if not self._ready and not self._over:
            self._receive(timeout_s)
        if not self._ready and self._over:
            return None
        return [self._ready.popleft() for _ in range(min(max_records, len(self._ready)))]

    def fileno(self) -> int | None:
        """Readable when the other side has sent something; None while there is no connection."""
        return None if self._socket is None else self._socket.fileno()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _receive(self, timeout_s: float) -> None:
        if self._socket is None:
            wait_s = self._retry_at - time.monotonic()
            if wait_s > timeout_s:
                time.sleep(timeout_s)
                return
            time.sleep(max(0.0, wait_s))
            self._socket = self._connect()
            return
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        if not poller.poll(timeout_s * 1000):
            return
        try:
            data = self._socket.recv(_CHUNK)
        except ConnectionError as exc:
            _log.info("The connection to %s:%s broke: %s", self._spec.host, self._spec.port, exc)
            data = b""
        if data:
            self._cut(data)
        else:
            self._closed_by_peer()

    def _cut(self, data: bytes) -> None:
        # Cut as bytes: a chunk may end amid a character, a record never does.
        *whole, self._begun = (self._begun + data).split(self._delimiter)
        self._ready.extend(map(self._text, whole))

    def _text(self, record: bytes) -> str:
        text = record.decode("utf-8", "replace")
        return text.removesuffix("\r") if self._spec.delimiter == "\n" else text

    def _closed_by_peer(self) -> None:
        self.close()
        self._lost += 1
        if self._spec.max_retry < 0 or self._lost < self._spec.max_retry:
            self._retry_at = time.monotonic() + _RECONNECT_S
            return
        self._over = True
        if self._begun:
            self._ready.append(self._text(self._begun))
