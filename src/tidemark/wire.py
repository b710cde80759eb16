"""Framed, authenticated sockets between driver, Spark tasks, slots and clients.

Frame: `header_len:u32be | body_len:u64be | header | body`. The header is MessagePack, the body opaque bytes
(a pickle or an Arrow IPC message). Both ends prove that they know the job's token before the first frame
is read (`tidemark.proof`), so nothing is ever unpickled from a stranger. Nothing else is read from a peer that has
not proved itself, and all of it within one deadline. `connect` is the client's side; the server's side is
`tidemark.rpc.acceptor`. After that frames carry neither a signature nor a cipher, unless the socket is one of TLS.

An address is `unix:<path>` or `tcp:<host>:<port>`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import threading
import time
from typing import Any, TypeAlias

import msgspec

from tidemark.errors import ConfigError, TidemarkError
from tidemark.ports import parse_port_range
from tidemark.proof import AuthenticationError, Response
from tidemark.tls import TlsSocket, check_peer

__all__ = [
    "HANDSHAKE_TIMEOUT_S",
    "MAX_BODY",
    "PREFIX",
    "AuthenticationError",
    "Connection",
    "FrameTooLargeError",
    "SharedConnection",
    "Stream",
    "WireClosed",
    "connect",
    "grown",
    "listen",
]

PREFIX = struct.Struct(">IQ")
"""Lengths of header and body, in front of each frame."""
_MAX_HEADER = 1 << 26
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

HANDSHAKE_TIMEOUT_S = 30.0
PATIENCE_S = 60.0
"""How long the processes of one job wait for each other's handshake. Whether a slot lives is judged by its
heartbeat, in half that time; a machine that is merely busy must not fail the job."""
MAX_BODY = 1 << 32
"""Bytes of the largest body, unless a connection has a limit of its own; more than any batch of records has."""
_AT_ONCE = 1 << 24
"""Bytes allocated on a peer's word alone, more than batches have; a larger frame's buffer doubles when it is full."""
_APART = 1 << 16
"""Bytes of a body that is sent and received by itself; below, a copy costs less than one more system call, behind
each of which a thread has to wait for the interpreter if others use it."""
_BACKLOG = 4096
"""Connections the kernel keeps waiting. Beyond it drops them, honest ones too, which then try again ever later."""
_BUFFER = 1 << 20
"""Kernel buffer of unix sockets: a batch should fit, or both ends wake up for every 200 kB."""


Stream: TypeAlias = socket.socket | TlsSocket
"""What bytes go through."""


class WireClosed(ConnectionError):
    """The peer is gone."""


class FrameTooLargeError(TidemarkError):
    """A frame is larger than its connection allows. Send smaller batches or smaller values."""

    code = "FRAME_TOO_LARGE"


class Connection:
    """One authenticated connection. Sending and receiving may happen in two different threads."""

    __slots__ = ("_max_body", "_socket", "address")

    def __init__(self, sock: Stream, address: str, max_body: int = MAX_BODY) -> None:
        if isinstance(sock, socket.socket) and sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket = sock
        self._max_body = max_body
        self.address = address

    @property
    def socket(self) -> Stream:
        """For whoever waits on several connections at once."""
        return self._socket

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
            if view.nbytes < _APART:
                self._socket.sendall(b"".join((PREFIX.pack(len(head), view.nbytes), head, view)))
            else:
                self._socket.sendall(PREFIX.pack(len(head), view.nbytes) + head)
                self._socket.sendall(view)
        except OSError as exc:
            raise WireClosed(f"{self.address} is gone: {exc}") from exc

    def receive(self) -> tuple[Any, bytearray]:
        """Receive one frame as (header, body).

        Raises:
            WireClosed: The peer is gone, or what it sent is no frame of ours; the connection is of no more use.
            TimeoutError: Nothing came within the timeout set by `set_timeout`.
        """
        head_len, body_len = self.lengths(self._exactly(PREFIX.size))
        if body_len >= _APART:
            return self.header(self._exactly(head_len)), self._exactly(body_len)
        both = self._exactly(head_len + body_len)
        return self.header(both[:head_len]), both[head_len:]

    def lengths(self, prefix: bytearray) -> tuple[int, int]:
        """Lengths of header and body, checked before anything is allocated: they are the peer's word.

        Raises:
            WireClosed: No frame of ours is that long.
        """
        head_len, body_len = PREFIX.unpack(prefix)
        if head_len > min(_MAX_HEADER, self._max_body) or body_len > self._max_body:
            raise WireClosed(f"{self.address} sent a frame that is not ours")
        return head_len, body_len

    def header(self, data: bytearray) -> Any:
        """The header of a frame.

        Raises:
            WireClosed: It is not one of ours.
        """
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise WireClosed(f"{self.address} sent a frame that is not ours: {exc}") from exc

    def readable(self) -> bool:
        """Whether `receive` has something to begin with, or will say that the peer is gone."""
        if isinstance(self._socket, TlsSocket) and self._socket.pending():
            return True
        # Unlike `select`, this works for any number of open descriptors.
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def fileno(self) -> int:
        """What a selector waits for."""
        return self._socket.fileno()

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every later receive."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close; a thread blocked in `receive` wakes up with `WireClosed`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, size: int) -> bytearray:
        """The next bytes. What is allocated follows what has arrived: `size` is the peer's word."""
        buffer = grown(bytearray(), size)
        view = memoryview(buffer)
        at = 0
        while at < size:
            if at == len(buffer):
                view.release()
                buffer = grown(buffer, size)
                view = memoryview(buffer)
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


