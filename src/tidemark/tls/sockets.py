"""A TLS connection that one thread may read while another one writes, with few system calls.

The OpenSSL object behind a connection must not be used by two threads at once, and a TLS socket of Python's that blocks
in `recv` keeps it for as long as nothing arrives. It also reads and writes the kernel's socket a record of 16 kB at a
time, and a peer wakes up for each. So here OpenSSL only works in memory, under a lock, and the socket is read and
written in large pieces without it.

Nothing is ever sent or taken in the clear, also not while another thread closes the connection.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Any

__all__ = ["TlsSocket"]

_PIECE = 1 << 18
"""Bytes that are encrypted, sent or received at a time."""


class TlsSocket:
    """Has the methods of a socket that connections use. One thread at a time may read, one at a time write."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None
    ) -> None:
        """Take over a connected socket.

        Args:
            sock: With the timeout it is to have.
            context: One side of TLS.
            server_name: Whom the client believes to talk to; None: this is the server's side.
        """
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._lock = threading.Lock()
        """Of everything of OpenSSL."""
        self._sending = threading.Lock()
        """What is encrypted first is sent first. Taken before the other lock."""
        self._unsent = b""
        """What the kernel did not take when it must not be waited for."""
        self._received = bytearray(_PIECE)
        self.family = sock.family

    @property
    def peer(self) -> ssl.SSLObject:
        """What is known of the other end, behind the handshake."""
        return self._tls

    def do_handshake(self) -> None:
        """Shake hands, within the timeout in all.

        Raises:
            OSError: The peer is gone, is not believed, or took too long (`TimeoutError`).
        """
        timeout = self._socket.gettimeout()
        deadline = time.monotonic() + timeout if timeout else None
        try:
            while not self._shaken():
                self._flush()
                self._receive(deadline)
        except ssl.SSLError:
            # What TLS tells the peer of why it is refused.
            with contextlib.suppress(OSError):
                self._flush()
            raise
        self._flush()
        self._socket.settimeout(timeout)

    def _shaken(self) -> bool:
        try:
            with self._lock:
                self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, buffer: memoryview) -> int:
        """Fill some of `buffer`; 0 at the end."""
        while True:
            try:
                with self._lock:
                    # With a buffer it tells how much is in it, whatever the types say.
                    size: Any = self._tls.read(len(buffer), buffer)
                    return int(size)
            except ssl.SSLWantReadError:
                self._say_what_is_left()
                self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0

    def _say_what_is_left(self) -> None:
        """TLS itself may have something to say. Whoever sends just now takes it along."""
        if (self._outgoing.pending or self._unsent) and self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(ssl.SSLWantWriteError):
                    self._push()
            finally:
                self._sending.release()

    def send(self, data: Any) -> int:
        """Send some of `data`; what was encrypted counts as sent, and leaves with the next call if it could not."""
        self._flush()
        with memoryview(data) as view, view.cast("B") as whole, whole[:_PIECE] as piece, self._sending:
            self._encrypt(piece)
            with contextlib.suppress(ssl.SSLWantWriteError):
                self._push()
            return len(piece)

    def sendall(self, data: Any) -> None:
        """Send all of `data`."""
        with memoryview(data) as view, view.cast("B") as whole:
            for at in range(0, len(whole), _PIECE):
                with whole[at : at + _PIECE] as piece, self._sending:
                    self._encrypt(piece)
                    self._push()

    def _encrypt(self, piece: memoryview) -> None:
        with self._lock:
            self._tls.write(piece)

    def pending(self) -> int:
        """Bytes that were received and not read yet, of which no selector tells."""
        with self._lock:
            return self._tls.pending() + self._incoming.pending

    def settimeout(self, seconds: float | None) -> None:
        """Bound each operation; None: wait as long as it takes, 0: do not wait."""
        self._socket.settimeout(seconds)

    def setblocking(self, flag: bool) -> None:
        """Wait, or raise `ssl.SSLWantReadError` or `ssl.SSLWantWriteError` instead."""
        self._socket.setblocking(flag)

    def fileno(self) -> int:
        """What a selector waits for."""
        return self._socket.fileno()

    def getpeername(self) -> Any:
        """Address of the other end."""
        return self._socket.getpeername()

    def getsockname(self) -> Any:
        """Address of this end."""
        return self._socket.getsockname()

    def shutdown(self, how: int) -> None:
        """Wake whoever waits; nothing is read or sent any more."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close; idempotent."""
        self._socket.close()

    def _receive(self, deadline: float | None = None) -> None:
        """Take what has arrived, or wait for it."""
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        try:
            size = self._socket.recv_into(self._received)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        with self._lock:
            if size:
                self._incoming.write(memoryview(self._received)[:size])
            else:
                self._incoming.write_eof()

    def _flush(self) -> None:
        with self._sending:
            self._push()

    def _push(self) -> None:
        """Send what was encrypted; `_sending` is held.

        Raises:
            ssl.SSLWantWriteError: The kernel took only some of it, and must not be waited for.
        """
        with self._lock:
            data = self._unsent + self._outgoing.read() if self._unsent else self._outgoing.read()
        if not data:
            return
        if self._socket.gettimeout() != 0:
            self._unsent = b""
            self._socket.sendall(data)
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        self._unsent = data[sent:]
        if self._unsent:
            raise ssl.SSLWantWriteError
