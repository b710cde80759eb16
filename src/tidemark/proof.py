"""What both ends of a connection say to prove that they know the job's token, without the socket.

    server -> client   nonce(32)
    client -> server   nonce(32) | HMAC-SHA256(token, "client" + server nonce + binding)
    server -> client   HMAC-SHA256(token, "server" + client nonce + binding)

A nonce begins with the number of the protocol, 4 bytes: whoever finds another one is talking to another version of
tidemark, and says so. The byte after it, in the server's nonce, says whether the server is bound.

The binding keeps out a relay, another user of the machine who takes a port on which the job is expected and passes
the proofs on to the real one. A server reached at a loopback address is bound to it: its proofs and those it accepts
are about `ip:port`. The client puts in the address it has connected to, which is the relay's. A relay that says
"unbound" instead gets proofs about nothing, which the real server does not accept. Unix sockets, which others
cannot reach, and addresses on a network, which may be translated on the way, are unbound.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from typing import Any, Protocol

from tidemark.errors import TidemarkError

__all__ = ["AuthenticationError", "Challenge", "Response", "own_binding"]

_PROTOCOL = b"TM\x00\x03"
"""Its number changes with the meaning of frames; all ends of a job are of one version."""
_ANOTHER_VERSION = "of another version of tidemark, or none at all; install the same one on both sides"
_NONCE = 32
_DIGEST = 32


class _Connected(Protocol):
    """A connected socket, of TLS or not."""

    @property
    def family(self) -> int:
        """Of its address."""

    def getpeername(self) -> Any:
        """Address of the other end."""

    def getsockname(self) -> Any:
        """Address of this end."""


class AuthenticationError(TidemarkError):
    """The peer does not know the job's token."""


class Challenge:
    """The server's side: send `nonce`, read `PROOF` bytes, send `answer`."""

    PROOF = _NONCE + _DIGEST
    __slots__ = ("_binding", "_token", "nonce")

    def __init__(self, token: bytes, binding: bytes = b"") -> None:
        """Make a nonce; `binding` is `own_binding` of the connection, or nothing."""
        self._token = token
        self._binding = binding
        self.nonce = _nonce(b"\x01" if binding else b"\x00")

    def answer(self, proof: bytes) -> bytes:
        """What to send to a client that sent `proof`.

        Raises:
            AuthenticationError: The client does not know the token, or is of another version, or came through a relay.
        """
        theirs, digest = proof[:_NONCE], proof[_NONCE:]
        if not theirs.startswith(_PROTOCOL):
            raise AuthenticationError(f"The client is {_ANOTHER_VERSION}.")
        if not hmac.compare_digest(digest, _digest(self._token, b"client" + self.nonce + self._binding)):
            raise AuthenticationError(
                "The client does not know the job's token, or connected to another address and was relayed."
            )
        return _digest(self._token, b"server" + theirs + self._binding)


class Response:
    """The client's side: read `NONCE` bytes, send `proof`, read `DIGEST` bytes and `accepts` them or not."""

    NONCE = _NONCE
    DIGEST = _DIGEST
    __slots__ = ("_expected", "bound", "proof")

    def __init__(self, token: bytes, nonce: bytes, sock: _Connected) -> None:
        """Respond to the server's `nonce`, which came over `sock`.

        Raises:
            ConnectionError: The server is of another version.
        """
        if not nonce.startswith(_PROTOCOL):
            raise ConnectionError(f"it is {_ANOTHER_VERSION}")
        self.bound = nonce[len(_PROTOCOL)] != 0
        binding = _endpoint(sock.family, sock.getpeername())[0] if self.bound else b""
        mine = _nonce()
        self.proof = mine + _digest(token, b"client" + nonce + binding)
        self._expected = _digest(token, b"server" + mine + binding)

    def accepts(self, digest: bytes) -> bool:
        """Whether the server knows the token too."""
        return hmac.compare_digest(digest, self._expected)


def own_binding(sock: _Connected) -> bytes:
    """What a server binds the proofs on an accepted socket to: its own loopback address, else nothing."""
    endpoint, loopback = _endpoint(sock.family, sock.getsockname())
    return endpoint if loopback else b""


def _endpoint(family: int, name: tuple[str, int]) -> tuple[bytes, bool]:
    """A socket's address in the one form both ends use, and whether it is a loopback one."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return b"", False
    ip = ipaddress.ip_address(name[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return f"{ip}:{name[1]}".encode(), ip.is_loopback


def _nonce(flag: bytes = b"") -> bytes:
    start = _PROTOCOL + flag
    return start + os.urandom(_NONCE - len(start))


def _digest(token: bytes, message: bytes) -> bytes:
    return hmac.digest(token, message, "sha256")
