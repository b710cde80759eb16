"""Framed, authenticated sockets between driver, Spark tasks, slots and clients.

Frame: `header_len:u32be | body_len:u64be | header | body`. The header is MessagePack, the body opaque bytes
(a pickle or an Arrow IPC message). Both ends prove that they know the job's token before the first frame
is read, so nothing is ever unpickled from a stranger:

    server -> client   nonce(32)
    client -> server   nonce(32) | HMAC-SHA256(token, "client" + server nonce)
    server -> client   HMAC-SHA256(token, "server" + client nonce)

An address is `unix:<path>` or `tcp:<host>:<port>`.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
from typing import Any

import msgspec

from tidemark.errors import TidemarkError

__all__ = ["AuthenticationError", "Connection", "WireClosed", "connect", "listen"]

_PREFIX = struct.Struct(">IQ")
_NONCE = 32
_DIGEST = 32
_MAX_HEADER = 1 << 26
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

HANDSHAKE_TIMEOUT_S = 10.0
PATIENCE_S = 60.0
"""How long the processes of one job wait for each other's handshake. Whether a slot lives is judged by its
heartbeat, in half that time; a machine that is merely busy must not fail the job."""
_BUFFER = 1 << 20
"""Kernel buffer of unix sockets: a batch should fit, or both ends wake up for every 200 kB."""


class WireClosed(ConnectionError):
    """The peer is gone."""


class AuthenticationError(TidemarkError):
    """The peer does not know the job's token."""


class Connection:
    """One authenticated connection. Sending and receiving may happen in two different threads."""

    __slots__ = ("_socket", "address")

    def __init__(self, sock: socket.socket, address: str) -> None:
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket = sock
        self.address = address

    def send(self, header: Any, body: Any = b"") -> None:
        """Send one frame; `body` is anything with the buffer protocol.

        Raises:
            WireClosed: The peer is gone.
        """
        head = _encode(header)
        view = memoryview(body)
        try:
            if view.nbytes < 1 << 16:
                self._socket.sendall(b"".join((_PREFIX.pack(len(head), view.nbytes), head, view)))
            else:
                self._socket.sendall(_PREFIX.pack(len(head), view.nbytes) + head)
                self._socket.sendall(view)
        except OSError as exc:
            raise WireClosed(f"{self.address} is gone: {exc}") from exc

    def receive(self) -> tuple[Any, bytearray]:
        """Receive one frame as (header, body).

        Raises:
            WireClosed: The peer is gone.
            TimeoutError: Nothing came within the timeout set by `set_timeout`.
        """
        head_len, body_len = _PREFIX.unpack(self._exactly(_PREFIX.size))
        if head_len > _MAX_HEADER:
            raise WireClosed(f"{self.address} sent a frame that is not ours")
        header = _decode(self._exactly(head_len))
        return header, self._exactly(body_len)

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every later receive."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close; a thread blocked in `receive` wakes up with `WireClosed`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        at = 0
        while at < size:
            try:
                got = self._socket.recv_into(view[at:])
            except TimeoutError:
                raise
            except OSError as exc:
                raise WireClosed(f"{self.address} is gone: {exc}") from exc
            if got == 0:
                raise WireClosed(f"{self.address} closed the connection")
            at += got
        return buffer

    def prove(self, token: bytes, *, server: bool, timeout: float = HANDSHAKE_TIMEOUT_S) -> None:
        """Run the handshake of the module docstring; `timeout` bounds each wait for the peer.

        Raises:
            AuthenticationError: The peer does not know the token.
            WireClosed: The peer went away, which is how the other side refuses us.
        """
        self._socket.settimeout(timeout)
        mine = os.urandom(_NONCE)
        if server:
            self._raw(mine)
            theirs = bytes(self._exactly(_NONCE))
            self._check(token, b"client" + mine)
            self._raw(_digest(token, b"server" + theirs))
        else:
            theirs = bytes(self._exactly(_NONCE))
            self._raw(mine + _digest(token, b"client" + theirs))
            self._check(token, b"server" + mine)
        self._socket.settimeout(None)

    def _raw(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as exc:
            raise WireClosed(f"{self.address} is gone: {exc}") from exc

    def _check(self, token: bytes, message: bytes) -> None:
        if not hmac.compare_digest(bytes(self._exactly(_DIGEST)), _digest(token, message)):
            raise AuthenticationError(f"The peer at {self.address} does not know the job's token.")


def _digest(token: bytes, message: bytes) -> bytes:
    return hmac.digest(token, message, "sha256")


def listen(address: str, backlog: int = 512) -> tuple[socket.socket, str]:
    """Bind and listen; port 0 picks one. Returns the socket and the address clients use."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(rest)
        os.chmod(rest, 0o600)
        sock.listen(backlog)
        return sock, address
    host, _, port = rest.rpartition(":")
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, int(port)))
    sock.listen(backlog)
    return sock, f"tcp:{host}:{sock.getsockname()[1]}"


def accept(sock: socket.socket, token: bytes, tls: ssl.SSLContext | None = None) -> Connection:
    """Wrap and authenticate an accepted socket.

    Raises:
        AuthenticationError: The client does not know the token; the socket is closed.
    """
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_side=True)
    connection = Connection(sock, "client")
    try:
        connection.prove(token, server=True)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(
    address: str, token: bytes, timeout: float = HANDSHAKE_TIMEOUT_S, tls: ssl.SSLContext | None = None
) -> Connection:
    """Connect and authenticate.

    Raises:
        WireClosed: Nobody listens there, or the server refused us.
        AuthenticationError: The server does not know the token.
    """
    scheme, _, rest = address.partition(":")
    try:
        if scheme == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            sock.connect(rest)
        else:
            host, _, port = rest.rpartition(":")
            sock = socket.create_connection((host, int(port)), timeout=timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=host)
    except OSError as exc:
        raise WireClosed(f"Cannot reach {address}: {exc}") from exc
    connection = Connection(sock, address)
    try:
        connection.prove(token, server=False, timeout=timeout)
    except BaseException:
        connection.close()
        raise
    return connection
