"""Framed, authenticated sockets between driver, Spark tasks, slots and clients.

Frame: `header_len:u32be | body_len:u64be | header | body`. The header is MessagePack, the body opaque bytes
(a pickle or an Arrow IPC message). Both ends prove that they know the job's token before the first frame
is read, so nothing is ever unpickled from a stranger:

    server -> client   nonce(32)
    client -> server   nonce(32) | HMAC-SHA256(token, "client" + server nonce)
    server -> client   HMAC-SHA256(token, "server" + client nonce)

Nothing else is read from a peer that has not proved itself, and all of it within one deadline. `connect` is the
client's side; the server's side is `tidemark.rpc.acceptor`, around `Challenge`. A nonce begins with the number of the
protocol, 4 bytes: whoever finds another one is talking to another version of tidemark, and says so.

An address is `unix:<path>` or `tcp:<host>:<port>`.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
import threading
import time
from typing import Any

import msgspec

from tidemark.errors import TidemarkError

__all__ = [
    "HANDSHAKE_TIMEOUT_S",
    "MAX_BODY",
    "AuthenticationError",
    "Challenge",
    "Connection",
    "FrameTooLargeError",
    "SharedConnection",
    "WireClosed",
    "connect",
    "listen",
]

_PREFIX = struct.Struct(">IQ")
_PROTOCOL = b"TM\x00\x02"
"""Its number changes with the meaning of frames; all ends of a job are of one version."""
_ANOTHER_VERSION = "of another version of tidemark, or none at all; install the same one on both sides"
_NONCE = 32
_DIGEST = 32
_MAX_HEADER = 1 << 26
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

HANDSHAKE_TIMEOUT_S = 30.0
PATIENCE_S = 60.0
"""How long the processes of one job wait for each other's handshake. Whether a slot lives is judged by its
heartbeat, in half that time; a machine that is merely busy must not fail the job."""
MAX_BODY = 1 << 32
"""Bytes of the largest body, unless a connection has a limit of its own; more than any batch of records has."""
_BUFFER = 1 << 20
"""Kernel buffer of unix sockets: a batch should fit, or both ends wake up for every 200 kB."""


class WireClosed(ConnectionError):
    """The peer is gone."""


class AuthenticationError(TidemarkError):
    """The peer does not know the job's token."""


class FrameTooLargeError(TidemarkError):
    """A frame is larger than its connection allows. Send smaller batches or smaller values."""

    code = "FRAME_TOO_LARGE"


class Challenge:
    """The server's side of the handshake, without the socket: send `nonce`, read `PROOF` bytes, send `answer`."""

    PROOF = _NONCE + _DIGEST
    __slots__ = ("_token", "nonce")

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.nonce = _nonce()

    def answer(self, proof: bytes) -> bytes:
        """What to send to a client that sent `proof`.

        Raises:
            AuthenticationError: The client does not know the token, or is of another version.
        """
        theirs, digest = proof[:_NONCE], proof[_NONCE:]
        if not hmac.compare_digest(digest, _digest(self._token, b"client" + self.nonce)):
            raise AuthenticationError("The client does not know the job's token.")
        if not theirs.startswith(_PROTOCOL):
            raise AuthenticationError(f"The client is {_ANOTHER_VERSION}.")
        return _digest(self._token, b"server" + theirs)


