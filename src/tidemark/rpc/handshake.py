"""The server's side of a handshake as steps that never wait: the proof, behind that of TLS if there is any.

`advance` goes as far as the bytes that have arrived allow and says what it waits for; whoever drives it keeps the
deadline. Not a byte beyond the handshake is read.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

from tidemark.proof import Challenge, own_binding
from tidemark.tls import TlsSocket, check_peer
from tidemark.wire import Stream, WireClosed

__all__ = ["Handshake"]

T = TypeVar("T")
_Steps: TypeAlias = Generator[int, None, T]
"""Yields the event (of `selectors`) it waits for."""


class Handshake:
    """One accepted socket whose peer has still to prove itself."""

    __slots__ = ("_steps", "socket")

    def __init__(self, sock: socket.socket, token: bytes, tls: ssl.SSLContext | None) -> None:
        """Take over `sock`: it is closed by `close`, or belongs to whoever finished the handshake.

        Raises:
            OSError: The peer is gone already; the socket is closed.
        """
        self.socket: Stream = sock
        try:
            sock.setblocking(False)
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    self.socket = TlsSocket(sock, tls)
        except BaseException:
            sock.close()
            raise
        self._steps = _prove(self.socket, token)

    def advance(self) -> int:
        """The event to wait for before the next call; 0 when the peer has proved itself.

        Raises:
            AuthenticationError: The peer does not know the token.
            OSError: It is gone, or does not speak our protocol.
        """
        try:
            return next(self._steps)
        except StopIteration:
            return 0

    def close(self) -> None:
        """Refuse the peer."""
        self.socket.close()


def _prove(sock: Stream, token: bytes) -> _Steps[None]:
    if isinstance(sock, TlsSocket):
        yield from _ready(sock.do_handshake, selectors.EVENT_READ)
        check_peer(sock.peer)
    challenge = Challenge(token, own_binding(sock))
    yield from _send(sock, challenge.nonce)
    proof = b""
    while len(proof) < challenge.PROOF:
        part = yield from _ready(partial(sock.recv, challenge.PROOF - len(proof)), selectors.EVENT_READ)
        if not part:
            raise WireClosed("the client closed the connection before it proved itself")
        proof += part
    yield from _send(sock, challenge.answer(proof))


def _send(sock: Stream, data: bytes) -> _Steps[None]:
    while data:
        sent = yield from _ready(partial(sock.send, data), selectors.EVENT_WRITE)
        data = data[sent:]


def _ready(call: Callable[[], T], event: int) -> _Steps[T]:
    """The result of a call on a socket that does not block, as soon as there is one."""
    while True:
        try:
            return call()
        except BlockingIOError:
            yield event
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE
