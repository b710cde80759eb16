"""A TLS connection that one thread may read while another one writes.

The OpenSSL object behind a socket must not be used by two threads at once, and a `ssl.SSLSocket` that blocks in
`recv` keeps it for as long as nothing arrives. So here the socket itself never blocks: an operation takes the lock for
one attempt and waits for the kernel without it.

After `shutdown` a `ssl.SSLSocket` goes on as a socket without TLS: what another thread sends then would leave in the
clear, and what it reads would be taken for frames. Here nothing is sent or read any more.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["TlsSocket"]

T = TypeVar("T")

_PIECE = 1 << 18
"""Bytes that are encrypted while the lock is held: a reader gets its turn between two pieces."""


class TlsSocket:
    """Has the methods of a socket that connections use."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        """Take over `sock`, which waits as long as it takes until `settimeout` says otherwise."""
        sock.setblocking(False)
        self._socket = sock
        self._lock = threading.Lock()
        self._timeout: float | None = None
        self._closed = False
        self.family = sock.family

    def do_handshake(self) -> None:
        """Shake hands, within the timeout in all.

        Raises:
            OSError: The peer is gone, is not believed, or took too long (`TimeoutError`).
        """
        self._attempt(self._socket.do_handshake)

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        return self._attempt(lambda: self._socket.recv(size))

    def recv_into(self, buffer: memoryview) -> int:
        """Fill some of `buffer`; 0 at the end."""
        return self._attempt(lambda: self._socket.recv_into(buffer))

    def send(self, data: Any) -> int:
        """Send some of `data`."""
        piece = memoryview(data)[:_PIECE]
        return self._attempt(lambda: self._socket.send(piece))

    def sendall(self, data: Any) -> None:
        """Send all of `data`; call it from one thread at a time."""
        with memoryview(data) as view, view.cast("B") as whole:
            at = 0
            while at < len(whole):
                at += self.send(whole[at:])

    def pending(self) -> int:
        """Bytes that were decrypted and not read yet, of which no selector tells."""
        with self._lock:
            return 0 if self._closed else self._socket.pending()

    def settimeout(self, seconds: float | None) -> None:
        """Bound each operation; None: wait as long as it takes, 0: do not wait."""
        self._timeout = seconds

    def setblocking(self, flag: bool) -> None:
        """Wait, or raise `ssl.SSLWantReadError` or `ssl.SSLWantWriteError` instead."""
        self._timeout = None if flag else 0.0

    def fileno(self) -> int:
        """What a selector waits for."""
        return self._socket.fileno()

    def getpeername(self) -> Any:
        """Address of the other end."""
        return self._socket.getpeername()

    def shutdown(self, how: int) -> None:
        """Wake whoever waits; nothing is read or sent any more."""
        self._closed = True
        # Not the method of `ssl.SSLSocket`: see above.
        socket.socket.shutdown(self._socket, how)

    def close(self) -> None:
        """Close; idempotent."""
        self._closed = True
        with self._lock:
            self._socket.close()

    def _attempt(self, call: Callable[[], T]) -> T:
        timeout = self._timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                with self._lock:
                    if self._closed:
                        raise ConnectionAbortedError("the connection was closed on this side")
                    return call()
            except ssl.SSLWantReadError:
                event = select.POLLIN
                if timeout == 0:
                    raise
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
                if timeout == 0:
                    raise
            self._wait(event, deadline)

    def _wait(self, event: int, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("timed out")
        poller = select.poll()
        try:
            poller.register(self._socket, event)
        except ValueError:
            raise ConnectionAbortedError("the connection was closed on this side") from None
        poller.poll(None if left is None else left * 1000)