class Connection:
    """One authenticated connection. Sending and receiving may happen in two different threads."""

    __slots__ = ("_max_body", "_socket", "address")

    def __init__(self, sock: socket.socket, address: str, max_body: int = MAX_BODY) -> None:
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket = sock
        self._max_body = max_body
        self.address = address

    def send(self, header: Any, body: Any = b"") -> None:
        """Send one frame; `body` is anything with the buffer protocol.

        Raises:
            WireClosed: The peer is gone.
            FrameTooLargeError: The body is larger than frames of this connection may be; nothing was sent.
        """
        head = _encode(header)
        view = memoryview(body)
        if view.nbytes > self._max_body:
            raise FrameTooLargeError(
                f"A frame for {self.address} would have {view.nbytes} bytes; {self._max_body} is the limit."
            )
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
            WireClosed: The peer is gone, or what it sent is no frame of ours; the connection is of no more use.
            TimeoutError: Nothing came within the timeout set by `set_timeout`.
        """
        head_len, body_len = _PREFIX.unpack(self._exactly(_PREFIX.size))
        # Before anything is allocated: the lengths are the peer's word.
        if head_len > _MAX_HEADER or body_len > self._max_body:
            raise WireClosed(f"{self.address} sent a frame that is not ours")
        try:
            header = _decode(self._exactly(head_len))
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise WireClosed(f"{self.address} sent a frame that is not ours: {exc}") from exc
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


class SharedConnection(Connection):
    """The same connection for several threads that send: each frame leaves as a whole."""

    __slots__ = ("_lock",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection._socket, connection.address, connection._max_body)
        self._lock = threading.Lock()

    def send(self, header: Any, body: Any = b"") -> None:
        """Send one frame when no other is being sent; raises what `Connection.send` does."""
        with self._lock:
            super().send(header, body)


def _nonce() -> bytes:
    return _PROTOCOL + os.urandom(_NONCE - len(_PROTOCOL))


def _digest(token: bytes, message: bytes) -> bytes:
    return hmac.digest(token, message, "sha256")


def listen(address: str, backlog: int = 512) -> tuple[socket.socket, str]:
    """Bind and listen; port 0 picks one. Returns the socket and the address clients use."""
    scheme, _, rest = address.partition(":")
    host, _, port = rest.rpartition(":")
    sock = socket.socket(socket.AF_UNIX if scheme == "unix" else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if scheme == "unix":
            sock.bind(rest)
            os.chmod(rest, 0o600)
            sock.listen(backlog)
            return sock, address
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, int(port)))
        sock.listen(backlog)
        return sock, f"tcp:{host}:{sock.getsockname()[1]}"
    except BaseException:
        sock.close()
        raise


def connect(
    address: str,
    token: bytes,
    timeout: float = HANDSHAKE_TIMEOUT_S,
    tls: ssl.SSLContext | None = None,
    max_body: int = MAX_BODY,
) -> Connection:
    """Connect and authenticate, all of it within `timeout` seconds.

    Raises:
        WireClosed: Nobody listens there, the server refused us or is of another version, or it took too long.
        AuthenticationError: The server does not know the token.
    """
    deadline = time.monotonic() + timeout
    try:
        sock = _dial(address, deadline, tls)
    except OSError as exc:
        raise WireClosed(f"Cannot reach {address}: {exc}") from exc
    try:
        _prove(sock, token, address, deadline)
        sock.settimeout(None)
        return Connection(sock, address, max_body)
    except OSError as exc:
        sock.close()
        raise WireClosed(f"{address} did not let us in: {exc}") from exc
    except BaseException:
        sock.close()
        raise


def _dial(address: str, deadline: float, tls: ssl.SSLContext | None) -> socket.socket:
    scheme, _, rest = address.partition(":")
    host, _, port = rest.rpartition(":")
    if scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        sock = socket.create_connection((host, int(port)), timeout=_left(deadline))
    try:
        sock.settimeout(_left(deadline))
        if scheme == "unix":
            sock.connect(rest)
            return sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def _prove(sock: socket.socket, token: bytes, address: str, deadline: float) -> None:
    """The client's side of the handshake."""
    theirs = _read(sock, _NONCE, deadline)
    if not theirs.startswith(_PROTOCOL):
        raise ConnectionError(f"it is {_ANOTHER_VERSION}")
    mine = _nonce()
    sock.sendall(mine + _digest(token, b"client" + theirs))
    if not hmac.compare_digest(_read(sock, _DIGEST, deadline), _digest(token, b"server" + mine)):
        raise AuthenticationError(f"The peer at {address} does not know the job's token.")


def _read(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(_left(deadline))
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("it closed the connection")
        data += part
    return data


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