def grown(buffer: bytearray, size: int) -> bytearray:
    """Room for the next bytes of `size`: at once up to a limit, then twice what has arrived."""
    if not buffer:
        return bytearray(min(size, _AT_ONCE))
    buffer += bytes(min(len(buffer), size - len(buffer)))
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


def listen(address: str, backlog: int = _BACKLOG, *, option: str = "") -> tuple[socket.socket, str]:
    """Bind and listen.

    Args:
        address: Where. A TCP address may name several ports, as port options do (`tcp:host:50100-50200,51234`), of
            which the first free one is taken; 0 is any.
        backlog: Connections the kernel keeps waiting.
        option: Configuration key of the ports, for messages.

    Returns:
        The socket and the address clients use.

    Raises:
        ConfigError: None of the ports is free, or the host is not this one.
        OSError: The path of a unix socket cannot be used.
    """
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        return _bound(socket.AF_UNIX, rest, backlog), address
    host, _, ports = rest.rpartition(":")
    taken: OSError | None = None
    for port in parse_port_range(ports):
        try:
            sock = _bound(socket.AF_INET, (host, port), backlog)
        except OSError as exc:
            taken = exc
        else:
            return sock, f"tcp:{host}:{sock.getsockname()[1]}"
    remedy = f" Give a wider range with {option}." if option else ""
    raise ConfigError(
        f"No free port on {host} among {_shortened(ports)} ({taken}).{remedy}", key=option or None
    )


def _shortened(ports: str) -> str:
    return ports if len(ports) <= 60 else f"{ports[:50]}..."


def _bound(family: int, where: str | tuple[str, int], backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if isinstance(where, tuple):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        if isinstance(where, str):
            os.chmod(where, 0o600)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


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
        raise WireClosed(f"Cannot reach {address}: {_told(exc)}") from exc
    except (ValueError, OverflowError) as exc:
        # An address may come out of a file that anybody wrote.
        raise WireClosed(f"Cannot reach {address[:200]!r}, which is no address: {exc}") from exc
    try:
        _prove(sock, token, address, deadline)
        sock.settimeout(None)
        return Connection(sock, address, max_body)
    except OSError as exc:
        sock.close()
        hint = ""
        if isinstance(exc, TimeoutError) and tls is None and address.startswith("tcp:"):
            hint = "; if it speaks TLS (security.ssl.internal.enabled), this side has to as well"
        raise WireClosed(f"{address} did not let us in: {_told(exc)}{hint}") from exc
    except BaseException:
        sock.close()
        raise


def _told(exc: OSError) -> str:
    """What an error says, with the usual reason where it is one of TLS."""
    if not isinstance(exc, ssl.SSLError):
        return str(exc)
    if exc.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS, as this side does (security.ssl.internal.enabled)"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {exc.verify_message}"
    if "ALERT" in (exc.reason or ""):
        return f"it does not accept our certificate, or we have none ({exc.reason})"
    return str(exc)


def _dial(address: str, deadline: float, tls: ssl.SSLContext | None) -> Stream:
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
        return sock if tls is None else _encrypted(sock, host, deadline, tls)
    except BaseException:
        sock.close()
        raise


def _encrypted(sock: socket.socket, host: str, deadline: float, tls: ssl.SSLContext) -> TlsSocket:
    sock.settimeout(_left(deadline))
    stream = TlsSocket(sock, tls, server_name=host)
    stream.do_handshake()
    check_peer(stream.peer)
    return stream


def _prove(sock: Stream, token: bytes, address: str, deadline: float) -> None:
    """The client's side of the handshake."""
    response = Response(token, _read(sock, Response.NONCE, deadline), sock)
    sock.sendall(response.proof)
    try:
        digest = _read(sock, Response.DIGEST, deadline)
    except ConnectionError as exc:
        hint = (
            "; it wants to be connected to at its own address and port, without a relay"
            if response.bound
            else ""
        )
        raise ConnectionError(f"{exc}: the token is another one{hint}") from exc
    if not response.accepts(digest):
        raise AuthenticationError(f"The peer at {address} does not know the job's token.")


def _read(sock: Stream, size: int, deadline: float) -> bytes:
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
